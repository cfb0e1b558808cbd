package memtable

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/rowandb/rowan/internal/prefetch"
)

// A tree is a B-link tree over refs of rows, or over refs of one big row's entries. It only grows. Each node covers the keys
// [low, high); when it splits, high moves down and next leads to the new right half, so a reader that comes too late moves
// right.
//
// Readers take nothing. A node's items sit in 55 slots in no order; their order is a list of slot numbers, kept twice. A
// writer latches the node, fills a free slot, writes the new order into the list that is not in use, and publishes both with
// one store to the header. A reader that finds the header unchanged (but for the latch) after its search has seen one
// published state; else it searches the node again. All fields that change are atomics, so this is clean for the race
// detector too.
//
// Header bits: 0 latch, 1 forwarded, 2 list in use, 8-15 number of items, 16-63 generation.
const (
	hdrLatch   = 1 << 0
	hdrForward = 1 << 1
	hdrList    = 1 << 2
	hdrGen     = 1 << 16

	slots = slotLines * lineSlots
	most  = 64 // a power of two above slots, for copies of a node's refs

	slotLines = 11 // cache lines of slots
	lineSlots = 5  // slots in a line
)

type node struct {
	hdr      atomic.Uint64
	next     atomic.Uint32 // right neighbour, 0 = none
	high     atomic.Uint32 // item whose key ends the node, 0 = no end
	highHead atomic.Uint64 // head of high; all ones if there is no end

	// Fixed when the node is made. plen bytes are common to all keys that can ever be in the node; heads are the 8 bytes
	// after them, zero-padded.
	low   uint32 // item whose key begins the node, 0 = no beginning
	plen  uint32
	level uint32 // 0 = leaf

	_    uint32
	used uint64 // slots in use, by ordinal; belongs to the latch holder
	_    [2]uint64

	order [2]orderLine
	lines [slotLines]slotLine
}

// A line of each kind has a word that only the latch holder touches. An atomic store waits until this processor owns the line, and
// the next one after it; a plain store does not wait. So a writer first stores plainly to all lines that it will change, and they
// come while it works: else two processors that fill the same tree pass lines to each other one by one.
type orderLine struct {
	words [7]atomic.Uint64 // slot number of each place, a byte each
	mine  uint64
}

// slotLine holds five slots, each a head and a ref.
type slotLine struct {
	heads [lineSlots]atomic.Uint64
	refs  [lineSlots]atomic.Uint32
	mine  uint32
}

// The number of a slot is 8 times its line plus its place there, so that the number times 8 is where its head is.
func slotNumber(ordinal int) int { return ordinal/lineSlots<<3 | ordinal%lineSlots }

func slotOrdinal(number int) int { return number>>3*lineSlots + number&7 }

func (n *node) head(slot int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Add(unsafe.Pointer(&n.lines), slot<<3))
}

func (n *node) slotRef(slot int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Add(unsafe.Pointer(&n.lines), slot>>3<<6+slot&7<<2+lineSlots*8))
}

func (n *node) kid(slot int) *atomic.Uint32 {
	return &(*inner)(unsafe.Pointer(n)).kids[slotOrdinal(slot)]
}

// inner is a node above the leaves: refs are the separators, kids the children. A child's separator equals its low.
type inner struct {
	node
	kids [slots]atomic.Uint32
}

// tree lives in the arena if it belongs to a row.
type tree struct {
	root  atomic.Uint32
	latch atomic.Uint32 // held to change root
	first uint32        // leftmost leaf; never forwarded, since it has no beginning
	cells uint32        // 1: items are entries ordered by column, timestamp, sequence; 0: rows ordered by key
}

// key is what a search looks for. ts and seq matter only among entries.
type key struct {
	b   []byte
	ts  int64
	seq uint64
}

func count(h uint64) int { return int(h >> 8 & 0xff) }

func slotAt(o *orderLine, place int) int {
	w := (*atomic.Uint64)(unsafe.Add(unsafe.Pointer(o), place>>3<<3&63)).Load()
	return int(w >> (uint(place) & 7 * 8) & 0x7f)
}

func (n *node) slot(h uint64, place int) int {
	return slotAt(&n.order[h/hdrList&1], place)
}

