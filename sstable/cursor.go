package sstable

import (
	"sync/atomic"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cache"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/internal/stripe"
)

// pos names a block of a lane.
type pos struct {
	leaf int // index leaf; 0 with one level
	i    int // entry of the leaf
}

// held is one part's raw bytes and what keeps them there.
type held struct {
	b   []byte
	pin cache.Handle
	buf []byte // memory of our own, reused
}

func (h *held) release() {
	h.pin.Release()
	h.b = nil
}

// bufferKeep bounds the memory that a pooled cursor keeps per buffer.
const bufferKeep = 1 << 20

func (h *held) drop() {
	h.release()
	if cap(h.buf) > bufferKeep {
		h.buf = nil
	}
}

// cursor walks one lane. It has one current block, which holds a part of the current row; the row may have begun in an earlier
// block (start) and go on in later ones.
type cursor struct {
	r      *Reader
	ln     *lane
	noFill bool
	pass   bool // cell.IterOptions.Pass
	early  int  // with pass: parts that still go into the cache whatever it has room for
	err    error

	at    pos
	index *block.Index // leaf of at
	live  bool         // keys is at's block
	keys  block.Keys
	keysH held
	guide *block.Guide // of the block, in a point read; may be nil
	hash  uint64       // of the row sought, in a point read
	valsH held
	more  []heldChunk // chunks of the block that batches are reading; the first moreN of them
	moreN int
	back  bool // the direction of the span
	seen  byte // keeps touch from being optimized away

	onRow    bool
	start    pos // block in which the current row begins
	startRow int // its number there
	row      int // its number in the current block
	key      []byte
	keyFor   int // length of key's prefix, valid for the current block; -1: none

	cell, end int // cells of the row in the current block that Cells has not passed
	chunkFrom int // valsH holds the values of the cells [chunkFrom, chunkEnd)
	chunkEnd  int
	chunkBase int    // where they begin in the block's values
	limit     []byte // first column beyond what is wanted; nil: none

	dict         uint32 // name of the current block's dictionary
	dictNext     uint32 // number given last; at a multiple of dictsTaken all that were taken are used up
	scratch      []byte
	win          []byte // window: bytes of the file from winOff on
	winOff       int64
	winBuf       []byte
	next         int64 // where a sequential reader would read on
	hits, misses uint64

	zone                        zone
	keysOnly                    bool // values of the current block are not wanted
	blocks, leftOut, valueParts uint64
}

func (c *cursor) reset(r *Reader, ln *lane, o *cell.IterOptions) {
	c.r, c.ln, c.noFill, c.err = r, ln, o.NoFill, nil
	c.pass, c.early = o.Pass, earlyParts
	c.zone = zone{}
	if ln.n == laneCells {
		c.zone.set(r, o)
	}
	c.live, c.onRow, c.win, c.limit, c.index = false, false, nil, nil, nil
	c.chunkFrom, c.chunkEnd = 0, 0
	c.next, c.dict, c.keyFor = -1, 0, -1
}

func (c *cursor) close(stats *cell.ReadStats, slot stripe.Slot) {
	if stats != nil {
		c.count(stats, slot)
	}
	c.keysH.drop()
	c.valsH.drop()
	c.moreN = 0
	for i := range c.more {
		c.more[i].h.drop()
	}
	if cap(c.scratch) > bufferKeep {
		c.scratch = nil
	}
	if cap(c.winBuf) > bufferKeep {
		c.winBuf = nil
	}
	if c.r != nil && c.r.cache != nil {
		c.r.cache.Count(slot, c.hits, c.misses)
	}
	c.hits, c.misses, c.err = 0, 0, nil
	c.blocks, c.leftOut, c.valueParts = 0, 0, 0
	c.r, c.ln, c.index, c.guide, c.win, c.keys, c.live, c.onRow, c.limit = nil, nil, nil, nil, nil, block.Keys{}, false, false, nil
}

