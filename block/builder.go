package block

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/cell"
)

const (
	// chunkTarget is the raw size at which a chunk of values is closed: a point read decodes one chunk, 0.8-4 us of S2
	// instead of 4-18 us for a whole block, for 1-3 points of compression ratio.
	chunkTarget = 8 << 10

	// maxCells and maxCols bound a block whatever its cells weigh: codes are 16 bits wide, and 0xffff means none.
	maxCells = 1 << 20
	maxCols  = 0xfff0

	noCol = 0xffff

	// cellCost is about what a cell takes in the keys: its code 1-2, its timestamp 2-4 and its value's end 2 bytes.
	cellCost = 6
)

// Builder collects the cells of one block. Rows and cells come in order; Add refuses cells that do not. The zero value is
// ready for the first block, Reset for the next; memory is kept.
type Builder struct {
	values  []byte
	valEnds []uint32
	codes   []uint16
	ts      []int64
	kinds   []byte

	rowBytes []byte
	rowEnds  []uint32
	starts   []uint32 // first cell of each row
	cut      bool

	colBytes []byte
	colEnds  []uint32
	// succ[0] is the column that began the last row, succ[id+1] the one that last followed column id. Rows tend to repeat
	// their columns, so that one comparison with the guess finds the column and proves the order: a guess is recorded only
	// after the two columns were compared.
	succ         []uint16
	table        []uint16 // open addressing, column id or noCol; length a power of two
	prev         int      // id+1 of the row's last column, 0 at its start
	boundsOf     int      // cells that minTS and maxTS are of; 0: none
	minTS, maxTS int64

	same bool // the last two cells of the row have one column

	chunkCells []uint32
	chunkEnds  []uint32 // raw end of each closed chunk
	chunkStart int      // raw start of the open chunk

	known [knownMax]known // by dictionary modulo knownMax
	one   [1]cell.BatchRow

	order []uint16 // scratch: ids in the order of their bytes
	rank  []uint16
}

// Reset forgets everything.
func (b *Builder) Reset() {
	b.values, b.valEnds, b.codes, b.ts, b.kinds = b.values[:0], b.valEnds[:0], b.codes[:0], b.ts[:0], b.kinds[:0]
	b.rowBytes, b.rowEnds, b.starts, b.cut = b.rowBytes[:0], b.rowEnds[:0], b.starts[:0], false
	b.colBytes, b.colEnds, b.succ = b.colBytes[:0], b.colEnds[:0], append(b.succ[:0], noCol)
	b.chunkCells, b.chunkEnds, b.chunkStart, b.prev = b.chunkCells[:0], b.chunkEnds[:0], 0, 0
	b.boundsOf = 0
	for i := range b.known {
		b.known[i].dict = 0
	}
	for i := range b.table {
		b.table[i] = noCol
	}
	const keep = 1 << 20 // a block of one huge value must not hold its memory for ever
	if cap(b.values) > keep {
		b.values = nil
	}
}

// Same reports whether the cell last added has the column of the one before it in its row (and block).
func (b *Builder) Same() bool { return b.same }

// Started reports whether the row last begun has a cell in the block.
func (b *Builder) Started() bool { return b.prev > 0 }

// Cells, Rows and Cols are the numbers so far.
func (b *Builder) Cells() int { return len(b.ts) }
func (b *Builder) Rows() int  { return len(b.rowEnds) }
func (b *Builder) Cols() int  { return len(b.colEnds) }

// Size estimates the raw bytes of the block so far.
func (b *Builder) Size() int {
	// A row's end and suffix end take 2 bytes each.
	return len(b.values) + len(b.rowBytes) + len(b.colBytes) + cellCost*len(b.ts) + 4*len(b.rowEnds) + keysHead
}

// Full reports whether the builder can take no more cells whatever their size.
func (b *Builder) Full() bool { return len(b.ts) >= maxCells || len(b.colEnds) >= maxCols }

