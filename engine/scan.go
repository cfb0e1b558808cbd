package engine

import (
	"slices"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/io/mapped"
)

// rowSink takes the rows of a scan. The bytes of both calls are the store's.
type rowSink interface {
	// row takes the current row of m, and reports whether it had a cell left and whether more rows are wanted.
	row(rd *reader, m *merge.Scan) (any, more bool, err error)
	// run takes the rows that are left in r, and returns how many had a cell. r.limit bounds those.
	run(rd *reader, r *rowRun) (rows int64, more bool, err error)
}

// rowRun is a run of rows of a block that one source has alone, in the direction of the scan. The rules have not been asked yet.
type rowRun struct {
	sp       *block.Span
	from, to int // rows [from, to)
	back     bool
	limit    int64 // rows with cells that are wanted; 0: all
	*runSource
	sources []runSource
	strip   block.Strip
}

// runSource is what is kept of a source while runs of others come between.
type runSource struct {
	dict    uint32   // name of the dictionary of its block
	columns []column // of that, as far as they are known
	key     []byte   // the block's prefix and room for a suffix
	prefix  int
	inside  bool // all rows of the block lie in the range that is being read
	checked bool // that is known
}

// column is what a scan knows of a column of a dictionary.
type column struct {
	known             bool
	verdict           merge.Verdict
	family, qualifier []byte
	life              uint64
	// The same as strings, for copies.
	familyName, qualifierName string
	named                     bool
}

// reset forgets all but the memory.
func (r *rowRun) reset() {
	for i := range r.sources {
		s := &r.sources[i]
		clear(s.columns[:cap(s.columns)])
		if s.columns = s.columns[:0]; cap(s.columns) > scratchCells {
			s.columns = nil
		}
		if cap(s.key) > bufferKeep {
			s.key = nil
		}
		s.dict, s.checked = 0, false
	}
	r.sp, r.runSource, r.sources = nil, nil, r.sources[:0]
}

// begin prepares for a number of sources.
func (r *rowRun) begin(sources int) {
	r.sources = slices.Grow(r.sources[:0], sources)[:sources]
}

// set makes r the rows [from, to) of sp, which is of source n.
func (r *rowRun) set(sp *block.Span, n, from, to int) {
	s := &r.sources[n]
	r.sp, r.runSource, r.from, r.to = sp, s, from, to
	if s.dict == sp.Dict {
		return
	}
	s.dict, s.checked = sp.Dict, false
	p := sp.Keys.Prefix()
	s.key, s.prefix = append(slices.Grow(s.key[:0], len(p)+32), p...), len(p)
	cols := sp.Keys.Cols
	if cap(s.columns) < cols {
		s.columns = make([]column, cols, max(cols, 32))
		return
	}
	s.columns = s.columns[:cols]
	clear(s.columns)
}

// clip takes off the rows at the far end that lie outside s, and reports whether there were any.
func (r *rowRun) clip(s span) (ended bool) {
	k := r.sp.Keys
	if !r.checked {
		r.checked = true
		if r.back {
			r.inside = len(s.lo) == 0 || k.CompareRow(0, s.lo) >= 0
		} else {
			r.inside = s.hi == nil || k.CompareRow(k.Rows-1, s.hi) < 0
		}
	}
	if r.inside {
		return false
	}
	if r.back {
		if len(s.lo) > 0 && k.CompareRow(r.from, s.lo) < 0 {
			n, _ := k.SearchRow(s.lo)
			r.from = min(max(r.from, n), r.to)
			return true
		}
		return false
	}
	if s.hi != nil && k.CompareRow(r.to-1, s.hi) >= 0 {
		n, _ := k.SearchRow(s.hi)
		r.to = max(min(r.to, n), r.from)
		return true
	}
	return false
}

// bufferKeep bounds the memory that is kept for the key of the next scan.
const bufferKeep = 64 << 10

// aliveRows is how many rows go between two looks at whether the caller has given up.
const aliveRows = 64

// each walks the rows of set in the direction asked for and hands them to out. Runs of rows are used where nothing has to be
// known of each cell.
func (rd *reader) each(set RowSet, out rowSink) (err error) {
	spans, err := spansOf(rd.spans, set)
	if err != nil {
		return err
	}
	if rd.spans = spans[:0]; cap(spans) > 64 {
		rd.spans = nil
	}
	spans = rd.opts.behind(spans)
	if rd.filtered {
		if rd.prog.Empty() {
			spans = nil
		}
		spans = within(spans, rd.prog.Rows)
	}
	if len(spans) == 0 {
		rd.ended(nil)
		return nil
	}
	m := &rd.joined
	rd.scan(m, &rd.sources, rd.iterOptions(true), rd.config())
	defer closeInto(m, &err)
	defer mapped.Leave(mapped.Enter(), &err)
	rd.db.stats.scans.Add(rd.slot, 1)
	runs := !rd.opts.rowByRow && !rd.filtered && !rd.page.track && rd.opts.page.after.Row == ""
	r := &rd.rows
	r.begin(len(rd.sources.list))
	taken := uint64(0)
	defer func() {
		if taken > 0 {
			rd.db.stats.runs.Add(rd.slot, int64(taken))
		}
	}()
	r.back, r.limit = rd.opts.reverse, rd.opts.limit
	for i := range spans {
		s := spans[i]
		if rd.opts.reverse {
			s = spans[len(spans)-1-i]
		}
		for j := range r.sources {
			r.sources[j].checked = false
		}
		asked := 0
		for ok := rd.seek(m, s); ok; ok = m.Next() {
			if asked--; asked <= 0 {
				if err := rd.alive(); err != nil {
					return err
				}
				asked = aliveRows
			}
			if runs {
				if sp, n, from, to := m.Run(); sp != nil {
					taken++
					r.set(sp, n, from, to)
					ended := r.clip(s)
					rows, more, err := out.run(rd, r)
					if err != nil || !more {
						return err
					}
					if r.limit > 0 {
						if r.limit -= rows; r.limit == 0 {
							return nil
						}
					}
					if ended {
						break
					}
					asked -= to - from
					continue
				}
			}
			if !s.contains(m.Row()) {
				break
			}
			found, more, err := out.row(rd, m)
			if err != nil {
				return err
			}
			if found && r.limit > 0 {
				r.limit--
				more = more && r.limit > 0
			}
			if !more || rd.page.full {
				rd.ended(m.Row())
				return nil
			}
		}
		if err := m.Err(); err != nil {
			return err
		}
	}
	rd.ended(nil)
	return nil
}

// column returns what is known of column number code of the block.
func (r *rowRun) column(rd *reader, code int) (*column, error) {
	c := &r.columns[code]
	if c.known {
		return c, nil
	}
	return c, r.learn(rd, c, code)
}

func (rd *reader) seek(m *merge.Scan, s span) bool {
	switch {
	case !rd.opts.reverse && len(s.lo) == 0:
		return m.First()
	case !rd.opts.reverse:
		return m.SeekGE(s.lo)
	case s.hi == nil:
		return m.Last()
	}
	return m.SeekLT(s.hi)
}
