package merge

import (
	"bytes"
	"sort"

	"github.com/rowandb/rowan/cell"
)

// Rows is a range of rows [Lo, Hi); a nil Hi is no end.
type Rows struct{ Lo, Hi []byte }

// AddRows merges r into rs, which is disjoint and ascending; the result has the same form.
func AddRows(rs []Rows, r Rows) []Rows {
	out := make([]Rows, 0, len(rs)+1)
	for _, o := range rs {
		switch {
		case o.Hi != nil && bytes.Compare(o.Hi, r.Lo) < 0:
			out = append(out, o)
		case r.Hi != nil && bytes.Compare(r.Hi, o.Lo) < 0:
			out = append(out, r)
			r = o
		default:
			if bytes.Compare(o.Lo, r.Lo) < 0 {
				r.Lo = o.Lo
			}
			if o.Hi == nil || r.Hi != nil && bytes.Compare(o.Hi, r.Hi) > 0 {
				r.Hi = o.Hi
			}
		}
	}
	return append(out, r)
}

// FindRows returns the number of the first of the ranges that does not lie wholly before row, and whether it holds row.
func FindRows(rs []Rows, row []byte) (i int, in bool) {
	i = sort.Search(len(rs), func(i int) bool { return rs[i].Hi == nil || bytes.Compare(rs[i].Hi, row) > 0 })
	return i, i < len(rs) && bytes.Compare(rs[i].Lo, row) <= 0
}

// Masked is a source without some ranges of its rows: nothing of them is there, deletes included.
type Masked struct {
	cell.Iter
	rows []Rows // disjoint, ascending
}

// NewMasked hides rows of it; they are disjoint and ascending.
func NewMasked(it cell.Iter, rows []Rows) *Masked { return &Masked{Iter: it, rows: rows} }

func (m *Masked) First() bool            { return m.forward(m.Iter.First()) }
func (m *Masked) Last() bool             { return m.backward(m.Iter.Last()) }
func (m *Masked) SeekGE(row []byte) bool { return m.forward(m.Iter.SeekGE(row)) }
func (m *Masked) SeekLT(row []byte) bool { return m.backward(m.Iter.SeekLT(row)) }
func (m *Masked) Next() bool             { return m.forward(m.Iter.Next()) }
func (m *Masked) Prev() bool             { return m.backward(m.Iter.Prev()) }

func (m *Masked) forward(ok bool) bool {
	for ok {
		i, in := FindRows(m.rows, m.Row())
		if !in {
			return true
		}
		if m.rows[i].Hi == nil {
			return false
		}
		ok = m.Iter.SeekGE(m.rows[i].Hi)
	}
	return false
}

func (m *Masked) backward(ok bool) bool {
	for ok {
		i, in := FindRows(m.rows, m.Row())
		if !in {
			return true
		}
		if len(m.rows[i].Lo) == 0 {
			return false
		}
		ok = m.Iter.SeekLT(m.rows[i].Lo)
	}
	return false
}

// NextBatch implements cell.Batcher where the source does: it ends before the next hidden row.
func (m *Masked) NextBatch(b *cell.Batch, stop []byte) {
	it, ok := m.Iter.(cell.Batcher)
	if !ok {
		b.Reset()
		return
	}
	if i, _ := FindRows(m.rows, m.Row()); i < len(m.rows) && (stop == nil || bytes.Compare(m.rows[i].Lo, stop) < 0) {
		stop = m.rows[i].Lo
	}
	it.NextBatch(b, stop)
}
