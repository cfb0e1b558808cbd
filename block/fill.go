package block

import (
	"encoding/binary"
	"slices"

	"github.com/rowandb/rowan/cell"
)

// AppendCells appends the cells [from, to), all of row r. vals holds the values of one chunk that covers them, and valBase is
// where it begins in the block's values; with nil vals values are left nil. Columns alias the section, values alias vals.
func (k *Keys) AppendCells(dst []cell.Cell, r, from, to int, vals []byte, valBase int, dict uint32) []cell.Cell {
	n := len(dst)
	dst = dst[:n+to-from]
	if to-from == 1 {
		k.one(&dst[n], r, from, vals, valBase, dict)
		return dst
	}
	out := dst[n:]
	// Everything the loops use is in locals: the compiler must assume that a store into out changes k.
	b, ts, kind := k.b, k.base, k.kind
	tsAt, tsW, tsMask := k.ts+from*k.tsW, k.tsW, k.tsMask
	if k.tsPerRow {
		ts = k.TS(from, r)
		tsAt, tsW, tsMask = k.ts, 0, 0 // the loop adds zero to the row's timestamp
	}
	codeAt, codeW, codeMask := k.codes+from*k.codeW, k.codeW, k.codeMask
	cols, colW, colMask, colLen, colEnds := b[k.dict:k.prefix], k.dictW, k.dictMask, k.dictLen, k.dictEnds
	fixed, valLen, valAt, valW, valMask := k.valW == 0, k.valLen, k.valEnds+from*k.valW, k.valW, k.valMask
	v0 := k.ValueStart(from) - valBase
	for i := range out {
		code := int(binary.LittleEndian.Uint64(b[codeAt:]) & codeMask)
		codeAt += codeW
		s, e := code*colLen, code*colLen+colLen
		if colW != 0 {
			at := colEnds + code*colW
			if e = int(binary.LittleEndian.Uint64(b[at:]) & colMask); code > 0 {
				s = int(binary.LittleEndian.Uint64(b[at-colW:]) & colMask)
			}
		}
		t := ts + int64(binary.LittleEndian.Uint64(b[tsAt:])&tsMask)
		tsAt += tsW
		c := &out[i]
		if vals == nil {
			c.Col, c.Value = cols[s:e:e], nil
		} else {
			v1 := v0 + valLen
			if !fixed {
				v1 = int(binary.LittleEndian.Uint64(b[valAt:])&valMask) - valBase
				valAt += valW
			}
			// Two pointers stored together share one look at the collector's state.
			c.Col, c.Value = cols[s:e:e], vals[v0:v1:v1]
			v0 = v1
		}
		c.TS, c.Code, c.Dict, c.Kind = t, uint16(code), dict, kind
	}
	if kind == 0 {
		for i := range out {
			out[i].Kind = cell.Kind(b[k.kinds+from+i])
		}
	}
	return dst
}

// AppendRows is AppendCells for cells that may be of several rows; r is the row of the first. Values keep the capacity up to
// the end of vals, so that neighbours can be told: nobody may append to them.
func (k *Keys) AppendRows(dst []cell.Cell, r, from, to int, vals []byte, valBase int, dict uint32) []cell.Cell {
	n := len(dst)
	dst = slices.Grow(dst, to-from)[:n+to-from]
	out := dst[n:]
	// Each loop is a function of its own: together they have more variables than the processor has registers.
	vals = vals[k.ValueStart(from)-valBase:]
	switch {
	case k.Cols == 1 && k.valW == 0:
		fillLone(out, k.Col(0), vals, k.valLen, dict, k.kind)
	case k.Cols == 1:
		fillLoneEnds(out, k.Col(0), vals, k.b[k.valEnds+from*k.valW:], k.valW, k.valMask, k.ValueStart(from), dict, k.kind)
	case k.codeW == 1 && k.dictW == 0 && k.valW == 0 && k.tsPerRow:
		k.fillEvenRows(out, r, from, vals, dict)
		k.fillKinds(out, from)
		return dst
	case k.codeW == 1 && k.dictW == 0 && k.valW == 0:
		fillEven(out, k.b[k.codes+from:], k.b[k.dict:k.prefix], k.dictLen, vals, k.valLen, 0, dict, k.kind)
	default:
		k.fillAny(out, from, vals, dict)
	}
	if k.tsPerRow {
		for i := 0; i < len(out); r++ {
			_, end := k.RowCells(r)
			ts := k.TS(0, r)
			for end = min(end-from, len(out)); i < end; i++ {
				out[i].TS = ts
			}
		}
	} else {
		fillTimes(out, k.b[k.ts+from*k.tsW:], k.tsW, k.tsMask, k.base)
	}
	k.fillKinds(out, from)
	return dst
}

// fillKinds sets the kinds of out where they differ.
func (k *Keys) fillKinds(out []cell.Cell, from int) {
	if k.kind == 0 {
		for i, kind := range k.b[k.kinds+from : k.kinds+from+len(out)] {
			out[i].Kind = cell.Kind(kind)
		}
	}
}