func (c *cursor) fail(err error) bool {
	if c.err == nil {
		c.err = damage.At(err, c.r.name, 0)
	}
	c.onRow = false
	return false
}

// ---- moving over blocks ----

func (c *cursor) setLeaf(leaf int) bool {
	if c.index != nil && c.at.leaf == leaf {
		return true
	}
	x, err := c.r.leaf(c.ln, leaf)
	if err != nil {
		return c.fail(err)
	}
	c.index, c.at.leaf, c.live = x, leaf, false
	return true
}

func (c *cursor) leafCount() int {
	if c.ln.leaves == nil {
		return 1
	}
	return len(c.ln.leaves)
}

// step moves p to the next (d = 1) or previous (d = -1) block; ok is false at the lane's end or on an error.
func (c *cursor) step(p pos, d int) (q pos, x *block.Index, ok bool) {
	x, err := c.r.leaf(c.ln, p.leaf)
	if err != nil {
		return p, nil, c.fail(err)
	}
	p.i += d
	if p.i >= 0 && p.i < x.Len() {
		return p, x, true
	}
	p.leaf += d
	if p.leaf < 0 || p.leaf >= c.leafCount() {
		return p, nil, false
	}
	if x, err = c.r.leaf(c.ln, p.leaf); err != nil {
		return p, nil, c.fail(err)
	}
	p.i = 0
	if d < 0 {
		p.i = x.Len() - 1
	}
	return p, x, true
}

// dicts numbers the dictionaries of blocks as they are loaded, see cell.Cell. A cursor takes many numbers at once.
var dicts atomic.Uint32

const dictsTaken = 1 << 10

// newDict gives the current block a number that no other has; or 0, which names no dictionary, once in four billion.
func (c *cursor) newDict() {
	if c.dictNext%dictsTaken == 0 {
		c.dictNext = dicts.Add(dictsTaken) - dictsTaken
	}
	c.dictNext++
	c.dict = c.dictNext
}

// load makes p the current block.
func (c *cursor) load(p pos) bool {
	if c.live && c.at == p {
		return true
	}
	if !c.setLeaf(p.leaf) {
		return false
	}
	c.at, c.live, c.keyFor = p, false, -1
	c.valsH.release()
	c.releaseMore()
	c.chunkFrom, c.chunkEnd = 0, 0
	if c.guide = nil; c.zone.point {
		c.soon()
	}
	off, n, keysLen := c.index.Place(p.i)
	if err := c.part(&c.keysH, c.slot(0), off, keysLen, block.PartKeys, n); err != nil {
		return c.fail(err)
	}
	if c.keys.Rows != c.index.Rows(p.i) || c.keys.Cut != c.index.Cut(p.i) || c.index.FirstPart(p.i+1)-c.index.FirstPart(p.i) != 1+c.keys.Chunks {
		return c.fail(damage.New("keys", off, "%d rows and %d chunks are not what the index says", c.keys.Rows, c.keys.Chunks))
	}
	c.live = true
	c.loaded()
	if c.zone.point {
		c.remember()
	}
	return true
}

// loaded begins the current block.
func (c *cursor) loaded() {
	c.blocks++
	c.keysOnly = c.zone.valuesTo > 0 && c.zone.later(c.index, c.at.i)
	c.newDict()
}

// soon takes the current block's guide, if a point read has left one, and asks memory for what the read will look at next, all at
// once: else it would wait for one after the other.
func (c *cursor) soon() {
	r := c.r
	if c.ln.n != laneCells {
		return
	}
	if c.guide = r.guides.get(c.number()); c.guide != nil {
		c.guide.Prefetch(c.hash, c.index.Rows(c.at.i))
	}
	if r.cached != nil {
		slot, n := c.slot(0), c.index.FirstPart(c.at.i+1)-c.index.FirstPart(c.at.i)
		for i := range min(n, batchChunks) {
			r.cached.Prefetch(slot + i)
		}
	}
}

