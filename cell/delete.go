package cell

import "bytes"

// Range is a wide delete: every cell of one row whose column is in [From, To), at all timestamps. A row delete is the whole
// range, a family delete is FamilyRange. To == nil means no upper end. In a source the ranges of a row are disjoint,
// not adjacent, and ascending.
type Range struct {
	From []byte
	To   []byte
}

// Contains reports whether col lies in r.
func (r Range) Contains(col []byte) bool {
	return bytes.Compare(r.From, col) <= 0 && (r.To == nil || bytes.Compare(col, r.To) < 0)
}

// Whole reports whether r covers every column.
func (r Range) Whole() bool { return len(r.From) == 0 && r.To == nil }

// Clip returns the part of r inside [from, to), and whether it is not empty. to == nil means no upper end.
func (r Range) Clip(from, to []byte) (Range, bool) {
	if bytes.Compare(from, r.From) > 0 {
		r.From = from
	}
	if to != nil && (r.To == nil || bytes.Compare(to, r.To) < 0) {
		r.To = to
	}
	return r, r.To == nil || bytes.Compare(r.From, r.To) < 0
}

// Delete is a narrow delete: the versions of exactly one column whose timestamp is in [Lo, Hi], both ends included.
// In a source the deletes of a row are sorted by column ascending, then Hi descending, and the ranges of one column are
// disjoint and not adjacent.
type Delete struct {
	Col    []byte
	Lo, Hi int64
}

// Covers reports whether a version of the delete's column at ts is deleted.
func (d Delete) Covers(ts int64) bool { return d.Lo <= ts && ts <= d.Hi }

// AddDelete merges [lo, hi] into the ranges of one column, which are disjoint, not adjacent and sorted by Hi descending;
// the result has the same form. Col of the new entry is col. The slice is changed in place where it has room.
func AddDelete(ds []Delete, col []byte, lo, hi int64) []Delete {
	i := 0
	for i < len(ds) && ds[i].Lo > hi && ds[i].Lo-1 > hi {
		i++
	}
	j := i
	for j < len(ds) && (ds[j].Hi >= lo || lo > 0 && ds[j].Hi >= lo-1) {
		lo, hi = min(lo, ds[j].Lo), max(hi, ds[j].Hi)
		j++
	}
	d := Delete{Col: col, Lo: lo, Hi: hi}
	if j > i {
		ds[i] = d
		return append(ds[:i+1], ds[j:]...)
	}
	ds = append(ds, Delete{})
	copy(ds[i+1:], ds[i:])
	ds[i] = d
	return ds
}

// AddRange merges r into rs, which is disjoint, not adjacent and ascending; the result has the same form.
// Byte slices are kept, not copied.
func AddRange(rs []Range, r Range) []Range {
	i := 0
	for i < len(rs) && rs[i].To != nil && bytes.Compare(rs[i].To, r.From) < 0 {
		i++
	}
	j := i
	for j < len(rs) && (r.To == nil || bytes.Compare(rs[j].From, r.To) <= 0) {
		if bytes.Compare(rs[j].From, r.From) < 0 {
			r.From = rs[j].From
		}
		if r.To != nil && (rs[j].To == nil || bytes.Compare(rs[j].To, r.To) > 0) {
			r.To = rs[j].To
		}
		j++
	}
	if j > i {
		rs[i] = r
		return append(rs[:i+1], rs[j:]...)
	}
	rs = append(rs, Range{})
	copy(rs[i+1:], rs[i:])
	rs[i] = r
	return rs
}
