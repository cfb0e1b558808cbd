package block

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/rowandb/rowan/cell"
)

// Span is a stretch of whole rows of one block, to be walked without a call per row or cell. It holds no memory of its own:
// it is valid as long as whoever filled it says.
type Span struct {
	Keys     *Keys
	Values   Values
	From, To int    // rows [From, To)
	Dict     uint32 // name of the block's dictionary, see cell.Cell

	Chunk Chunk // that was loaded last
}

// Values loads the values of a block's cells, a chunk at a time.
type Values interface {
	// Load sets c to the chunk that has the value of cell i. Chunks loaded before that have values of the cells from keep on
	// stay valid, others need not. It returns false if that fails; the source of the span says why.
	Load(c *Chunk, i, keep int) bool
}

// Chunk is the values of the cells [From, To) of a block, laid end to end. Base is where they begin in the block's values.
type Chunk struct {
	Bytes    []byte
	Base     int
	From, To int
}

// AppendRow appends the cells of row r with their values, which stay valid until others are loaded. False: a chunk could not
// be loaded.
func (s *Span) AppendRow(dst []cell.Cell, r int) ([]cell.Cell, bool) {
	from, to := s.Keys.RowCells(r)
	dst = slices.Grow(dst, to-from)
	c := &s.Chunk
	for i := from; i < to; {
		if !s.Values.Load(c, i, from) {
			return dst, false
		}
		end := min(c.To, to)
		dst = s.Keys.AppendCells(dst, r, i, end, c.Bytes, c.Base, s.Dict)
		i = end
	}
	return dst, true
}

// CompareRow compares the key of row r with key.
func (k *Keys) CompareRow(r int, key []byte) int {
	p := k.Prefix()
	if len(key) < len(p) {
		if c := bytes.Compare(p[:len(key)], key); c != 0 {
			return c
		}
		return 1
	}
	if c := bytes.Compare(p, key[:len(p)]); c != 0 {
		return c
	}
	return bytes.Compare(k.Suffix(r), key[len(p):])
}

// near is how many rows are looked at one by one before a search: where sources are mixed the end of a run is not far.
const near = 8

// RunBelow returns the end of the run of rows from row from on, up to to, that are below key. Row from is.
func (k *Keys) RunBelow(from, to int, key []byte) int {
	p := k.Prefix()
	if len(key) < len(p) || string(key[:len(p)]) != string(p) {
		return to // above all rows of the block, as it is above one
	}
	key = key[len(p):]
	h := keyHead(key)
	if k.below(to-1, key, h) {
		return to
	}
	lo, hi := from+1, min(to, from+1+near)
	for lo < hi {
		if !k.below(lo, key, h) {
			return lo
		}
		lo++
	}
	for hi = to - 1; lo < hi; { // row hi is not below
		if m := int(uint(lo+hi) >> 1); k.below(m, key, h) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// RunAbove returns the start of the run of rows down from row last, not below from, that are above key. Row last is.
func (k *Keys) RunAbove(from, last int, key []byte) int {
	p := k.Prefix()
	if len(key) < len(p) || string(key[:len(p)]) != string(p) {
		return from // below all rows of the block, as it is below one
	}
	key = key[len(p):]
	h := keyHead(key)
	if k.above(from, key, h) {
		return from
	}
	hi, lo := last-1, max(from, last-1-near)
	for hi > lo {
		if !k.above(hi, key, h) {
			return hi + 1
		}
		hi--
	}
	for lo = from; lo < hi; { // row lo is not above
		if m := int(uint(lo+hi+1) >> 1); k.above(m, key, h) {
			hi = m - 1
		} else {
			lo = m
		}
	}
	return lo + 1
}

// below reports whether row r is below the prefix and key, of which h is the head.
func (k *Keys) below(r int, key []byte, h uint64) bool {
	s, e := k.suffix(r)
	if rh := head8(k.b, s, e); rh != h {
		return rh < h
	}
	return bytes.Compare(k.b[s:e], key) < 0
}

func (k *Keys) above(r int, key []byte, h uint64) bool {
	s, e := k.suffix(r)
	if rh := head8(k.b, s, e); rh != h {
		return rh > h
	}
	return bytes.Compare(k.b[s:e], key) > 0
}

// Lone reports whether all rows have one cell, and all cells one column.
func (k *Keys) Lone() bool { return k.Cells == k.Rows && k.Cols == 1 }

// Lone walks the rows of a block of which Keys.Lone is true, one cell each.
type Lone struct {
	b            []byte
	base         int64
	tsMask       uint64
	valMask      uint64
	rowMask      uint64
	ts, tsW      int
	val, valW    int
	valLen       int
	row, rowEnds int
	rowW, rowLen int
}

// Walk returns a walk. The block must be one of which k.Lone is true.
func (k *Keys) Walk() Lone {
	return Lone{b: k.b, base: k.base, tsMask: k.tsMask, valMask: k.valMask, rowMask: k.rowMask, ts: k.ts, tsW: k.tsW,
		val: k.valEnds, valW: k.valW, valLen: k.valLen, row: k.rows, rowEnds: k.rowEnds, rowW: k.rowW, rowLen: k.rowLen}
}

// At returns the suffix, the timestamp and the place of the value of row r in the block's values.
func (w *Lone) At(r int) (suffix []byte, ts int64, from, to int) {
	b := w.b
	s, e := w.row+r*w.rowLen, w.row+r*w.rowLen+w.rowLen
	if w.rowW != 0 {
		at := w.rowEnds + r*w.rowW
		e = w.row + int(binary.LittleEndian.Uint64(b[at:])&w.rowMask)
		if r > 0 {
			s = w.row + int(binary.LittleEndian.Uint64(b[at-w.rowW:])&w.rowMask)
		}
	}
	from, to = r*w.valLen, r*w.valLen+w.valLen
	if w.valW != 0 {
		at := w.val + r*w.valW
		to = int(binary.LittleEndian.Uint64(b[at:]) & w.valMask)
		if r > 0 {
			from = int(binary.LittleEndian.Uint64(b[at-w.valW:]) & w.valMask)
		}
	}
	return b[s:e:e], w.base + int64(binary.LittleEndian.Uint64(b[w.ts+r*w.tsW:])&w.tsMask), from, to
}
