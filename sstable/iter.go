package sstable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/internal/stripe"
)

// Iter walks one file; it implements cell.Iter. It is used by one goroutine and must be closed. Cells are handed out without
// copying: out of a mapped or cached part where that holds them raw, else out of memory of the iterator.
type Iter struct {
	// The state is pooled; this small handle is not, so that a second Close cannot reach an iterator that reuses the state.
	*state
	own *state // of an iterator that is borrowed again and again, instead of one from the pool
}

var _ cell.Iter = (*Iter)(nil)

type state struct {
	slot   stripe.Slot
	r      *Reader
	lent   bool // somebody else keeps r open
	o      cell.IterOptions
	cur    [lanes]cursor
	many   bool // there is more than the cell lane
	narrow bool // Columns or Bounds restrict something
	err    error

	// With several lanes: the current row and which lanes are on it. dir says where the others are: at their first row after
	// (1) or last row before (-1).
	key   []byte
	valid bool
	here  [lanes]bool
	dir   int

	from    []byte // first column wanted in the current row
	to      []byte
	none    bool // nothing of the current row is wanted
	lagging bool // the cell cursor has not been moved to from
	delLag  bool

	arena arena // bytes of ranges and deletes of the current row
	tmp   []cell.Cell
}

func newState() *state { return &state{slot: stripe.Next()} }

var statePool = sync.Pool{New: func() any { return newState() }}

// closedState stands in for the state of a closed iterator. Its error keeps every method from writing to it.
var closedState = &state{err: fmt.Errorf("table iterator: %w", ErrClosed)}

// NewIter returns an iterator, on no row yet. It keeps the file open until it is closed. o.Bounds and o.Columns are kept.
func (r *Reader) NewIter(o cell.IterOptions) *Iter {
	x := new(Iter)
	r.Init(x, o)
	return x
}

// Init is NewIter with the memory of an iterator that has been closed, or never used.
func (r *Reader) Init(x *Iter, o cell.IterOptions) {
	if !r.acquire() {
		x.state = &state{err: fmt.Errorf("table %s: %w", r.name, ErrClosed)}
		return
	}
	x.begin(statePool.Get().(*state), r, o, false)
}

// Borrow is Init for callers who keep r open until x is closed.
func (r *Reader) Borrow(x *Iter, o cell.IterOptions) {
	if x.own == nil {
		x.own = newState()
	}
	x.begin(x.own, r, o, true)
}

func (x *Iter) begin(it *state, r *Reader, o cell.IterOptions, lent bool) {
	it.r, it.lent, it.o, it.err, it.valid, it.dir, it.many = r, lent, o, nil, false, 0, false
	for i := range it.cur {
		it.here[i] = false
		if r.lanes[i].blocks > 0 {
			it.cur[i].reset(r, &r.lanes[i], &it.o)
			it.many = it.many || i != laneCells
		}
	}
	it.narrow = len(o.Columns.From) > 0 || o.Columns.To != nil || o.Bounds != nil
	it.from, it.to, it.none = nil, nil, false
	x.state = it
}

// Close releases what the iterator holds. It may be called twice.
func (x *Iter) Close() error {
	it := x.state
	r := it.r
	if r == nil {
		return nil
	}
	x.state = closedState
	for i := range it.cur {
		if r.lanes[i].blocks > 0 {
			it.cur[i].close(it.o.Stats, it.slot)
		}
	}
	it.r, it.valid, it.o, it.from, it.to = nil, false, cell.IterOptions{}, nil, nil
	if it.many {
		clear(it.tmp[:cap(it.tmp)])
	}
	it.arena.trim()
	var err error
	if !it.lent {
		err = r.release()
	}
	if it != x.own {
		statePool.Put(it)
	}
	return err
}

// Err is the first failure.
func (it *state) Err() error {
	if it.err != nil {
		return it.err
	}
	for i := range it.cur {
		if it.cur[i].err != nil {
			return it.cur[i].err
		}
	}
	return nil
}

// has reports whether lane i has blocks.
func (it *state) has(i int) bool { return it.r.lanes[i].blocks > 0 }

// ---- row moves ----

// First places the iterator on the first row.
func (it *state) First() bool {
	if it.o.Bounds != nil {
		return it.SeekGE(it.o.Bounds.LoRow)
	}
	return it.forward((*cursor).first)
}

// Last places the iterator on the last row.
func (it *state) Last() bool {
	if b := it.o.Bounds; b != nil {
		return it.seekLE(b.HiRow)
	}
	return it.backward((*cursor).last)
}

// SeekGE places the iterator on the first row >= row.
func (it *state) SeekGE(row []byte) bool {
	if b := it.o.Bounds; b != nil && bytes.Compare(row, b.LoRow) < 0 {
		row = b.LoRow
	}
	if it.err != nil {
		return false
	}
	if !it.many && it.has(laneCells) {
		return it.moved(it.cur[laneCells].seekGE(row))
	}
	return it.forward(func(c *cursor) bool { return c.seekGE(row) })
}

