package block

import (
	"bytes"
	"math/bits"
	"unsafe"

	"github.com/rowandb/rowan/internal/prefetch"
)

const (
	guideHeads  = 24
	guidePrefix = 24
	guideChunks = 8
)

// Guide is what a search for one row of a block needs first, in one place. The parts of a keys section lie apart, and a block that was
// not used lately lies in memory alone: a search in it waits for the head, for the prefix, for row after row, for the table of chunks.
// With a guide it waits for the guide, and then for a few rows. Safe for concurrent use.
type Guide struct {
	keys Keys // without the section: that comes and goes
	size int  // of the section

	prefixN, n, step int
	prefix           [guidePrefix]byte
	heads            [guideHeads]uint64          // of the rows 0, step, 2*step, ...
	chunks           [guideChunks + 1]guideChunk // and one behind the last, for its end
}

type guideChunk struct{ cell, at, start uint32 } // see Keys.ChunkCell, ChunkAt, ValueStart

// GuideBytes is the memory that a guide takes.
const GuideBytes = int(unsafe.Sizeof(Guide{}))

// NewGuide returns a guide through what k reads, which has been parsed; nil for a block of unusual shape. It keeps nothing of k's
// memory.
func NewGuide(k *Keys) *Guide {
	if k.prefixN > guidePrefix || k.Chunks > guideChunks {
		return nil
	}
	g := &Guide{keys: *k, size: len(k.b), prefixN: k.prefixN, step: max(1, (k.Rows+guideHeads-1)/guideHeads)}
	copy(g.prefix[:], k.Prefix())
	for r := 0; r < k.Rows; r += g.step {
		s, e := k.suffix(r)
		g.heads[g.n] = head8(k.b, s, e)
		g.n++
	}
	for i := range k.Chunks {
		c := k.ChunkCell(i)
		g.chunks[i] = guideChunk{uint32(c), k.ChunkAt(i), uint32(k.ValueStart(c))}
	}
	g.chunks[k.Chunks] = guideChunk{cell: uint32(k.Cells), start: uint32(k.ValueEnd(k.Cells - 1))}
	g.keys.b = nil
	return g
}

// View makes k read b, which must be the section that the guide is of, and reports whether it has its length.
func (g *Guide) View(k *Keys, b []byte) bool {
	if len(b) != g.size {
		return false
	}
	*k = g.keys
	k.b = b
	return true
}

// Prefetch asks for the guide's memory.
func (g *Guide) Prefetch() { prefetch.Lines(unsafe.Pointer(g), uintptr(GuideBytes)) }

// SearchRow is k.SearchRow, of the k that View has made.
func (g *Guide) SearchRow(k *Keys, key []byte) (r int, equal bool) {
	p := g.prefix[:g.prefixN]
	if len(key) < len(p) || string(key[:len(p)]) != string(p) {
		if bytes.Compare(key, p) <= 0 {
			return 0, false
		}
		return k.Rows, false
	}
	key = key[len(p):]
	h := keyHead(key)
	below, above := 0, 0
	for _, x := range g.heads[:g.n] {
		_, less := bits.Sub64(x, h, 0)
		_, more := bits.Sub64(h, x, 0)
		below, above = below+int(less), above+int(more)
	}
	lo := max(0, below-1) * g.step
	hi := min(k.Rows, (g.n-above)*g.step)
	k.prefetchRows(lo, hi)
	return k.searchRows(key, h, lo, hi)
}

// prefetchRows asks for what a search among the rows [lo, hi), and a look at the cells of one of them, will read.
func (k *Keys) prefetchRows(lo, hi int) {
	if hi <= lo || k.rowW != 0 || k.endW != 0 {
		return
	}
	ask := func(at, n int) {
		if n > 0 {
			prefetch.Lines(unsafe.Pointer(&k.b[at]), uintptr(n))
		}
	}
	ask(k.rows+lo*k.rowLen, (hi-lo)*k.rowLen)
	if k.perRow > 1 {
		return // too many to ask for
	}
	ask(k.codes+lo*k.codeW, (hi-lo)*k.codeW)
	ask(k.ts+lo*k.tsW, (hi-lo)*k.tsW)
	ask(k.valEnds+lo*k.valW, (hi-lo)*k.valW)
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
