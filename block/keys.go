package block

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
)

// The keys of a cell block, after decoding. Numbers are little-endian; an array of width w holds w-byte numbers.
//
//	<head 64B>
//	<dictionary ends   columns x dictWidth>   absent (width 0) when all columns have equal length
//	<dictionary bytes>
//	<row prefix>                              shared by all rows of the block
//	<row suffix ends   rows x rowWidth>       absent when all suffixes have equal length
//	<row suffix bytes>
//	<row ends          rows x startWidth>     one past the row's last cell; absent when all rows have equally many
//	<codes             cells x codeWidth>     index into the dictionary, ascending inside a row
//	<timestamps        cells or rows x tsWidth>  difference to the base
//	<kinds             cells x 1B>            absent when constant
//	<value ends        cells x valueWidth>    in the block's values laid end to end; absent when all have equal length
//	<chunks            chunks x (first cell 4B, place 4B)>  place counts from the end of the keys' envelope
//	<zero 8B>                                 so that eight bytes can be loaded at every number
const (
	keysHead  = 64
	keysSlack = 8

	flagCut       = 1 // the first row goes on from the block before
	flagTSPerRow  = 2 // one timestamp per row
	keysFlagsKnow = flagCut | flagTSPerRow
)

// Keys reads the keys section of a block in place. It holds no memory of its own. Safe for concurrent readers.
type Keys struct {
	b      []byte
	Rows   int
	Cells  int
	Cols   int
	Chunks int
	Cut    bool // the first row goes on from the block before

	tsPerRow bool
	kind     cell.Kind // 0: per cell
	base     int64

	dict, dictEnds  int // offsets into b
	prefix, prefixN int
	rows, rowEnds   int
	ends            int
	codes           int
	ts              int
	kinds           int
	valEnds         int
	chunkAt         int

	dictW, rowW, endW, codeW, tsW, valW int
	dictMask, rowMask, endMask          uint64
	codeMask, tsMask, valMask           uint64
	dictLen, rowLen, perRow, valLen     int // lengths where the width is 0
}

func maskOf(w int) uint64 {
	if w >= 8 {
		return math.MaxUint64
	}
	return 1<<(8*uint(w)) - 1
}

func (k *Keys) num(at int, mask uint64) uint64 { return binary.LittleEndian.Uint64(k.b[at:]) & mask }

// View makes k read b, which must have passed Parse before (bytes of that same section).
func (k *Keys) View(b []byte) error { return k.parse(b, false) }

// Parse makes k read b and checks that every number in it leads inside b, so that no later call can leave it. It does not
// check order.
func (k *Keys) Parse(b []byte) error { return k.parse(b, true) }

func (k *Keys) parse(b []byte, deep bool) error {
	if len(b) < keysHead+keysSlack {
		return badKeys(0, "%d bytes are too short", len(b))
	}
	h := b[:keysHead]
	le := binary.LittleEndian
	k.b = b
	k.Rows, k.Cells, k.Cols, k.Chunks = int(le.Uint32(h)), int(le.Uint32(h[4:])), int(le.Uint32(h[8:])), int(le.Uint32(h[12:]))
	k.base = int64(le.Uint64(h[16:]))
	k.prefixN, k.rowLen, k.valLen, k.dictLen = int(le.Uint32(h[24:])), int(le.Uint32(h[28:])), int(le.Uint32(h[32:])), int(le.Uint32(h[36:]))
	k.Cut, k.tsPerRow = h[40]&flagCut != 0, h[40]&flagTSPerRow != 0
	k.codeW, k.tsW, k.dictW = int(h[41]), int(h[42]), int(h[43])
	k.kind = cell.Kind(h[44])
	k.valW, k.rowW, k.endW = int(h[45]), int(h[46]), int(h[47])
	dictBytes, rowBytes := int(le.Uint32(h[48:])), int(le.Uint32(h[52:]))
	k.dictMask, k.rowMask, k.endMask = maskOf(k.dictW), maskOf(k.rowW), maskOf(k.endW)
	k.codeMask, k.tsMask, k.valMask = maskOf(k.codeW), maskOf(k.tsW), maskOf(k.valW)
	if deep {
		if err := k.checkHead(dictBytes, rowBytes); err != nil {
			return err
		}
	}
	// checkHead has made sure that none of these sums overflows.
	k.dictEnds = keysHead
	k.dict = k.dictEnds + k.Cols*k.dictW
	k.prefix = k.dict + dictBytes
	k.rowEnds = k.prefix + k.prefixN
	k.rows = k.rowEnds + k.Rows*k.rowW
	k.ends = k.rows + rowBytes
	k.codes = k.ends + k.Rows*k.endW
	k.ts = k.codes + k.Cells*k.codeW
	if k.tsPerRow {
		k.kinds = k.ts + k.Rows*k.tsW
	} else {
		k.kinds = k.ts + k.Cells*k.tsW
	}
	k.valEnds = k.kinds
	if k.kind == 0 {
		k.valEnds += k.Cells
	}
	k.chunkAt = k.valEnds + k.Cells*k.valW
	if k.endW == 0 && k.Rows > 0 {
		k.perRow = 1
		if k.Cells != k.Rows {
			k.perRow = k.Cells / k.Rows
		}
	}
	if end := k.chunkAt + 8*k.Chunks + keysSlack; end != len(b) {
		return badKeys(0, "parts add up to %d bytes, section has %d", end, len(b))
	}
	if !deep {
		return nil
	}
	if err := k.checkNumbers(dictBytes, rowBytes); err != nil {
		return err
	}
	return k.checkChunks()
}

