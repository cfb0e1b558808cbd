package sstable

import (
	"math"

	"github.com/rowandb/rowan/internal/damage"
)

// ---- moving over rows ----

// place puts the cursor on row n of the current block, which is where the row begins.
func (c *cursor) place(n int) bool {
	c.onRow, c.start, c.startRow = true, c.at, n
	c.view(n)
	return true
}

// view makes row n of the current block, which is the current row or a later part of it, what Cells reads.
func (c *cursor) view(n int) {
	c.row = n
	c.cell, c.end = c.keys.RowCells(n)
	if c.limit != nil {
		c.end = c.keys.SearchCell(n, c.cell, c.end, c.limit, math.MaxInt64)
	}
}

// rowKey returns the current row's key.
func (c *cursor) rowKey() []byte {
	if !c.live {
		return c.key // after a failure
	}
	if c.keyFor < 0 {
		c.key = append(c.key[:0], c.keys.Prefix()...)
		c.keyFor = len(c.key)
	}
	c.key = append(c.key[:c.keyFor], c.keys.Suffix(c.row)...)
	return c.key
}

// placeBack puts the cursor on the row that row n of the current block is or goes on, at the first of its blocks that is wanted.
func (c *cursor) placeBack(n int) bool {
	p, x := c.at, c.index
	if n > 0 || !x.Cut(p.i) {
		return c.place(n)
	}
	first, firstN := p, n
	for n == 0 && x.Cut(p.i) {
		var ok bool
		if p, x, ok = c.step(p, -1); !ok {
			if c.err == nil {
				c.fail(damage.New("index", -1, "the first %s block goes on with a row", laneNames[c.ln.n]))
			}
			return false
		}
		n = x.Rows(p.i) - 1
		if !c.zone.excuses(x, p.i) {
			first, firstN = p, n
		}
	}
	return c.load(first) && c.place(firstN)
}

func (c *cursor) first() bool {
	c.onRow = false
	return c.err == nil && c.enter(pos{})
}

// enter places the cursor on the first row of the first wanted block from p on.
func (c *cursor) enter(p pos) bool {
	p, ok := c.wanted(p, 1)
	return ok && c.load(p) && c.place(0)
}

// enterBack places the cursor on the last row of the last wanted block up to p.
func (c *cursor) enterBack(p pos) bool {
	p, ok := c.wanted(p, -1)
	return ok && c.load(p) && c.placeBack(c.keys.Rows-1)
}

func (c *cursor) last() bool {
	c.onRow = false
	if c.err != nil {
		return false
	}
	leaf := c.leafCount() - 1
	return c.setLeaf(leaf) && c.enterBack(pos{leaf, c.index.Len() - 1})
}

// find returns the only block that can hold the start of row key or the row before it.
func (c *cursor) find(key []byte) (p pos, ok bool) {
	c.onRow = false
	if c.err != nil {
		return p, false
	}
	leaf := 0
	if c.ln.leaves != nil {
		leaf = max(0, c.ln.root.SeekRow(key))
	}
	if !c.setLeaf(leaf) {
		return p, false
	}
	return pos{leaf, max(0, c.index.SeekRow(key))}, true
}

func (c *cursor) seekGE(key []byte) bool {
	p, ok := c.find(key)
	if !ok {
		return false
	}
	if c.zone.excuses(c.index, p.i) {
		return c.enter(p)
	}
	if !c.load(p) {
		return false
	}
	if n, _ := c.keys.SearchRow(key); n < c.keys.Rows {
		return c.place(n)
	}
	p, _, ok = c.step(c.at, 1)
	return ok && c.enter(p)
}

func (c *cursor) seekLT(key []byte) bool {
	p, ok := c.find(key)
	if !ok {
		return false
	}
	if !c.zone.excuses(c.index, p.i) {
		if !c.load(p) {
			return false
		}
		if n, _ := c.keys.SearchRow(key); n > 0 {
			return c.placeBack(n - 1)
		}
	}
	p, _, ok = c.step(p, -1)
	return ok && c.enterBack(p)
}

func (c *cursor) nextRow() bool {
	if !c.onRow || c.err != nil {
		return false
	}
	if c.row+1 < c.keys.Rows {
		return c.place(c.row + 1)
	}
	c.onRow = false
	p, x, ok := c.step(c.at, 1)
	for ok && x.Cut(p.i) {
		rows := x.Rows(p.i)
		if rows > 1 && !c.zone.excuses(x, p.i) {
			return c.load(p) && c.place(1)
		}
		if p, x, ok = c.step(p, 1); rows > 1 {
			break // what comes now does not go on with the current row
		}
	}
	return ok && c.enter(p)
}

func (c *cursor) prevRow() bool {
	if !c.onRow || c.err != nil {
		return false
	}
	c.onRow = false
	if n := c.startRow - 1; n >= 0 {
		return c.load(c.start) && c.placeBack(n)
	}
	p, _, ok := c.step(c.start, -1)
	return ok && c.enterBack(p)
}
