package engine

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync"
	"unsafe"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/io/mapped"
)

// Cell is one cell as a read returns it. Everything in it is the caller's own.
type Cell struct {
	Family    string
	Qualifier string
	Timestamp Timestamp
	Value     []byte
}

// Row is a row with its cells in order: family and qualifier ascending, timestamp descending. A row without cells does not
// exist.
type Row struct {
	Key   string
	Cells []Cell
}

// Latest returns the newest value of a column among the row's cells.
func (r Row) Latest(family, qualifier string) ([]byte, bool) {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Family == family && c.Qualifier == qualifier {
			return c.Value, true
		}
	}
	return nil, false
}

// BorrowedCell is a cell whose bytes belong to the store: they are valid only until the function that was given it
// returns. Copy what is to be kept.
type BorrowedCell struct {
	Row       []byte
	Family    []byte
	Qualifier []byte
	Timestamp Timestamp
	Value     []byte
}

// ReadOption changes a read.
type ReadOption interface{ apply(*readOptions) }

type readOptions struct {
	filter  Filter
	limit   int64
	reverse bool
	raw     bool
	snap    *Snapshot
	err     error
}

type readOption func(*readOptions)

func (f readOption) apply(o *readOptions) { f(o) }

// RowFilter passes only the cells that f passes.
func RowFilter(f Filter) ReadOption { return readOption(func(o *readOptions) { o.filter = f }) }

// LimitRows ends the read after n rows that have a cell left. 0 means no limit.
func LimitRows(n int64) ReadOption {
	return readOption(func(o *readOptions) {
		if o.limit = n; n < 0 {
			o.err = fmt.Errorf("%w: %d", ErrLimit, n)
		}
	})
}

// ReverseScan returns rows in descending order; the cells inside a row keep their order.
func ReverseScan() ReadOption { return readOption(func(o *readOptions) { o.reverse = true }) }

// AtSnapshot reads from a snapshot instead of the present.
func AtSnapshot(s *Snapshot) ReadOption {
	return readOption(func(o *readOptions) {
		if o.snap = s; s == nil {
			o.err = fmt.Errorf("%w: nil snapshot", ErrOption)
		}
	})
}

// Raw turns collection rules off: cells that rules hide but compaction has not removed yet are shown. For tools and tests.
func Raw() ReadOption { return readOption(func(o *readOptions) { o.raw = true }) }

// ReadRow returns a row; one that does not exist has no cells and is no error. Rows of more than Options.RowBytesMax bytes
// give ErrRowTooLarge.
func (t *Table) ReadRow(ctx context.Context, row string, opts ...ReadOption) (out Row, err error) {
	out.Key = row
	if err := checkRow(row); err != nil {
		return out, err
	}
	rd, err := t.begin(ctx, opts)
	if err != nil {
		return out, err
	}
	defer rd.end()
	defer mapped.Leave(mapped.Enter(), &err)
	if rd.prog.empty {
		return out, nil
	}
	m, err := rd.point(bytesOf(row), rd.iterOptions(false), rd.config())
	if err != nil {
		return out, err
	}
	defer closeInto(m, &err)
	rd.db.stats.rowReads.Add(1)
	out.Cells, err = rd.row(m)
	return out, err
}

// ReadRows calls fn for each row of set, in order, until fn returns false. fn may use the store, but must not close it: Close
// waits for reads to end. Rows are copies. Each row is seen whole as of one
// moment; a scan as a whole is one moment too.
func (t *Table) ReadRows(ctx context.Context, set RowSet, fn func(Row) bool, opts ...ReadOption) (err error) {
	if fn == nil {
		return fmt.Errorf("%w: nil function", ErrOption)
	}
	rd, err := t.begin(ctx, opts)
	if err != nil {
		return err
	}
	defer rd.end()
	return rd.each(ctx, set, func(m *merge.Iter) (bool, bool, error) {
		cells, err := rd.guardedRow(m)
		if err != nil || len(cells) == 0 {
			return false, true, err
		}
		return true, fn(Row{Key: string(m.Row()), Cells: cells}), nil
	})
}

