package filter

import (
	"bytes"

	"github.com/rowandb/rowan/cell"
)

// columns reports whether c's column passes, and if not, which may be the next.
func (n *node) columns(c *cell.Cell, column uint64, s *scratch) (hint, bool) {
	if n.since == column && n.ok {
		return hint{}, true
	}
	n.since = column
	if n.op == QualifierPattern {
		switch n.memo.get(c) {
		case passed:
			n.ok = true
			return hint{}, true
		case refused:
			n.ok = false
			return hint{want: wantColumn}, false
		}
	}
	i, ok := n.cols.find(c.Col)
	h := hint{want: wantColumn}
	switch {
	case i == len(n.cols):
		h.want = wantNone
	case !ok:
		h = hint{want: wantFrom, from: &n.cols[i]}
	case n.op == QualifierPattern:
		_, _, q, err := cell.SplitColumn(c.Col)
		ok = err == nil && n.pat.match(q, s)
		n.memo.put(c, ok)
	}
	n.ok = ok
	return h, ok
}

// rowTest decides about the row once.
func (p *Program) rowTest(n *node) bool {
	if n.since != p.run.rowID {
		n.since = p.run.rowID
		if n.op == RowSample {
			n.ok = SampleHash(p.run.row, n.seed) < n.below
		} else {
			n.ok = n.pat.match(p.run.row, &p.scratch)
		}
	}
	return n.ok
}

// value reports whether a value passes.
func (n *node) value(v []byte, s *scratch) bool {
	switch n.op {
	case ValuePattern:
		return n.pat.match(v, s)
	case Values:
		return bytes.Compare(n.from, v) <= 0 && (n.to == nil || bytes.Compare(v, n.to) < 0)
	}
	if len(v) != len(n.from) {
		return false
	}
	return masked(v, n.from)
}

// masked reports whether v has all bits of mask.
func masked(v, mask []byte) bool {
	for i, m := range mask {
		if v[i]&m != m {
			return false
		}
	}
	return true
}
