package block

import (
	"unsafe"

	"github.com/rowandb/rowan/internal/prefetch"
)

const (
	guidePrefix = 24
	guideChunks = 8

	guideEmpty  = 0xffff // a slot that holds nothing
	guideGroups = 511    // of rows that a slot can name
	markBits    = 7      // of a row's hash in its slot
)

// Guide leads to one row of a block that was not used lately, and so lies in memory alone. A search in the block waits for the head,
// for the prefix, for row after row, for the table of chunks, each after the other. A guide has the head, and the place of each row
// in a table by the row's hash: the read waits for the guide, once, and then for the row and its value. Safe for concurrent use.
//
// The table lies behind the struct, in the same memory: its place is known before any of it has come.
type Guide struct {
	keys Keys // without the section: that comes and goes
	size int  // of the section

	chunks  [guideChunks + 1]guideChunk // and one behind the last, for its end
	prefix  [guidePrefix]byte
	prefixN uint8
	shift   uint8  // rows a slot names: 1 << shift
	slots   uint16 // a slot has the mark of a row's hash above the number of its group of rows; a taken one leads on to the next
}

type guideChunk struct{ cell, at, start uint32 } // see Keys.ChunkCell, ChunkAt, ValueStart

// The sizes that guides have: a table is filled to three quarters at most, so that a search looks at two or three slots, which lie in
// one line of memory.
const (
	guideSmall  = 384
	guideMiddle = 768
	guideLarge  = 1536
)

type (
	smallGuide struct {
		Guide
		_ [guideSmall]uint16
	}
	middleGuide struct {
		Guide
		_ [guideMiddle]uint16
	}
	largeGuide struct {
		Guide
		_ [guideLarge]uint16
	}
)

// guideSlots is the size of the table for so many rows; 0 where a guide would be too large.
func guideSlots(rows int) int {
	switch {
	case rows <= guideSmall/4*3:
		return guideSmall
	case rows <= guideMiddle/4*3:
		return guideMiddle
	case rows <= guideLarge/4*3:
		return guideLarge
	}
	return 0
}

// GuideBytes is the memory that the guide of such a block takes; 0 for a block of unusual shape, which has none.
func GuideBytes(k *Keys) int {
	n := guideSlots(k.Rows)
	if k.prefixN > guidePrefix || k.Chunks > guideChunks || n == 0 {
		return 0
	}
	return int(unsafe.Sizeof(Guide{})) + 2*n
}

// NewGuide returns a guide through what k reads, which has been parsed; nil where GuideBytes is 0. hash is that of a row, whose
// bytes it must not keep. The guide keeps nothing of k's memory.
func NewGuide(k *Keys, hash func(row []byte) uint64) *Guide {
	if GuideBytes(k) == 0 {
		return nil
	}
	var g *Guide
	switch guideSlots(k.Rows) {
	case guideSmall:
		g = &new(smallGuide).Guide
		g.slots = guideSmall
	case guideMiddle:
		g = &new(middleGuide).Guide
		g.slots = guideMiddle
	case guideLarge:
		g = &new(largeGuide).Guide
		g.slots = guideLarge
	}
	g.keys, g.size, g.prefixN = *k, len(k.b), uint8(k.prefixN)
	g.keys.b = nil
	copy(g.prefix[:], k.Prefix())
	for i := range k.Chunks {
		c := k.ChunkCell(i)
		g.chunks[i] = guideChunk{uint32(c), k.ChunkAt(i), uint32(k.ValueStart(c))}
	}
	g.chunks[k.Chunks] = guideChunk{cell: uint32(k.Cells), start: uint32(k.ValueEnd(k.Cells - 1))}
	for (k.Rows-1)>>g.shift >= guideGroups {
		g.shift++
	}
	table := g.table()
	for i := range table {
		table[i] = guideEmpty
	}
	var row []byte
	for r := range k.Rows {
		row = k.AppendRow(row[:0], r)
		h := hash(row)
		at := guideSlot(h, len(table))
		for table[at] != guideEmpty {
			if at++; at == len(table) {
				at = 0
			}
		}
		table[at] = guideMark(h) | uint16(r>>g.shift)
	}
	return g
}

func (g *Guide) table() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Add(unsafe.Pointer(g), unsafe.Sizeof(*g))), g.slots)
}

func guideSlot(hash uint64, slots int) int { return int(uint64(uint32(hash)) * uint64(slots) >> 32) }

