package sstable

import (
	"bytes"
	"slices"

	"github.com/rowandb/rowan/cell"
)

const (
	// batchChunks bounds the chunks of values, each about 8 KiB, that a batch holds in memory: a block of the usual size has
	// five.
	batchChunks = 8
	batchBytes  = 256 << 10 // of values; the chunk that reaches it is the last
	batchCells  = 256       // the row that reaches it is the last: what a few sources hand out should fit into the first-level cache
	batchMax    = 2048      // cells of a larger row are not handed out at once
)

// heldChunk is a chunk of values, of the cells [from, to), which begin at base in the values of the block.
type heldChunk struct {
	h        held
	from, to int
	base     int
}

var _ cell.Batcher = (*Iter)(nil)

// NextBatch hands out the rest of the current block, as far as its rows end in it and have no deletes.
func (it *state) NextBatch(b *cell.Batch, stop []byte) {
	b.Reset()
	if !it.on(laneCells) || it.narrow || it.o.KeysOnly || it.cur[laneCells].zone.on || it.many && it.dir < 0 {
		return
	}
	if it.many {
		for i := range it.cur {
			if i == laneCells || !it.cur[i].onRow || !it.has(i) {
				continue
			}
			if it.here[i] {
				return
			}
			if key := it.cur[i].rowKey(); stop == nil || bytes.Compare(key, stop) < 0 {
				stop = key
			}
		}
	}
	it.cur[laneCells].batch(b, stop)
	if n := len(b.Rows); n > 0 && it.many {
		it.key = append(it.key[:0], b.Rows[n-1].Key...)
	}
}

func (c *cursor) releaseMore() {
	for i := range c.more[:c.moreN] {
		c.more[i].h.release()
	}
	c.moreN = 0
}

// batch is NextBatch for the rows of the lane.
func (c *cursor) batch(b *cell.Batch, stop []byte) {
	k := &c.keys
	if c.at != c.start || c.limit != nil {
		return
	}
	row, end := c.row, k.Rows
	from, _ := k.RowCells(row)
	if c.cell != from {
		return
	}
	if stop != nil {
		end, _ = k.SearchRow(stop)
	}
	if end == k.Rows {
		if p, x, ok := c.step(c.at, 1); ok && x.Cut(p.i) {
			end-- // it goes on in the next block
		} else if c.err != nil {
			return
		}
	}
	last := from
	for r := row; r < end; r++ {
		if _, last = k.RowCells(r); last-from >= batchCells {
			end = r + 1
		}
	}
	if last == from || last-from > batchMax {
		return
	}
	c.valsH.release()
	c.chunkFrom, c.chunkEnd = 0, 0
	at := from
	if k.Chunks == 0 {
		b.Cells = k.AppendRows(b.Cells, row, from, last, noValue, 0, c.dict)
		at = last
	}
	c.keepMore(at)
	for i, size := 0, 0; at < last && i < batchChunks && size < batchBytes; i++ {
		x, ok := c.moreChunk(i, at)
		if !ok {
			b.Reset()
			return
		}
		size += len(x.h.b)
		next := min(x.to, last)
		for row < end { // the row that at is in
			if _, to := k.RowCells(row); to > at {
				break
			}
			row++
		}
		b.Cells = k.AppendRows(b.Cells, row, at, next, x.h.b, x.base, c.dict)
		at = next
	}
	row = c.row
	for end > row { // rows whose last cells were not reached
		if _, to := k.RowCells(end - 1); to <= at {
			break
		}
		end--
	}
	if end == row {
		b.Reset()
		c.view(row)
		return
	}
	prefix := k.Prefix()
	// The memory must not move while rows are pointing into it.
	b.Keys = slices.Grow(b.Keys, (end-row)*len(prefix)+k.SuffixBytes(row, end))
	b.Rows = slices.Grow(b.Rows, end-row)[:end-row]
	n, x := 0, 0
	for i := range b.Rows {
		b.Keys = append(append(b.Keys, prefix...), k.Suffix(row+i)...)
		_, y := k.RowCells(row + i)
		y -= from
		b.Rows[i] = cell.BatchRow{Key: b.Keys[n:len(b.Keys):len(b.Keys)], Cells: b.Cells[x:y:y]}
		n, x = len(b.Keys), y
	}
	c.place(end - 1)
	c.cell = c.end
}

// keepMore gives back the chunks of the batch before but for the one with the cell at, which becomes the first.
func (c *cursor) keepMore(at int) {
	for i := range c.more[:c.moreN] {
		if x := &c.more[i]; x.from <= at && at < x.to {
			c.more[0], *x = *x, c.more[0]
			for j := range c.more[1:c.moreN] {
				c.more[1+j].h.release()
			}
			c.moreN = 1
			return
		}
	}
	c.releaseMore()
}

// moreChunk returns chunk i of the batch, which has the cell at.
func (c *cursor) moreChunk(i, at int) (*heldChunk, bool) {
	if i < c.moreN {
		return &c.more[i], true
	}
	if i == len(c.more) {
		c.more = append(c.more, heldChunk{})
	}
	x := &c.more[i]
	n, from, to := c.keys.Chunk(at)
	base, ok := c.chunk(&x.h, n, from, to)
	if !ok {
		return nil, false
	}
	x.from, x.to, x.base = from, to, base
	c.moreN = i + 1
	if c.r.view != nil && len(x.h.b) > 0 && !x.h.pin.Held() && (len(x.h.buf) == 0 || &x.h.b[0] != &x.h.buf[0]) {
		// Mapped bytes that nobody has looked at lately. Those who merge jump from source to source and would wait for memory
		// at each row; in one go the processor reads ahead.
		c.seen += touch(x.h.b)
	}
	return x, true
}

// touch reads p, a byte of each cache line.
func touch(p []byte) (sum byte) {
	for i := 0; i < len(p); i += 64 {
		sum += p[i]
	}
	return sum
}
