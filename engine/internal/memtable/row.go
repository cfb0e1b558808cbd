package memtable

import (
	"sort"
	"sync/atomic"
	"unsafe"

	"github.com/rowandb/rowan/cell"
)

// row is the head of a row's record. Its key follows, then, at the next word, the entry that created the row: the one with
// the lowest sequence. Sets are words of a tag and a ref.
type row struct {
	lock   atomic.Uint32 // top bit: latch of the row's writer; below: length of the key, which never changes
	cells  atomic.Uint32 // set of cells
	dels   atomic.Uint32 // set of narrow deletes, ordered by column, upper end descending, newest sequence
	ranges atomic.Uint32 // newest wide delete; they are chained by entry.ts
}

// entry is the head of an immutable record: a column and a value follow.
type entry struct {
	seq  uint64
	ts   int64 // of a cell; upper end of a narrow delete; ref of the next older wide delete
	vlen uint32
	clen uint16
	kind cell.Kind
	_    uint8
}

const (
	rowHead   = int(unsafe.Sizeof(row{}))
	entryHead = int(unsafe.Sizeof(entry{}))
	vecHead   = int(unsafe.Sizeof(vec{}))

	rowMin = rowHead + 8 + entryHead // bytes of the smallest record of a row

	rowLatch = 1 << 31

	kindDelete  cell.Kind = 0x40 // the value is the lower end, 8 bytes in this machine's order
	kindRange   cell.Kind = 0x41 // column: From; value: To
	kindRangeUp cell.Kind = 0x42 // the same without an upper end
)

// What a set word refers to. A set grows from one entry over a vector to a tree.
const (
	tagNone  = 0 << 30
	tagEntry = 1 << 30
	tagVec   = 2 << 30
	tagTree  = 3 << 30
	tagMask  = 3 << 30
)

// vec is a sorted vector of entries: readers take the first n. An entry that belongs at the end is stored there; one that
// belongs elsewhere goes into a new vector, because a reader may be in the old one.
type vec struct {
	n   atomic.Uint32
	cap uint32 // refs that follow
}

// refs is the vector's room.
func (v *vec) refs() []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Add(unsafe.Pointer(v), vecHead)), int(v.cap))
}

// vecMax bounds what one insert into a vector copies, and the garbage it leaves. A larger set becomes a tree, whose
// inserts leave none.
const vecMax = 48

func (t *Table) row(ref uint32) *row     { return (*row)(t.at(ref)) }
func (t *Table) entry(ref uint32) *entry { return (*entry)(t.at(ref)) }
func (t *Table) vec(ref uint32) *vec     { return (*vec)(t.at(ref)) }
func (t *Table) tree(ref uint32) *tree   { return (*tree)(t.at(ref)) }

func (r *row) keyLen() int { return int(r.lock.Load() &^ rowLatch) }

func (r *row) key() []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(r), rowHead)), r.keyLen())
}

func firstAt(keyLen int) int { return rowHead + (keyLen+7)&^7 }

// first is the entry that created the row.
func (r *row) first() *entry { return (*entry)(unsafe.Add(unsafe.Pointer(r), firstAt(r.keyLen()))) }

func (r *row) latch() {
	for spins := 0; ; spins = pause(spins) {
		if l := r.lock.Load(); l&rowLatch == 0 && r.lock.CompareAndSwap(l, l|rowLatch) {
			return
		}
	}
}

func (r *row) unlatch() { store32(&r.lock, r.lock.Load()&^rowLatch) }

func (e *entry) col() []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(e), entryHead)), int(e.clen))
}

func (e *entry) value() []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(e), entryHead+int(e.clen))), int(e.vlen))
}

func (e *entry) lo() int64 {
	var lo int64
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&lo)), 8), e.value())
	return lo
}

func (e *entry) rng() cell.Range {
	r := cell.Range{From: e.col()}
	if e.kind == kindRange {
		r.To = e.value()
	}
	return r
}

// change is one call of Set, Add, Delete or DeleteRange.
type change struct {
	seq  uint64
	ts   int64
	col  []byte
	val  []byte
	kind cell.Kind
	fold cell.Fold // of an Add
}

func (c *change) size() int { return entryHead + len(c.col) + len(c.val) }

