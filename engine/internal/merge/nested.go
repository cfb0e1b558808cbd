package merge

import (
	"bytes"
	"math"

	"github.com/rowandb/rowan/cell"
)

// Nested is a merge as a source of another one: its cells are those that its own rules keep, its deletes the union of what
// its sources delete. It is used where old sources must have gone through a rule of theirs before newer ones are looked at.
type Nested struct {
	m     *Iter
	key   []byte // scratch of turns
	dels  *DeleteStream
	buf   []cell.Delete // of one column, from pos on still to be handed out
	pos   int
	moved bool   // the delete cursors are not where the cells want them
	col   []byte // of the last cell handed out, if moved may get true
	// Cells before (from, ts) are left out: the merge was placed at the head of the column, so that ranks are right.
	from []byte
	ts   int64
	skip bool
}

// NewNested makes a merge a source. Close closes it.
func NewNested(m *Iter) *Nested { return &Nested{m: m} }

func (n *Nested) reset(ok bool) bool {
	n.dels, n.buf, n.pos, n.moved, n.skip = nil, n.buf[:0], 0, false, false
	n.col = n.col[:0]
	return ok
}

func (n *Nested) First() bool            { return n.reset(n.m.First()) }
func (n *Nested) Last() bool             { return n.reset(n.m.Last()) }
func (n *Nested) SeekGE(row []byte) bool { return n.reset(n.m.SeekGE(row)) }
func (n *Nested) SeekLT(row []byte) bool { return n.reset(n.m.SeekLT(row)) }

func (n *Nested) Next() bool {
	if n.m.back {
		n.key = append(n.key[:0], n.m.Row()...)
		if ok := n.m.SeekGE(n.key); !ok || !bytes.Equal(n.m.Row(), n.key) {
			return n.reset(ok)
		}
	}
	return n.reset(n.m.Next())
}

func (n *Nested) Prev() bool {
	if !n.m.back {
		n.key = append(n.key[:0], n.m.Row()...)
		return n.reset(n.m.SeekLT(n.key))
	}
	return n.reset(n.m.Next())
}

func (n *Nested) Row() []byte { return n.m.Row() }

func (n *Nested) Ranges(dst []cell.Range) []cell.Range { return n.m.Ranges(dst) }

// SeekCell places the cursor so that ranks are counted from the head of the column.
func (n *Nested) SeekCell(col []byte, ts int64) {
	n.m.SeekCell(col, math.MaxInt64)
	n.dels, n.moved = nil, false
	n.col = append(n.col[:0], col...)
	if n.skip = ts != math.MaxInt64; n.skip {
		n.from, n.ts = append(n.from[:0], col...), ts
	}
}

func (n *Nested) Cells(dst []cell.Cell) []cell.Cell {
	if n.moved {
		n.m.Reshade(n.col)
		n.dels, n.moved = nil, false
	}
	at := len(dst)
	for {
		dst = n.m.Cells(dst)
		if len(dst) == at {
			return dst
		}
		if n.skip {
			cut := at
			for cut < len(dst) && dst[cut].TS > n.ts && bytes.Equal(dst[cut].Col, n.from) {
				cut++
			}
			if cut == len(dst) {
				dst = dst[:at]
				continue
			}
			n.skip = false
			dst = dst[:at+copy(dst[at:], dst[cut:])]
		}
		if n.m.row.shade {
			n.col = append(n.col[:0], dst[len(dst)-1].Col...)
		}
		return dst
	}
}

func (n *Nested) SeekDelete(col []byte) {
	n.dels = n.m.Deletes(col, nil)
	n.buf, n.pos, n.moved = n.buf[:0], 0, true
}

func (n *Nested) Deletes(dst []cell.Delete) []cell.Delete {
	if n.dels == nil {
		n.SeekDelete(nil)
	}
	for len(dst) < cap(dst) {
		if n.pos == len(n.buf) {
			n.buf, n.pos = n.dels.Next(n.buf[:0]), 0
			if len(n.buf) == 0 {
				break
			}
		}
		k := copy(dst[len(dst):cap(dst)], n.buf[n.pos:])
		dst, n.pos = dst[:len(dst)+k], n.pos+k
	}
	return dst
}

func (n *Nested) Err() error   { return n.m.Err() }
func (n *Nested) Close() error { return n.m.Close() }
