package memtable

import (
	"bytes"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/prefetch"
)

const (
	batchCells = 512  // the row that reaches it is the last of its batch
	batchMax   = 2048 // cells of a larger row are not handed out at once
)

var _ cell.Batcher = (*Iter)(nil)

// NextBatch implements cell.Batcher: rows without deletes, and therefore without anything that is hidden. The bytes live until the
// table is released.
func (it *Iter) NextBatch(b *cell.Batch, stop []byte) {
	b.Reset()
	s := it.s
	if s == nil || s.row == nil || !s.allCols || s.walk != walkFresh || s.hideOn {
		return
	}
	s.ahead = true
	if !s.loaded {
		s.reload()
	}
	row, at := s.row, s.at // the last row that is in the batch; the first one, until that is known to be
	leaf, none := s.leaf, true
	for s.batchRow(b, stop) {
		row, at, leaf, none = s.row, s.at, s.leaf, false
		if len(b.Cells) >= batchCells || !s.forward(s.at+1) {
			break
		}
	}
	if s.leaf != leaf {
		s.loaded, s.leaf, s.h = false, leaf, hdrLatch // of a state that is not known any more
	}
	s.row, s.at, s.hideOn = row, at, false
	if s.walk = walkDone; none {
		s.walk = walkFresh
	}
}

// batchRow appends the current row to b. It refuses one with deletes, of too many cells, or not below stop.
func (s *iter) batchRow(b *cell.Batch, stop []byte) bool {
	if s.hideOn || stop != nil && bytes.Compare(s.row.key(), stop) >= 0 {
		return false
	}
	from := len(b.Cells)
	if w := s.row.cells.Load(); w&tagMask == tagEntry {
		// The common row of one cell: it is as visible as the row.
		b.Cells = append(b.Cells, cell.Cell{})
		c := &b.Cells[from]
		s.fill(c, s.t.entry(w))
	} else {
		for n := -1; n != len(b.Cells) && len(b.Cells)-from <= batchMax; {
			n = len(b.Cells)
			if cap(b.Cells)-n < 64 {
				b.Cells = append(make([]cell.Cell, 0, 2*cap(b.Cells)+256), b.Cells[from:]...)
				n, from = n-from, 0
			}
			b.Cells = s.nextCells(b.Cells)
		}
		if len(b.Cells)-from > batchMax {
			b.Cells = b.Cells[:from]
			return false
		}
	}
	if n := len(b.Cells); n > from {
		b.Rows = append(b.Rows, cell.BatchRow{Key: s.row.key(), Cells: b.Cells[from:n:n]})
	}
	return true
}

// rowBytes is how much of a row's record is asked for ahead of a batch: all of it, if its value is of the usual size.
const rowBytes = 192

// lookAhead asks for the rows of the leaf to the right and for the leaf behind it. They lie anywhere in memory; by the time the rows of
// this leaf are done they are here. What a writer changes meanwhile does no harm: a prefetch of a wrong place is a prefetch in vain.
func (s *iter) lookAhead() {
	if s.right == 0 {
		return
	}
	n := (*node)(s.t.at(s.right))
	h := n.hdr.Load()
	for i := range min(count(h), slots) {
		prefetch.Lines(s.t.at(n.ref(h, i)&refMask), rowBytes)
	}
	if next := n.next.Load(); next != 0 {
		(*node)(s.t.at(next)).touch()
	}
}
