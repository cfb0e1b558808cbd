package sstable

// Split calls fn for at most n places that divide the file's cells into parts of about the same size, in order, the first being
// where the cells begin: row is not above the first row of its part and above all rows of the part before, but need not exist;
// before is about how many of the file's bytes lie before it. row is valid until fn returns. A file without cells has no place.
func (r *Reader) Split(n int, fn func(row []byte, before int64)) {
	x := r.lanes[laneCells].root
	if x == nil || n < 1 {
		return
	}
	n = min(n, x.Len())
	for i := range n {
		at := int(int64(x.Len()) * int64(i) / int64(n))
		e := x.At(at)
		fn(e.Row, r.size/int64(x.Len())*int64(at))
	}
}