// StartRow begins a row, which must sort after the one before; the caller checks that. cut says that the row goes on from
// the block before and is allowed for a block's first row only. Every row must get a cell.
func (b *Builder) StartRow(row []byte, cut bool) {
	if len(b.succ) == 0 {
		b.succ = append(b.succ, noCol)
	}
	b.rowBytes = append(b.rowBytes, row...)
	b.rowEnds = append(b.rowEnds, uint32(len(b.rowBytes)))
	b.starts = append(b.starts, uint32(len(b.ts)))
	b.cut = b.cut || cut
	b.prev = 0
}

func (b *Builder) col(id int) []byte {
	s := uint32(0)
	if id > 0 {
		s = b.colEnds[id-1]
	}
	return b.colBytes[s:b.colEnds[id]]
}

// Add adds a cell to the current row and returns the number of its column in this block, in order of first appearance. It
// refuses (-1) a cell that does not sort after the row's last one in this block.
func (b *Builder) Add(c *cell.Cell) int {
	id := b.column(c.Col)
	if id < 0 {
		return -1
	}
	if b.same = id == b.prev-1; b.same && c.TS >= b.ts[len(b.ts)-1] {
		return -1
	}
	b.prev = id + 1
	if n := len(b.values); n > b.chunkStart && n-b.chunkStart+len(c.Value) > chunkTarget && len(c.Value) > 0 {
		b.closeChunk(n, len(b.ts))
	}
	b.values = append(b.values, c.Value...)
	b.valEnds = append(b.valEnds, uint32(len(b.values)))
	b.codes = append(b.codes, uint16(id))
	b.ts = append(b.ts, c.TS)
	b.kinds = append(b.kinds, byte(c.Kind))
	return id
}

// AddCells is Add for the next cells of the current row, as long as the block's Size is below limit and it is not Full; at
// least one. It returns how many it took, and false if it refused the one after these: out of order, or outside the limits
// of package cell.
func (b *Builder) AddCells(cs []cell.Cell, limit int) (n int, ok bool) {
	b.one[0].Cells = cs
	_, n, ok = b.add(b.one[:], false, limit, limit)
	b.one[0].Cells = nil
	return n, ok
}

// AddRows starts and adds rows, beginning one as long as the block's Size is below limit and adding cells as long as it is
// below overflow, neither when it is Full; at least one cell. It returns how many rows it began, and how many cells of the
// last one it took. ok is false if it refused what follows: a row out of order or without cells, a cell out of order or
// outside the limits of package cell.
func (b *Builder) AddRows(rows []cell.BatchRow, limit, overflow int) (n, cells int, ok bool) {
	return b.add(rows, true, limit, overflow)
}

