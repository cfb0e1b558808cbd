// Package memtable holds the newest writes of one tree, sorted, until they are flushed.
//
// A Table is a B-link tree over rows in memory outside the Go heap; each row has its cells, narrow deletes and wide deletes.
// Every version stays, with its sequence, so that a reader can look as of any sequence. Readers take no latch and never wait
// for a writer; writers of different rows meet only in the leaf they both change, writers of one row wait for each other.
package memtable

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/prefetch"
)

// ErrReleased is returned by changes after Release.
var ErrReleased = errors.New("memtable: released")

// Options of a Table.
type Options struct {
	Pool *Pool // where memory comes from and goes back to; nil: the system
}

// Table is safe for concurrent use. Among the changes of one row sequences must ascend and be distinct, which the latches of
// the caller ensure; changes of different rows may come in any order.
//
// All bytes that are passed in are copied. All bytes that are handed out live until Release.
type Table struct {
	arena   arena
	rows    tree
	holes   atomic.Int64
	failed  atomic.Pointer[error] // first failure to get memory: later changes are refused with it
	writers [writersMax]writer
}

// Empty reports whether nothing has been put into the table yet.
func (t *Table) Empty() bool { return t.rows.root.Load() == 0 }

// Stats is what a table holds. Counts are of entries, whether visible or not.
type Stats struct {
	Rows, Cells, Deletes, Ranges int64
	Holes                        int64  // deletes with Lo > 0
	Bytes                        int64  // logical: keys, columns and values of all entries
	FirstSeq, LastSeq            uint64 // 0 if there is no entry
	MinTS, MaxTS                 int64  // of cells; Min > Max if there is none
}

// New returns an empty table. The first chunk of memory is taken at the first change.
func New(o Options) *Table {
	t := &Table{}
	t.arena.pool = o.Pool
	for i := range t.writers {
		t.writers[i].MinTS, t.writers[i].MaxTS = math.MaxInt64, math.MinInt64
	}
	return t
}

func (t *Table) at(ref uint32) unsafe.Pointer { return t.arena.at(ref) }

const writersMax = 16

// writer is what one change needs for itself: a region of the arena and its own counts. With these shared by all, two
// processors would pass their cache lines back and forth on every change. A goroutine comes back to the same writer as
// long as its stack stays where it is.
type writer struct {
	busy atomic.Bool // holder owns all below
	Stats
	row  uint32         // of the last change
	ref  uint32         // next free word of the region
	p    unsafe.Pointer // its address
	left int            // bytes
	_    [64]byte
}

func (t *Table) acquire() *writer {
	var mark byte
	i := uint(uintptr(unsafe.Pointer(&mark)) >> 11)
	i ^= i >> 4
	for spins := 0; ; spins = pause(spins) {
		for j := range uint(writersMax) {
			if w := &t.writers[(i+j)%writersMax]; !w.busy.Load() && w.busy.CompareAndSwap(false, true) {
				return w
			}
		}
	}
}

// region is how much a writer takes at once: a sixteenth of what the table has, so that small tables stay small.
func (t *Table) region() int {
	return min(max(1<<bits.Len64(uint64(t.arena.held.Load()>>5)), 4<<10), 64<<10)
}

// alloc returns memory from w's region, or of its own if it is large for that. It is at the region's end only if size was
// not announced to reserve.
func (t *Table) alloc(w *writer, size int) (uint32, unsafe.Pointer, error) {
	size = (size + 7) &^ 7
	if size > w.left {
		if region := t.region(); size <= region/8 {
			ref, err := t.arena.alloc(region)
			if err != nil {
				return 0, nil, err
			}
			w.ref, w.p, w.left = ref, t.at(ref), region
		} else {
			ref, err := t.arena.alloc(size)
			if err != nil {
				return 0, nil, err
			}
			return ref, t.at(ref), nil
		}
	}
	ref, p := w.ref, w.p
	prefetch.Lines(unsafe.Add(p, size), 256) // for the next one: memory that nobody has used for long
	w.ref, w.p, w.left = ref+uint32(size>>wordLog), unsafe.Add(p, size), w.left-size
	return ref, p, nil
}

// Set writes a cell. ts is not negative.
func (t *Table) Set(rowKey, col []byte, ts int64, kind cell.Kind, value []byte, seq uint64) error {
	c := change{seq: seq, ts: ts, col: col, val: value, kind: kind}
	if err := c.checkSet(); err != nil {
		return err
	}
	return t.apply(rowKey, c)
}

