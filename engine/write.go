package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/commit"
)

// ApplyOption changes how a batch is applied.
type ApplyOption uint8

// NoSync returns as soon as the batch is visible, before it is durable. A crash may lose a suffix of such batches, in write
// order, never one in the middle. The default waits until the batch is durable.
const NoSync ApplyOption = 1

// Apply applies a mutation of one row.
//
// Errors that match none of ErrUnknownOutcome mean that nothing was written. ctx bounds waiting: for room before the batch
// takes its place, and for durability after it (then the error is ErrUnknownOutcome).
func (t *Table) Apply(ctx context.Context, row string, m *Mutation, opts ...ApplyOption) error {
	b := Batch{items: []batchItem{{table: t, row: row, mut: m}}}
	return t.db.Apply(ctx, &b, opts...)
}

// ApplyBulk applies one mutation each to many rows. Entries are independent: errs[i] tells how muts[i] fared, and is nil
// throughout when errs is nil. err is for what concerns the call as a whole; then nothing, or a part that errs tells, was
// written. All entries share one wait for durability.
func (t *Table) ApplyBulk(ctx context.Context, rows []string, muts []*Mutation, opts ...ApplyOption) (errs []error, err error) {
	if len(rows) != len(muts) {
		return nil, fmt.Errorf("%w: %d rows and %d mutations", ErrNilMutation, len(rows), len(muts))
	}
	var last uint64
	for i := range rows {
		b := Batch{items: []batchItem{{table: t, row: rows[i], mut: muts[i]}}}
		seq, err := t.db.place(ctx, &b)
		if err != nil {
			if errs == nil {
				errs = make([]error, len(rows))
			}
			errs[i] = err
			if errors.Is(err, ErrClosed) || errors.Is(err, ErrFailed) || ctx.Err() != nil {
				for j := i + 1; j < len(rows); j++ {
					errs[j] = err
				}
				break
			}
			continue
		}
		last = max(last, seq)
	}
	if last == 0 || noSync(opts) {
		return errs, nil
	}
	return errs, t.db.waitDurable(ctx, last)
}

// Apply applies a batch as a whole or not at all. See Table.Apply for errors and ctx.
func (db *DB) Apply(ctx context.Context, b *Batch, opts ...ApplyOption) error {
	seq, err := db.place(ctx, b)
	if err != nil || seq == 0 || noSync(opts) {
		return err
	}
	return db.waitDurable(ctx, seq)
}

func noSync(opts []ApplyOption) bool {
	for _, o := range opts {
		if o == NoSync {
			return true
		}
	}
	return false
}

func (db *DB) waitDurable(ctx context.Context, seq uint64) error {
	if err := db.log.Wait(ctx, seq); err != nil {
		return fmt.Errorf("%w: the batch is in the write order, waiting for its durability ended: %w", ErrUnknownOutcome, err)
	}
	return nil
}

// run is the scratch of one batch on its way.
type run struct {
	db      *DB
	tables  []*rtable // distinct, by id, gates held
	stripes []uint16  // latches held
	entries cell.RecordBuilder
	record  []byte
	col     []byte
	trees   []touched // that entries go to
	holes   bool
	own     map[string]struct{} // columns and, for wide deletes, rows that the batch has changed so far; kept if holes
	key     []byte
	epoch   uint64
	now     int64
	stamp   int64
}

// touched is what a batch has for one tree.
type touched struct {
	tree           uint64
	bytes, entries int
	mem            *mem // once the batch has its place
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
	if err := db.backpressure(ctx); err != nil {
		return 0, err
	}
	r := runs.Get().(*run)
	r.db = db
	defer r.release()
	if err := r.lockTables(b); err != nil {
		return 0, err
	}
	defer r.unlockTables()
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
		return 0, nil
	}
	return r.commit()
}