// fillLone fills out with cells of one column and values of one length, which vals begins with.
func fillLone(out []cell.Cell, col, vals []byte, valLen int, dict uint32, kind cell.Kind) {
	for i := range out {
		c := &out[i]
		// Two pointers stored together share one look at the collector's state.
		c.Col, c.Value = col, vals[:valLen]
		vals = vals[valLen:]
		c.Code, c.Dict, c.Kind = 0, dict, kind
	}
}

// fillLoneEnds is fillLone for values of any lengths. b has where they end, w bytes each and more behind, counted from before base,
// where the first begins.
func fillLoneEnds(out []cell.Cell, col, vals, b []byte, w int, mask uint64, base int, dict uint32, kind cell.Kind) {
	v0 := 0
	for i := range out {
		v1 := int(binary.LittleEndian.Uint64(b)&mask) - base
		b = b[w:]
		c := &out[i]
		c.Col, c.Value = col, vals[v0:v1]
		v0 = v1
		c.Code, c.Dict, c.Kind = 0, dict, kind
	}
}

// fillEvenRows fills out with cells of rows that have one timestamp each, from row r on, whose columns, of one length, have numbers of
// one byte, and whose values are of one length. The first is number from.
func (k *Keys) fillEvenRows(out []cell.Cell, r, from int, vals []byte, dict uint32) {
	codes, cols := k.b[k.codes+from:], k.b[k.dict:k.prefix]
	for ; len(out) > 0; r++ {
		_, end := k.RowCells(r)
		n := min(end-from, len(out))
		fillEven(out[:n], codes, cols, k.dictLen, vals, k.valLen, k.TS(0, r), dict, k.kind)
		out, codes, vals, from = out[n:], codes[n:], vals[n*k.valLen:], from+n
	}
}

// fillEven fills out with cells of one timestamp.
func fillEven(out []cell.Cell, codes, cols []byte, colLen int, vals []byte, valLen int, ts int64, dict uint32, kind cell.Kind) {
	codes = codes[:len(out)]
	for i := range out {
		c, code := &out[i], codes[i]
		col := cols[int(code)*colLen:]
		c.Col, c.Value = col[:colLen:colLen], vals[:valLen]
		vals = vals[valLen:]
		c.TS, c.Dict, c.Code, c.Kind = ts, dict, uint16(code), kind
	}
}

// fillAny fills out with cells of any kind, the first of which is number from and has its value at the beginning of vals.
func (k *Keys) fillAny(out []cell.Cell, from int, vals []byte, dict uint32) {
	// Everything the loop uses is in locals: the compiler must assume that a store into out changes k.
	b, kind := k.b, k.kind
	codeAt, codeW, codeMask := k.codes+from*k.codeW, k.codeW, k.codeMask
	cols, colW, colMask, colLen, colEnds := b[k.dict:k.prefix], k.dictW, k.dictMask, k.dictLen, k.dictEnds
	valLen, valAt, valW, valMask := k.valLen, k.valEnds+from*k.valW, k.valW, k.valMask
	base := k.ValueStart(from)
	v0 := 0
	for i := range out {
		code := int(binary.LittleEndian.Uint64(b[codeAt:]) & codeMask)
		codeAt += codeW
		s, e := code*colLen, code*colLen+colLen
		if colW != 0 {
			at := colEnds + code*colW
			if e = int(binary.LittleEndian.Uint64(b[at:]) & colMask); code > 0 {
				s = int(binary.LittleEndian.Uint64(b[at-colW:]) & colMask)
			}
		}
		v1 := v0 + valLen
		if valW != 0 {
			v1 = int(binary.LittleEndian.Uint64(b[valAt:])&valMask) - base
			valAt += valW
		}
		c := &out[i]
		c.Col, c.Value = cols[s:e:e], vals[v0:v1]
		v0 = v1
		c.Code, c.Dict, c.Kind = uint16(code), dict, kind
	}
}

// fillTimes sets the timestamps of out from numbers of w bytes, of which more may follow.
func fillTimes(out []cell.Cell, b []byte, w int, mask uint64, base int64) {
	for i := range out {
		out[i].TS = base + int64(binary.LittleEndian.Uint64(b)&mask)
		b = b[w:]
	}
}

// one is AppendCells for a single cell: rows of one cell are common, and the loop's preparations cost more than the cell.
func (k *Keys) one(c *cell.Cell, r, i int, vals []byte, valBase int, dict uint32) {
	b := k.b
	code := int(binary.LittleEndian.Uint64(b[k.codes+i*k.codeW:]) & k.codeMask)
	t := i
	if k.tsPerRow {
		t = r
	}
	c.TS = k.base + int64(binary.LittleEndian.Uint64(b[k.ts+t*k.tsW:])&k.tsMask)
	c.Code, c.Dict, c.Kind = uint16(code), dict, k.Kind(i)
	if vals == nil {
		c.Col, c.Value = k.Col(code), nil
		return
	}
	var v0, v1 int
	if k.valW == 0 {
		v0 = i*k.valLen - valBase
		v1 = v0 + k.valLen
	} else {
		at := k.valEnds + i*k.valW
		if i > 0 {
			v0 = int(binary.LittleEndian.Uint64(b[at-k.valW:]) & k.valMask)
		}
		v0, v1 = v0-valBase, int(binary.LittleEndian.Uint64(b[at:])&k.valMask)-valBase
	}
	col := k.Col(code)
	c.Col, c.Value = col, vals[v0:v1:v1]
}