func (c *change) checkSet() error {
	switch {
	case c.ts < 0:
		return fmt.Errorf("memtable: %w: %d", cell.ErrTimestamp, c.ts)
	case len(c.val) > cell.ValueMax:
		return fmt.Errorf("memtable: %w: %d bytes", cell.ErrValue, len(c.val))
	case c.kind >= kindDelete || c.kind == cell.KindMerge && len(c.val) != cell.StateLen:
		return fmt.Errorf("memtable: cell of kind %d with %d bytes", c.kind, len(c.val))
	}
	return checkColumn(c.col)
}

// Add folds a state into a cell of an aggregate family: with the table's newest entry of the same column and timestamp, if
// that is a state and no delete that is newer than it covers it. So the newest entry as of a sequence is the fold as of that
// sequence of what came after the last delete, and what older sources hold folds with it unless the table's deletes cover
// that. ts is not negative.
func (t *Table) Add(rowKey, col []byte, ts int64, fold cell.Fold, state int64, seq uint64) error {
	if ts < 0 {
		return fmt.Errorf("memtable: %w: %d", cell.ErrTimestamp, ts)
	}
	if err := checkColumn(col); err != nil {
		return err
	}
	c := change{seq: seq, ts: ts, col: col, kind: cell.KindMerge, fold: fold}
	var value [cell.StateLen]byte
	cell.PutState(value[:], state)
	c.val = value[:]
	return t.apply(rowKey, c)
}

// Delete deletes the versions of one column in a time range.
func (t *Table) Delete(rowKey []byte, d cell.Delete, seq uint64) error {
	if d.Lo < 0 || d.Lo > d.Hi {
		return fmt.Errorf("memtable: %w: delete of %d..%d", cell.ErrTimestamp, d.Lo, d.Hi)
	}
	if err := checkColumn(d.Col); err != nil {
		return err
	}
	lo := d.Lo
	return t.apply(rowKey, change{seq: seq, ts: d.Hi, col: d.Col, val: unsafe.Slice((*byte)(unsafe.Pointer(&lo)), 8), kind: kindDelete})
}

// DeleteRange deletes a range of columns.
func (t *Table) DeleteRange(rowKey []byte, r cell.Range, seq uint64) error {
	if len(r.From) > cell.ColumnMax || len(r.To) > cell.ColumnMax {
		return fmt.Errorf("memtable: %w: range of %d and %d bytes", cell.ErrColumnKey, len(r.From), len(r.To))
	}
	c := change{seq: seq, col: r.From, val: r.To, kind: kindRange}
	if r.To == nil {
		c.kind = kindRangeUp
	}
	return t.apply(rowKey, c)
}

func checkColumn(col []byte) error {
	if len(col) == 0 || len(col) > cell.ColumnMax {
		return fmt.Errorf("memtable: %w: %d bytes", cell.ErrColumnKey, len(col))
	}
	return nil
}

func (t *Table) apply(rowKey []byte, c change) error {
	w := t.acquire()
	defer w.busy.Store(false)
	return t.applyBy(w, rowKey, &c, 0)
}

// applyBy makes a change as writer w. leaf, if not 0, is where a search for the row has ended at some time.
func (t *Table) applyBy(w *writer, rowKey []byte, c *change, leaf uint32) error {
	if len(rowKey) == 0 || len(rowKey) > cell.RowKeyMax {
		return fmt.Errorf("memtable: %w: %d bytes", cell.ErrRowKey, len(rowKey))
	}
	if err := t.failed.Load(); err != nil {
		return *err
	}
	if t.rows.root.Load() == 0 {
		if err := t.start(); err != nil {
			return err
		}
	}
	if err := t.write(w, rowKey, c, leaf); err != nil {
		t.fail(err)
		return err
	}
	w.count(c)
	if c.kind == kindDelete && holeOf(c) {
		t.holes.Add(1)
		w.Holes++
	}
	return nil
}

// fail makes err the answer to later changes: after a failure between two levels of the tree it can be read, not changed.
func (t *Table) fail(err error) { t.failed.CompareAndSwap(nil, &err) }

// start makes the tree at the first change.
func (t *Table) start() error {
	for spins := 0; !t.rows.latch.CompareAndSwap(0, 1); spins = pause(spins) {
	}
	defer t.rows.latch.Store(0)
	if t.rows.root.Load() != 0 {
		return nil
	}
	if err := t.arena.init(); err != nil {
		return err
	}
	ref, _, err := t.newNode(&t.rows, 0, 0, 0, 0, items{})
	if err != nil {
		return err
	}
	t.rows.first = ref
	t.rows.root.Store(ref)
	return nil
}

