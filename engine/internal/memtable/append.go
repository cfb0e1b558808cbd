package memtable

import (
	"bytes"
	"math/bits"

	"github.com/rowandb/rowan/cell"
)

// Item is a cell to be set, with its row.
type Item struct {
	Row, Col, Value []byte
	TS              int64
}

// Append sets the cells of rows that ascend and are all above the table's last one, as far as items are such rows, and returns how
// many these were: many rows take little more than one, since nothing has to be searched and each leaf is published once for
// all that it gets. The first item has sequence seq, the others those that follow. h is the hint for the first row.
func (w Writer) Append(h Hint, items []Item, kind cell.Kind, seq uint64) (n int, err error) {
	t := w.t
	if len(items) == 0 || h.leaf == 0 || t.failed.Load() != nil || !t.rightmost(h.leaf, items[0].Row) {
		return 0, nil
	}
	// The records are written before any latch is taken, as everywhere.
	var refs [most]uint32
	for ; n < min(len(items), most); n++ {
		it := &items[n]
		c := it.change(kind, seq+uint64(n))
		if n > 0 && bytes.Compare(items[n-1].Row, it.Row) >= 0 || len(it.Row) == 0 || len(it.Row) > cell.RowKeyMax || c.checkSet() != nil {
			break
		}
		ref, mem, err := t.alloc(w.w, firstAt(len(it.Row))+c.size())
		if err != nil {
			t.fail(err)
			return 0, err
		}
		c.fillRow(mem, ref, it.Row)
		refs[n] = ref
	}
	leaf := h.leaf
	for done := 0; ; {
		if err = t.arena.prepare(); err != nil {
			break
		}
		k := 0
		if done < n {
			leaf, k, err = t.appendTo(leaf, items[done:n], refs[done:n])
		}
		if k == 0 || err != nil { // all are done, or somebody else has put rows there
			n = done
			break
		}
		for i := done; i < done+k; i++ {
			c := items[i].change(kind, seq+uint64(i))
			w.w.Rows++
			w.w.Bytes += int64(len(items[i].Row))
			w.w.count(&c)
		}
		done += k
	}
	if err != nil {
		t.fail(err)
	}
	return n, err
}

func (it *Item) change(kind cell.Kind, seq uint64) change {
	return change{seq: seq, ts: it.TS, col: it.Col, val: it.Value, kind: kind}
}

// rightmost reports whether leaf ends the table and all its rows, at least one, are below row.
func (t *Table) rightmost(leaf uint32, row []byte) bool {
	n := (*node)(t.at(leaf))
	h := n.hdr.Load()
	if h&hdrForward != 0 || n.high.Load() != 0 || count(h) == 0 {
		return false
	}
	last := n.ref(h, count(h)-1)
	return n.unchanged(h) && bytes.Compare(t.row(last).key(), row) < 0
}

// appendTo puts as many rows behind those of a leaf as it has room for, or one if it has none, which splits it. It returns how many
// these were, and the leaf that goes on; none if the leaf does not end the table below the first row, or is being changed.
func (t *Table) appendTo(leaf uint32, items []Item, refs []uint32) (next uint32, done int, err error) {
	n := (*node)(t.at(leaf))
	h := n.hdr.Load()
	if h&(hdrLatch|hdrForward) != 0 || !n.hdr.CompareAndSwap(h, h|hdrLatch) {
		return leaf, 0, nil
	}
	h |= hdrLatch
	have := count(h)
	if n.high.Load() != 0 || have == 0 || bytes.Compare(t.row(n.ref(h, have-1)).key(), items[0].Row) >= 0 {
		n.unlatch()
		return leaf, 0, nil
	}
	if have == slots {
		k := key{b: items[0].Row}
		if err := t.split(&t.rows, place{ref: leaf, n: n, h: h, at: slots}, &k, refs[0], 0, 0, 0); err != nil {
			return leaf, 0, err
		}
		return n.next.Load(), 1, nil
	}
	done = min(slots-have, len(refs))
	from, to := &n.order[h/hdrList&1], &n.order[h/hdrList&1^1]
	for j := range have >> 3 {
		put(&to.words[j], from.words[j].Load())
	}
	w := from.words[have>>3].Load() & (uint64(1)<<(uint(have)&7*8) - 1)
	for i := range done {
		free := bits.TrailingZeros64(^n.used)
		n.used |= 1 << free
		s := slotNumber(free)
		store64(n.head(s), head(items[i].Row, n.plen))
		store32(n.slotRef(s), refs[i])
		at := have + i
		w |= uint64(s) << (uint(at) & 7 * 8)
		if at&7 == 7 {
			put(&to.words[at>>3], w)
			w = 0
		}
	}
	if at := have + done; at&7 != 0 {
		put(&to.words[at>>3], w)
	}
	h = (h ^ hdrList) + hdrGen + uint64(done)<<8
	store64(&n.hdr, h)
	n.unlatch()
	return leaf, done, nil
}
