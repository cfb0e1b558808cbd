package memtable

import (
	"bytes"
	"math"
	"math/bits"
	"sync"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/prefetch"
)

// Iter walks a table as of a sequence. It implements cell.Iter. It takes no latch, so it may stay open as long as the table
// is not released; it is used by one goroutine.
//
// Every byte it hands out lives until the table is released, which is longer than cell.Iter promises.
type Iter struct{ s *iter }

var _ cell.Iter = (*Iter)(nil)

// iter is the state behind an Iter. It is apart so that it can be pooled although Close may be called twice.
type iter struct {
	t    *Table
	seq  uint64
	opts cell.IterOptions

	allCols bool // opts.Columns is everything
	// Rows: refs[at] of a copy of leaf is the current one if loaded; else the place in the leaf as of state h is known.
	row    *row
	loaded bool
	leaf   uint32
	at     int
	n      int
	h      uint64 // state of the leaf that was copied; the latch bit says that it may be another one
	looked uint64 // bit i: the row of refs[i] has been looked at
	seen   uint64 // bit i: and is visible
	step   int    // how many rows to look at next
	right  uint32
	low    uint32
	refs   [most]uint32
	ahead  bool // batches are asked for: everything to the right will be

	// The current row.
	walk     walk
	cells    cursor
	prev     *entry // last version that was decided; older sequences of it do not count
	hideOn   bool   // the row has visible ranges or any narrow delete
	ranges   []seqRange
	hide     cursor // next narrow delete that may hide what comes next
	hideCol  []byte
	active   []seqLow
	delsOpen bool
	dels     cursor
}

// walk says how far the current row's cells are.
type walk uint8

const (
	walkFresh walk = iota // at the first, the cursor is not placed
	walkOn                // at the cursor
	walkDone
)

type seqRange struct {
	cell.Range
	seq uint64
}

type seqLow struct {
	lo  int64
	seq uint64
}

var iters = sync.Pool{New: func() any { return new(iter) }}

// NewIter returns an iterator over what exists as of seq. It is on no row.
func (t *Table) NewIter(seq uint64, o cell.IterOptions) *Iter {
	it := &Iter{}
	it.Init(t, seq, o)
	return it
}

// Init makes it an iterator over t as of seq, whatever it was before. An Iter that is a part of a pooled struct costs no
// allocation.
func (it *Iter) Init(t *Table, seq uint64, o cell.IterOptions) {
	if it.s == nil {
		it.s = iters.Get().(*iter)
	}
	s := it.s
	s.t, s.seq, s.opts, s.allCols = t, seq, o, o.Columns.Whole()
	s.row, s.loaded, s.ahead = nil, false, false
}

// Close implements cell.Iter. It never fails.
func (it *Iter) Close() error {
	if s := it.s; s != nil {
		it.s = nil
		s.forget()
		iters.Put(s)
	}
	return nil
}

// forget drops every pointer into the table, which may be gone before the state is used again.
func (s *iter) forget() {
	s.t, s.row, s.prev, s.hideCol, s.opts = nil, nil, nil, nil, cell.IterOptions{}
	s.cells.t, s.hide.t, s.dels.t = nil, nil, nil
	clear(s.ranges)
	s.ranges, s.active = s.ranges[:0], s.active[:0]
	if cap(s.active) > 1024 {
		s.active = nil
	}
}

// Err implements cell.Iter. A memtable does not fail.
func (it *Iter) Err() error { return nil }

// Row implements cell.Iter.
func (it *Iter) Row() []byte {
	if it.s == nil || it.s.row == nil {
		return nil
	}
	return it.s.row.key()
}

// open reports whether there is anything to walk.
func (it *Iter) open() bool { return it.s != nil && it.s.t != nil && it.s.t.rows.root.Load() != 0 }

// First implements cell.Iter.
func (it *Iter) First() bool {
	if !it.open() {
		return false
	}
	s := it.s
	s.load(s.t.rows.first)
	return s.forward(0)
}

