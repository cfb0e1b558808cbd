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
	bad := func(at int, format string, args ...any) error {
		return damage.New("keys", int64(at), format, args...)
	}
	if len(b) < keysHead+keysSlack {
		return bad(0, "%d bytes are too short", len(b))
	}
	u32 := func(at int) int64 { return int64(binary.LittleEndian.Uint32(b[at:])) }
	rows, cells, cols, chunks := u32(0), u32(4), u32(8), u32(12)
	prefixN, rowLen, valLen, dictLen := u32(24), u32(28), u32(32), u32(36)
	flags := b[40]
	size := int64(len(b))
	*k = Keys{
		b: b, Rows: int(rows), Cells: int(cells), Cols: int(cols), Chunks: int(chunks),
		Cut: flags&flagCut != 0, tsPerRow: flags&flagTSPerRow != 0, kind: cell.Kind(b[44]),
		base:  int64(binary.LittleEndian.Uint64(b[16:])),
		codeW: int(b[41]), tsW: int(b[42]), dictW: int(b[43]), valW: int(b[45]), rowW: int(b[46]), endW: int(b[47]),
		prefixN: int(prefixN), rowLen: int(rowLen), valLen: int(valLen), dictLen: int(dictLen),
	}
	dictBytes, rowBytes := u32(48), u32(52)
	switch {
	case flags&^keysFlagsKnow != 0:
		return bad(40, "unknown flags %#x", flags)
	case k.codeW > 2 || k.tsW > 8 || k.dictW > 4 || k.valW > 4 || k.rowW > 4 || k.endW > 4:
		return bad(41, "a width is too large")
	case binary.LittleEndian.Uint64(b[56:]) != 0:
		return bad(56, "reserved bytes are not zero")
	case rows == 0 || cells < rows || cols == 0 || cols > cells || cells > maxCells:
		return bad(0, "%d rows, %d cells, %d columns", rows, cells, cols)
	case chunks > cells:
		return bad(12, "%d chunks for %d cells", chunks, cells)
	case k.base < 0:
		return bad(16, "negative timestamp")
	}
	// All terms below are under 2^32 * 8, so an int64 sum cannot overflow.
	at := int64(keysHead)
	part := func(n int64) int {
		p := at
		at += n
		return int(min(p, size))
	}
	k.dictEnds = part(cols * int64(k.dictW))
	k.dict = part(dictBytes)
	k.prefix = part(prefixN)
	k.rowEnds = part(rows * int64(k.rowW))
	k.rows = part(rowBytes)
	k.ends = part(rows * int64(k.endW))
	k.codes = part(cells * int64(k.codeW))
	if k.tsPerRow {
		k.ts = part(rows * int64(k.tsW))
	} else {
		k.ts = part(cells * int64(k.tsW))
	}
	k.kinds = int(min(at, size))
	if k.kind == 0 {
		part(cells)
	}
	k.valEnds = part(cells * int64(k.valW))
	k.chunkAt = part(chunks * 8)
	if at+keysSlack != size {
		return bad(0, "parts add up to %d bytes, section has %d", at+keysSlack, size)
	}
	k.dictMask, k.rowMask, k.endMask = maskOf(k.dictW), maskOf(k.rowW), maskOf(k.endW)
	k.codeMask, k.tsMask, k.valMask = maskOf(k.codeW), maskOf(k.tsW), maskOf(k.valW)
	k.perRow = int(cells / rows)
	if !deep {
		return nil
	}
	switch {
	case k.dictW == 0 && cols*dictLen != dictBytes, k.dictW != 0 && dictLen != 0:
		return bad(36, "column length %d, %d columns in %d bytes", dictLen, cols, dictBytes)
	case k.rowW == 0 && rows*rowLen != rowBytes, k.rowW != 0 && rowLen != 0:
		return bad(28, "row suffix length %d, %d rows in %d bytes", rowLen, rows, rowBytes)
	case k.endW == 0 && rows*int64(k.perRow) != cells:
		return bad(47, "%d cells are not the same number in %d rows", cells, rows)
	case k.valW == 0 && cells*valLen > PartMax, k.valW != 0 && valLen != 0:
		return bad(32, "value length %d", valLen)
	case binary.LittleEndian.Uint64(b[size-keysSlack:]) != 0:
		return bad(int(size-keysSlack), "slack is not zero")
	}
	if err := k.checkNumbers(bad, dictBytes, rowBytes); err != nil {
		return err
	}
	return k.checkChunks(bad)
}