// remember leaves a guide for the current block.
func (c *cursor) remember() {
	if c.guide == nil && c.ln.n == laneCells {
		c.r.guides.leave(c.number(), &c.keys)
	}
}

// viewKeys makes c.keys read the current block's section, which has been parsed before.
func (c *cursor) viewKeys(b []byte) error {
	if c.guide != nil && c.guide.View(&c.keys, b) {
		return nil
	}
	c.guide = nil
	return c.keys.View(b)
}

// number is the number of the current block in its lane.
func (c *cursor) number() int {
	if c.ln.leaves == nil {
		return c.at.i
	}
	return c.ln.leafBlock[c.at.leaf] + c.at.i
}

// slot is the number of the current block's part n among all parts of the file.
func (c *cursor) slot(n int) int {
	s := c.ln.firstPart + c.index.FirstPart(c.at.i) + n
	if c.ln.leaves != nil {
		s += c.ln.root.FirstPart(c.at.leaf)
	}
	return s
}

// readAhead is how much a cursor that passes over the file once reads at a time.
const readAhead = 256 << 10

// earlyParts is how many parts a scan puts into the cache in any case: about those of a hundred small rows.
const earlyParts = 6

// part puts the raw bytes of the envelope [off, off+n) into h and, for keys, into c.keys. whole is the length of the block's
// envelopes from off on.
func (c *cursor) part(h *held, slot int, off, n int64, part block.Part, whole int64) error {
	r := c.r
	h.release()
	isKeys := part == block.PartKeys
	if r.cached != nil {
		var e cache.Handle
		if c.pass {
			e = r.cached.Peek(slot)
		} else {
			e = r.cached.Get(slot)
		}
		if e.Held() {
			c.hits++
			h.pin, h.b = e, e.Bytes()
			if isKeys {
				return damage.At(c.viewKeys(h.b), r.name, off+block.HeadLen)
			}
			return nil
		}
		c.misses++
	}
	inMap := r.view != nil && c.ln.n == laneCells
	var stored []byte
	known := inMap && r.known(slot)
	if known {
		p := r.view[off : off+n]
		if block.Codec(p[16]) == block.CodecNone {
			h.b = p[block.HeadLen:]
			if isKeys {
				return damage.At(c.viewKeys(h.b), r.name, off+block.HeadLen)
			}
			return nil
		}
		// Decoders must not read mapped memory: see block.Decode.
		c.scratch = append(c.scratch[:0], p...)
		stored = c.scratch
	} else {
		var err error
		if stored, err = c.read(off, n, isKeys, whole); err != nil {
			return err
		}
	}
	var head block.Head
	var body []byte
	var err error
	if known && c.pass && !isKeys {
		// What has been checked before and lies in memory is not checked at each pass.
		if head, err = block.ReadHead(stored, part); err == nil && head.Stored != len(stored)-block.HeadLen {
			err = damage.New(part.String(), 12, "%d bytes stored, the place has %d", head.Stored, len(stored)-block.HeadLen)
		}
		body = stored[block.HeadLen:]
	} else {
		head, body, err = block.Open(stored, block.Seed(r.id, off), part)
	}
	if err != nil && !inMap {
		// Once more: what a second read does not show was never on disk, but a bit that turned over on its way.
		if again, _, e := r.readAt(nil, off, int(n)); e == nil {
			if head, body, e = block.Open(again, block.Seed(r.id, off), part); e == nil {
				c.scratch, c.win, err = again, nil, nil
			}
		}
	}
	if err != nil {
		return damage.At(err, r.name, off)
	}
	var raw []byte
	var fill cache.Handle
	plain := head.Codec == block.CodecNone
	switch {
	case r.cached == nil || c.noFill || plain && inMap:
	case !c.pass:
		fill = r.cached.Reserve(head.Raw)
	case c.early > 0:
		c.early--
		fill = r.cached.Reserve(head.Raw)
	default:
		fill = r.cached.ReserveSpare(head.Raw)
	}
	switch {
	case plain && inMap:
		raw = r.view[off+block.HeadLen : off+n]
	case fill.Held():
		raw = fill.Bytes()
		err = block.Decode(head.Codec, raw, body)
	case plain:
		if raw = body; !c.inWindow(off, n) {
			// The bytes are in scratch: it changes places with h's memory, for a copy of a large value is not small.
			h.buf, c.scratch = c.scratch, h.buf
		}
	default:
		if cap(h.buf) < head.Raw {
			h.buf = make([]byte, head.Raw)
		}
		raw = h.buf[:head.Raw]
		err = block.Decode(head.Codec, raw, body)
	}
	switch {
	case err != nil || !isKeys:
	case known:
		err = c.keys.View(raw) // the checksum says that these are the bytes that were parsed before
	default:
		c.guide = nil // what was read anew is looked at anew
		err = c.keys.Parse(raw)
	}
	if err != nil {
		fill.Release()
		return damage.At(err, r.name, off+block.HeadLen)
	}
	if inMap {
		r.markKnown(slot)
	}
	if h.b, h.pin = raw, fill; fill.Held() {
		r.cached.Publish(slot, fill)
	}
	return nil
}

