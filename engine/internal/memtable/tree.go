package memtable

import (
	"math"
	"unsafe"

	"github.com/rowandb/rowan/internal/prefetch"
)

const (
	leafBytes  = int(unsafe.Sizeof(node{}))
	innerBytes = int(unsafe.Sizeof(inner{}))

	// rehead is how many more common bytes the left half of a split must have for it to move into a new node with better
	// heads. Smaller gains leave at least half of the head useful.
	rehead = 4
)

// items are what a new node begins with, in order.
type items struct {
	refs, kids []uint32
	heads      []uint64 // of refs after the first plen bytes; nil: to be computed
	plen       uint32
}

// fresh is a node that nobody sees yet: the same memory as node and inner, without the price of an atomic store.
type fresh struct {
	_     [unsafe.Offsetof(node{}.order)]byte
	order [2]struct {
		words [7]uint64
		_     uint64
	}
	lines [slotLines]struct {
		heads [lineSlots]uint64
		refs  [lineSlots]uint32
		_     uint32
	}
}

type freshInner struct {
	fresh
	kids [slots]uint32
}

// newNode makes a node of the given items, unlatched. The caller knows that nobody sees it yet.
func (t *Table) newNode(tr *tree, level, low, high, next uint32, it items) (uint32, *node, error) {
	size := leafBytes
	if level > 0 {
		size = innerBytes
	}
	ref, err := t.arena.alloc(size)
	if err != nil {
		return 0, nil, err
	}
	p := t.at(ref)
	clear(unsafe.Slice((*byte)(p), size))
	n := (*node)(p)
	n.level, n.low = level, low
	store32(&n.next, next)
	store32(&n.high, high)
	store64(&n.highHead, math.MaxUint64)
	if high != 0 {
		hk := t.itemKey(tr, high)
		if low != 0 {
			n.plen = commonPrefix(t.itemKey(tr, low).b, hk.b)
		}
		// Heads that are there already are worth more than a few bytes of prefix: new ones are read from the rows, which
		// lie anywhere in memory.
		if it.heads != nil && n.plen < it.plen+rehead {
			n.plen = it.plen
		}
		store64(&n.highHead, head(hk.b, n.plen))
	}
	f := (*fresh)(p)
	heads := it.heads != nil && n.plen == it.plen
	for i, r := range it.refs {
		hd := uint64(0)
		if heads {
			hd = it.heads[i]
		} else if r != 0 {
			hd = head(t.itemKey(tr, r).b, n.plen)
		}
		s := slotNumber(i)
		l := &f.lines[s>>3]
		l.heads[s&7], l.refs[s&7] = hd, r
		f.order[0].words[i>>3] |= uint64(s) << (i & 7 * 8)
	}
	if level > 0 {
		copy((*freshInner)(p).kids[:], it.kids)
	}
	n.used = 1<<len(it.refs) - 1
	store64(&n.hdr, uint64(len(it.refs))<<8)
	return ref, n, nil
}

func commonPrefix(a, b []byte) uint32 {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return uint32(i)
		}
	}
	return uint32(n)
}

// insert adds item ref with key k to tr. If an equal item is there already, it is returned instead. hint may be where a
// search for k has just ended.
func (t *Table) insert(tr *tree, k *key, ref uint32, hint place) (existing uint32, err error) {
	if n := hint.n; n != nil && hint.h&hdrLatch == 0 && n.hdr.CompareAndSwap(hint.h, hint.h|hdrLatch) {
		hint.h |= hdrLatch
	} else {
		if n == nil {
			hint = t.descend(tr, k, false, 0)
		}
		hint = t.latchAt(tr, hint.ref, k)
	}
	if hint.eq != 0 {
		hint.n.unlatch()
		return hint.eq, nil
	}
	if count(hint.h) < slots {
		hint.n.insertAt(hint.h, hint.at, head(k.b, hint.n.plen), ref, 0)
		hint.n.unlatch()
		return 0, nil
	}
	return 0, t.split(tr, hint, k, ref, 0, 0, 0)
}

