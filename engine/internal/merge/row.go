package merge

import (
	"bytes"
	"math"
	"sort"

	"github.com/rowandb/rowan/cell"
)

// chunk is how many cells are asked of a source at a time when sources are merged cell by cell.
const chunk = 128

// source is one input's state inside the current row.
type source struct {
	it     cell.Iter
	group  int         // deletes speak of sources of the same group only
	buf    []cell.Cell // own, or of whole
	own    []cell.Cell
	ask    int // cells to ask for next; 0: chunk
	pos    int
	used   bool // cells of buf were handed out by the running call of Cells
	done   bool
	passed int         // cells of whole that were read
	whole  []cell.Cell // the row's cells, all of them, where it came in a batch; the iterator stands elsewhere then
	ranges []cell.Range

	// Narrow deletes of the row, as shade over older sources. The cursor only moves forward with the cells.
	dels    []cell.Delete
	delPos  int
	delDone bool
}

// Row merges the cells of one row over several sources, newest first: a cell is dropped when a newer source deletes it or
// has the same (column, timestamp), and when the rules say so.
type Row struct {
	cfg   *Config
	key   []byte
	src   []*source
	shade bool // some source but the oldest has deletes
	gc    collector
	folds folder
	over  []byte // scratch of passOver
}

// passAfter is how many versions of a column are dropped one by one before the rest of it is passed over. A seek costs about as much.
const passAfter = 32

// Start begins a row. The sources stand on it; the newest is first.
func (r *Row) start(key []byte, src []*source) {
	r.key, r.src, r.shade = key, src, false
	r.gc.reset()
	for i, s := range src {
		s.buf, s.pos, s.used, s.done, s.passed = nil, 0, false, false, 0
		s.ask = r.cfg.First
		s.ranges = s.ranges[:0]
		s.dels, s.delPos, s.delDone = s.dels[:0], 0, false
		if s.whole != nil {
			s.delDone = true
			continue
		}
		if oldest(src, i) {
			continue // it shades nobody
		}
		s.ranges = s.it.Ranges(s.ranges)
		s.fillDeletes()
		if len(s.ranges) > 0 || len(s.dels) > 0 {
			r.shade = true
		}
	}
}

// forget drops everything but memory that can be used again.
func (r *Row) forget() {
	col := r.gc.col[:0]
	*r = Row{gc: collector{col: col}, folds: folder{room: r.folds.room[:0]}, over: r.over[:0]}
}

// oldest reports whether source i is the oldest of its group.
func oldest(src []*source, i int) bool { return i == len(src)-1 || src[i+1].group != src[i].group }

func (s *source) fillDeletes() {
	if cap(s.dels) == 0 {
		s.dels = make([]cell.Delete, 0, 16)
	}
	s.dels, s.delPos = s.it.Deletes(s.dels[:0]), 0
	s.delDone = len(s.dels) == 0
}

// seek places every source at (col, ts). Ranks are counted from there, so col's head must be given to keep rules right.
func (r *Row) seek(col []byte, ts int64) {
	r.gc.reset()
	for _, s := range r.src {
		if s.whole != nil {
			s.passed = sort.Search(len(s.whole), func(i int) bool { return cell.Compare(s.whole[i].Col, s.whole[i].TS, col, ts) >= 0 })
		} else {
			s.it.SeekCell(col, ts)
		}
		s.ask = r.cfg.First
		s.buf, s.pos, s.used, s.done = nil, 0, false, false
	}
	r.reshade(col)
}

// passOver moves on to the next column, if the rest of the current one is dropped and it pays. None of the cells that the running call
// of Cells has handed out may be left.
func (r *Row) passOver() {
	if !r.cfg.Pass || r.gc.dropped < passAfter || !r.gc.rest {
		return
	}
	r.over = append(append(r.over[:0], r.gc.col...), 0) // the least column behind it
	r.seek(r.over, math.MaxInt64)
}

// reshade places the delete cursors of all shading sources at col.
func (r *Row) reshade(col []byte) {
	if !r.shade {
		return
	}
	for i, s := range r.src {
		if s.whole != nil || oldest(r.src, i) {
			continue
		}
		s.it.SeekDelete(col)
		s.fillDeletes()
	}
}