// SeekLT places the iterator on the last row < row.
func (it *state) SeekLT(row []byte) bool {
	if b := it.o.Bounds; b != nil && bytes.Compare(row, b.HiRow) > 0 {
		return it.seekLE(b.HiRow)
	}
	return it.backward(func(c *cursor) bool { return c.seekLT(row) })
}

// seekLE places the iterator on the last row <= row.
func (it *state) seekLE(row []byte) bool {
	after := append(append(make([]byte, 0, len(row)+1), row...), 0)
	return it.backward(func(c *cursor) bool { return c.seekLT(after) })
}

// Next moves to the next row.
func (it *state) Next() bool {
	if it.err != nil {
		return false
	}
	if !it.many {
		return it.has(laneCells) && it.moved(it.cur[laneCells].nextRow())
	}
	if !it.valid {
		return false
	}
	it.turn(1)
	for i := range it.cur {
		if it.here[i] {
			it.cur[i].nextRow()
		}
	}
	return it.settle(1)
}

// Prev moves to the row before.
func (it *state) Prev() bool {
	if it.err != nil {
		return false
	}
	if !it.many {
		return it.has(laneCells) && it.moved(it.cur[laneCells].prevRow())
	}
	if !it.valid {
		return false
	}
	it.turn(-1)
	for i := range it.cur {
		if it.here[i] {
			it.cur[i].prevRow()
		}
	}
	return it.settle(-1)
}

// turn moves the lanes that are not on the current row to its other side when the direction changes.
func (it *state) turn(dir int) {
	if it.dir == dir {
		return
	}
	it.dir = dir
	for i := range it.cur {
		if it.here[i] || !it.has(i) {
			continue
		}
		if dir > 0 {
			it.cur[i].seekGE(it.key)
		} else {
			it.cur[i].seekLT(it.key)
		}
	}
}

func (it *state) forward(move func(*cursor) bool) bool {
	if it.err != nil {
		return false
	}
	for i := range it.cur {
		if it.has(i) {
			move(&it.cur[i])
		}
	}
	it.dir = 1
	return it.settle(1)
}

func (it *state) backward(move func(*cursor) bool) bool {
	if it.err != nil {
		return false
	}
	for i := range it.cur {
		if it.has(i) {
			move(&it.cur[i])
		}
	}
	it.dir = -1
	return it.settle(-1)
}

// settle makes the nearest row of the lanes the current one.
func (it *state) settle(dir int) bool {
	if !it.many {
		return it.moved(it.has(laneCells) && it.cur[laneCells].onRow)
	}
	it.valid = false
	var best []byte
	for i := range it.cur {
		it.here[i] = false
		if !it.has(i) {
			continue
		}
		c := &it.cur[i]
		if c.err != nil {
			it.err = c.err
			return false
		}
		if !c.onRow {
			continue
		}
		key := c.rowKey()
		d := -1
		if best != nil {
			d = bytes.Compare(key, best) * dir
		}
		if d < 0 {
			best = key
			it.here = [lanes]bool{}
		}
		it.here[i] = d <= 0
	}
	if best == nil {
		return false
	}
	it.key = append(it.key[:0], best...)
	return it.moved(true)
}

// moved ends a row move: it checks the bounds and prepares what the row's entries are restricted to.
func (it *state) moved(ok bool) bool {
	it.valid = ok
	it.arena.reset()
	if !it.narrow || !ok {
		return ok
	}
	r := it.o.Columns
	it.none = false
	if b := it.o.Bounds; b != nil {
		row := it.Row()
		br, in := b.Columns(row)
		if !in {
			it.valid = false
			it.leave()
			return false
		}
		var some bool
		if r, some = r.Clip(br.From, br.To); !some {
			it.none = true
		}
	}
	it.from, it.to = r.From, r.To
	it.lagging, it.delLag = len(r.From) > 0, len(r.From) > 0
	for i := range it.cur {
		if it.has(i) {
			c := &it.cur[i]
			if c.limit = r.To; i == laneRanges {
				c.limit = nil
			}
			if c.onRow && (!it.many || it.here[i]) {
				c.view(c.row)
			}
		}
	}
	return true
}

// leave takes the lanes off their rows, so that Next and Prev go nowhere.
func (it *state) leave() {
	for i := range it.cur {
		it.cur[i].onRow = false
	}
}

// Row is the current row's key, valid until the next row move.
func (it *state) Row() []byte {
	if it.many {
		return it.key
	}
	return it.cur[laneCells].rowKey()
}

// ---- entries of the row ----

