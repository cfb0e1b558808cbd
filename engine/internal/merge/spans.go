package merge

import (
	"bytes"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/levels"
)

// spanner is an iterator that can hand out rows by the block. See sstable.Iter for what Span does.
type spanner interface {
	cell.Iter
	Span(sp *block.Span, stop []byte, back bool) bool
}

// Span hands out rows of the current file where its iterator does. A row with pieces in several files ends them.
func (r *Run) Span(sp *block.Span, stop []byte, back bool) bool {
	if r.multi || r.err != nil || r.cur == nil {
		return false
	}
	it, ok := r.cur.(spanner)
	if !ok {
		return false
	}
	b := &r.files[r.at].Bounds
	switch n := r.at + 1; {
	case back && r.at > 0 && bytes.Equal(r.files[r.at-1].Bounds.HiRow, b.LoRow):
		if after := append(append(make([]byte, 0, len(b.LoRow)+1), b.LoRow...), 0); bytes.Compare(after, stop) > 0 {
			stop = after
		}
	case !back && n < len(r.files) && bytes.Equal(r.files[n].Bounds.LoRow, b.HiRow):
		if stop == nil || bytes.Compare(b.HiRow, stop) < 0 {
			stop = b.HiRow
		}
	}
	return it.Span(sp, stop, back)
}

// Span hands out rows up to the next hidden one where the source does.
func (m *Masked) Span(sp *block.Span, stop []byte, back bool) bool {
	it, ok := m.Iter.(spanner)
	if !ok {
		return false
	}
	i, _ := FindRows(m.rows, m.Row()) // the row itself is not hidden
	switch {
	case back && i > 0:
		if hi := m.rows[i-1].Hi; bytes.Compare(hi, stop) > 0 {
			stop = hi
		}
	case !back && i < len(m.rows):
		if lo := m.rows[i].Lo; stop == nil || bytes.Compare(lo, stop) < 0 {
			stop = lo
		}
	}
	return it.Span(sp, stop, back)
}

// Reset makes r a source over other files, reusing its memory. It must have been closed.
func (r *Run) Reset(files []*levels.File, open OpenFile) {
	*r = Run{files: files, open: open, at: -1, row: r.row[:0], keep: r.keep[:0]}
}