// Last implements cell.Iter.
func (it *Iter) Last() bool {
	if !it.open() {
		return false
	}
	s := it.s
	// The rightmost leaf is the one without a right neighbour; from the last child of the root downwards it is a few steps.
	ref := s.t.rows.root.Load()
	for {
		n := (*node)(s.t.at(ref))
		h := n.hdr.Load()
		if next := n.next.Load(); next != 0 {
			ref = next
			continue
		}
		if n.level == 0 {
			break
		}
		kid := n.kid(n.slot(h, count(h)-1)).Load()
		if n.unchanged(h) {
			ref = kid
		}
	}
	for s.load(ref); s.right != 0; {
		s.load(s.right)
	}
	return s.backward(s.n - 1)
}

// SeekGE implements cell.Iter.
func (it *Iter) SeekGE(row []byte) bool {
	if !it.open() {
		return false
	}
	s := it.s
	k := key{b: row}
	p := s.t.descend(&s.t.rows, &k, false, 0)
	if p.eq != 0 && s.visible(p.eq) {
		s.loaded, s.leaf, s.at, s.h = false, p.ref, p.at, p.h
		s.setRow(s.t.row(p.eq))
		return true
	}
	s.load(p.ref)
	return s.forward(s.findAt(p, &k, false))
}

// SeekExact places the iterator on row if it is there. After false it is on no row. It is SeekGE for those who want just one
// row, and cheaper where there is none.
func (it *Iter) SeekExact(row []byte) bool {
	if !it.open() {
		return false
	}
	s := it.s
	k := key{b: row}
	p := s.t.descend(&s.t.rows, &k, false, 0)
	if p.eq == 0 || !s.visible(p.eq) {
		s.row = nil
		return false
	}
	s.loaded, s.leaf, s.at, s.h = false, p.ref, p.at, p.h
	s.setRow(s.t.row(p.eq))
	return true
}

// SeekLT implements cell.Iter.
func (it *Iter) SeekLT(row []byte) bool {
	if !it.open() {
		return false
	}
	return it.s.seekLT(&key{b: row})
}

func (s *iter) seekLT(k *key) bool {
	p := s.t.descend(&s.t.rows, k, true, 0)
	s.load(p.ref)
	return s.backward(s.findAt(p, k, true) - 1)
}

// Next implements cell.Iter.
func (it *Iter) Next() bool {
	if !it.open() || it.s.row == nil {
		return false
	}
	s := it.s
	if !s.loaded {
		s.reload()
	}
	return s.forward(s.at + 1)
}

// Prev implements cell.Iter.
func (it *Iter) Prev() bool {
	if !it.open() || it.s.row == nil {
		return false
	}
	s := it.s
	if !s.loaded {
		s.reload()
	}
	return s.backward(s.at - 1)
}

// reload copies the leaf of the current row after a seek that did not.
func (s *iter) reload() {
	p := place{ref: s.leaf, h: s.h, at: s.at}
	s.load(s.leaf)
	k := key{b: s.row.key()}
	s.at = s.findAt(p, &k, false)
}

// findAt is find for those who have found the place in the tree: it holds if that leaf was loaded, and in the same state.
func (s *iter) findAt(p place, k *key, before bool) int {
	if s.leaf == p.ref && (s.h|p.h)&hdrLatch == 0 && s.h == p.h {
		return p.at
	}
	return s.find(k, before)
}

// load copies a leaf.
func (s *iter) load(ref uint32) {
	s.n, s.right, s.low, s.leaf, s.h = s.t.loadLeaf(&s.t.rows, ref, &s.refs)
	s.loaded, s.looked, s.seen, s.step = true, 0, 0, lookFirst
	if s.ahead {
		s.lookAhead()
	}
}

// How many rows are looked at together: a few where a seek has ended, which may be all that is wanted.
const (
	lookFirst = 4
	lookMore  = 16
)

// look finds out which of the rows [from, to) of the leaf are visible. They lie anywhere in memory, so all are asked for before the
// first is waited for.
func (s *iter) look(from, to int) {
	s.step = lookMore
	if !s.ahead {
		if to == s.n && s.right != 0 {
			(*node)(s.t.at(s.right)).touch()
		}
		for _, r := range s.refs[from:to] {
			prefetch.Lines(s.t.at(r), uintptr(rowMin))
		}
	}
	// Now that the lengths of the keys are near: the entries behind them. A row's first entry has its lowest sequence.
	for i, r := range s.refs[from:to] {
		bit := uint64(1) << (uint(from+i) & 63)
		s.looked |= bit
		if s.t.row(r).first().seq <= s.seq {
			s.seen |= bit
		}
	}
}