func (c *change) key() key { return key{b: c.col, ts: c.ts, seq: c.seq} }

func (c *change) fill(p unsafe.Pointer) {
	e := (*entry)(p)
	e.seq, e.ts, e.kind = c.seq, c.ts, c.kind
	e.vlen, e.clen = uint32(len(c.val)), uint16(len(c.col))
	copy(e.col(), c.col)
	copy(e.value(), c.val)
}

// fillRow writes the record of a row that c creates.
func (c *change) fillRow(p unsafe.Pointer, ref uint32, k []byte) {
	r := (*row)(p)
	store32(&r.lock, uint32(len(k)))
	copy(r.key(), k)
	at := firstAt(len(k))
	c.fill(unsafe.Add(p, at))
	e := ref + uint32(at>>wordLog)
	var cells, dels, ranges uint32
	switch c.kind {
	case kindDelete:
		dels = tagEntry | e
	case kindRange, kindRangeUp:
		ranges = e
	default:
		cells = tagEntry | e
	}
	store32(&r.cells, cells)
	store32(&r.dels, dels)
	store32(&r.ranges, ranges)
}

// addEntry puts entry ref, made from c, into the latched row.
func (t *Table) addEntry(w *writer, r *row, c *change, ref uint32) error {
	switch c.kind {
	case kindRange, kindRangeUp:
		t.entry(ref).ts = int64(r.ranges.Load())
		store32(&r.ranges, ref)
		return nil
	case kindDelete:
		return t.addToSet(w, &r.dels, c, ref)
	}
	return t.addToSet(w, &r.cells, c, ref)
}

func (t *Table) addToSet(w *writer, set *atomic.Uint32, c *change, ref uint32) error {
	k := c.key()
	word := set.Load()
	switch word & tagMask {
	case tagNone:
		store32(set, tagEntry|ref)
		return nil
	case tagEntry:
		only := word & refMask
		pair := [2]uint32{only, ref}
		if k.compare(t.entry(only)) < 0 {
			pair = [2]uint32{ref, only}
		}
		return t.storeVec(w, set, 4, pair[:1], pair[1], nil)
	case tagVec:
		v := t.vec(word)
		n, refs := int(v.n.Load()), v.refs()
		at := n
		if k.compare(t.entry(refs[n-1])) < 0 {
			at = sort.Search(n-1, func(i int) bool { return k.compare(t.entry(refs[i])) < 0 })
		}
		switch {
		case at == n && n < int(v.cap):
			refs[n] = ref
			store32(&v.n, uint32(n+1))
			return nil
		case n == vecMax:
			if err := t.growTree(set, refs[:n]); err != nil {
				return err
			}
			word = set.Load()
		case at == n:
			return t.storeVec(w, set, min(2*n, vecMax), refs[:at], ref, nil)
		default:
			return t.storeVec(w, set, min(n+4, vecMax), refs[:at], ref, refs[at:n])
		}
	}
	_, err := t.insert(t.tree(word), &k, ref, place{})
	return err
}

// storeVec makes a vector of before, ref and after the row's set.
func (t *Table) storeVec(w *writer, set *atomic.Uint32, room int, before []uint32, ref uint32, after []uint32) error {
	vref, p, err := t.alloc(w, vecHead+4*room)
	if err != nil {
		return err
	}
	v := (*vec)(p)
	v.cap = uint32(room)
	refs := v.refs()
	n := copy(refs, before)
	refs[n] = ref
	n += 1 + copy(refs[n+1:], after)
	store32(&v.n, uint32(n))
	store32(set, tagVec|vref)
	return nil
}

// growTree makes a tree of the vector's entries the row's set.
func (t *Table) growTree(set *atomic.Uint32, refs []uint32) error {
	ref, err := t.arena.alloc(int(unsafe.Sizeof(tree{})))
	if err != nil {
		return err
	}
	tr := t.tree(ref)
	tr.cells = 1
	leaf, _, err := t.newNode(tr, 0, 0, 0, 0, items{refs: refs})
	if err != nil {
		return err
	}
	tr.first = leaf
	tr.latch.Store(0)
	tr.root.Store(leaf)
	set.Store(tagTree | ref)
	return nil
}