// add is AddRows, or AddCells without begin.
func (b *Builder) add(rows []cell.BatchRow, begin bool, limit, overflow int) (done, n int, ok bool) {
	// What the loops use is in locals: the compiler must assume that a store into an array changes b.
	values, prev, start, succ := b.values, b.prev, b.chunkStart, b.succ
	total := len(values)
	var run []byte // values that lie behind each other in memory, to be copied at once; the end of total
	at := len(b.ts)
	codes, tss, ends, kinds := b.codes[:cap(b.codes)], b.ts[:cap(b.ts)], b.valEnds[:cap(b.valEnds)], b.kinds[:cap(b.kinds)]
	last, same := int64(math.MaxInt64), b.same
	if at > 0 {
		last = b.ts[at-1]
	}
	room := min(overflow-(b.Size()-total-cellCost*at), math.MaxInt/2) // for values, and what a cell takes beside
	slack := overflow - limit
	var dict uint32
	var known []uint16 // id by code in dict
	ok = true
next:
	for ; done < len(rows); done++ {
		cs := rows[done].Cells
		if begin {
			if done > 0 && (total+cellCost*at >= room-slack || at >= maxCells || len(b.colEnds) >= maxCols) {
				break
			}
			key := rows[done].Key
			if ok = len(cs) > 0 && (len(b.rowEnds) == 0 || bytes.Compare(b.LastRow(), key) < 0); !ok {
				break
			}
			b.rowBytes = append(b.rowBytes, key...)
			b.rowEnds = append(b.rowEnds, uint32(len(b.rowBytes)))
			b.starts = append(b.starts, uint32(at))
			room -= len(key) + 4
			prev = 0
		}
		if at+len(cs) > min(len(codes), len(tss), len(ends), len(kinds)) {
			b.grown(at, len(cs))
			codes, tss, ends, kinds = b.codes[:cap(b.codes)], b.ts[:cap(b.ts)], b.valEnds[:cap(b.valEnds)], b.kinds[:cap(b.kinds)]
		}
		n = 0
		if k := len(b.starts); begin && k > 1 && len(cs) >= alikeMin && at-int(b.starts[k-2]) == len(cs) && cs[0].Dict != 0 {
			if cs[0].Dict != dict {
				dict, known = cs[0].Dict, b.dict(cs[0].Dict)
			}
			before, end := at-len(cs), at+len(cs)
			more, to, alike := alikeRow(cs, codes[before:at], kinds[before:at], known, ends[at:end], total)
			if alike && to-start <= chunkTarget && to+cellCost*end < room && end < maxCells {
				if r := len(run); len(more) > 0 && cap(run)-r >= len(more) && &run[:r+1][r] == &more[0] {
					run = run[:r+len(more)]
				} else {
					values, run = append(values, run...), more
				}
				copy(codes[at:end], codes[before:at])
				copy(kinds[at:end], kinds[before:at])
				last, same, prev = cs[0].TS, false, int(codes[at-1])+1
				for i := range tss[at:end] {
					tss[at+i] = last
				}
				n, at, total = len(cs), end, to
				continue
			}
		}
		for n < len(cs) {
			c := &cs[n]
			id := noCol
			if c.Dict != 0 {
				if c.Dict != dict {
					dict, known = c.Dict, b.dict(c.Dict)
				}
				if int(c.Code) < len(known) {
					id = int(known[c.Code])
				}
			}
			if id == noCol || int(succ[prev]) != id {
				if len(b.colEnds) >= maxCols && at > 0 {
					done++
					break next
				}
				b.prev = prev
				had := len(b.colBytes)
				if id = b.column(c.Col); id < 0 {
					done, ok = done+1, false
					break next
				}
				room -= len(b.colBytes) - had
				succ = b.succ
				if c.Dict != 0 {
					known = b.learn(c.Dict, c.Code, uint16(id))
				}
			}
			ts, v := c.TS, c.Value
			if same = id == prev-1; same && ts >= last || ts < 0 || len(v) > cell.ValueMax || uint(c.Kind-cell.KindSet) > uint(cell.KindBlob-cell.KindSet) {
				done, ok = done+1, false
				break next
			}
			prev, last = id+1, ts
			if len(v) > 0 {
				if total-start+len(v) > chunkTarget && total > start {
					b.closeChunk(total, at)
					start = total
				}
				if r := len(run); cap(run)-r >= len(v) && &run[:r+1][r] == &v[0] {
					run = run[:r+len(v)]
				} else {
					values, run = append(values, run...), v
				}
				total += len(v)
			}
			ends[at], codes[at], tss[at], kinds[at] = uint32(total), uint16(id), ts, byte(c.Kind)
			n++
			if at++; total+cellCost*at >= room || at >= maxCells {
				if n < len(cs) {
					done++
					break next
				}
			}
		}
	}
	b.values, b.prev, b.same = append(values, run...), prev, same
	b.codes, b.ts, b.valEnds, b.kinds = b.codes[:at], b.ts[:at], b.valEnds[:at], b.kinds[:at]
	return done, n, ok
}

// grown makes room for n more cells after at.
func (b *Builder) grown(at, n int) {
	if n += at; cap(b.ts) < n || cap(b.codes) < n || cap(b.valEnds) < n || cap(b.kinds) < n {
		n -= at
		b.codes, b.ts = slices.Grow(b.codes[:at], n), slices.Grow(b.ts[:at], n)
		b.valEnds, b.kinds = slices.Grow(b.valEnds[:at], n), slices.Grow(b.kinds[:at], n)
	}
}

// Codes and Times are the column numbers, in order of first appearance, and timestamps of the cells [from, to), ValueBytes the
// length of their values together.
func (b *Builder) Codes(from, to int) []uint16 { return b.codes[from:to] }
func (b *Builder) Times(from, to int) []int64  { return b.ts[from:to] }
func (b *Builder) ValueBytes(from, to int) uint64 {
	if from >= to {
		return 0
	}
	s := uint32(0)
	if from > 0 {
		s = b.valEnds[from-1]
	}
	return uint64(b.valEnds[to-1] - s)
}