func (n *node) ref(h uint64, place int) uint32 { return n.slotRef(n.slot(h, place)).Load() }

// unchanged reports whether what was read since h was loaded belongs to the state that h published.
func (n *node) unchanged(h uint64) bool { return n.hdr.Load()&^hdrLatch == h&^hdrLatch }

func (n *node) unlatch() { store64(&n.hdr, n.hdr.Load()&^hdrLatch) }

// lowerHead is the number of items whose head is below kh.
func (n *node) lowerHead(h, kh uint64) int {
	order := &n.order[h/hdrList&1]
	lo, c := 0, count(h)
	for c > 1 {
		half := c >> 1
		place := lo + half - 1
		if n.head(slotAt(order, place)).Load() < kh {
			lo += half
		}
		c -= half
	}
	if c == 1 && n.head(n.slot(h, lo)).Load() < kh {
		lo++
	}
	return lo
}

// search returns the number of items below k, and whether the next one equals it.
func (t *Table) search(tr *tree, n *node, h uint64, k *key, kh uint64) (place int, eq bool) {
	c := count(h)
	if c > 0 && n.head(n.slot(h, c-1)).Load() < kh {
		return c, false // keys that ascend
	}
	lo := n.lowerHead(h, kh)
	hi := lo
	if lo < c && n.head(n.slot(h, lo)).Load() == kh {
		hi++
		if hi < c && n.head(n.slot(h, hi)).Load() == kh {
			hi = c
			if kh != math.MaxUint64 {
				hi = n.lowerHead(h, kh+1)
			}
		}
	}
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		switch r := t.compare(tr, k, n.ref(h, m)); {
		case r == 0:
			return m, true
		case r > 0:
			lo = m + 1
		default:
			hi = m
		}
	}
	return lo, false
}

// compare orders k against an item.
func (t *Table) compare(tr *tree, k *key, ref uint32) int {
	if tr.cells == 0 {
		p := t.at(ref)
		sink := *(*uint64)(unsafe.Add(p, rowMin-8)) // comes with the key, so that the row's first entry is near too
		_ = sink
		return bytes.Compare(k.b, (*row)(p).key())
	}
	return k.compare(t.entry(ref))
}

// compare orders k against an entry: column, newest timestamp, newest sequence.
func (k *key) compare(e *entry) int {
	if c := bytes.Compare(k.b, e.col()); c != 0 {
		return c
	}
	switch {
	case k.ts > e.ts:
		return -1
	case k.ts < e.ts:
		return 1
	case k.seq > e.seq:
		return -1
	case k.seq < e.seq:
		return 1
	}
	return 0
}

func (t *Table) itemKey(tr *tree, ref uint32) key {
	if tr.cells == 0 {
		return key{b: t.row(ref).key()}
	}
	e := t.entry(ref)
	return key{b: e.col(), ts: e.ts, seq: e.seq}
}

// head is the 8 bytes of b after the first plen, as a number that orders like them.
func head(b []byte, plen uint32) uint64 {
	if uint(len(b)) >= uint(plen)+8 {
		return binary.BigEndian.Uint64(b[plen:])
	}
	if uint(len(b)) <= uint(plen) {
		return 0
	}
	var p [8]byte
	copy(p[:], b[plen:])
	return binary.BigEndian.Uint64(p[:])
}

// beyond reports whether k lies right of n. A node that was reached through its parent has k inside the range it was made
// with, because a separator is in the parent before its node splits again: heads can be compared. That is not so after a
// move to the right. before: the search is for the item before k, so k may equal the end.
func (t *Table) beyond(tr *tree, n *node, k *key, kh uint64, moved, before bool) bool {
	// A split stores next, then high, then highHead, so whoever sees one sees those before it.
	if !moved {
		if hh := n.highHead.Load(); kh != hh {
			return kh > hh
		}
	}
	hi := n.high.Load()
	if hi == 0 {
		return false
	}
	c := t.compare(tr, k, hi)
	return c > 0 || c == 0 && !before
}

// touch asks for every cache line of a leaf that a search may need. A leaf is seldom in the cache, and a binary search would wait for
// its lines one after the other. It halves a lookup.
func (n *node) touch() { prefetch.Lines(unsafe.Pointer(n), unsafe.Sizeof(*n)) }