// Rows is ReadRows as a sequence. The error, if any, comes last, with an empty row.
func (t *Table) Rows(ctx context.Context, set RowSet, opts ...ReadOption) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		stopped := false
		err := t.ReadRows(ctx, set, func(r Row) bool {
			stopped = !yield(r, nil)
			return !stopped
		}, opts...)
		if err != nil && !stopped {
			yield(Row{}, err)
		}
	}
}

// ReadCellsBorrowed calls fn for each cell of set, in order, until fn returns false. Cells are streamed, so that rows may be
// of any size, and their bytes are the store's: they are valid only until fn returns.
func (t *Table) ReadCellsBorrowed(ctx context.Context, set RowSet, fn func(BorrowedCell) bool, opts ...ReadOption) (err error) {
	if fn == nil {
		return fmt.Errorf("%w: nil function", ErrOption)
	}
	rd, err := t.begin(ctx, opts)
	if err != nil {
		return err
	}
	defer rd.end()
	return rd.each(ctx, set, func(m *merge.Iter) (any, more bool, err error) {
		defer mapped.Leave(mapped.Enter(), &err)
		more = true
		row := m.Row()
		err = rd.cells(m, func(c *cell.Cell) (bool, error) {
			f, _, q, err := cell.SplitColumn(c.Col)
			if err != nil {
				return false, err
			}
			any = true
			more = fn(BorrowedCell{Row: row, Family: f, Qualifier: q, Timestamp: Timestamp(c.TS), Value: c.Value})
			return more, nil
		})
		return any, more, err
	})
}

// reader is one call's read.
type reader struct {
	reading
	opts readOptions
	prog program
	asOf int64
	buf  []cell.Cell
	last []byte // current column, for filters
}

// begin checks the options, pins a state and compiles the filter. Balanced by end.
func (t *Table) begin(ctx context.Context, opts []ReadOption) (*reader, error) {
	rd := readers.Get().(*reader)
	for _, o := range opts {
		if o == nil {
			rd.recycle()
			return nil, fmt.Errorf("%w: nil read option", ErrOption)
		}
		o.apply(&rd.opts)
	}
	if err := rd.opts.err; err != nil {
		rd.recycle()
		return nil, err
	}
	db := t.db
	if err := db.enter(); err != nil {
		rd.recycle()
		return nil, err
	}
	rd.db = db
	if err := rd.pin(ctx, t); err != nil {
		rd.end()
		return nil, err
	}
	rd.prog.table = rd.table
	if rd.opts.filter != nil {
		if err := rd.opts.filter.compile(&rd.prog); err != nil {
			rd.end()
			return nil, err
		}
	}
	return rd, nil
}

func (rd *reader) pin(ctx context.Context, t *Table) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s := rd.opts.snap; s != nil {
		if err := s.use(rd); err != nil {
			return err
		}
	} else {
		rd.st, rd.seq = rd.db.states.pinWith(rd.db.visible)
		rd.asOf = rd.db.clock.now()
	}
	if rd.table = rd.st.tables[t.name]; rd.table == nil {
		return fmt.Errorf("%w: %q", ErrNoTable, t.name)
	}
	return nil
}

func (rd *reader) end() {
	if rd.st != nil {
		rd.st.unref()
	}
	rd.db.leave()
	rd.recycle()
}

// readers keeps the scratch of reads that have ended.
var readers = sync.Pool{New: func() any { return &reader{buf: make([]cell.Cell, 0, 64)} }}

// recycle forgets everything but the scratch.
func (rd *reader) recycle() {
	clear(rd.buf[:cap(rd.buf)]) // it points into blocks
	*rd = reader{buf: rd.buf[:0], last: rd.last[:0], prog: program{steps: rd.prog.steps[:0]}}
	readers.Put(rd)
}

func (rd *reader) iterOptions(scan bool) cell.IterOptions {
	return cell.IterOptions{Columns: rd.prog.cols, NoFill: scan}
}

func (rd *reader) config() merge.Config {
	return merge.Config{Families: rd.table.families, AsOf: rd.asOf, Raw: rd.opts.raw}
}