func badKeys(at int, format string, args ...any) error {
	return damage.New("keys", int64(at), format, args...)
}

// checkHead checks the numbers of the head against each other and against the size of the section.
func (k *Keys) checkHead(dictBytes, rowBytes int) error {
	b := k.b
	size := int64(len(b))
	rows, cells, cols := int64(k.Rows), int64(k.Cells), int64(k.Cols)
	// A number over the size of the section, or negative where int has 32 bits, cannot be a count or length of bytes in it.
	for i, n := range []int{k.prefixN, dictBytes, rowBytes, k.rowLen, k.dictLen, k.Chunks} {
		if n < 0 || int64(n) > size {
			return badKeys(0, "length %d is %d in a section of %d", i, n, size)
		}
	}
	switch {
	case b[40]&^keysFlagsKnow != 0:
		return badKeys(40, "unknown flags %#x", b[40])
	case k.codeW > 2 || k.tsW > 8 || k.dictW > 4 || k.valW > 4 || k.rowW > 4 || k.endW > 4:
		return badKeys(41, "a width is too large")
	case binary.LittleEndian.Uint64(b[56:]) != 0:
		return badKeys(56, "reserved bytes are not zero")
	case rows <= 0 || cells < rows || cols <= 0 || cols > cells || cells > maxCells:
		return badKeys(0, "%d rows, %d cells, %d columns", rows, cells, cols)
	case int64(k.Chunks) > cells:
		return badKeys(12, "%d chunks for %d cells", k.Chunks, cells)
	case k.base < 0:
		return badKeys(16, "negative timestamp")
	case k.dictW == 0 && cols*int64(k.dictLen) != int64(dictBytes), k.dictW != 0 && k.dictLen != 0:
		return badKeys(36, "column length %d, %d columns in %d bytes", k.dictLen, cols, dictBytes)
	case k.rowW == 0 && rows*int64(k.rowLen) != int64(rowBytes), k.rowW != 0 && k.rowLen != 0:
		return badKeys(28, "row suffix length %d, %d rows in %d bytes", k.rowLen, rows, rowBytes)
	case k.endW == 0 && cells%rows != 0:
		return badKeys(47, "%d cells are not the same number in %d rows", cells, rows)
	case k.valLen < 0 || k.valW == 0 && cells*int64(k.valLen) > PartMax, k.valW != 0 && k.valLen != 0:
		return badKeys(32, "value length %d", k.valLen)
	case binary.LittleEndian.Uint64(b[size-keysSlack:]) != 0:
		return badKeys(int(size-keysSlack), "slack is not zero")
	}
	return nil
}

func (k *Keys) checkNumbers(dictBytes, rowBytes int) error {
	rising := func(what string, from, n, w int, strict bool, last int64) error {
		if w == 0 {
			return nil
		}
		prev, mask := int64(0), maskOf(w)
		for i := 0; i < n; i++ {
			v := int64(k.num(from+i*w, mask))
			if v < prev || strict && v == prev || v > last {
				return badKeys(from+i*w, "%s %d ends at %d after %d", what, i, v, prev)
			}
			prev = v
		}
		if prev != last {
			return badKeys(from, "last %s ends at %d of %d", what, prev, last)
		}
		return nil
	}
	if err := rising("column", k.dictEnds, k.Cols, k.dictW, false, int64(dictBytes)); err != nil {
		return err
	}
	if err := rising("row key", k.rowEnds, k.Rows, k.rowW, false, int64(rowBytes)); err != nil {
		return err
	}
	if err := rising("row", k.ends, k.Rows, k.endW, true, int64(k.Cells)); err != nil {
		return err
	}
	if k.valW != 0 {
		total := int64(k.num(k.valEnds+(k.Cells-1)*k.valW, k.valMask))
		if total > PartMax {
			return badKeys(k.valEnds, "%d bytes of values", total)
		}
		if err := rising("value", k.valEnds, k.Cells, k.valW, false, total); err != nil {
			return err
		}
	}
	if k.codeW > 0 {
		for i := 0; i < k.Cells; i++ {
			if c := k.num(k.codes+i*k.codeW, k.codeMask); c >= uint64(k.Cols) {
				return badKeys(k.codes+i*k.codeW, "column %d of %d", c, k.Cols)
			}
		}
	}
	if n := k.Cells; uint64(k.base) > math.MaxInt64-min(k.tsMask, math.MaxInt64) || k.tsW == 8 {
		if k.tsPerRow {
			n = k.Rows
		}
		for i := 0; i < n; i++ {
			if d := k.num(k.ts+i*k.tsW, k.tsMask); d > uint64(math.MaxInt64-k.base) {
				return badKeys(k.ts+i*k.tsW, "timestamp overflows")
			}
		}
	}
	if k.kind == 0 {
		for i, b := range k.b[k.kinds : k.kinds+k.Cells] {
			if b == 0 {
				return badKeys(k.kinds+i, "kind 0")
			}
		}
	}
	return nil
}