// column returns the number of the column that follows in the current row, -1 if it does not sort after the one before (or
// is the same).
func (b *Builder) column(col []byte) int {
	id := int(b.succ[b.prev])
	if id == noCol || string(b.col(id)) != string(col) {
		if id = b.intern(col); b.prev > 0 && id != b.prev-1 && bytes.Compare(b.col(b.prev-1), col) >= 0 {
			return -1
		}
		b.succ[b.prev] = uint16(id)
	}
	return id
}

// closeChunk ends the open chunk at byte end, before the given cell. chunkCells[i] is the first cell of chunk i+1.
func (b *Builder) closeChunk(end, next int) {
	b.chunkEnds = append(b.chunkEnds, uint32(end))
	b.chunkCells = append(b.chunkCells, uint32(next))
	b.chunkStart = end
}

func (b *Builder) intern(col []byte) int {
	if 2*(len(b.colEnds)+1) > len(b.table) {
		b.grow()
	}
	mask := uint64(len(b.table) - 1)
	for i := xxhash.Sum64(col) & mask; ; i = (i + 1) & mask {
		id := b.table[i]
		if id == noCol {
			id = uint16(len(b.colEnds))
			b.table[i] = id
			b.colBytes = append(b.colBytes, col...)
			b.colEnds = append(b.colEnds, uint32(len(b.colBytes)))
			b.succ = append(b.succ, noCol)
			return int(id)
		}
		if string(b.col(int(id))) == string(col) {
			return int(id)
		}
	}
}

func (b *Builder) grow() {
	b.table = make([]uint16, max(64, 2*len(b.table)))
	for i := range b.table {
		b.table[i] = noCol
	}
	mask := uint64(len(b.table) - 1)
	for id := range b.colEnds {
		i := xxhash.Sum64(b.col(id)) & mask
		for b.table[i] != noCol {
			i = (i + 1) & mask
		}
		b.table[i] = uint16(id)
	}
}

// row returns the key of row r.
func (b *Builder) row(r int) []byte {
	s := uint32(0)
	if r > 0 {
		s = b.rowEnds[r-1]
	}
	return b.rowBytes[s:b.rowEnds[r]]
}

// FirstRow and LastRow are keys of the block so far; they alias the builder's memory until Reset. Cut says whether the first
// row goes on from the block before.
func (b *Builder) FirstRow() []byte { return b.row(0) }
func (b *Builder) LastRow() []byte  { return b.row(len(b.rowEnds) - 1) }
func (b *Builder) Cut() bool        { return b.cut }

// First and Last are the first and last cell of the block so far.
func (b *Builder) First() (col []byte, ts int64) { return b.col(int(b.codes[0])), b.ts[0] }
func (b *Builder) Last() (col []byte, ts int64) {
	n := len(b.ts) - 1
	return b.col(int(b.codes[n])), b.ts[n]
}

// TimeBounds are the smallest and largest timestamp of the block so far.
func (b *Builder) TimeBounds() (lo, hi int64) {
	if b.boundsOf == len(b.ts) && b.boundsOf > 0 {
		return b.minTS, b.maxTS
	}
	lo, hi = math.MaxInt64, 0
	prev := int64(-1)
	for _, t := range b.ts {
		if t != prev { // cells of a row tend to have one timestamp
			lo, hi = min(lo, t), max(hi, t)
			prev = t
		}
	}
	b.minTS, b.maxTS, b.boundsOf = lo, hi, len(b.ts)
	return lo, hi
}

// Col returns the column with the number that Add gave it.
func (b *Builder) Col(id int) []byte { return b.col(id) }

// Chunks is the number of value chunks, and Chunk returns the raw bytes of one.
func (b *Builder) Chunks() int {
	if len(b.values) > b.chunkStart {
		return len(b.chunkEnds) + 1
	}
	return len(b.chunkEnds)
}

func (b *Builder) Chunk(i int) []byte {
	s, e := 0, len(b.values)
	if i > 0 {
		s = int(b.chunkEnds[i-1])
	}
	if i < len(b.chunkEnds) {
		e = int(b.chunkEnds[i])
	}
	return b.values[s:e]
}