// on reports whether lane i has entries of the current row that are wanted.
func (it *state) on(i int) bool {
	if !it.valid || it.err != nil || it.narrow && it.none {
		return false
	}
	if it.many {
		return it.here[i]
	}
	return i == laneCells
}

// SeekCell places the cell cursor on the first cell at or after (col, ts).
func (it *state) SeekCell(col []byte, ts int64) {
	if !it.on(laneCells) {
		return
	}
	if it.narrow && bytes.Compare(col, it.from) < 0 {
		col, ts = it.from, math.MaxInt64
	}
	it.lagging = false
	it.cur[laneCells].seekCell(col, ts)
}

// Cells appends the row's next cells while dst has spare capacity.
func (it *state) Cells(dst []cell.Cell) []cell.Cell {
	if !it.on(laneCells) {
		return dst
	}
	c := &it.cur[laneCells]
	if it.narrow && it.lagging {
		it.lagging = false
		c.seekCell(it.from, math.MaxInt64)
	}
	return c.cells(dst, it.o.KeysOnly)
}

// Ranges appends the row's wide deletes, clipped to Columns and Bounds.
func (it *state) Ranges(dst []cell.Range) []cell.Range {
	if !it.many || !it.on(laneRanges) {
		return dst
	}
	c := &it.cur[laneRanges]
	if !c.load(c.start) {
		return dst
	}
	c.view(c.startRow) // begin anew, should they be asked for twice
	for {
		it.tmp = c.cells(it.scratch(), false)
		if len(it.tmp) == 0 {
			return dst
		}
		for i := range it.tmp {
			e := &it.tmp[i]
			r := cell.Range{From: it.arena.keep(e.Col)}
			switch e.Kind {
			case kindRange:
				r.To = it.arena.keep(e.Value)
			case kindOpenRange:
			default:
				it.fail(laneRanges, "kind %d in a range block", e.Kind)
				return dst
			}
			if it.narrow {
				var some bool
				if r, some = r.Clip(it.from, it.to); !some {
					continue
				}
			}
			dst = append(dst, r)
		}
	}
}

func (it *state) scratch() []cell.Cell {
	if it.tmp == nil {
		it.tmp = make([]cell.Cell, 0, 32)
	}
	return it.tmp[:0]
}

func (it *state) fail(ln int, format string, args ...any) {
	c := &it.cur[ln]
	off, _, _ := c.index.Place(c.at.i)
	it.err = damage.At(damage.New(laneNames[ln]+" block", off, format, args...), it.r.name, 0)
}

// SeekDelete places the delete cursor on the first narrow delete whose column is >= col.
func (it *state) SeekDelete(col []byte) {
	if !it.many || !it.on(laneDeletes) {
		return
	}
	if it.narrow && bytes.Compare(col, it.from) < 0 {
		col = it.from
	}
	it.delLag = false
	it.cur[laneDeletes].seekCell(col, math.MaxInt64)
}

// Deletes appends the row's next narrow deletes while dst has spare capacity.
func (it *state) Deletes(dst []cell.Delete) []cell.Delete {
	if !it.many || !it.on(laneDeletes) {
		return dst
	}
	c := &it.cur[laneDeletes]
	if it.narrow && it.delLag {
		it.delLag = false
		c.seekCell(it.from, math.MaxInt64)
	}
	for len(dst) < cap(dst) {
		t := it.scratch()
		if room := cap(dst) - len(dst); room < cap(t) {
			t = t[:0:room]
		}
		t = c.cells(t, false)
		if len(t) == 0 {
			break
		}
		for i := range t {
			e := &t[i]
			if e.Kind != kindDelete || len(e.Value) != 0 && len(e.Value) != 8 {
				it.fail(laneDeletes, "kind %d with %d bytes in a delete block", e.Kind, len(e.Value))
				return dst
			}
			d := cell.Delete{Col: it.arena.keep(e.Col), Hi: e.TS}
			if len(e.Value) == 8 {
				d.Lo = int64(binary.BigEndian.Uint64(e.Value))
			}
			if d.Lo < 0 || d.Lo > d.Hi {
				it.fail(laneDeletes, "delete of [%d, %d]", d.Lo, d.Hi)
				return dst
			}
			dst = append(dst, d)
		}
	}
	return dst
}

// arena keeps copies of bytes until reset, without moving them.
type arena struct {
	b []byte
}

func (a *arena) reset() { a.b = a.b[:0] }

func (a *arena) keep(p []byte) []byte {
	if cap(a.b)-len(a.b) < len(p) || a.b == nil {
		// The old memory stays alive through the slices into it.
		a.b = make([]byte, 0, max(1024, 2*len(p), min(2*cap(a.b), bufferKeep)))
	}
	n := len(a.b)
	a.b = append(a.b, p...)
	return a.b[n:len(a.b):len(a.b)]
}

func (a *arena) trim() {
	if cap(a.b) > bufferKeep {
		a.b = nil
	}
}
