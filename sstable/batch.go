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
	batchCells  = 2048
	batchBytes  = 256 << 10 // of values; the chunk that reaches it is the last
)

var _ cell.Batcher = (*Iter)(nil)

// NextBatch hands out the rest of the current block, as far as its rows end in it and have no deletes.
func (it *state) NextBatch(b *cell.Batch, stop []byte) {
	b.Reset()
	if !it.on(laneCells) || it.narrow || it.o.KeysOnly || it.many && it.dir < 0 {
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
	for i := range c.moreH {
		c.moreH[i].release()
	}
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
	if end <= row {
		return
	}
	_, last := k.RowCells(end - 1)
	if last-from > batchCells {
		// Rows that end within the limit.
		for end > row && last-from > batchCells {
			end--
			last, _ = k.RowCells(end)
		}
		if end == row {
			return
		}
	}
	c.releaseMore()
	c.chunkFrom, c.chunkEnd = 0, 0
	c.valsH.release()
	at := from
	if k.Chunks == 0 {
		b.Cells = k.AppendRows(b.Cells, row, from, last, noValue, 0, c.dict)
		at = last
	}
	for i, bytes := 0, 0; at < last && i < batchChunks && bytes < batchBytes; i++ {
		if i == len(c.moreH) {
			c.moreH = append(c.moreH, held{})
		}
		n, first, next := k.Chunk(at)
		base, ok := c.chunk(&c.moreH[i], n, first, next)
		if !ok {
			b.Reset()
			return
		}
		bytes += len(c.moreH[i].b)
		next = min(next, last)
		for row < end { // the row that at is in
			if _, to := k.RowCells(row); to > at {
				break
			}
			row++
		}
		b.Cells = k.AppendRows(b.Cells, row, at, next, c.moreH[i].b, base, c.dict)
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
	for r := row; r < end; r++ {
		n := len(b.Keys)
		b.Keys = append(append(b.Keys, prefix...), k.Suffix(r)...)
		x, y := k.RowCells(r)
		b.Rows = append(b.Rows, cell.BatchRow{Key: b.Keys[n:len(b.Keys):len(b.Keys)], Cells: b.Cells[x-from : y-from : y-from]})
	}
	c.place(end - 1)
	c.cell = c.end
}