func (c *cursor) inWindow(off, n int64) bool {
	return off >= c.winOff && off+n <= c.winOff+int64(len(c.win))
}

// read returns the bytes [off, off+n) of the file: from the window, or read from the file. A read of keys moves the window over
// their whole block, and further for a cursor that passes over the file once; any other goes to scratch, because the keys of
// the current block may lie in the window.
func (c *cursor) read(off, n int64, isKeys bool, whole int64) ([]byte, error) {
	if c.inWindow(off, n) {
		return c.win[off-c.winOff:][:n:n], nil
	}
	if !isKeys {
		b, mem, err := c.r.readAt(c.scratch, off, int(n))
		c.scratch = mem
		return b, err
	}
	want := n
	if whole <= readAhead {
		want = whole
	}
	if (c.noFill || c.pass) && off == c.next {
		want = max(want, min(readAhead, c.r.size-off))
	}
	c.win = nil
	b, mem, err := c.r.readAt(c.winBuf, off, int(want))
	if c.winBuf = mem; err != nil {
		return nil, err
	}
	c.win, c.winOff, c.next = b, off, off+want
	return b[:n:n], nil
}

// ---- inside a row ----

// seekCell places the cell cursor on the current row's first cell at or after (col, ts).
func (c *cursor) seekCell(col []byte, ts int64) {
	if !c.onRow || c.err != nil {
		return
	}
	key := c.rowKey()
	p := c.seekBlock(key, col, ts)
	if c.err != nil || !c.load(p) {
		return
	}
	n := 0
	if p == c.start {
		n = c.startRow
	}
	c.view(n)
	c.cell = c.keys.SearchCell(n, c.cell, c.end, col, ts)
}

// seekBlock returns the last block of the current row that does not begin above (col, ts); its first block if all do.
func (c *cursor) seekBlock(key, col []byte, ts int64) pos {
	p := c.start
	x, err := c.r.leaf(c.ln, p.leaf)
	if err != nil {
		c.fail(err)
		return p
	}
	if p.i+1 < x.Len() {
		if !x.Cut(p.i + 1) {
			return p
		}
	} else if q, y, ok := c.step(p, 1); !ok || !y.Cut(q.i) {
		return p
	}
	if c.ln.leaves != nil {
		if leaf := c.ln.root.SeekCell(p.leaf, key, col, ts); leaf != p.leaf {
			if x, err = c.r.leaf(c.ln, leaf); err != nil {
				c.fail(err)
				return p
			}
			p = pos{leaf, 0}
		}
	}
	p.i = x.SeekCell(p.i, key, col, ts)
	return p
}