func (k *Keys) checkNumbers(bad func(int, string, ...any) error, dictBytes, rowBytes int64) error {
	rising := func(what string, from, n, w int, strict bool, last int64) error {
		if w == 0 {
			return nil
		}
		prev, mask := int64(0), maskOf(w)
		for i := 0; i < n; i++ {
			v := int64(k.num(from+i*w, mask))
			if v < prev || strict && v == prev || v > last {
				return bad(from+i*w, "%s %d ends at %d after %d", what, i, v, prev)
			}
			prev = v
		}
		if prev != last {
			return bad(from, "last %s ends at %d of %d", what, prev, last)
		}
		return nil
	}
	if err := rising("column", k.dictEnds, k.Cols, k.dictW, false, dictBytes); err != nil {
		return err
	}
	if err := rising("row key", k.rowEnds, k.Rows, k.rowW, false, rowBytes); err != nil {
		return err
	}
	if err := rising("row", k.ends, k.Rows, k.endW, true, int64(k.Cells)); err != nil {
		return err
	}
	if k.valW != 0 {
		total := int64(k.num(k.valEnds+(k.Cells-1)*k.valW, k.valMask))
		if total > PartMax {
			return bad(k.valEnds, "%d bytes of values", total)
		}
		if err := rising("value", k.valEnds, k.Cells, k.valW, false, total); err != nil {
			return err
		}
	}
	if k.codeW > 0 {
		for i := 0; i < k.Cells; i++ {
			if c := k.num(k.codes+i*k.codeW, k.codeMask); c >= uint64(k.Cols) {
				return bad(k.codes+i*k.codeW, "column %d of %d", c, k.Cols)
			}
		}
	}
	if n := k.Cells; uint64(k.base) > math.MaxInt64-min(k.tsMask, math.MaxInt64) || k.tsW == 8 {
		if k.tsPerRow {
			n = k.Rows
		}
		for i := 0; i < n; i++ {
			if d := k.num(k.ts+i*k.tsW, k.tsMask); d > uint64(math.MaxInt64-k.base) {
				return bad(k.ts+i*k.tsW, "timestamp overflows")
			}
		}
	}
	if k.kind == 0 {
		for i, b := range k.b[k.kinds : k.kinds+k.Cells] {
			if b == 0 {
				return bad(k.kinds+i, "kind 0")
			}
		}
	}
	return nil
}

func (k *Keys) checkChunks(bad func(int, string, ...any) error) error {
	if (k.Chunks == 0) != (k.ValueEnd(k.Cells-1) == 0) {
		return bad(12, "%d chunks for %d bytes of values", k.Chunks, k.ValueEnd(k.Cells-1))
	}
	prevCell, prevAt := -1, int64(-1)
	for i := 0; i < k.Chunks; i++ {
		c, at := k.ChunkCell(i), int64(k.ChunkAt(i))
		if i == 0 && (c != 0 || at != 0) || c <= prevCell || c >= k.Cells || at <= prevAt {
			return bad(k.chunkAt+8*i, "chunk %d of cell %d at %d", i, c, at)
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
	b, lo, hi := k.b, 0, k.Rows
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

// AppendCells appends the cells [from, to), all of row r. vals holds the values of one chunk that covers them, and valBase is
// where it begins in the block's values; with nil vals values are left nil. Columns alias the section, values alias vals.
func (k *Keys) AppendCells(dst []cell.Cell, r, from, to int, vals []byte, valBase int, dict uint16) []cell.Cell {
	n := len(dst)
	dst = dst[:n+to-from]
	ts := k.base
	if k.tsPerRow {
		ts = k.TS(from, r)
	}
	tsAt, tsW, tsMask := k.ts+from*k.tsW, k.tsW, k.tsMask
	if k.tsPerRow {
		// The loop then adds zero to the row's timestamp.
		tsAt, tsW, tsMask = k.ts, 0, 0
	}
	codeAt := k.codes + from*k.codeW
	kind := k.kind
	var v0, v1, valAt int
	if vals != nil {
		v0 = k.ValueStart(from) - valBase
		valAt = k.valEnds + from*k.valW
	}
	b := k.b
	for i := from; i < to; i++ {
		c := &dst[n]
		n++
		code := int(binary.LittleEndian.Uint64(b[codeAt:]) & k.codeMask)
		codeAt += k.codeW
		c.Col = k.Col(code)
		c.TS = ts + int64(binary.LittleEndian.Uint64(b[tsAt:])&tsMask)
		tsAt += tsW
		if vals != nil {
			if k.valW == 0 {
				v1 = v0 + k.valLen
			} else {
				v1 = int(binary.LittleEndian.Uint64(b[valAt:])&k.valMask) - valBase
				valAt += k.valW
			}
			c.Value = vals[v0:v1:v1]
			v0 = v1
		} else {
			c.Value = nil
		}
		c.Code, c.Dict = uint32(code), dict
		if kind == 0 {
			c.Kind = cell.Kind(b[k.kinds+i])
		} else {
			c.Kind = kind
		}
	}
	return dst
}