func (b *Builder) chunkCell(i int) uint32 {
	if i == 0 {
		return 0
	}
	return b.chunkCells[i-1]
}

// widthOf is the number of bytes that v needs.
func widthOf(v uint64) int { return (bits.Len64(v) + 7) / 8 }

// commonPrefix is the length of the longest common prefix.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := 0; i < n; i++ {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// equalSteps reports whether ends rise by the same step from 0, and the step.
func equalSteps(ends []uint32) (step uint32, ok bool) {
	step = ends[0]
	prev := uint32(0)
	for _, e := range ends {
		if e-prev != step {
			return 0, false
		}
		prev = e
	}
	return step, true
}

// put writes the numbers of at least width bytes from p[at:]; it may write zeros up to eight bytes beyond.
func put(p []byte, at, w int, v uint64) int {
	binary.LittleEndian.PutUint64(p[at:], v)
	return at + w
}

func putEnds(p []byte, at, w int, ends []uint32) int {
	if w == 0 {
		return at
	}
	for _, e := range ends {
		at = put(p, at, w, uint64(e))
	}
	return at
}

// layout is what AppendKeys finds out about the block before it writes.
type layout struct {
	prefixN                             int
	dictW, rowW, endW, codeW, tsW, valW int
	dictLen, rowLen, valLen             uint32
	base                                int64
	tsPerRow                            bool
	kind                                byte
	suffixBytes                         int
}

func (b *Builder) layout() layout {
	var l layout
	rows, cells := len(b.rowEnds), len(b.ts)
	l.prefixN = commonPrefix(b.row(0), b.row(rows-1))
	l.suffixBytes = len(b.rowBytes) - rows*l.prefixN
	if step, ok := equalSteps(b.rowEnds); ok {
		l.rowLen = step - uint32(l.prefixN)
	} else {
		l.rowW = widthOf(uint64(l.suffixBytes))
	}
	if step, ok := equalSteps(b.colEnds); ok {
		l.dictLen = step
	} else {
		l.dictW = widthOf(uint64(len(b.colBytes)))
	}
	if step, ok := equalSteps(b.valEnds); ok {
		l.valLen = step
	} else {
		l.valW = widthOf(uint64(len(b.values)))
	}
	perRow := uint32(cells / rows)
	for r, s := range b.starts {
		if s != uint32(r)*perRow || cells%rows != 0 {
			l.endW = widthOf(uint64(cells))
			break
		}
	}
	if n := len(b.colEnds); n > 1 {
		l.codeW = widthOf(uint64(n - 1))
	}
	lo, hi := b.TimeBounds()
	l.base, l.tsW = lo, widthOf(uint64(hi-lo))
	l.tsPerRow = l.tsW > 0 && rows < cells && b.rowsAgree()
	l.kind = b.kinds[0]
	if !bytes.Equal(b.kinds[1:], b.kinds[:len(b.kinds)-1]) {
		l.kind = 0
	}
	return l
}

// rowsAgree reports whether all cells of every row have one timestamp.
func (b *Builder) rowsAgree() bool {
	for r, s := range b.starts {
		e := uint32(len(b.ts))
		if r+1 < len(b.starts) {
			e = b.starts[r+1]
		}
		for _, t := range b.ts[s:e] {
			if t != b.ts[s] {
				return false
			}
		}
	}
	return true
}

// sortCols fills order with the column ids in the order of their bytes and rank with the inverse.
func (b *Builder) sortCols() {
	n := len(b.colEnds)
	b.order = slices.Grow(b.order[:0], n)[:n]
	b.rank = slices.Grow(b.rank[:0], n)[:n]
	sorted := true
	for i := range b.order {
		b.order[i] = uint16(i)
		sorted = sorted && (i == 0 || bytes.Compare(b.col(i-1), b.col(i)) < 0)
	}
	if !sorted {
		slices.SortFunc(b.order, func(x, y uint16) int { return bytes.Compare(b.col(int(x)), b.col(int(y))) })
	}
	for i, id := range b.order {
		b.rank[id] = uint16(i)
	}
}

