package merge

import (
	"bytes"

	"github.com/rowandb/rowan/cell"
)

// DeleteStream walks the union of a row's narrow deletes over all sources, column by column.
type DeleteStream struct {
	m    *Iter
	cur  []deleteCursor
	wide []cell.Range // what they cover needs no narrow delete
}

type deleteCursor struct {
	it   cell.Iter
	buf  []cell.Delete
	pos  int
	done bool
}

// Deletes starts a stream at col. It shares the sources' delete cursors with the cells of the row: use it when those have
// been read, or before the next SeekCell. wide are ranges that make narrow deletes inside them needless.
func (m *Iter) Deletes(col []byte, wide []cell.Range) *DeleteStream {
	d := &DeleteStream{m: m, wide: wide}
	for _, s := range m.row.src {
		if s.whole != nil {
			continue // a row of a batch has no deletes
		}
		c := deleteCursor{it: s.it, buf: make([]cell.Delete, 0, 16)}
		s.it.SeekDelete(col)
		c.fill()
		if !c.done {
			d.cur = append(d.cur, c)
		}
	}
	return d
}

func (c *deleteCursor) fill() {
	c.buf, c.pos = c.it.Deletes(c.buf[:0]), 0
	c.done = len(c.buf) == 0
}

// Next returns the disjoint time ranges of the next column that has any, sorted by Hi descending; nil at the end. Valid
// until the next row move.
func (d *DeleteStream) Next(dst []cell.Delete) []cell.Delete {
	for {
		var col []byte
		for i := range d.cur {
			c := &d.cur[i]
			if !c.done && (col == nil || bytes.Compare(c.buf[c.pos].Col, col) < 0) {
				col = c.buf[c.pos].Col
			}
		}
		if col == nil {
			return nil
		}
		dst = dst[:0]
		for i := range d.cur {
			c := &d.cur[i]
			for !c.done && bytes.Equal(c.buf[c.pos].Col, col) {
				dst = cell.AddDelete(dst, col, c.buf[c.pos].Lo, c.buf[c.pos].Hi)
				if c.pos++; c.pos == len(c.buf) {
					c.fill()
				}
			}
		}
		if !covered(d.wide, col) {
			return dst
		}
	}
}

func covered(wide []cell.Range, col []byte) bool {
	for _, w := range wide {
		if w.Contains(col) {
			return true
		}
	}
	return false
}

// Reshade puts the sources' delete cursors back for cells from col on, after a DeleteStream has used them.
func (m *Iter) Reshade(col []byte) { m.row.reshade(col) }