// split divides the full, latched node at p and adds item (ref, kid). The latches of both halves are held until the parent
// knows the right one (see beyond). Above the leaves, the child old is replaced by repl afterwards if repl is not 0.
func (t *Table) split(tr *tree, p place, k *key, ref, kid, old, repl uint32) error {
	n := p.n
	// What follows reads the keys of these, which lie anywhere in memory.
	for _, item := range [...]uint32{n.low, n.high.Load(), n.ref(p.h, slots/2-1), n.ref(p.h, slots/2)} {
		prefetch.Lines(t.at(item), uintptr(rowMin))
	}
	var refs, kids [slots + 1]uint32
	var heads [slots + 1]uint64
	for i, j := 0, 0; i < slots; i, j = i+1, j+1 {
		if i == p.at {
			j++
		}
		s := n.slot(p.h, i)
		refs[j], heads[j] = n.slotRef(s).Load(), n.head(s).Load()
		if n.level > 0 {
			kids[j] = n.kid(s).Load()
		}
	}
	refs[p.at], kids[p.at], heads[p.at] = ref, kid, head(k.b, n.plen)
	mid := slots / 2
	if p.at == slots && n.next.Load() == 0 {
		mid = slots // keys arrive in order: leave full nodes behind
	}
	sep := refs[mid]
	sepKey := t.itemKey(tr, sep)

	rref, r, err := t.newNode(tr, n.level, sep, n.high.Load(), n.next.Load(), items{refs[mid:], kids[mid:], heads[mid:], n.plen})
	if err != nil {
		n.unlatch()
		return err
	}
	r.hdr.Store(r.hdr.Load() | hdrLatch)

	left, moved := n, uint32(0)
	if n.low != 0 && commonPrefix(t.itemKey(tr, n.low).b, sepKey.b) >= n.plen+rehead {
		// What all keys of the left half share has grown: new heads, so a new node. The old one stays as a signpost.
		ref, l, err := t.newNode(tr, n.level, n.low, sep, rref, items{refs[:mid], kids[:mid], heads[:mid], n.plen})
		if err != nil {
			n.unlatch()
			return err
		}
		l.hdr.Store(l.hdr.Load() | hdrLatch)
		n.next.Store(ref)
		n.hdr.Store((p.h + hdrGen) | hdrForward)
		left, moved = l, ref
	} else {
		h := n.keepFirst(p.h, mid-b2i(p.at < mid), rref, sep, head(sepKey.b, n.plen))
		if p.at < mid {
			n.insertAt(h, p.at, head(k.b, n.plen), ref, kid)
		}
	}
	if err = t.addChild(tr, n.level+1, &sepKey, sep, rref, p.ref, moved); err == nil && repl != 0 {
		replaceChild(left, old, repl)
		replaceChild(r, old, repl)
	}
	r.unlatch()
	left.unlatch()
	if left != n {
		n.unlatch()
	}
	return err
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// keepFirst ends latched node n after its first keep items, at item sep, and publishes that. The freed slots are not
// reused before: a reader of the old state may still be in them.
func (n *node) keepFirst(h uint64, keep int, next, sep uint32, sepHead uint64) uint64 {
	n.next.Store(next)
	n.high.Store(sep)
	n.highHead.Store(sepHead)
	from, to := &n.order[h/hdrList&1], &n.order[h/hdrList&1^1]
	var used uint64
	for i := range keep {
		used |= 1 << slotOrdinal(n.slot(h, i))
	}
	for j := range (keep + 7) / 8 {
		put(&to.words[j], from.words[j].Load())
	}
	n.used = used
	h = (h^hdrList)&^(0xff<<8) + hdrGen | uint64(keep)<<8
	n.hdr.Store(h)
	return h
}

// addChild tells the parent level that node right begins at sep, and that left was replaced by repl if that is not 0. The
// caller holds the latches of left and right; latches are taken upwards and to the right only.
func (t *Table) addChild(tr *tree, level uint32, k *key, sep, right, left, repl uint32) error {
	var p place
	for spins := 0; ; spins = pause(spins) {
		root := tr.root.Load()
		if (*node)(t.at(root)).level >= level {
			p = t.descend(tr, k, false, level)
			break
		}
		if !tr.latch.CompareAndSwap(0, 1) {
			continue
		}
		if tr.root.Load() != root {
			tr.latch.Store(0)
			continue
		}
		// Only the root has no parent, so left is the root. It has no beginning and is therefore never replaced.
		top, _, err := t.newNode(tr, level, 0, 0, 0, items{refs: []uint32{0, sep}, kids: []uint32{root, right}})
		if err == nil {
			tr.root.Store(top)
		}
		tr.latch.Store(0)
		return err
	}
	p = t.latchAt(tr, p.ref, k)
	if count(p.h) == slots {
		return t.split(tr, p, k, sep, right, left, repl)
	}
	p.n.insertAt(p.h, p.at, head(k.b, p.n.plen), sep, right)
	if repl != 0 {
		// After the separator, so that whoever finds the new left child knows where it ends.
		replaceChild(p.n, left, repl)
	}
	p.n.unlatch()
	return nil
}

// replaceChild changes child old of latched node n, if it has it.
func replaceChild(n *node, old, repl uint32) {
	h := n.hdr.Load()
	for i := range count(h) {
		if k := n.kid(n.slot(h, i)); k.Load() == old {
			k.Store(repl)
			return
		}
	}
}