func (k *Keys) checkChunks() error {
	if (k.Chunks == 0) != (k.ValueEnd(k.Cells-1) == 0) {
		return badKeys(12, "%d chunks for %d bytes of values", k.Chunks, k.ValueEnd(k.Cells-1))
	}
	prevCell, prevAt := -1, int64(-1)
	for i := 0; i < k.Chunks; i++ {
		c, at := k.ChunkCell(i), int64(k.ChunkAt(i))
		if i == 0 && (c != 0 || at != 0) || c <= prevCell || c >= k.Cells || at <= prevAt {
			return badKeys(k.chunkAt+8*i, "chunk %d of cell %d at %d", i, c, at)
		}
		prevCell, prevAt = c, at
	}
	return nil
}

// Col returns column number code of the dictionary.
func (k *Keys) Col(code int) []byte {
	var s, e int
	if k.dictW == 0 {
		s = code * k.dictLen
		e = s + k.dictLen
	} else {
		at := k.dictEnds + code*k.dictW
		if code > 0 {
			s = int(k.num(at-k.dictW, k.dictMask))
		}
		e = int(k.num(at, k.dictMask))
	}
	return k.b[k.dict+s : k.dict+e : k.dict+e]
}

// Prefix returns the bytes that all rows of the block begin with.
func (k *Keys) Prefix() []byte { return k.b[k.prefix : k.prefix+k.prefixN : k.prefix+k.prefixN] }

// Suffix returns what follows the prefix in row r.
func (k *Keys) Suffix(r int) []byte {
	s, e := k.suffix(r)
	return k.b[s:e:e]
}

// SuffixBytes is the length of the suffixes of the rows [from, to) together.
func (k *Keys) SuffixBytes(from, to int) int {
	if from >= to {
		return 0
	}
	s, _ := k.suffix(from)
	_, e := k.suffix(to - 1)
	return e - s
}

func (k *Keys) suffix(r int) (s, e int) {
	if k.rowW == 0 {
		s = k.rows + r*k.rowLen
		return s, s + k.rowLen
	}
	at := k.rowEnds + r*k.rowW
	if r > 0 {
		s = int(k.num(at-k.rowW, k.rowMask))
	}
	return k.rows + s, k.rows + int(k.num(at, k.rowMask))
}

// AppendRow appends the key of row r.
func (k *Keys) AppendRow(dst []byte, r int) []byte {
	return append(append(dst, k.Prefix()...), k.Suffix(r)...)
}

// RowCells returns the cells [from, to) of row r.
func (k *Keys) RowCells(r int) (from, to int) {
	if k.endW == 0 {
		return r * k.perRow, (r + 1) * k.perRow
	}
	at := k.ends + r*k.endW
	if r > 0 {
		from = int(k.num(at-k.endW, k.endMask))
	}
	return from, int(k.num(at, k.endMask))
}

// Code returns the dictionary number of cell i's column.
func (k *Keys) Code(i int) int { return int(k.num(k.codes+i*k.codeW, k.codeMask)) }

// TS returns the timestamp of cell i, which is in row r.
func (k *Keys) TS(i, r int) int64 {
	if k.tsPerRow {
		i = r
	}
	return k.base + int64(k.num(k.ts+i*k.tsW, k.tsMask))
}

// Kind returns the kind of cell i.
func (k *Keys) Kind(i int) cell.Kind {
	if k.kind != 0 {
		return k.kind
	}
	return cell.Kind(k.b[k.kinds+i])
}

// ValueEnd returns where cell i's value ends when the block's values are laid end to end. It begins where that of i-1 ends.
func (k *Keys) ValueEnd(i int) int {
	if k.valW == 0 {
		return (i + 1) * k.valLen
	}
	return int(k.num(k.valEnds+i*k.valW, k.valMask))
}

