package engine

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/filter"
)

// Position is a place in the result of a read: just behind a cell, or behind a whole row if Family is empty. The zero
// Position is the beginning.
type Position struct {
	Row               string
	Family, Qualifier string
	Timestamp         Timestamp
	// Copies is how many copies of the cell lie before, where a filter multiplies cells; 0 means all.
	Copies int
}

// After continues a read that ended at p: its result is what the same read without After gives behind p. Versions are
// counted from the newest of their column and conditions look at the whole row, so that what a page shows does not depend on
// where it begins. Unless the filter counts cells of the row or has a condition, what lies before p is not read again, but
// for the newer versions of p's column where those are counted.
func After(p Position) ReadOption {
	return readOption(func(o *readOptions) {
		switch {
		case p == Position{}:
		case len(p.Row) == 0 || len(p.Row) > cell.RowKeyMax:
			o.err = fmt.Errorf("position: %w: %d bytes", ErrRowKey, len(p.Row))
		case p.Family == "" && (p.Qualifier != "" || p.Timestamp != 0):
			o.err = fmt.Errorf("position: %w: a cell without a family", ErrOption)
		case len(p.Qualifier) > cell.QualifierMax:
			o.err = fmt.Errorf("position: %w: %d bytes", ErrQualifier, len(p.Qualifier))
		case p.Timestamp < 0:
			o.err = fmt.Errorf("position: %w: %d", ErrTimestamp, p.Timestamp)
		case p.Copies < 0:
			o.err = fmt.Errorf("position: %w: %d copies", ErrOption, p.Copies)
		case p.Family != "":
			if err := cell.CheckFamily(p.Family); err != nil {
				o.err = fmt.Errorf("position: %w", err)
			}
		}
		o.page.after = p
	})
}

// ContinueAt sets *p, when the read succeeds, to where the next one goes on with After, or to the zero Position if nothing is
// left to read. A read that a limit ended may turn out to have been the last.
func ContinueAt(p *Position) ReadOption {
	return readOption(func(o *readOptions) {
		if o.page.next = p; p == nil {
			o.err = fmt.Errorf("%w: nil position", ErrOption)
		}
	})
}

// LimitCells ends the read after n cells, if need be inside a row. 0 means no limit.
func LimitCells(n int64) ReadOption {
	return readOption(func(o *readOptions) {
		if o.page.cells = n; n < 0 {
			o.err = fmt.Errorf("%w: %d cells", ErrLimit, n)
		}
	})
}

// LimitBytes ends the read with the cell that brings the bytes returned to n, if need be inside a row: of each cell the
// qualifier, the value and 8 for the rest. 0 means no limit.
func LimitBytes(n int64) ReadOption {
	return readOption(func(o *readOptions) {
		if o.page.bytes = n; n < 0 {
			o.err = fmt.Errorf("%w: %d bytes", ErrLimit, n)
		}
	})
}

// pageOptions are the options of paging.
type pageOptions struct {
	after        Position
	next         *Position
	cells, bytes int64
}

// page follows a read that is one of several, or may be.
type page struct {
	track  bool // positions matter
	resume bool // cells before (col, ts) of the running row were returned by an earlier page
	copies int  // of the last cell that were returned; with resume, of the one to go on behind
	every  bool // all copies were
	col    []byte
	ts     int64
	before int // with resume: copies that were returned earlier
	seen   int // of them met again
	cells  int64
	bytes  int64
	full   bool // a budget is used up
	inside bool // the read ended behind the last cell, in the midst of a row
}

// begin prepares for a read.
func (p *page) begin(o *pageOptions) {
	p.cells, p.bytes = o.cells, o.bytes
	p.track = o.next != nil || p.cells > 0 || p.bytes > 0
}

// admit reports whether a cell belongs to the page: not if an earlier page has returned it.
func (p *page) admit(c *cell.Cell) bool {
	if !p.resume {
		return true
	}
	switch d := cell.Compare(c.Col, c.TS, p.col, p.ts); {
	case d < 0:
		return false
	case d == 0:
		if p.every || p.seen < p.before {
			p.seen++
			return false
		}
		return true
	}
	p.resume = false
	return true
}

