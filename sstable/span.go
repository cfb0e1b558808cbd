package sstable

import (
	"bytes"
	"unsafe"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/internal/prefetch"
)

var _ block.Values = (*cursor)(nil)

// Span fills sp with the current row and those of its block that follow it in the direction of the last move (back: of a move
// backward), as far as they lie wholly in the block and have no deletes, and goes to the last of them with its cells passed. stop
// ends them: forward before the first row >= stop, backward after the last row >= stop; nil is no stop. It may be called on a row
// that a move has just led to. False: the rows cannot be handed out so, and nothing has moved unless Err says that it failed.
// The span is valid until the next row move.
func (it *state) Span(sp *block.Span, stop []byte, back bool) bool {
	c := &it.cur[laneCells]
	if !it.on(laneCells) || it.narrow || it.o.KeysOnly || c.zone.on || c.keysOnly || it.many && it.dir < 0 != back {
		return false
	}
	if c.at != c.start || c.limit != nil {
		return false
	}
	k := &c.keys
	from, to := c.row, k.Rows
	if back {
		from, to = 0, c.row+1
	}
	if from == 0 && k.Cut {
		from = 1 // it began in an earlier block
	}
	if to == k.Rows {
		if p, x, ok := c.step(c.at, 1); ok && x.Cut(p.i) {
			to-- // it goes on in the next block
		} else if c.err != nil {
			return false
		}
	}
	if stop != nil {
		from, to = cut(k, from, to, stop, back)
	}
	for i := range it.cur {
		if o := &it.cur[i]; it.many && i != laneCells && it.has(i) && o.onRow {
			if it.here[i] {
				return false
			}
			key := o.rowKey()
			from, to = cut(k, from, to, key, back)
			if back && from < to && bytes.Equal(key, k.AppendRow(c.key[:0], from)) {
				from++
			}
		}
	}
	if c.row < from || c.row >= to {
		return false
	}
	c.back = back
	if c.r.cached != nil && k.Chunks > 0 {
		// The chunk that is needed first.
		at, _ := k.RowCells(c.row)
		n, _, _ := k.Chunk(at)
		c.r.cached.Ask(c.slot(1 + n))
	}
	*sp = block.Span{Keys: k, Values: c, From: from, To: to, Dict: c.dict}
	if back {
		c.place(from)
	} else {
		c.place(to - 1)
	}
	c.cell = c.end
	if it.many {
		it.key = append(it.key[:0], c.rowKey()...)
	}
	return true
}

// cut is the part of the rows [from, to) of a block that lies before stop in the direction of a walk.
func cut(k *block.Keys, from, to int, stop []byte, back bool) (int, int) {
	if back {
		if k.CompareRow(from, stop) < 0 {
			n, _ := k.SearchRow(stop)
			from = max(from, n)
		}
		return from, to
	}
	if k.CompareRow(to-1, stop) >= 0 {
		n, _ := k.SearchRow(stop)
		to = min(to, n)
	}
	return from, to
}

// Load implements block.Values for the current block.
func (c *cursor) Load(out *block.Chunk, i, keep int) bool {
	k := &c.keys
	if k.Chunks == 0 {
		*out = block.Chunk{Bytes: noValue, To: k.Cells}
		return true
	}
	for j := range c.more[:c.moreN] {
		if x := &c.more[j]; x.from <= i && i < x.to {
			*out = block.Chunk{Bytes: x.h.b, Base: x.base, From: x.from, To: x.to}
			return true
		}
	}
	n, from, to := k.Chunk(i)
	x := c.spot(keep, i)
	if !c.hold(x, n, from, to) {
		return false
	}
	*out = block.Chunk{Bytes: x.h.b, Base: x.base, From: from, To: to}
	if m := c.beside(n); m >= 0 && c.r.cached != nil {
		c.r.cached.Ask(c.slot(1 + m))
	}
	return true
}

// beside is the number of the chunk after n in the direction of the span, -1 if there is none in the block.
func (c *cursor) beside(n int) int {
	if c.back {
		return n - 1
	}
	if n++; n == c.keys.Chunks {
		return -1
	}
	return n
}

// spot returns a place for a chunk other than those with cells of [keep, i].
func (c *cursor) spot(keep, i int) *heldChunk {
	// Two at least: a row that lies in two chunks comes between others that lie in one of them.
	if c.moreN >= 2 {
		for j := range c.more[:c.moreN] {
			if x := &c.more[j]; x.to <= keep || x.from > i {
				return x
			}
		}
	}
	if c.moreN == len(c.more) {
		c.more = append(c.more, heldChunk{})
	}
	c.moreN++
	return &c.more[c.moreN-1]
}

// hold loads chunk n, of the cells [from, to), into x.
func (c *cursor) hold(x *heldChunk, n, from, to int) bool {
	x.from, x.to = 0, 0
	base, ok := c.chunk(&x.h, n, from, to)
	if ok {
		x.from, x.to, x.base = from, to, base
	}
	return ok
}

// aheadBytes of a chunk are asked for ahead; then the processor has seen where the walk goes.
const aheadBytes = 512

// Ahead implements block.Values. Only what is in the cache is worth it.
func (c *cursor) Ahead(i, keep int) {
	k := &c.keys
	if k.Chunks < 2 || c.r.cached == nil {
		return
	}
	n, _, _ := k.Chunk(i)
	m := c.beside(n)
	if m < 0 || !c.r.cached.Ask(c.slot(1+m)) {
		return
	}
	first := k.ChunkCell(m)
	for j := range c.more[:c.moreN] {
		if x := &c.more[j]; x.from == first && x.to > first {
			return
		}
	}
	_, from, to := k.Chunk(first)
	x := c.spot(keep, i)
	if !c.hold(x, m, from, to) || len(x.h.b) == 0 {
		return
	}
	at := 0
	if c.back {
		at = max(0, len(x.h.b)-aheadBytes)
	}
	prefetch.Lines(unsafe.Pointer(&x.h.b[at]), uintptr(min(aheadBytes, len(x.h.b)-at)))
}