// find returns the place of the first row >= k, in the loaded leaf or, if all of it is below k, in one to the right. before:
// the row before that place is wanted, so the search stays in a leaf that ends there.
func (s *iter) find(k *key, before bool) int {
	for {
		lo, hi := 0, s.n
		for lo < hi {
			m := int(uint(lo+hi) / 2)
			if bytes.Compare(k.b, s.t.row(s.refs[m&(most-1)]).key()) > 0 {
				lo = m + 1
			} else {
				hi = m
			}
		}
		if lo < s.n || s.right == 0 {
			return lo
		}
		if before {
			// Rows of the right leaf may be below k too, if this leaf was split after it was found.
			if low := (*node)(s.t.at(s.right)).low; bytes.Compare(s.t.row(low).key(), k.b) >= 0 {
				return lo
			}
		}
		s.load(s.right)
	}
}

// forward makes the first visible row at or after place at the current one.
func (s *iter) forward(at int) bool {
	for {
		for at < s.n {
			n := bits.TrailingZeros64(^(s.looked >> uint(at)))
			if n == 0 {
				s.look(at, min(at+s.step, s.n))
				continue
			}
			if seen := s.seen >> uint(at) & (1<<uint(n) - 1); seen != 0 {
				s.enter(at + bits.TrailingZeros64(seen))
				return true
			}
			at += n
		}
		if s.right == 0 {
			s.row = nil
			return false
		}
		s.load(s.right)
		s.step = lookMore
		at = 0
	}
}

// backward makes the last visible row at or before place at the current one.
func (s *iter) backward(at int) bool {
	for {
		for at >= 0 {
			n := bits.LeadingZeros64(^(s.looked << uint(most-1-at)))
			if n == 0 {
				s.look(max(at+1-s.step, 0), at+1)
				continue
			}
			if seen := s.seen << uint(most-1-at) &^ (math.MaxUint64 >> uint(n)); seen != 0 {
				s.enter(at - bits.LeadingZeros64(seen))
				return true
			}
			at -= n
		}
		if s.low == 0 {
			s.row = nil
			return false
		}
		k := key{b: s.t.row(s.low).key()}
		p := s.t.descend(&s.t.rows, &k, true, 0)
		s.load(p.ref)
		s.step = lookMore
		at = s.findAt(p, &k, true) - 1
	}
}

// enter makes the row at place at of the copied leaf the current one.
func (s *iter) enter(at int) {
	s.at = at
	s.setRow(s.t.row(s.refs[at&(most-1)]))
}

func (s *iter) setRow(r *row) {
	s.row, s.walk, s.hideOn = r, walkFresh, false
	if r.ranges.Load()|r.dels.Load() != 0 {
		s.enterDeletes()
	}
}

// visible reports whether a row has an entry as of the sequence.
func (s *iter) visible(ref uint32) bool { return s.t.row(ref).first().seq <= s.seq }

// enterDeletes collects the visible wide deletes of the row, and prepares for the narrow ones.
func (s *iter) enterDeletes() {
	s.ranges = s.ranges[:0]
	for ref := s.row.ranges.Load(); ref != 0; {
		e := s.t.entry(ref)
		if e.seq <= s.seq {
			r := e.rng()
			s.ranges = append(s.ranges, seqRange{r, e.seq})
			if r.Whole() {
				break // what is older deletes less, and only what this one deletes too
			}
		}
		ref = uint32(e.ts)
	}
	word := s.row.dels.Load()
	s.hideOn = len(s.ranges) > 0 || word != 0
	s.hide.start(s.t, word)
	s.hideCol, s.active = nil, s.active[:0]
	s.delsOpen = false
}

// Ranges implements cell.Iter.
func (it *Iter) Ranges(dst []cell.Range) []cell.Range {
	s := it.s
	if s == nil || s.row == nil || !s.hideOn {
		return dst
	}
	mine := dst[len(dst):]
	for i := range s.ranges {
		mine = cell.AddRange(mine, s.ranges[i].Range)
	}
	return append(dst, mine...)
}
