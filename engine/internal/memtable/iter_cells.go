package memtable

import (
	"bytes"
	"math"

	"github.com/rowandb/rowan/cell"
)

// SeekCell implements cell.Iter.
func (it *Iter) SeekCell(col []byte, ts int64) {
	s := it.s
	if s == nil || s.row == nil {
		return
	}
	if from := s.opts.Columns.From; bytes.Compare(col, from) < 0 {
		col, ts = from, math.MaxInt64
	}
	s.seekCell(col, ts)
}

func (s *iter) seekCell(col []byte, ts int64) {
	s.walk, s.prev = walkOn, nil
	s.cells.start(s.t, s.row.cells.Load())
	s.cells.seek(&key{b: col, ts: ts, seq: math.MaxUint64})
	if s.hideOn && s.hide.word != 0 {
		// Deletes that begin above ts reach down to it, so start at the column's first.
		s.hide.seek(&key{b: col, ts: math.MaxInt64, seq: math.MaxUint64})
		s.hideCol, s.active = nil, s.active[:0]
	}
}

// Cells implements cell.Iter.
func (it *Iter) Cells(dst []cell.Cell) []cell.Cell {
	if s := it.s; s != nil && s.row != nil {
		return s.nextCells(dst)
	}
	return dst
}

// passMax is how many sequences of a cell are passed over one by one before the cursor seeks behind them: a cell that is written again
// and again has thousands.
const passMax = 8

// nextCells is Cells on a row.
func (s *iter) nextCells(dst []cell.Cell) []cell.Cell {
	if s.walk != walkOn {
		if s.walk == walkDone {
			return dst
		}
		if w := s.row.cells.Load(); w&tagMask == tagEntry && !s.hideOn && s.allCols {
			// The common row of one cell: nothing to merge, nothing to hide.
			e := s.t.entry(w)
			if e.seq <= s.seq {
				if len(dst) == cap(dst) {
					return dst
				}
				dst = append(dst, cell.Cell{})
				s.fill(&dst[len(dst)-1], e)
			}
			s.walk = walkDone
			return dst
		}
		s.seekCell(s.opts.Columns.From, math.MaxInt64)
	}
	for passed := 0; len(dst) < cap(dst); {
		ref := s.cells.ref()
		if ref == 0 {
			break
		}
		e := s.t.entry(ref)
		if e.seq > s.seq {
			if passed++; passed > passMax {
				s.cells.seek(&key{b: e.col(), ts: e.ts, seq: s.seq})
				passed = 0
				continue
			}
			s.cells.next()
			continue
		}
		if to := s.opts.Columns.To; to != nil && bytes.Compare(e.col(), to) >= 0 {
			break
		}
		if p := s.prev; p != nil && p.ts == e.ts && bytes.Equal(p.col(), e.col()) {
			// Written again later.
			if passed++; passed > passMax {
				s.cells.seek(&key{b: e.col(), ts: e.ts})
				passed = 0
				continue
			}
			s.cells.next()
			continue
		}
		s.cells.next()
		s.prev, passed = e, 0
		if s.hideOn && s.hidden(e) {
			continue
		}
		dst = append(dst, cell.Cell{})
		s.fill(&dst[len(dst)-1], e)
	}
	return dst
}

func (s *iter) fill(c *cell.Cell, e *entry) {
	c.Col, c.TS, c.Kind = e.col(), e.ts, e.kind
	if !s.opts.KeysOnly {
		c.Value = e.value()
	}
}

// hidden reports whether a newer visible delete of this table covers e. It is asked in cell order.
func (s *iter) hidden(e *entry) bool {
	col := e.col()
	for i := range s.ranges {
		if r := &s.ranges[i]; r.seq > e.seq && r.Contains(col) {
			return true
		}
	}
	if s.hide.word == 0 {
		return false
	}
	if !bytes.Equal(col, s.hideCol) {
		s.hideCol, s.active = col, s.active[:0]
		for ref := s.hide.ref(); ref != 0 && bytes.Compare(s.t.entry(ref).col(), col) < 0; ref = s.hide.ref() {
			s.hide.next()
		}
	}
	for ref := s.hide.ref(); ref != 0; ref = s.hide.ref() {
		d := s.t.entry(ref)
		if d.ts < e.ts || !bytes.Equal(d.col(), col) {
			break
		}
		if d.seq <= s.seq {
			s.active = append(s.active, seqLow{d.lo(), d.seq})
		}
		s.hide.next()
	}
	hit := false
	keep := s.active[:0]
	for _, a := range s.active {
		if a.lo <= e.ts {
			keep = append(keep, a)
			hit = hit || a.seq > e.seq
		}
	}
	s.active = keep
	return hit
}

// SeekDelete implements cell.Iter.
func (it *Iter) SeekDelete(col []byte) {
	s := it.s
	if s == nil || s.row == nil || !s.hideOn || s.hide.word == 0 {
		return
	}
	if from := s.opts.Columns.From; bytes.Compare(col, from) < 0 {
		col = from
	}
	s.delsOpen = true
	s.dels.start(s.t, s.hide.word)
	s.dels.seek(&key{b: col, ts: math.MaxInt64, seq: math.MaxUint64})
}

// Deletes implements cell.Iter.
func (it *Iter) Deletes(dst []cell.Delete) []cell.Delete {
	s := it.s
	if s == nil || s.row == nil || !s.hideOn || s.hide.word == 0 {
		return dst
	}
	if !s.delsOpen {
		it.SeekDelete(s.opts.Columns.From)
	}
	for len(dst) < cap(dst) {
		e := s.nextDelete()
		if e == nil {
			break
		}
		d := cell.Delete{Col: e.col(), Lo: e.lo(), Hi: e.ts}
		s.dels.next()
		// In order of the upper end, so what overlaps or touches follows directly.
		for d.Lo > 0 {
			f := s.nextDelete()
			if f == nil || f.ts < d.Lo-1 || !bytes.Equal(f.col(), d.Col) {
				break
			}
			d.Lo = min(d.Lo, f.lo())
			s.dels.next()
		}
		// Down to the beginning of time: nothing is left to delete in this column.
		for d.Lo == 0 {
			f := s.nextDelete()
			if f == nil || !bytes.Equal(f.col(), d.Col) {
				break
			}
			s.dels.next()
		}
		dst = append(dst, d)
	}
	return dst
}

// nextDelete is the next visible narrow delete of the columns asked for, without moving past it.
func (s *iter) nextDelete() *entry {
	for ref := s.dels.ref(); ref != 0; ref = s.dels.ref() {
		e := s.t.entry(ref)
		if e.seq <= s.seq {
			if to := s.opts.Columns.To; to != nil && bytes.Compare(e.col(), to) >= 0 {
				return nil
			}
			return e
		}
		s.dels.next()
	}
	return nil
}