// ready makes sure that the cell cursor stands on a cell, going on to the row's next block where it must.
func (c *cursor) ready() bool {
	for c.cell >= c.end {
		if !c.onRow || c.err != nil || c.row != c.keys.Rows-1 {
			return false
		}
		if _, to := c.keys.RowCells(c.row); c.end < to {
			return false // the limit lies in this block
		}
		p, x, ok := c.step(c.at, 1)
		for ok && x.Cut(p.i) && c.zone.excuses(x, p.i) {
			c.leftOut++
			if x.Rows(p.i) > 1 {
				return false // the row ends in it
			}
			p, x, ok = c.step(p, 1)
		}
		if !ok || !x.Cut(p.i) {
			return false
		}
		if !c.load(p) {
			return false
		}
		c.view(0)
	}
	return true
}

// cells appends the row's next cells, without their values if keysOnly, or where the zone wants none.
func (c *cursor) cells(dst []cell.Cell, keysOnly bool) []cell.Cell {
	if len(dst) == cap(dst) || c.cell >= c.end && !c.ready() {
		return dst
	}
	to := min(c.end, c.cell+cap(dst)-len(dst))
	var vals []byte
	if !keysOnly && !c.keysOnly {
		if (c.cell >= c.chunkEnd || c.cell < c.chunkFrom) && !c.loadChunk() {
			return dst
		}
		to, vals = min(to, c.chunkEnd), c.valsH.b
	}
	dst = c.keys.AppendCells(dst, c.row, c.cell, to, vals, c.chunkBase, c.dict)
	c.cell = to
	return dst
}

// noValue makes values of blocks without value bytes empty, not nil.
var noValue = []byte{}

// loadChunk loads the chunk of values that holds the cell cursor's cell.
func (c *cursor) loadChunk() bool {
	c.chunkFrom, c.chunkEnd, c.chunkBase = 0, 0, 0
	if c.keys.Chunks == 0 {
		c.valsH.release()
		c.valsH.b, c.chunkEnd = noValue, c.keys.Cells
		return true
	}
	var i, from, to int
	if c.guide != nil {
		i, from, to = c.guide.Chunk(c.cell)
	} else {
		i, from, to = c.keys.Chunk(c.cell)
	}
	base, ok := c.chunk(&c.valsH, i, from, to)
	if !ok {
		return false
	}
	c.chunkBase = base
	c.chunkFrom, c.chunkEnd = from, to
	return true
}

func (c *cursor) chunkAt(i int) uint32 {
	if c.guide != nil {
		return c.guide.ChunkAt(i)
	}
	return c.keys.ChunkAt(i)
}

// chunk loads chunk i of the current block, which has the values of the cells [from, to), into h. base is where they begin in
// the block's values.
func (c *cursor) chunk(h *held, i, from, to int) (base int, ok bool) {
	c.valueParts++
	off, n, keysLen := c.index.Place(c.at.i)
	at, end := int64(c.chunkAt(i)), n-keysLen
	if i+1 < c.keys.Chunks {
		end = int64(c.chunkAt(i + 1))
	}
	off += keysLen + at
	if at > n-keysLen || end > n-keysLen || end-at < block.HeadLen {
		return 0, c.fail(damage.New("keys", off, "chunk %d at %d of %d bytes", i, at, end-at))
	}
	if err := c.part(h, c.slot(1+i), off, end-at, block.PartValues, end-at); err != nil {
		return 0, c.fail(err)
	}
	var last int
	if c.guide != nil {
		base, last = c.guide.Values(i)
	} else {
		base, last = c.keys.ValueStart(from), c.keys.ValueEnd(to-1)
	}
	if want := last - base; want != len(h.b) {
		return 0, c.fail(damage.New("values", off, "%d bytes, keys say %d", len(h.b), want))
	}
	return base, true
}
