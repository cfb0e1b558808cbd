package sstable

// Spot is where a row of a file would be; the zero Spot is nowhere.
type Spot struct {
	at pos
	ok bool
}

// Locate finds out where a row would be, by the index alone: a point read does it while the filter's memory comes. A Spot is good for
// Iter.SeekRow of the same row in the same file.
func (r *Reader) Locate(row []byte) Spot {
	ln := &r.lanes[laneCells]
	if ln.blocks == 0 {
		return Spot{}
	}
	leaf := 0
	if ln.leaves != nil {
		leaf = max(0, ln.root.SeekRow(row))
	}
	x, err := r.leaf(ln, leaf)
	if err != nil {
		return Spot{} // SeekRow meets it again
	}
	return Spot{pos{leaf, max(0, x.SeekRow(row))}, true}
}

// SeekRow places the iterator, which must be one for a point read (cell.IterOptions.Point), on a row and reports whether the file has
// it. hash is bloom.HashRow(row), at what Locate has said or the zero Spot.
func (it *state) SeekRow(row []byte, hash uint64, at Spot) bool {
	if it.err != nil {
		return false
	}
	it.cur[laneCells].hash = hash
	whole := !it.narrow && !it.o.KeysOnly
	if !it.many && it.has(laneCells) {
		return it.moved(it.cur[laneCells].seekRow(row, at, whole))
	}
	for i := range it.cur {
		switch {
		case !it.has(i):
		case i == laneCells:
			it.cur[i].seekRow(row, at, whole)
		default:
			it.cur[i].seekGE(row)
		}
	}
	it.dir = 1
	return it.settle(1) && string(it.key) == string(row)
}

// seekRow places the cursor on row key, or on no row. whole says that all of the row is wanted.
func (c *cursor) seekRow(key []byte, at Spot, whole bool) bool {
	p := at.at
	if at.ok {
		if c.onRow = false; c.err != nil || !c.setLeaf(p.leaf) {
			return false
		}
	} else {
		var ok bool
		if p, ok = c.find(key); !ok {
			return false
		}
	}
	if c.zone.excuses(c.index, p.i) {
		if q, x, ok := c.step(p, 1); !ok || !x.Cut(q.i) {
			c.leftOut++
			return false
		}
		// The row may go on in blocks that are wanted.
	}
	if !c.load(p) {
		return false
	}
	if c.guide == nil {
		n, equal := c.keys.SearchRow(key)
		return equal && c.place(n)
	}
	for s := c.guide.Begin(c.hash); ; {
		from, to, ok := c.guide.Next(&s)
		if !ok {
			return false
		}
		c.keys.Ask(from, to)
		if whole && !c.keysOnly {
			c.askValues(from, to)
		}
		for n := from; n < to; n++ {
			if c.guide.IsRow(&c.keys, n, key) {
				return c.place(n)
			}
		}
	}
}

// askValues asks for the memory of the values of the rows [from, to), if the cache has them and it is known where they are.
func (c *cursor) askValues(from, to int) {
	if c.r.cached == nil || c.keys.Chunks == 0 {
		return
	}
	from, end := c.keys.RowCells(from)
	if to--; to > 0 {
		_, end = c.keys.RowCells(to)
	}
	i, first, last := c.guide.Chunk(from)
	if !c.r.cached.Has(c.slot(1 + i)) {
		return // a read of the disk waits until it is sure
	}
	base, ok := c.chunk(&c.valsH, i, first, last)
	if !ok {
		return // it says so when the values are asked for
	}
	c.chunkFrom, c.chunkEnd, c.chunkBase = first, last, base
	c.keys.AskValues(from, min(end, last), c.valsH.b, base)
}
