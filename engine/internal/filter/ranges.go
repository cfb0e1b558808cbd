package filter

import (
	"bytes"
	"slices"
	"sort"

	"github.com/rowandb/rowan/cell"
)

// Ranges is a set of byte strings: ranges [From, To), ascending, disjoint and not adjacent. A nil To has no end. The set is
// empty when there is no range.
type Ranges []cell.Range

// everything is every string. Nobody changes it.
var everything = Ranges{{}}

// All reports whether r is every string.
func (r Ranges) All() bool { return len(r) == 1 && r[0].Whole() }

// one is the set of a single string.
func one(b []byte) cell.Range {
	return cell.Range{From: b, To: append(append(make([]byte, 0, len(b)+1), b...), 0)}
}

// prefixed is the set of all strings with a prefix.
func prefixed(p []byte) cell.Range { return cell.Range{From: p, To: cell.PrefixEnd(p)} }

// union makes a set of ranges in any order.
func union(list []cell.Range) Ranges {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b cell.Range) int { return bytes.Compare(a.From, b.From) })
	var out Ranges
	for _, r := range list {
		if r.To != nil && bytes.Compare(r.From, r.To) >= 0 {
			continue
		}
		n := len(out) - 1
		if n < 0 || out[n].To != nil && bytes.Compare(out[n].To, r.From) < 0 {
			out = append(out, r)
			continue
		}
		if out[n].To != nil && (r.To == nil || bytes.Compare(r.To, out[n].To) > 0) {
			out[n].To = r.To
		}
	}
	return out
}

// Intersect returns what is in both.
func (r Ranges) Intersect(o Ranges) Ranges {
	if r.All() {
		return o
	}
	if o.All() {
		return r
	}
	var out Ranges
	for i, j := 0, 0; i < len(r) && j < len(o); {
		if x, ok := r[i].Clip(o[j].From, o[j].To); ok {
			out = append(out, x)
		}
		if r[i].To != nil && (o[j].To == nil || bytes.Compare(r[i].To, o[j].To) < 0) {
			i++
		} else {
			j++
		}
	}
	return out
}

// find returns the first range that ends above b, and whether b is in it.
func (r Ranges) find(b []byte) (int, bool) {
	i := 0
	if len(r) > 4 {
		i = sort.Search(len(r), func(i int) bool { return r[i].To == nil || bytes.Compare(b, r[i].To) < 0 })
	} else {
		for i < len(r) && r[i].To != nil && bytes.Compare(b, r[i].To) >= 0 {
			i++
		}
	}
	return i, i < len(r) && bytes.Compare(r[i].From, b) <= 0
}

// Contains reports whether b is in the set.
func (r Ranges) Contains(b []byte) bool {
	_, ok := r.find(b)
	return ok
}

// Hull is the smallest range around the set, which must not be empty.
func (r Ranges) Hull() cell.Range { return cell.Range{From: r[0].From, To: r[len(r)-1].To} }

// covers reports whether all of h is in the set.
func (r Ranges) covers(h cell.Range) bool {
	i, ok := r.find(h.From)
	return ok && (r[i].To == nil || h.To != nil && bytes.Compare(h.To, r[i].To) <= 0)
}