// ValueStart returns where cell i's value begins when the block's values are laid end to end.
func (k *Keys) ValueStart(i int) int {
	if i == 0 {
		return 0
	}
	return k.ValueEnd(i - 1)
}

// ChunkCell is the first cell of chunk i; ChunkAt its place after the end of the keys' envelope.
func (k *Keys) ChunkCell(i int) int { return int(binary.LittleEndian.Uint32(k.b[k.chunkAt+8*i:])) }

// ChunkAt is the place of chunk i's envelope, in bytes after the end of the keys' envelope.
func (k *Keys) ChunkAt(i int) uint32 { return binary.LittleEndian.Uint32(k.b[k.chunkAt+8*i+4:]) }

// Chunk returns the chunk that holds cell i, and the cells [from, to) of it. The block must have chunks.
func (k *Keys) Chunk(i int) (c, from, to int) {
	lo, hi := 0, k.Chunks
	for hi-lo > 1 {
		m := int(uint(lo+hi) >> 1)
		if k.ChunkCell(m) <= i {
			lo = m
		} else {
			hi = m
		}
	}
	to = k.Cells
	if hi < k.Chunks {
		to = k.ChunkCell(hi)
	}
	return lo, k.ChunkCell(lo), to
}

// head8 returns the first eight bytes of b[s:e] as a number that orders like them, padded with zeros. b has eight bytes at
// every s that a number or key of the section begins at.
func head8(b []byte, s, e int) uint64 {
	v := bits.ReverseBytes64(binary.LittleEndian.Uint64(b[s:]))
	if n := e - s; n < 8 {
		v &= ^(math.MaxUint64 >> (8 * uint(n)))
	}
	return v
}

func keyHead(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var v uint64
	for i, c := range key {
		v |= uint64(c) << (56 - 8*uint(i))
	}
	return v
}

// SearchRow returns the first row that is >= key, Rows if there is none, and whether it equals key.
func (k *Keys) SearchRow(key []byte) (r int, equal bool) {
	p := k.Prefix()
	if len(key) < len(p) || string(key[:len(p)]) != string(p) {
		if bytes.Compare(key, p) <= 0 {
			return 0, false
		}
		return k.Rows, false
	}
	key = key[len(p):]
	h := keyHead(key)
	lo, hi := 0, k.Rows
	if k.rowW == 0 && k.rowLen >= 8 {
		lo, hi = k.narrow(h)
	}
	return k.searchRows(key, h, lo, hi)
}

// searchRows finds the first of the rows [lo, hi) whose suffix, which has the head h, is not below key; hi if there is none.
func (k *Keys) searchRows(key []byte, h uint64, lo, hi int) (r int, equal bool) {
	b := k.b
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		s, e := k.suffix(m)
		mh := head8(b, s, e)
		less := mh < h
		if mh == h {
			c := bytes.Compare(b[s:e], key)
			if c == 0 {
				return m, true
			}
			less = c < 0
		}
		if less {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo, false
}

// narrow returns rows lo < hi between which the search for a suffix with the head h can go on: those before lo are below it, those
// from hi on above. Suffixes have equal lengths, of 8 bytes at least.
//
// A block that was not used lately lies in memory alone. Halving would wait for it at each step; eight loads that do not depend on
// each other wait once.
func (k *Keys) narrow(h uint64) (lo, hi int) {
	const ways = 8
	hi = k.Rows
	for hi-lo > 2*ways {
		step := (hi - lo) / ways
		at, w := k.rows+(lo+step)*k.rowLen, step*k.rowLen
		below, above := 0, 0
		for range ways - 1 {
			mh := bits.ReverseBytes64(binary.LittleEndian.Uint64(k.b[at:]))
			_, less := bits.Sub64(mh, h, 0)
			_, more := bits.Sub64(h, mh, 0)
			below, above = below+int(less), above+int(more)
			at += w
		}
		if above > 0 {
			hi = lo + (ways-above)*step
		}
		lo += below * step
		if below+above < ways-1 {
			break // the bytes behind the head decide
		}
	}
	return lo, hi
}

// SearchCell returns the first of the cells [from, to) of row r that is at or after (col, ts): the same column with a
// timestamp <= ts, or a later column; to if there is none.
func (k *Keys) SearchCell(r, from, to int, col []byte, ts int64) int {
	code, equal := k.searchCol(col)
	lo, hi := from, to
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		c := k.Code(m)
		if c < code || equal && c == code && k.TS(m, r) > ts {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// searchCol returns the first dictionary number whose column is >= col, and whether it is equal.
func (k *Keys) searchCol(col []byte) (int, bool) {
	lo, hi := 0, k.Cols
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		switch bytes.Compare(k.Col(m), col) {
		case 0:
			return m, true
		case -1:
			lo = m + 1
		default:
			hi = m
		}
	}
	return lo, false
}
