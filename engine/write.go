package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/commit"
	"github.com/rowandb/rowan/engine/internal/memtable"
	"github.com/rowandb/rowan/engine/internal/wal"
)

// run is the scratch of one batch on its way.
type run struct {
	db      *DB
	tables  []*rtable // distinct, by id, gates held
	stripes []uint16  // latches held
	entries cell.RecordBuilder
	record  []byte
	col     []byte
	upTo    []byte    // the column after col, where that is needed
	trees   []touched // that entries go to
	sets    []setting // the entries, as long as all are plain cells
	items   []memtable.Item
	epoch   uint64
	now     int64
	stamp   int64
	num     [cell.StateLen]byte

	// What the batch needs of the store, by the kinds of its items.
	holes bool // it may make a hole
	looks bool // it reads rows
	again bool // it may read a row that it has changed before

	st    *state // pinned if looks
	own   overlay
	preds []*predicate // in order of the items
	pred  int          // those evaluated
	mods  []modified   // of the running read-modify-write
	rows  []Row        // results of read-modify-writes, in order of the items
	pts   points
	it    memtable.Iter
}

// touched is what a batch has for one tree.
type touched struct {
	tree           uint64
	bytes, entries int
	mem            *mem // once the batch has its place
	ahead          *mem // where its rows were looked for before that
}

var runs = sync.Pool{New: func() any { return new(run) }}

// place takes a batch from the caller into the log's buffer and the memtables, and publishes it. It returns the batch's last
// sequence, 0 for a batch without changes.
//
// Order, which nothing may change: gates, latches, evaluation, room, place in line, memtables, publish. A batch takes each
// gate and latch once; nothing after its place in line can fail or wait for room.
func (db *DB) place(ctx context.Context, b *Batch) (uint64, error) {
	if err := b.check(db); err != nil {
		return 0, err
	}
	if err := db.enter(); err != nil {
		return 0, err
	}
	defer db.leave()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if db.space.low.Load() && b.adds() {
		if err := db.space.admit(); err != nil {
			return 0, err
		}
	}
	if err := db.backpressure(ctx); err != nil {
		return 0, err
	}
	r := runs.Get().(*run)
	r.db = db
	defer r.release()
	r.plan(b)
	if err := r.lockTables(b); err != nil {
		return 0, err
	}
	defer r.unlockTables()
	if err := r.compile(b); err != nil {
		return 0, err
	}
	r.lockRows(b)
	defer r.unlockRows()
	if r.holes {
		r.epoch = db.epochs.Enter()
		defer db.epochs.Leave(r.epoch)
	}
	if err := r.evaluate(b); err != nil {
		return 0, err
	}
	if r.entries.Count() == 0 {
		r.deliver(b)
		return 0, nil
	}
	r.lookAhead()
	for {
		seq, err := r.commit()
		if errors.Is(err, wal.ErrRoom) {
			if err = db.makeRoom(ctx, len(r.record), b.adds()); err == nil {
				continue
			}
		}
		if err == nil {
			r.deliver(b)
		}
		return seq, err
	}
}

// lockTables finds the batch's tables and takes their gates, in order of id.
func (r *run) lockTables(b *Batch) error {
	for {
		// The schema of a state needs no reference: only files and memtables go when the last one does.
		st := r.db.states.cur.Load()
		r.tables = r.tables[:0]
		for i := range b.items {
			it := &b.items[i]
			if i > 0 && it.table == b.items[i-1].table {
				continue
			}
			t := st.tables[it.table.name]
			if t == nil {
				return b.place(i, fmt.Errorf("%w: %q", ErrNoTable, it.table.name))
			}
			at := 0
			for at < len(r.tables) && r.tables[at].ID < t.ID {
				at++
			}
			if at == len(r.tables) || r.tables[at] != t {
				r.tables = append(r.tables, nil)
				copy(r.tables[at+1:], r.tables[at:])
				r.tables[at] = t
			}
		}
		for _, t := range r.tables {
			t.gate.RLock()
		}
		// The schema may have changed before the gates were ours.
		same := true
		if cur := r.db.states.cur.Load(); cur != st {
			for _, t := range r.tables {
				same = same && cur.tables[t.Name] == t
			}
		}
		if same {
			return nil
		}
		r.unlockTables()
	}
}

func (r *run) unlockTables() {
	for _, t := range r.tables {
		t.gate.RUnlock()
	}
	clear(r.tables)
	r.tables = r.tables[:0]
}