// write puts c into its row. Memory is taken before latches are.
func (t *Table) write(w *writer, rowKey []byte, c *change, leaf uint32) error {
	if err := t.arena.prepare(); err != nil {
		return err
	}
	k := key{b: rowKey}
	if leaf == 0 {
		leaf = t.rows.root.Load()
	}
	p := t.descendFrom(&t.rows, leaf, &k, false, 0)
	ref := p.eq
	var eref uint32
	if ref == 0 {
		at := firstAt(len(rowKey))
		nref, mem, err := t.alloc(w, at+c.size())
		if err != nil {
			return err
		}
		c.fillRow(mem, nref, rowKey)
		if ref, err = t.insert(&t.rows, &k, nref, p); err != nil {
			return err
		}
		if ref == 0 {
			w.row = nref
			w.Rows++
			w.Bytes += int64(len(rowKey))
			return nil
		}
		eref = nref + uint32(at>>wordLog) // another writer was first: the entry joins its row
	} else {
		var mem unsafe.Pointer
		var err error
		if eref, mem, err = t.alloc(w, c.size()); err != nil {
			return err
		}
		c.fill(mem)
	}
	w.row = ref
	return t.join(w, ref, c, eref)
}

// join puts entry eref, made from c, into a row that is there.
func (t *Table) join(w *writer, ref uint32, c *change, eref uint32) error {
	r := t.row(ref)
	r.latch()
	if c.fold != cell.FoldNone {
		t.fold(r, c, eref)
	}
	err := t.addEntry(w, r, c, eref)
	r.unlatch()
	return err
}

func holeOf(c *change) bool { return *(*int64)(unsafe.Pointer(unsafe.SliceData(c.val))) > 0 }

func (w *writer) count(c *change) {
	if w.FirstSeq == 0 || c.seq < w.FirstSeq {
		w.FirstSeq = c.seq
	}
	w.LastSeq = max(w.LastSeq, c.seq)
	w.Bytes += int64(len(c.col) + len(c.val))
	switch c.kind {
	case kindDelete:
		w.Deletes++
	case kindRange, kindRangeUp:
		w.Ranges++
	default:
		w.Cells++
		w.MinTS, w.MaxTS = min(w.MinTS, c.ts), max(w.MaxTS, c.ts)
	}
}

// Stats counts. Changes that run meanwhile may or may not be in it.
func (t *Table) Stats() Stats {
	s := Stats{MinTS: math.MaxInt64, MaxTS: math.MinInt64}
	for i := range t.writers {
		w := &t.writers[i]
		for spins := 0; !w.busy.CompareAndSwap(false, true); spins = pause(spins) {
		}
		s.Rows += w.Rows
		s.Cells += w.Cells
		s.Deletes += w.Deletes
		s.Ranges += w.Ranges
		s.Holes += w.Holes
		s.Bytes += w.Bytes
		if w.FirstSeq != 0 && (s.FirstSeq == 0 || w.FirstSeq < s.FirstSeq) {
			s.FirstSeq = w.FirstSeq
		}
		s.LastSeq = max(s.LastSeq, w.LastSeq)
		s.MinTS, s.MaxTS = min(s.MinTS, w.MinTS), max(s.MaxTS, w.MaxTS)
		w.busy.Store(false)
	}
	return s
}

// Bytes is the memory that the table holds.
func (t *Table) Bytes() int64 { return t.arena.held.Load() }

// Used is the part of Bytes that was handed out to entries; it grows by up to 64 KiB at a time.
func (t *Table) Used() int64 { return t.arena.used.Load() }

// HasHoles reports whether any narrow delete has Lo > 0.
func (t *Table) HasHoles() bool { return t.holes.Load() != 0 }

// Holes reports whether the column has a narrow delete with Lo > 0, of any sequence.
func (t *Table) Holes(rowKey, col []byte) bool {
	if !t.HasHoles() || t.rows.root.Load() == 0 {
		return false
	}
	k := key{b: rowKey}
	p := t.descend(&t.rows, &k, false, 0)
	if p.eq == 0 {
		return false
	}
	var c cursor
	c.start(t, t.row(p.eq).dels.Load())
	for c.seek(&key{b: col, ts: math.MaxInt64, seq: math.MaxUint64}); c.ref() != 0; c.next() {
		e := t.entry(c.ref())
		if string(e.col()) != string(col) {
			break
		}
		if e.lo() > 0 {
			return true
		}
	}
	return false
}

// Release gives the memory back. Nobody may use the table, an iterator of it or its bytes during or after this; changes
// get ErrReleased, iterators made later are empty.
func (t *Table) Release() error {
	err := ErrReleased
	t.failed.Store(&err)
	t.rows.root.Store(0)
	return t.arena.release()
}
