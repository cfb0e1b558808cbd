package memtable

import (
	"bytes"
	"math"

	"github.com/rowandb/rowan/cell"
)

// Deleted says how much of a column in older sources a table deletes.
type Deleted uint8

const (
	DeletedNone Deleted = iota
	DeletedSome         // some timestamps
	DeletedAll
)

// Newest returns the newest version of a column, given as the range of just that one, as of the last change, and how much of
// the column in older sources the table deletes. it is scratch. For callers that no change of the row overtakes.
func (t *Table) Newest(it *Iter, row []byte, col cell.Range) (c cell.Cell, ok bool, deleted Deleted) {
	it.Init(t, math.MaxUint64, cell.IterOptions{Columns: col})
	if !it.SeekExact(row) {
		return c, false, DeletedNone
	}
	s := it.s
	if !s.hideOn {
		e := t.firstFrom(s.row.cells.Load(), &key{b: col.From, ts: math.MaxInt64, seq: math.MaxUint64})
		if e == nil || !bytes.Equal(e.col(), col.From) {
			return c, false, DeletedNone
		}
		s.fill(&c, e)
		return c, true, DeletedNone
	}
	deleted = s.deletedOf(col.From)
	var buf [1]cell.Cell
	if cells := it.Cells(buf[:0]); len(cells) > 0 {
		c, ok = cells[0], true
	}
	return c, ok, deleted
}

// deletedOf looks at the deletes of the current row.
func (s *iter) deletedOf(col []byte) Deleted {
	for i := range s.ranges {
		if s.ranges[i].Contains(col) {
			return DeletedAll
		}
	}
	if s.hide.word == 0 {
		return DeletedNone
	}
	s.dels.start(s.t, s.hide.word)
	s.dels.seek(&key{b: col, ts: math.MaxInt64, seq: math.MaxUint64})
	d := s.nextDelete()
	switch {
	case d == nil || !bytes.Equal(d.col(), col):
		return DeletedNone
	case d.ts == math.MaxInt64 && d.lo() == 0:
		return DeletedAll
	}
	return DeletedSome
}
