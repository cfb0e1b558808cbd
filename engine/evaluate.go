package engine

import (
	"fmt"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/io/mapped"
)

// plan finds out what evaluating the batch will need, before anything is locked.
func (r *run) plan(b *Batch) {
	r.holes, r.looks, r.again = false, false, false
	wrote := false
	reads := func() {
		r.looks = true
		r.again = r.again || wrote
	}
	mutation := func(m *Mutation) {
		for j := range m.ops {
			if o := &m.ops[j]; o.kind == opDeleteColumn && o.lo > 0 {
				r.holes = true
				reads()
			}
			wrote = true
		}
	}
	for i := range b.items {
		it := &b.items[i]
		switch {
		case it.more != nil:
			reads()
			wrote = wrote || !it.more.require
		case it.mut.cond != nil:
			reads()
			mutation(it.mut.cond.branch(true))
			mutation(it.mut.cond.branch(false))
		default:
			mutation(it.mut)
		}
	}
}

// evaluate turns the batch into results: conditions decided, columns with their lives, timestamps chosen, pins added.
func (r *run) evaluate(b *Batch) (err error) {
	r.entries.Reset()
	r.trees, r.sets = r.trees[:0], r.sets[:0]
	if r.looks {
		// The time is asked after the files are chosen: what a merge has collected from them by then is gone as of it.
		r.st = r.db.states.pin()
		defer r.db.noted(&err)
		defer mapped.Leave(mapped.Enter(), &err)
	}
	r.now, r.stamp = r.db.clock.now(), 0
	for i := range b.items {
		it := &b.items[i]
		if err := r.item(b, r.table(it.table.name), it); err != nil {
			return b.place(i, err)
		}
	}
	if n := int64(r.entries.Len()) + recordOverhead; n > BatchBytesMax {
		return fmt.Errorf("%w: %d, the most is %d", ErrBatchTooBig, n, BatchBytesMax)
	}
	return nil
}

// recordOverhead bounds what a record has beside its entries.
const recordOverhead = 80

func (r *run) item(b *Batch, t *rtable, it *batchItem) error {
	row := bytesOf(it.row)
	if more := it.more; more != nil {
		if more.require {
			return r.require(t, row, more.want)
		}
		cells, err := r.modify(t, row, more.rmw)
		if err != nil {
			return err
		}
		r.rows = append(r.rows, Row{Key: it.row, Cells: cells})
		return nil
	}
	m := it.mut
	if m.cond != nil {
		matched, err := r.holds(t, row)
		if err != nil {
			return err
		}
		b.matched, m = matched, m.cond.branch(matched)
	}
	for j := range m.ops {
		if err := r.change(t, row, &m.ops[j]); err != nil {
			return placeOp(j, len(m.ops), err)
		}
	}
	return nil
}

// deliver hands out the results of read-modify-writes.
func (r *run) deliver(b *Batch) {
	n := 0
	for i := range b.items {
		if more := b.items[i].more; more != nil && !more.require {
			*more.out = r.rows[n]
			n++
		}
	}
}

func (r *run) change(t *rtable, row []byte, o *op) error {
	e := cell.Entry{Row: row}
	if o.kind == opDeleteRow {
		e.Op = cell.OpRange
		for i := range t.Groups {
			e.Tree = t.Groups[i].Tree
			if err := r.append(t, &e); err != nil {
				return err
			}
		}
		return nil
	}
	f := t.Family(o.family)
	if f == nil {
		return fmt.Errorf("%w: %q in table %q", ErrNoFamily, o.family, t.Name)
	}
	e.Tree = t.treeOf(f)
	if o.kind == opDeleteFamily {
		e.Op, e.Range = cell.OpRange, cell.FamilyRange(o.family)
		return r.append(t, &e)
	}
	r.col = cell.AppendColumn(r.col[:0], o.family, f.Life, o.qualifier)
	e.Col = r.col
	switch o.kind {
	case opAdd:
		if f.Fold == cell.FoldNone {
			return fmt.Errorf("%w: %q in table %q", ErrNotAggregate, o.family, t.Name)
		}
		cell.PutState(r.num[:], o.lo)
		e.Op, e.Kind, e.TS, e.Value = cell.OpCell, cell.KindMerge, int64(o.ts), r.num[:]
		return r.append(t, &e)
	case opSet:
		if f.Fold != cell.FoldNone {
			return fmt.Errorf("%w: %q in table %q", ErrAggregate, o.family, t.Name)
		}
		e.Op, e.Kind, e.TS, e.Value = cell.OpCell, cell.KindSet, int64(o.ts), o.value
		if o.ts == ServerTime {
			e.TS = r.serverTime()
		}
		return r.append(t, &e)
	}
	e.Op, e.Lo, e.Hi = cell.OpDelete, o.lo, o.hi
	if o.lo > 0 && f.Rule.CountsVersions() {
		pin, err := r.pin(t, row, f.Rule)
		if err != nil {
			return err
		}
		if pin >= 0 {
			p := e
			p.Lo, p.Hi = 0, pin
			if err := r.append(t, &p); err != nil {
				return err
			}
		}
	}
	return r.append(t, &e)
}

// serverTime is the batch's stamp.
func (r *run) serverTime() int64 {
	if r.stamp == 0 {
		r.stamp = r.db.latches.Stamp(r.stripes, r.now, r.db.stampFloor)
		r.db.raiseStamp(r.stamp)
	}
	return r.stamp
}

// append adds an entry to the batch.
func (r *run) append(t *rtable, e *cell.Entry) error {
	before := r.entries.Len()
	r.entries.Append(e)
	if r.entries.Len() > BatchBytesMax { // before what a batch makes of little takes all memory
		return fmt.Errorf("%w: more than %d", ErrBatchTooBig, BatchBytesMax)
	}
	at := 0
	for at < len(r.trees) && r.trees[at].tree != e.Tree {
		at++
	}
	if at == len(r.trees) {
		r.trees = append(r.trees, touched{tree: e.Tree})
	}
	r.trees[at].bytes += r.entries.Len() - before
	r.trees[at].entries++
	if e.Op == cell.OpCell && e.Kind == cell.KindSet {
		r.sets = append(r.sets, setting{spot: r.entries.Last(), ts: e.TS, tree: at})
	}
	if !r.again {
		return nil // nobody will ask
	}
	fold := cell.FoldNone
	if e.Op == cell.OpCell && e.Kind == cell.KindMerge {
		fold = t.families.Fold(e.Col)
	}
	return r.own.add(r.db, *e, fold, uint64(r.entries.Count()))
}

// reading is what a batch sees of a table: everything that has its place in the write order for the rows whose latches it
// holds, visible or not, and its own earlier changes.
func (r *run) reading(t *rtable) reading {
	return reading{db: r.db, st: r.st, table: t, seq: everything, own: &r.own, pts: &r.pts}
}

// forget lets go of what the evaluation has read.
func (r *run) forget() {
	r.it.Close()
	r.own.release()
	if r.st != nil {
		r.st.unref()
		r.st = nil
	}
	clear(r.preds)
	clear(r.rows)
	mods := r.mods[:cap(r.mods)]
	for i := range mods {
		mods[i].value = nil // the caller's
	}
	r.preds, r.pred, r.rows = r.preds[:0], 0, r.rows[:0]
}