// lockTables finds the batch's tables and takes their gates, in order of id.
func (r *run) lockTables(b *Batch) error {
	for {
		st := r.db.states.pin()
		r.tables, r.holes = r.tables[:0], false
		for i := range b.items {
			it := &b.items[i]
			t := st.tables[it.table.name]
			if t == nil {
				st.unref()
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
			for j := range it.mut.ops {
				if o := &it.mut.ops[j]; o.kind == opDeleteColumn && o.lo > 0 {
					r.holes = true
				}
			}
		}
		st.unref()
		for _, t := range r.tables {
			t.gate.RLock()
		}
		// The schema may have changed before the gates were ours.
		cur := r.db.states.pin()
		same := true
		for _, t := range r.tables {
			same = same && cur.tables[t.Name] == t
		}
		cur.unref()
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

// evaluate turns the batch into results: columns with their lives, timestamps chosen, pins added.
func (r *run) evaluate(b *Batch) error {
	r.entries.Reset()
	r.trees = r.trees[:0]
	if len(r.own) > 1024 {
		r.own = nil // clearing it would cost every later batch
	} else if len(r.own) > 0 {
		clear(r.own)
	}
	r.now, r.stamp = r.db.clock.now(), 0
	for i := range b.items {
		it := &b.items[i]
		t := r.table(it.table.name)
		row := bytesOf(it.row)
		for j := range it.mut.ops {
			o := &it.mut.ops[j]
			if err := r.change(t, row, o); err != nil {
				return b.place(i, fmt.Errorf("change %d of %d: %w", j+1, len(it.mut.ops), err))
			}
		}
	}
	if n := int64(r.entries.Len()) + recordOverhead; n > BatchBytesMax {
		return fmt.Errorf("%w: %d, the most is %d", ErrBatchTooBig, n, BatchBytesMax)
	}
	return nil
}

// recordOverhead bounds what a record has beside its entries.
const recordOverhead = 80

func (r *run) change(t *rtable, row []byte, o *op) error {
	e := cell.Entry{Row: row}
	if o.kind == opDeleteRow {
		e.Op = cell.OpRange
		for _, g := range t.Groups {
			e.Tree = g.Tree
			r.append(e)
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
		r.append(e)
		return nil
	}
	r.col = cell.AppendColumn(r.col[:0], o.family, f.Life, o.qualifier)
	e.Col = r.col
	if o.kind == opSet {
		e.Op, e.Kind, e.TS, e.Value = cell.OpCell, cell.KindSet, int64(o.ts), o.value
		if o.ts == ServerTime {
			if r.stamp == 0 {
				r.stamp = r.db.latches.Stamp(r.stripes, r.now, r.db.stampFloor)
				r.db.raiseStamp(r.stamp)
			}
			e.TS = r.stamp
		}
		r.append(e)
		return nil
	}
	e.Op, e.Lo, e.Hi = cell.OpDelete, o.lo, o.hi
	if o.lo > 0 && f.Rule.CountsVersions() {
		pin, err := r.pin(t, e.Tree, row, f.Rule)
		if err != nil {
			return err
		}
		if pin >= 0 {
			p := e
			p.Lo, p.Hi = 0, pin
			r.append(p)
		}
	}
	r.append(e)
	return nil
}

// commit takes the place in line and puts the entries into the memtables. It cannot fail for want of room; a log that has
// failed meanwhile refuses, and then nothing was placed.
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
	r.record = r.entries.AppendRecord(r.record[:0], cell.Header{FirstSeq: first, EngineTime: r.now, Stamp: db.stamp.Load()})
	if err := db.log.Append(r.record, last, r.now, db.stamp.Load()); err != nil {
		db.placeMu.Unlock()
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

	err := applyRecord(r.record, r.memOf)
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

func (r *run) release() {
	clear(r.trees)
	r.trees = r.trees[:0]
	if cap(r.record) > 1<<20 {
		*r = run{} // do not keep the memory of a huge batch
	}
	r.db = nil
	runs.Put(r)
}

// applyRecord puts a batch's entries into memtables. memOf returns where an entry of a tree and sequence goes, nil for
// nowhere; size is the entry's in the record. The live path and replay share it.
func applyRecord(record []byte, memOf func(tree uint64, row []byte, seq uint64, size int) *mem) error {
	rd, err := cell.ReadRecord(record)
	if err != nil {
		return err
	}
	seq, at := rd.Header.FirstSeq, rd.Offset()
	for e, ok := rd.Next(); ok; e, ok = rd.Next() {
		size := rd.Offset() - at
		at += size
		if m := memOf(e.Tree, e.Row, seq, size); m != nil {
			switch e.Op {
			case cell.OpCell:
				err = m.Set(e.Row, e.Col, e.TS, e.Kind, e.Value, seq)
			case cell.OpDelete:
				err = m.Delete(e.Row, cell.Delete{Col: e.Col, Lo: e.Lo, Hi: e.Hi}, seq)
			case cell.OpRange:
				err = m.DeleteRange(e.Row, e.Range, seq)
			}
			if err != nil {
				return err
			}
		}
		seq++
	}
	return rd.Err()
}

// pin decides what a delete that makes a hole must remove beforehand: everything below the collection floor, so that what
// was collected, or may be at any moment, does not come back because a newer version is deleted. It returns the highest
// timestamp to remove from 0 on, -1 for none. r.col is the column.
func (r *run) pin(t *rtable, tree uint64, row []byte, rule ruleOf) (int64, error) {
	own := r.ownEntries(tree, row, r.col)
	limit := rule.VersionsNeeded()
	if own {
		limit = math.MaxInt // the batch's own deletes may take some of them away
	}
	versions, err := r.db.versions(t, row, r.col, limit)
	if err != nil {
		return 0, err
	}
	if own {
		if versions, err = r.replayOwn(tree, row, versions); err != nil {
			return 0, err
		}
	}
	if len(versions) == 0 || rule.Drops(0, versions[0], r.now) {
		return math.MaxInt64, nil
	}
	if floor, ok := rule.Floor(versions, r.now); ok {
		return floor - 1, nil
	}
	return -1, nil
}
