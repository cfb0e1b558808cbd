package memtable

import (
	"bytes"
	"math"

	"github.com/rowandb/rowan/cell"
)

// fold joins entry ref, which nobody sees yet, with the state that the latched row has for the same cell.
func (t *Table) fold(r *row, c *change, ref uint32) {
	old := t.newest(r, c)
	if old == nil || old.kind != cell.KindMerge || t.deletedSince(r, old) {
		return
	}
	e := t.entry(ref)
	newer, _ := cell.State(e.value())
	if older, ok := cell.State(old.value()); ok {
		cell.PutState(e.value(), c.fold.Join(newer, older))
	}
}

// newest is the row's entry of c's column and timestamp with the highest sequence, or nil. The row is latched.
func (t *Table) newest(r *row, c *change) *entry {
	e := t.firstFrom(r.cells.Load(), &key{b: c.col, ts: c.ts, seq: math.MaxUint64})
	if e == nil || e.ts != c.ts || !bytes.Equal(e.col(), c.col) {
		return nil
	}
	return e
}

// firstFrom is the first entry of a set at or after k, or nil. Nobody may change the set meanwhile.
func (t *Table) firstFrom(word uint32, k *key) *entry {
	ref := uint32(0)
	switch word & tagMask {
	case tagNone:
		return nil
	case tagEntry:
		if ref = word & refMask; k.compare(t.entry(ref)) > 0 {
			return nil
		}
	case tagTree:
		// Most often the leaf that would hold k holds what comes after it too.
		if p := t.descend(t.tree(word), k, false, 0); p.at < count(p.h) {
			ref = p.n.ref(p.h, p.at)
			break
		}
		fallthrough
	default:
		var cur cursor
		cur.start(t, word)
		cur.seek(k)
		if ref = cur.ref(); ref == 0 {
			return nil
		}
	}
	return t.entry(ref)
}

// deletedSince reports whether a delete of the row that came after e covers it.
func (t *Table) deletedSince(r *row, e *entry) bool {
	for ref := r.ranges.Load(); ref != 0; {
		w := t.entry(ref)
		if w.seq < e.seq {
			break // those behind it are older still
		}
		if w.rng().Contains(e.col()) {
			return true
		}
		ref = uint32(w.ts)
	}
	word := r.dels.Load()
	if word == tagNone {
		return false
	}
	var cur cursor
	cur.start(t, word)
	for cur.seek(&key{b: e.col(), ts: math.MaxInt64, seq: math.MaxUint64}); cur.ref() != 0; cur.next() {
		d := t.entry(cur.ref())
		if d.ts < e.ts || !bytes.Equal(d.col(), e.col()) {
			break // in order of the upper end: the rest ends below e
		}
		if d.seq > e.seq && d.lo() <= e.ts {
			return true
		}
	}
	return false
}