// took counts a cell that was returned.
func (p *page) took(c *cell.Cell, size int) {
	if !p.track {
		return
	}
	if c.TS == p.ts && bytes.Equal(c.Col, p.col) {
		p.copies++
	} else {
		p.resume = false
		p.col, p.ts, p.copies = append(p.col[:0], c.Col...), c.TS, 1
	}
	if p.cells > 0 {
		p.cells--
		p.full = p.cells == 0
	}
	if p.bytes > 0 {
		p.bytes -= int64(size) + 8
		p.full = p.full || p.bytes <= 0
	}
	p.inside = p.full
}

// at is the position behind the last cell that was returned, in row.
func (p *page) at(row []byte) Position {
	f, _, q, err := cell.SplitColumn(p.col)
	if err != nil {
		return Position{Row: string(row)}
	}
	return Position{Row: string(row), Family: string(f), Qualifier: string(q), Timestamp: Timestamp(p.ts), Copies: p.copies}
}

// endOf is the position of a read that ended in row: behind the last cell returned if a budget ended it or the caller wanted
// no more cells, else behind the row.
func (p *page) endOf(row []byte) Position {
	if p.inside && len(p.col) > 0 {
		return p.at(row)
	}
	return Position{Row: string(row)}
}

// reaches reports whether row comes at or after the position, for reads of one row.
func (o *readOptions) reaches(row []byte) bool {
	a := &o.page.after
	if a.Row == "" {
		return true
	}
	c := strings.Compare(unsafe.String(unsafe.SliceData(row), len(row)), a.Row)
	if o.reverse {
		c = -c
	}
	return c > 0 || c == 0 && a.Family != ""
}

// newRow forgets the last cell.
func (p *page) newRow() { p.col, p.ts, p.copies, p.resume = p.col[:0], -1, 0, false }

// enter begins row and returns where in it to start.
func (rd *reader) enter(row []byte) filter.Start {
	p, after := &rd.page, &rd.opts.page.after
	if !p.track && after.Row == "" {
		return filter.Start{}
	}
	p.newRow()
	if after.Family == "" || after.Row != string(row) {
		return filter.Start{}
	}
	p.resume, p.seen = true, 0
	p.ts, p.every = int64(after.Timestamp), after.Copies == 0
	p.before, p.copies = after.Copies, after.Copies
	f := rd.table.Family(after.Family)
	if f == nil { // dropped since: go on with the families after it
		p.col, p.ts, p.every = append(append(p.col, after.Family...), 1), math.MaxInt64, false
		p.before, p.copies = 0, 0
	} else {
		p.col = cell.AppendColumn(p.col, f.Name, f.Life, after.Qualifier)
	}
	if rd.filtered && rd.prog.Counts {
		return filter.Start{}
	}
	if f == nil || rd.filtered && rd.prog.Ranks || f.Rule.CountsVersions() {
		return filter.Start{Col: p.col, TS: math.MaxInt64}
	}
	return filter.Start{Col: p.col, TS: p.ts}
}

// behind restricts spans to what comes at or after the position in the direction of the read.
func (o *readOptions) behind(list []span) []span {
	a := &o.page.after
	if a.Row == "" {
		return list
	}
	s := span{lo: []byte(a.Row)}
	switch {
	case o.reverse && a.Family != "":
		s = span{hi: after(a.Row)}
	case o.reverse:
		s = span{hi: []byte(a.Row)}
	case a.Family == "":
		s.lo = after(a.Row)
	}
	return intersect(list, []span{s})
}

// intersect returns what is in both, which are ascending and disjoint.
func intersect(a, b []span) []span {
	var out []span
	for i, j := 0, 0; i < len(a) && j < len(b); {
		x := a[i]
		if bytes.Compare(b[j].lo, x.lo) > 0 {
			x.lo = b[j].lo
		}
		last := x.hi != nil && (b[j].hi == nil || bytes.Compare(x.hi, b[j].hi) < 0) // a[i] ends first
		if !last {
			x.hi = b[j].hi
		}
		if x.hi == nil || bytes.Compare(x.lo, x.hi) < 0 {
			out = append(out, x)
		}
		if last {
			i++
		} else {
			j++
		}
	}
	return out
}
