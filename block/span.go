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

	// Ahead says that the walk has come to the middle of the chunk with cell i, so that the next one in its direction will be
	// asked for soon. Chunks that Load keeps stay valid.
	Ahead(i, keep int)
}

// Chunk is the values of the cells [From, To) of a block, laid end to end. Base is where they begin in the block's values.
type Chunk struct {
	Bytes    []byte
	Base     int
	From, To int
}

// Middle is the cell at which to ask for the chunk after c.
func (c *Chunk) Middle() int { return int(uint(c.From+c.To) / 2) }

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

// stripMax is how many cells a Strip holds.
const stripMax = 64

// Strip is what the keys say of a few cells one behind the other, taken out of the block's arrays in one go.
type Strip struct {
	N       int               // cells
	Codes   [stripMax]uint16  // of their columns
	TS      [stripMax]int64   //
	Ends    [stripMax + 1]int // Ends[i+1] is where the value of cell i ends in the block's values, Ends[i] where it begins
	KeyEnds [stripMax + 1]int // likewise of the suffixes of rows, see TakeRows
}

// Take fills s with the cells [from, to) of row r, or as many of them as there is room for.
func (k *Keys) Take(s *Strip, r, from, to int) {
	s.N = min(to-from, stripMax)
	k.takeCodes(s, from)
	k.takeEnds(s, from)
	if k.tsPerRow {
		ts := k.TS(from, r)
		for i := range s.TS[:s.N] {
			s.TS[i] = ts
		}
		return
	}
	k.takeTS(s, from)
}

// TakeRows fills s with rows from from on, up to to, of a block of which k.Lone is true.
func (k *Keys) TakeRows(s *Strip, from, to int) {
	s.N = min(to-from, stripMax)
	k.takeEnds(s, from)
	k.takeTS(s, from)
	ends := s.KeyEnds[:s.N+1]
	if k.rowW == 0 {
		for i := range ends {
			ends[i] = k.rows + (from+i)*k.rowLen
		}
		return
	}
	ends[0], _ = k.suffix(from)
	b, at, w, mask, rows := k.b, k.rowEnds+from*k.rowW, k.rowW, k.rowMask, k.rows
	for i := 1; i < len(ends); i++ {
		ends[i] = rows + int(binary.LittleEndian.Uint64(b[at:])&mask)
		at += w
	}
}

// Key appends the suffix of row number i of the strip to key, which ends with the block's prefix.
func (k *Keys) Key(key []byte, s *Strip, i int) []byte {
	from, to := s.KeyEnds[i&(stripMax-1)], s.KeyEnds[i&(stripMax-1)+1]
	n := len(key)
	if to-from <= 16 && from+16 <= len(k.b) && n+16 <= cap(key) {
		// Short keys are the rule, and two stores are less than a call.
		p, q := key[n:n+16], k.b[from:from+16]
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(q))
		binary.LittleEndian.PutUint64(p[8:], binary.LittleEndian.Uint64(q[8:]))
		return key[:n+to-from]
	}
	return append(key, k.b[from:to]...)
}

func (k *Keys) takeCodes(s *Strip, from int) {
	codes := s.Codes[:s.N]
	b, at := k.b, k.codes+from*k.codeW
	switch k.codeW {
	case 0:
		clear(codes)
	case 1:
		for i, c := range b[at : at+len(codes)] {
			codes[i] = uint16(c)
		}
	default:
		for i := range codes {
			codes[i] = binary.LittleEndian.Uint16(b[at:])
			at += 2
		}
	}
}

func (k *Keys) takeTS(s *Strip, from int) {
	b, at, w, mask, base := k.b, k.ts+from*k.tsW, k.tsW, k.tsMask, k.base
	for i := range s.TS[:s.N] {
		s.TS[i] = base + int64(binary.LittleEndian.Uint64(b[at:])&mask)
		at += w
	}
}

func (k *Keys) takeEnds(s *Strip, from int) {
	ends := s.Ends[:s.N+1]
	if k.valW == 0 {
		for i := range ends {
			ends[i] = (from + i) * k.valLen
		}
		return
	}
	ends[0] = k.ValueStart(from)
	b, at, w, mask := k.b, k.valEnds+from*k.valW, k.valW, k.valMask
	for i := 1; i < len(ends); i++ {
		ends[i] = int(binary.LittleEndian.Uint64(b[at:]) & mask)
		at += w
	}
}
