package cell

import "bytes"

// Bounds is the stretch of (row, column) that a file speaks for: from (LoRow, LoCol) included to (HiRow, HiCol) excluded.
// An empty LoCol means from the row's start; a nil HiCol means through the row's end. Only files cut inside a row have a
// non-empty LoCol or a non-nil HiCol; everywhere else bounds cover whole rows, so a delete of a row or family always lies
// inside. The deletes of a file speak only inside its bounds.
type Bounds struct {
	LoRow, LoCol []byte
	HiRow, HiCol []byte
}

// ContainsRow reports whether some column of row may lie in b.
func (b Bounds) ContainsRow(row []byte) bool {
	return bytes.Compare(b.LoRow, row) <= 0 && bytes.Compare(row, b.HiRow) <= 0
}

// Columns returns the columns of row that lie in b; ok is false when none does.
func (b Bounds) Columns(row []byte) (r Range, ok bool) {
	if !b.ContainsRow(row) {
		return Range{}, false
	}
	if len(b.LoCol) > 0 && bytes.Equal(row, b.LoRow) {
		r.From = b.LoCol
	}
	if b.HiCol != nil && bytes.Equal(row, b.HiRow) {
		r.To = b.HiCol
	}
	return r, true
}

// Before reports whether all of b lies before all of o.
func (b Bounds) Before(o Bounds) bool {
	c := bytes.Compare(b.HiRow, o.LoRow)
	return c < 0 || c == 0 && b.HiCol != nil && bytes.Compare(b.HiCol, o.LoCol) <= 0
}

// Overlaps reports whether b and o share a place.
func (b Bounds) Overlaps(o Bounds) bool { return !b.Before(o) && !o.Before(b) }

// Union returns the smallest bounds around both.
func (b Bounds) Union(o Bounds) Bounds {
	if c := bytes.Compare(o.LoRow, b.LoRow); c < 0 || c == 0 && bytes.Compare(o.LoCol, b.LoCol) < 0 {
		b.LoRow, b.LoCol = o.LoRow, o.LoCol
	}
	if c := bytes.Compare(o.HiRow, b.HiRow); c > 0 || c == 0 && b.HiCol != nil && (o.HiCol == nil || bytes.Compare(o.HiCol, b.HiCol) > 0) {
		b.HiRow, b.HiCol = o.HiRow, o.HiCol
	}
	return b
}

// Clone returns a copy that shares no bytes.
func (b Bounds) Clone() Bounds {
	c := Bounds{LoRow: bytes.Clone(b.LoRow), LoCol: bytes.Clone(b.LoCol), HiRow: bytes.Clone(b.HiRow)}
	if b.HiCol != nil {
		c.HiCol = append([]byte{}, b.HiCol...)
	}
	return c
}

// Equal reports whether b and o are the same stretch.
func (b Bounds) Equal(o Bounds) bool {
	return bytes.Equal(b.LoRow, o.LoRow) && bytes.Equal(b.LoCol, o.LoCol) && bytes.Equal(b.HiRow, o.HiRow) &&
		(b.HiCol == nil) == (o.HiCol == nil) && bytes.Equal(b.HiCol, o.HiCol)
}