// Cells appends the row's next live cells while dst has spare capacity. None means the row is done, or an error (Err). The
// appended cells are valid until the next call of Cells or a row move.
func (r *Row) Cells(dst []cell.Cell) []cell.Cell {
	if len(r.src) == 1 {
		return r.single(dst)
	}
	for _, s := range r.src {
		s.used = false
	}
	for start := len(dst); len(dst) < cap(dst) && r.gc.err == nil && r.folds.err == nil; {
		if len(dst) == start {
			r.passOver()
		}
		win, next, same := -1, -1, false // the source with the least cell, the one after it, whether an older one has it too
		for i, s := range r.src {
			if s.pos == len(s.buf) {
				if s.done {
					continue
				}
				if s.used {
					return dst // refilling would pull bytes from under cells just handed out
				}
				if !s.fill() {
					continue
				}
			}
			if win < 0 {
				win = i
				continue
			}
			c, w := &s.buf[s.pos], &r.src[win].buf[r.src[win].pos]
			switch d := cell.Compare(c.Col, c.TS, w.Col, w.TS); {
			case d == 0:
				same = true
			case d < 0:
				win, next, same = i, win, false
			case next < 0 || before(c, &r.src[next].buf[r.src[next].pos]):
				next = i
			}
		}
		if win < 0 {
			break
		}
		if same {
			dst = r.takeSame(dst, win)
		} else { // nor has any other source a cell that take comes to
			dst = r.take(dst, win, next)
		}
	}
	return dst
}

func before(a, b *cell.Cell) bool { return cell.Compare(a.Col, a.TS, b.Col, b.TS) < 0 }

// take moves cells of source win to dst while they come before the least cell of every other source.
func (r *Row) take(dst []cell.Cell, win, next int) []cell.Cell {
	s := r.src[win]
	var stop *cell.Cell
	if next >= 0 {
		stop = &r.src[next].buf[r.src[next].pos]
	}
	for first := true; s.pos < len(s.buf) && len(dst) < cap(dst); first = false {
		c := &s.buf[s.pos]
		if !first && stop != nil && !before(c, stop) {
			break
		}
		s.pos++
		if r.shade && win > 0 && r.shaded(win, c) {
			continue
		}
		if !r.cfg.plain() && !r.gc.keep(r.key, c) {
			if r.gc.err != nil {
				return dst
			}
			continue
		}
		s.used = true
		dst = append(dst, *c)
	}
	return dst
}

func (s *source) fill() bool {
	if s.whole != nil {
		s.buf, s.passed = s.whole[s.passed:], len(s.whole)
	} else {
		n := chunk
		if s.ask > 0 {
			n = min(s.ask, chunk)
			s.ask = 4 * n
		}
		if cap(s.own) < n {
			s.own = make([]cell.Cell, 0, n)
		}
		s.own = s.it.Cells(s.own[:0:n])
		s.buf = s.own
	}
	s.pos, s.done = 0, len(s.buf) == 0
	return !s.done
}

// shaded reports whether a source newer than the i-th, of its group, deletes c.
func (r *Row) shaded(i int, c *cell.Cell) bool {
	group := r.src[i].group
	for _, s := range r.src[:i] {
		if s.group != group {
			continue
		}
		for _, w := range s.ranges {
			if w.Contains(c.Col) {
				return true
			}
		}
		for !s.delDone {
			if s.delPos == len(s.dels) {
				s.fillDeletes()
				continue
			}
			d := &s.dels[s.delPos]
			x := bytes.Compare(d.Col, c.Col)
			if x > 0 || x == 0 && d.Lo <= c.TS {
				if x == 0 && c.TS <= d.Hi {
					return true
				}
				break
			}
			s.delPos++
		}
	}
	return false
}

// cells is Iter.Cells of the source.
func (s *source) cells(dst []cell.Cell) []cell.Cell {
	if s.whole == nil {
		return s.it.Cells(dst)
	}
	n := min(len(s.whole)-s.passed, cap(dst)-len(dst))
	dst = append(dst, s.whole[s.passed:s.passed+n]...)
	s.passed += n
	return dst
}

// single is Cells for the common case of one source: nothing to merge, only rules.
func (r *Row) single(dst []cell.Cell) []cell.Cell {
	s := r.src[0]
	if r.cfg.plain() {
		return s.cells(dst)
	}
	for r.gc.err == nil {
		r.passOver()
		start := len(dst)
		dst = s.cells(dst)
		if len(dst) == start {
			break
		}
		kept := start
		for i := start; i < len(dst); i++ {
			if r.gc.keep(r.key, &dst[i]) {
				if kept != i {
					dst[kept] = dst[i]
				}
				kept++
			}
			if r.gc.err != nil {
				break
			}
		}
		dst = dst[:kept]
		if kept > start {
			break
		}
	}
	return dst
}

// refused is what the rules or the folding found wrong with a cell.
func (r *Row) refused() error {
	if r.gc.err != nil {
		return r.gc.err
	}
	return r.folds.err
}

func (r *Row) err() error {
	if err := r.refused(); err != nil {
		return err
	}
	for _, s := range r.src {
		if err := s.it.Err(); err != nil {
			return err
		}
	}
	return nil
}
