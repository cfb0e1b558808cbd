package filter

import (
	"bytes"
	"cmp"

	"github.com/rowandb/rowan/cell"
)

// want says which cells come next that a program has a use for.
type want uint8

const (
	wantNext   want = iota
	wantTime        // those of this column from a timestamp down
	wantColumn      // the next column's
	wantFrom        // those from a column on
	wantNone        // no more of this row
)

// hint is what a node says after a cell: everything before what it wants may be left out, as far as it and those behind it go.
type hint struct {
	want want
	from *cell.Range // of wantFrom: where it begins
	ts   int64       // of wantTime
}

// compare orders hints by how far they lead.
func (h hint) compare(o hint) int {
	switch {
	case h.want != o.want:
		return int(h.want) - int(o.want)
	case h.want == wantFrom:
		return bytes.Compare(h.from.From, o.from.From)
	case h.want == wantTime:
		return cmp.Compare(o.ts, h.ts)
	}
	return 0
}

func later(a, b hint) hint {
	if a.want == wantNext || b.compare(a) > 0 {
		return b
	}
	return a
}

func earlier(a, b hint) hint {
	if b.compare(a) < 0 {
		return b
	}
	return a
}

// skips reports whether c, of the column that the hint was given in or a later one, is not wanted.
func (h *hint) skips(c *cell.Cell) bool {
	switch h.want {
	case wantTime:
		return c.TS > h.ts
	case wantColumn:
		return true
	}
	return bytes.Compare(c.Col, h.from.From) < 0
}
