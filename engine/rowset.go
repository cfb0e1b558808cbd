package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/filter"
)

// RowSet says which rows a read is about: a row, a list of rows, a range, or any union of these with Rows. The zero
// RowRange is all rows.
type RowSet interface {
	// spans appends the set as ranges [lo, hi); hi nil means no end. The bounds may be bytes of strings: nobody may write to them.
	spans(dst []span) ([]span, error)
}

type span struct {
	lo, hi []byte
}

func (s span) contains(row []byte) bool {
	return bytes.Compare(s.lo, row) <= 0 && (s.hi == nil || bytes.Compare(row, s.hi) < 0)
}

// SingleRow is one row.
type SingleRow string

func (r SingleRow) spans(dst []span) ([]span, error) {
	if err := checkRow(string(r)); err != nil {
		return nil, err
	}
	return append(dst, span{lo: bytesOf(string(r)), hi: after(string(r))}), nil
}

// RowList is any number of rows, in any order; repetitions count once. An empty list is no row.
type RowList []string

func (l RowList) spans(dst []span) ([]span, error) {
	var err error
	for i, r := range l {
		if dst, err = SingleRow(r).spans(dst); err != nil {
			return nil, fmt.Errorf("row %d of %d: %w", i+1, len(l), err)
		}
	}
	return dst, nil
}

// bound is one end of a range.
type bound struct {
	kind boundKind
	key  string
}

type boundKind uint8

const (
	absent boundKind = iota
	inclusive
	exclusive
)

// RowRange is the rows between two bounds, each inclusive, exclusive or absent. Make one with NewRange and its kin. One that ends
// before it begins is ErrRange when it is used; [a, a), (a, a] and (a, a) are empty.
type RowRange struct {
	start, end bound
}

// AllRows is every row.
func AllRows() RowRange { return RowRange{} }

// NewRange is [start, end). As end of rows the empty string, which no row has for a key, means no end; here and in NewOpenRange.
func NewRange(start, end string) RowRange {
	return RowRange{bound{inclusive, start}, bound{exclusive, end}}
}

// NewClosedRange is [start, end].
func NewClosedRange(start, end string) RowRange {
	return RowRange{bound{inclusive, start}, bound{inclusive, end}}
}

// NewOpenRange is (start, end).
func NewOpenRange(start, end string) RowRange {
	return RowRange{bound{exclusive, start}, bound{exclusive, end}}
}

// NewOpenClosedRange is (start, end].
func NewOpenClosedRange(start, end string) RowRange {
	return RowRange{bound{exclusive, start}, bound{inclusive, end}}
}

// InfiniteRange is every row from start, included, on.
func InfiniteRange(start string) RowRange { return RowRange{start: bound{inclusive, start}} }

// InfiniteReverseRange is every row up to end, included.
func InfiniteReverseRange(end string) RowRange { return RowRange{end: bound{inclusive, end}} }

// PrefixRange is every row that starts with prefix.
func PrefixRange(prefix string) RowRange {
	r := InfiniteRange(prefix)
	if end := cell.PrefixEnd([]byte(prefix)); end != nil {
		r.end = bound{exclusive, string(end)}
	}
	return r
}

func (r RowRange) spans(dst []span) ([]span, error) {
	if r.end == (bound{kind: exclusive}) {
		r.end = bound{}
	}
	return r.between(dst)
}

// between appends the range as it stands, of strings of which the empty one is the first.
func (r RowRange) between(dst []span) ([]span, error) {
	var s span
	if r.start.kind != absent {
		s.lo = bytesOf(r.start.key)
		if r.start.kind == exclusive {
			s.lo = after(r.start.key)
		}
	}
	switch r.end.kind {
	case exclusive:
		if s.hi = bytesOf(r.end.key); s.hi == nil {
			s.hi = []byte{}
		}
	case inclusive:
		s.hi = after(r.end.key)
	}
	if r.start.kind != absent && r.end.kind != absent && strings.Compare(r.start.key, r.end.key) > 0 {
		return nil, fmt.Errorf("%w: start %.80q, end %.80q", ErrRange, r.start.key, r.end.key)
	}
	if s.hi != nil && bytes.Compare(s.lo, s.hi) >= 0 {
		return dst, nil // of equal bounds that are not both inclusive
	}
	return append(dst, s), nil
}

// Rows is the union of row sets.
type Rows []RowSet

func (u Rows) spans(dst []span) ([]span, error) {
	var err error
	for i, s := range u {
		if s == nil {
			return nil, fmt.Errorf("part %d of %d: %w: nil row set", i+1, len(u), ErrRange)
		}
		if dst, err = s.spans(dst); err != nil {
			return nil, fmt.Errorf("part %d of %d: %w", i+1, len(u), err)
		}
	}
	return dst, nil
}

func after(key string) []byte { return append(append(make([]byte, 0, len(key)+1), key...), 0) }

// spansOf returns a row set as disjoint ascending ranges, in the memory of dst as far as that goes.
func spansOf(dst []span, set RowSet) ([]span, error) {
	if set == nil {
		return nil, fmt.Errorf("%w: nil row set", ErrRange)
	}
	list, err := set.spans(dst[:0])
	if err != nil || len(list) < 2 {
		return list, err
	}
	slices.SortFunc(list, func(a, b span) int { return bytes.Compare(a.lo, b.lo) })
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && (out[n-1].hi == nil || bytes.Compare(s.lo, out[n-1].hi) <= 0) {
			if out[n-1].hi != nil && (s.hi == nil || bytes.Compare(s.hi, out[n-1].hi) > 0) {
				out[n-1].hi = s.hi
			}
			continue
		}
		out = append(out, s)
	}
	return out, nil
}

// within returns what of list lies in rows.
func within(list []span, rows filter.Ranges) []span {
	if rows.All() {
		return list
	}
	r := make([]span, len(rows))
	for i, x := range rows {
		r[i] = span{x.From, x.To}
	}
	return intersect(list, r)
}
