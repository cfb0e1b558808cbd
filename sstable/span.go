package sstable

import (
	"bytes"

	"github.com/rowandb/rowan/block"
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
	slot := -1
	for j := range c.more[:c.moreN] {
		x := &c.more[j]
		if x.from <= i && i < x.to {
			*out = block.Chunk{Bytes: x.h.b, Base: x.base, From: x.from, To: x.to}
			return true
		}
		if x.to <= keep || x.from > i {
			slot = j // one that is not kept
		}
	}
	// Two at least: a row that lies in two chunks comes between others that lie in one of them.
	if c.moreN < 2 {
		slot = -1
	}
	if slot < 0 {
		if slot = c.moreN; slot == len(c.more) {
			c.more = append(c.more, heldChunk{})
		}
		c.moreN++
	}
	x := &c.more[slot]
	x.from, x.to = 0, 0
	n, from, to := k.Chunk(i)
	base, ok := c.chunk(&x.h, n, from, to)
	if !ok {
		return false
	}
	x.from, x.to, x.base = from, to, base
	*out = block.Chunk{Bytes: x.h.b, Base: base, From: from, To: to}
	return true
}