func (r *run) table(name string) *rtable {
	for _, t := range r.tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func (r *run) lockRows(b *Batch) {
	r.stripes = r.stripes[:0]
	for i := range b.items {
		it := &b.items[i]
		r.stripes = append(r.stripes, commit.Stripe(r.table(it.table.name).ID, bytesOf(it.row)))
	}
	r.stripes = r.db.latches.Lock(r.stripes)
}

func (r *run) unlockRows() { r.db.latches.Unlock(r.stripes) }

// commit takes the place in line and puts the entries into the memtables. If the log has no room for them nothing was placed and
// the error is wal.ErrRoom; the caller makes some and tries again. A log that has failed meanwhile refuses likewise. From its
// place in line on a batch cannot fail for want of room.
func (r *run) commit() (uint64, error) {
	db := r.db
	n := uint64(r.entries.Count())
	db.placeMu.Lock()
	if err := db.writable(); err != nil {
		db.placeMu.Unlock()
		return 0, err
	}
	first := db.nextSeq
	last := first + n - 1
	now := min(r.now, db.clock.mark.Load()) // less if time was set back since
	r.record = r.entries.Record(cell.Header{FirstSeq: first, EngineTime: now, Stamp: db.stamp.Load()})
	if err := db.log.Append(r.record, last, now, db.stamp.Load()); err != nil {
		db.placeMu.Unlock()
		if errors.Is(err, wal.ErrRoom) {
			return 0, err
		}
		return 0, db.fail("write the log", err)
	}
	db.nextSeq = last + 1
	db.logged += int64(len(r.record))
	st := db.states.cur.Load() // seals happen under placeMu: the active memtables cannot change
	for i := range r.trees {
		t := &r.trees[i]
		m := st.trees[t.tree].active
		m.refs.Add(1)
		if m.first == 0 {
			m.first, m.at = first, db.logged
		}
		m.last = last
		m.grow(t.bytes, t.entries)
		t.mem = m
	}
	old := db.logged >= db.logDue
	ticket := db.publisher.Enter(last)
	db.placeMu.Unlock()

	err := r.fill(first)
	db.publisher.Done(ticket)
	full := false
	for i := range r.trees {
		m := r.trees[i].mem
		full = full || m.size.Load() >= db.opts.MemtableBytes
		m.unref()
	}
	db.stats.batches.Add(1)
	db.stats.changes.Add(n)
	db.stats.bytesIn.Add(uint64(len(r.record)))
	if err != nil {
		// The batch is in the log and half of it may be in the memtables: nothing after it can be trusted.
		return 0, fmt.Errorf("%w: %w", ErrUnknownOutcome, db.fail("fill the memtable", err))
	}
	if full {
		for i := range r.trees {
			db.sealIfFull(r.trees[i].tree)
		}
	}
	if old {
		db.sealOld()
	}
	return last, nil
}

func (r *run) memOf(tree uint64, _ []byte, _ uint64, _ int) *mem {
	for i := range r.trees {
		if r.trees[i].tree == tree {
			return r.trees[i].mem
		}
	}
	return nil
}

func (r *run) foldOf(tree uint64, col []byte) cell.Fold {
	for _, t := range r.tables {
		if t.group(tree) != nil {
			return t.families.Fold(col)
		}
	}
	return cell.FoldNone
}

func (r *run) release() {
	r.forget()
	clear(r.trees)
	r.trees = r.trees[:0]
	if cap(r.entries.Bytes()) > 1<<20 || cap(r.sets) > 1<<14 {
		*r = run{} // do not keep the memory of a huge batch
	}
	r.db, r.record = nil, nil
	runs.Put(r)
}

// applyRecord puts a batch's entries into memtables. memOf returns where an entry of a tree and sequence goes, nil for
// nowhere, size being its bytes in the record; foldOf how Adds to a column of a tree fold. The live path and replay share it.
func applyRecord(record []byte, memOf func(tree uint64, row []byte, seq uint64, size int) *mem, foldOf func(tree uint64, col []byte) cell.Fold) error {
	rd, err := cell.ReadRecord(record)
	if err != nil {
		return err
	}
	seq, at := rd.Header.FirstSeq, rd.Offset()
	for e, ok := rd.Next(); ok; e, ok = rd.Next() {
		size := rd.Offset() - at
		at += size
		if m := memOf(e.Tree, e.Row, seq, size); m != nil {
			fold := cell.FoldNone
			if e.Op == cell.OpCell && e.Kind == cell.KindMerge {
				fold = foldOf(e.Tree, e.Col)
			}
			if err := applyEntry(m.Table, e, fold, seq); err != nil {
				return err
			}
		}
		seq++
	}
	return rd.Err()
}

// applyEntry puts one entry into a memtable.
func applyEntry(m *memtable.Table, e cell.Entry, fold cell.Fold, seq uint64) error {
	switch {
	case e.Op == cell.OpDelete:
		return m.Delete(e.Row, cell.Delete{Col: e.Col, Lo: e.Lo, Hi: e.Hi}, seq)
	case e.Op == cell.OpRange:
		return m.DeleteRange(e.Row, e.Range, seq)
	case fold != cell.FoldNone:
		state, _ := cell.State(e.Value) // a record with another size is refused where it is read
		return m.Add(e.Row, e.Col, e.TS, fold, state, seq)
	}
	return m.Set(e.Row, e.Col, e.TS, e.Kind, e.Value, seq)
}