func guideMark(hash uint64) uint16 { return uint16(hash>>(64-markBits)) << (16 - markBits) }

// Bytes is the memory that the guide takes.
func (g *Guide) Bytes() int { return int(unsafe.Sizeof(*g)) + 2*int(g.slots) }

// View makes k read b, which must be the section that the guide is of, and reports whether it has its length.
func (g *Guide) View(k *Keys, b []byte) bool {
	if len(b) != g.size {
		return false
	}
	*k = g.keys
	k.b = b
	return true
}

// Prefetch asks for the memory of the guide that a search for a row with that hash needs; rows is the number of rows of its block.
func (g *Guide) Prefetch(hash uint64, rows int) {
	p := unsafe.Pointer(g)
	prefetch.Lines(p, unsafe.Sizeof(*g))
	prefetch.Lines(unsafe.Add(p, unsafe.Sizeof(*g)+2*uintptr(guideSlot(hash, guideSlots(rows)))), 8)
}

// GuideSearch is a search for a row.
type GuideSearch struct {
	mark uint16
	at   int
	left int
}

// Begin begins a search for the row with that hash.
func (g *Guide) Begin(hash uint64) GuideSearch {
	return GuideSearch{mark: guideMark(hash), at: guideSlot(hash, int(g.slots)), left: int(g.slots)}
}

// Next returns the next rows [from, to) that the row may be among; ok is false if there are no more: then it is none of the block's.
func (g *Guide) Next(s *GuideSearch) (from, to int, ok bool) {
	table := g.table()
	for ; s.left > 0; s.left-- {
		v := table[s.at]
		if v == guideEmpty {
			return 0, 0, false
		}
		if s.at++; s.at == len(table) {
			s.at = 0
		}
		if v&^(1<<(16-markBits)-1) == s.mark {
			s.left--
			from = int(v&(1<<(16-markBits)-1)) << g.shift
			return from, min(from+1<<g.shift, g.keys.Rows), true
		}
	}
	return 0, 0, false
}

// IsRow reports whether row r of k, which View has made, is key.
func (g *Guide) IsRow(k *Keys, r int, key []byte) bool {
	n := int(g.prefixN)
	if len(key) < n || string(key[:n]) != string(g.prefix[:n]) {
		return false
	}
	s, e := k.suffix(r)
	return string(k.b[s:e]) == string(key[n:])
}

// Ask asks for the memory of the rows [from, to), and of their cells but for the values.
func (k *Keys) Ask(from, to int) {
	if k.rowW != 0 || k.endW != 0 {
		return // where they are is itself to be read
	}
	ask := func(at, n int) {
		if n > 0 {
			prefetch.Lines(unsafe.Pointer(&k.b[at]), uintptr(n))
		}
	}
	ask(k.rows+from*k.rowLen, (to-from)*k.rowLen)
	if k.perRow > 16 {
		return // too many to ask for
	}
	from, to = from*k.perRow, to*k.perRow
	ask(k.codes+from*k.codeW, (to-from)*k.codeW)
	if !k.tsPerRow {
		ask(k.ts+from*k.tsW, (to-from)*k.tsW)
	}
	ask(k.valEnds+from*k.valW, (to-from)*k.valW)
}

// AskValues asks for the memory of the values of the cells [from, to) in vals, which begins at valBase in the block's values, as far as
// that takes no look at where they are.
func (k *Keys) AskValues(from, to int, vals []byte, valBase int) {
	if k.valW != 0 || k.valLen == 0 {
		return
	}
	at := from*k.valLen - valBase
	prefetch.Lines(unsafe.Pointer(&vals[at]), uintptr(min((to-from)*k.valLen, 8*prefetch.Line, len(vals)-at)))
}

// Chunk is Keys.Chunk.
func (g *Guide) Chunk(i int) (c, from, to int) {
	for c+1 < g.keys.Chunks && int(g.chunks[c+1].cell) <= i {
		c++
	}
	return c, int(g.chunks[c].cell), int(g.chunks[c+1].cell)
}

// ChunkAt is Keys.ChunkAt. Values returns where the values of chunk i begin and end in the values of the block.
func (g *Guide) ChunkAt(i int) uint32 { return g.chunks[i].at }
func (g *Guide) Values(i int) (start, end int) {
	return int(g.chunks[i].start), int(g.chunks[i+1].start)
}