// AppendKeys appends the keys section. places holds, for each chunk, its place in bytes after the end of the keys' envelope.
// The block must have a cell.
func (b *Builder) AppendKeys(dst []byte, places []uint32) []byte {
	l := b.layout()
	b.sortCols()
	rows, cells, cols, chunks := len(b.rowEnds), len(b.ts), len(b.colEnds), b.Chunks()
	tsN, kindN := cells, 0
	if l.tsPerRow {
		tsN = rows
	}
	if l.kind == 0 {
		kindN = cells
	}
	size := keysHead + cols*l.dictW + len(b.colBytes) + l.prefixN + rows*l.rowW + l.suffixBytes + rows*l.endW +
		cells*l.codeW + tsN*l.tsW + kindN + cells*l.valW + 8*chunks + keysSlack
	start := len(dst)
	dst = slices.Grow(dst, size)[:start+size]
	p := dst[start:]
	clear(p[:keysHead])
	le := binary.LittleEndian
	le.PutUint32(p[0:], uint32(rows))
	le.PutUint32(p[4:], uint32(cells))
	le.PutUint32(p[8:], uint32(cols))
	le.PutUint32(p[12:], uint32(chunks))
	le.PutUint64(p[16:], uint64(l.base))
	le.PutUint32(p[24:], uint32(l.prefixN))
	le.PutUint32(p[28:], l.rowLen)
	le.PutUint32(p[32:], l.valLen)
	le.PutUint32(p[36:], l.dictLen)
	if b.cut {
		p[40] |= flagCut
	}
	if l.tsPerRow {
		p[40] |= flagTSPerRow
	}
	p[41], p[42], p[43], p[44], p[45], p[46], p[47] = byte(l.codeW), byte(l.tsW), byte(l.dictW), l.kind, byte(l.valW), byte(l.rowW), byte(l.endW)
	le.PutUint32(p[48:], uint32(len(b.colBytes)))
	le.PutUint32(p[52:], uint32(l.suffixBytes))

	at := keysHead
	if l.dictW > 0 {
		end := uint64(0)
		for _, id := range b.order {
			end += uint64(len(b.col(int(id))))
			at = put(p, at, l.dictW, end)
		}
	}
	for _, id := range b.order {
		at += copy(p[at:], b.col(int(id)))
	}
	at += copy(p[at:], b.row(0)[:l.prefixN])
	if l.rowW > 0 {
		for r, e := range b.rowEnds {
			at = put(p, at, l.rowW, uint64(e)-uint64((r+1)*l.prefixN))
		}
	}
	if s := uint32(0); l.prefixN == 0 {
		at += copy(p[at:], b.rowBytes)
	} else {
		for _, e := range b.rowEnds {
			from, n := int(s)+l.prefixN, int(e)-int(s)-l.prefixN
			if n <= 8 && from+8 <= len(b.rowBytes) { // what is too much is written over
				le.PutUint64(p[at:], le.Uint64(b.rowBytes[from:]))
			} else {
				copy(p[at:], b.rowBytes[from:e])
			}
			at, s = at+n, e
		}
	}
	if l.endW > 0 {
		at = putEnds(p, at, l.endW, b.starts[1:])
		at = put(p, at, l.endW, uint64(cells))
	}
	switch l.codeW {
	case 1:
		q := p[at : at+cells]
		for i, c := range b.codes {
			q[i] = byte(b.rank[c])
		}
		at += cells
	case 2:
		for _, c := range b.codes {
			le.PutUint16(p[at:], b.rank[c])
			at += 2
		}
	}
	if l.tsW > 0 && l.tsPerRow {
		for _, s := range b.starts {
			at = put(p, at, l.tsW, uint64(b.ts[s]-l.base))
		}
	} else if l.tsW > 0 {
		for _, t := range b.ts {
			at = put(p, at, l.tsW, uint64(t-l.base))
		}
	}
	if l.kind == 0 {
		at += copy(p[at:], b.kinds)
	}
	at = putEnds(p, at, l.valW, b.valEnds)
	for i := 0; i < chunks; i++ {
		le.PutUint32(p[at:], b.chunkCell(i))
		le.PutUint32(p[at+4:], places[i])
		at += 8
	}
	clear(p[at:])
	return dst
}