// each walks the rows of set in the direction asked for. fn reports whether the row had a cell left, and whether to go on.
func (rd *reader) each(ctx context.Context, set RowSet, fn func(m *merge.Iter) (any, more bool, err error)) (err error) {
	spans, err := spansOf(set)
	if err != nil {
		return err
	}
	if rd.prog.empty || len(spans) == 0 {
		return nil
	}
	m := rd.scan(rd.iterOptions(true), rd.config())
	defer closeInto(m, &err)
	rd.db.stats.scans.Add(1)
	left := rd.opts.limit
	for i := range spans {
		s := spans[i]
		if rd.opts.reverse {
			s = spans[len(spans)-1-i]
		}
		ok, err := rd.move(m, func() bool { return rd.seek(m, s) })
		for ; ok && err == nil && s.contains(m.Row()); ok, err = rd.move(m, m.Next) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if rd.db.life.closed.Load() {
				return ErrClosed
			}
			found, more, err := fn(m)
			if err != nil || !more {
				return err
			}
			if found && rd.opts.limit > 0 {
				if left--; left == 0 {
					return nil
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (rd *reader) seek(m *merge.Iter, s span) bool {
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

// move makes a row move with faults in mapped files turned into errors.
func (rd *reader) move(m *merge.Iter, step func() bool) (ok bool, err error) {
	defer mapped.Leave(mapped.Enter(), &err)
	if ok = step(); !ok {
		err = m.Err()
	}
	return ok, err
}

func (rd *reader) guardedRow(m *merge.Iter) (cells []Cell, err error) {
	defer mapped.Leave(mapped.Enter(), &err)
	return rd.row(m)
}

// cells calls fn for each cell of the current row that passes the filter.
func (rd *reader) cells(m *merge.Iter, fn func(*cell.Cell) (bool, error)) error {
	p := &rd.prog
	rd.last = rd.last[:0]
	rest := true
	for {
		rd.buf = m.Cells(rd.buf[:0])
		if len(rd.buf) == 0 {
			return m.Err()
		}
		for i := range rd.buf {
			c := &rd.buf[i]
			if len(p.steps) > 0 {
				if !bytes.Equal(c.Col, rd.last) {
					rd.last = append(rd.last[:0], c.Col...)
					rest = true
					p.newColumn()
				}
				if !rest {
					continue
				}
				var ok bool
				if ok, rest = p.pass(c.TS); !ok {
					continue
				}
			}
			if more, err := fn(c); err != nil || !more {
				return err
			}
		}
	}
}

// row copies the current row's cells out. All strings and values of a row share one allocation, but for a few.
func (rd *reader) row(m *merge.Iter) ([]Cell, error) {
	var out []Cell
	var data []byte
	size := int64(0)
	err := rd.cells(m, func(c *cell.Cell) (bool, error) {
		f, life, q, err := cell.SplitColumn(c.Col)
		if err != nil {
			return false, err
		}
		name := ""
		if fam := rd.table.Family(unsafe.String(&f[0], len(f))); fam != nil && fam.Life == life {
			name = fam.Name
		} else {
			name = string(f)
		}
		n := len(q) + len(c.Value)
		if size += int64(n); size > rd.db.opts.RowBytesMax {
			return false, fmt.Errorf("%w: row %.80q has more than %d bytes", ErrRowTooLarge, m.Row(), rd.db.opts.RowBytesMax)
		}
		if cap(data)-len(data) < n {
			data = make([]byte, 0, max(n, min(2*cap(data), 64<<10), 64)) // earlier cells keep the earlier piece
		}
		at := len(data)
		data = append(append(data, q...), c.Value...)
		e := Cell{Family: name, Timestamp: Timestamp(c.TS), Value: data[at+len(q) : at+n : at+n]}
		if len(q) > 0 {
			e.Qualifier = unsafe.String(&data[at], len(q))
		}
		out = append(out, e)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func closeInto(c interface{ Close() error }, err *error) {
	if e := c.Close(); *err == nil {
		*err = e
	}
}