// place is where a search ended: in leaf n, as published by h, in front of place items' successor.
type place struct {
	ref uint32
	n   *node
	h   uint64
	at  int    // number of items below the key
	eq  uint32 // the item that equals the key, or 0
}

// descend walks to the node of the given level that holds k, or the one that holds the item before k.
func (t *Table) descend(tr *tree, k *key, before bool, level uint32) place {
	return t.descendFrom(tr, tr.root.Load(), k, before, level)
}

// descendFrom is descend from a node that was once reached through its parent, or the root.
func (t *Table) descendFrom(tr *tree, from uint32, k *key, before bool, level uint32) place {
	p := place{ref: from}
	moved := false
	for {
		n := (*node)(t.at(p.ref))
		h := n.hdr.Load()
		kh := head(k.b, n.plen)
		if h&hdrForward != 0 || t.beyond(tr, n, k, kh, moved, before) {
			p.ref, moved = n.next.Load(), true
			continue
		}
		at, eq := t.search(tr, n, h, k, kh)
		if n.level == level {
			p.eq = 0
			if eq {
				p.eq = n.ref(h, at)
			}
			if n.unchanged(h) {
				p.n, p.h, p.at = n, h, at
				return p
			}
			continue
		}
		if !eq || before {
			at = max(at-1, 0)
		}
		kid := n.kid(n.slot(h, at)).Load()
		if n.unchanged(h) {
			p.ref, moved = kid, false
			if n.level == 1 {
				(*node)(t.at(kid)).touch()
			}
		}
	}
}

// latchAt latches the node of k at ref's level, moving right from ref as far as needed, and finds k's place in it.
func (t *Table) latchAt(tr *tree, ref uint32, k *key) place {
	for spins := 0; ; {
		n := (*node)(t.at(ref))
		h := n.hdr.Load()
		if h&hdrForward != 0 || t.beyond(tr, n, k, 0, true, false) {
			ref = n.next.Load()
			continue
		}
		if h&hdrLatch != 0 || !n.hdr.CompareAndSwap(h, h|hdrLatch) {
			spins = pause(spins)
			continue
		}
		p := place{ref: ref, n: n, h: h | hdrLatch}
		at, eq := t.search(tr, n, h, k, head(k.b, n.plen))
		if p.at = at; eq {
			p.eq = n.ref(h, at)
		}
		return p
	}
}

// pause is one step of waiting for a latch. Latches are held for well under a microsecond, unless the holder lost its
// processor; then yielding lets it go on.
func pause(spins int) int {
	if spins < 16 {
		return spins + 1
	}
	runtime.Gosched()
	return spins
}

// insertAt puts an item into latched node n, which has room, and publishes it. The latch stays.
func (n *node) insertAt(h uint64, at int, hd uint64, ref, kid uint32) {
	free := bits.TrailingZeros64(^n.used)
	s := slotNumber(free)
	from, to := &n.order[h/hdrList&1], &n.order[h/hdrList&1^1]
	n.lines[s>>3].mine++
	to.mine++
	n.used |= 1 << free
	store64(n.head(s), hd)
	store32(n.slotRef(s), ref)
	if n.level > 0 {
		store32(n.kid(s), kid)
	}
	last := count(h) >> 3
	i := at >> 3
	for j := range i {
		put(&to.words[j], from.words[j].Load())
	}
	w := from.words[i].Load()
	sh := uint(at) & 7 * 8
	below := uint64(1)<<sh - 1
	put(&to.words[i], w&below|uint64(s)<<sh|(w&^below)<<8)
	for carry := w >> 56; i < last; {
		i++
		w = from.words[i].Load()
		put(&to.words[i], w<<8|carry)
		carry = w >> 56
	}
	h = (h ^ hdrList) + hdrGen + 1<<8
	store64(&n.hdr, h)
}

// put stores only what changes: the two lists of a node are mostly alike, and where a store is atomic a load is far cheaper.
func put(a *atomic.Uint64, v uint64) {
	if a.Load() != v {
		store64(a, v)
	}
}
