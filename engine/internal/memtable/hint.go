package memtable

import (
	"bytes"

	"github.com/rowandb/rowan/cell"
)

// Hint tells where in a table a row belongs. The zero Hint tells nothing. One that Ahead gave is good for the table that gave it,
// for as long as that lives: what was split since is followed.
type Hint struct{ leaf uint32 }

// Ahead finds out where a row belongs and asks for the memory there, which it does not wait for: it comes while the caller does
// something else, as looking ahead for more rows. A leaf is seldom in the cache. last is the hint for lastRow, the row looked
// for before, or zero: rows that ascend at the table's end need no search.
func (t *Table) Ahead(row []byte, last Hint, lastRow []byte) Hint {
	root := t.rows.root.Load()
	if root == 0 {
		return Hint{}
	}
	if last.leaf != 0 {
		if n := (*node)(t.at(last.leaf)); n.hdr.Load()&hdrForward == 0 && n.high.Load() == 0 && bytes.Compare(lastRow, row) <= 0 {
			return last
		}
	}
	k := key{b: row}
	ref, moved := root, false
	for {
		n := (*node)(t.at(ref))
		if n.level == 0 {
			return Hint{ref} // it is the root
		}
		h := n.hdr.Load()
		kh := head(row, n.plen)
		if h&hdrForward != 0 || t.beyond(&t.rows, n, &k, kh, moved, false) {
			ref, moved = n.next.Load(), true
			continue
		}
		at, eq := t.search(&t.rows, n, h, &k, kh)
		if !eq {
			at = max(at-1, 0)
		}
		kid := n.kid(n.slot(h, at)).Load()
		if !n.unchanged(h) {
			continue
		}
		if n.level == 1 {
			(*node)(t.at(kid)).touch()
			return Hint{kid}
		}
		ref, moved = kid, false
	}
}

// Writer makes the changes of one batch. It is used by one goroutine, and for a short time: Stats waits for it.
type Writer struct {
	t *Table
	w *writer
}

// Begin returns a Writer, which must be ended.
func (t *Table) Begin() Writer { return Writer{t, t.acquire()} }

// End lets go.
func (w Writer) End() { w.w.busy.Store(false) }

// Set is Table.Set.
func (w Writer) Set(h Hint, rowKey, col []byte, ts int64, kind cell.Kind, value []byte, seq uint64) error {
	c := change{seq: seq, ts: ts, col: col, val: value, kind: kind}
	if err := c.checkSet(); err != nil {
		return err
	}
	return w.t.applyBy(w.w, rowKey, &c, h.leaf)
}

// SetMore sets a cell of the row of the Writer's last Set, which did not fail: nothing has to be searched.
func (w Writer) SetMore(col []byte, ts int64, kind cell.Kind, value []byte, seq uint64) error {
	c := change{seq: seq, ts: ts, col: col, val: value, kind: kind}
	if err := c.checkSet(); err != nil {
		return err
	}
	t := w.t
	if err := t.failed.Load(); err != nil {
		return *err
	}
	err := t.arena.prepare()
	if err == nil {
		ref, mem, e := t.alloc(w.w, c.size())
		if err = e; err == nil {
			c.fill(mem)
			err = t.join(w.w, w.w.row, &c, ref)
		}
	}
	if err != nil {
		t.fail(err)
		return err
	}
	w.w.count(&c)
	return nil
}
