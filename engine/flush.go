package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/compact"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/io/mapped"
	"github.com/rowandb/rowan/levels"
)

// sealIfFull seals a tree's memtable if it has reached its size, and starts its flush.
func (db *DB) sealIfFull(tree uint64) {
	db.placeMu.Lock()
	st := db.states.cur.Load()
	if t := st.trees[tree]; t != nil && t.active.size.Load() >= db.opts.MemtableBytes {
		db.seal(tree)
	}
	db.placeMu.Unlock()
	db.jobs.kick()
}

// sealOld seals the memtables that hold the log back beyond its bound, and starts their flushes.
func (db *DB) sealOld() {
	db.placeMu.Lock()
	var old []uint64
	due := db.logged
	for id, t := range db.states.cur.Load().trees {
		switch {
		case t.active.first == 0:
		case db.logged-t.active.at >= db.opts.LogBytes:
			old = append(old, id)
		default:
			due = min(due, t.active.at)
		}
	}
	db.logDue = due + db.opts.LogBytes
	db.seal(old...)
	db.placeMu.Unlock()
	db.jobs.kick()
}

// seal closes the active memtables of trees to writers and opens new ones. Holds placeMu: batches that have their place before
// are in the old ones, all later ones go to the new ones. An empty memtable is left alone.
func (db *DB) seal(trees ...uint64) {
	if len(trees) == 0 {
		return
	}
	db.states.change(db.opts.Clock(), func(st *state) {
		for _, tree := range trees {
			t := st.trees[tree]
			if t == nil || t.active.first == 0 {
				continue
			}
			st.trees[tree] = &memtree{active: db.newMem(), sealed: append(t.sealed[:len(t.sealed):len(t.sealed)], t.active)}
			st.gen++
		}
	})
}

// flushOne writes a tree's oldest sealed memtable to L0.
func (db *DB) flushOne(tree uint64) (err error) {
	defer mapped.Leave(mapped.Enter(), &err)
	st := db.states.pin()
	t := st.trees[tree]
	if t == nil || len(t.sealed) == 0 {
		st.unref()
		return nil
	}
	m := t.sealed[0]
	st.unref()
	// Nothing that is not durable in the log may be in a table file: a crash loses a suffix, never something in the middle.
	db.publisher.Wait(m.last)
	if err := db.log.Wait(context.Background(), m.last); err != nil {
		return db.fail("write the log", err)
	}
	st, asOf := db.beginCollect()
	defer st.unref()
	t, table := st.trees[tree], st.tableOf(tree)
	if t == nil || table == nil {
		return nil // dropped meanwhile
	}
	res, err := db.mergeMem(st, asOf, table, tree, m)
	if err != nil {
		return err
	}
	unneeded := db.unneeded(m)
	edit := &levels.Edit{
		Flushed: []levels.Flushed{{Tree: tree, Seq: m.last}}, EngineTime: asOf, LastSeq: m.last,
		LogStart: db.log.OldestSlotFor(unneeded),
	}
	for _, f := range res.Files {
		edit.Added = append(edit.Added, levels.AddedFile{Tree: tree, Level: 0, File: f})
	}
	if res.Collected > 0 {
		edit.Collected = append(edit.Collected, levels.Collected{Tree: tree, Time: asOf})
	}
	err = db.installJob(edit, res.Files, table, func(st *state) {
		if t := st.trees[tree]; t != nil {
			st.trees[tree] = &memtree{active: t.active, sealed: t.sealed[1:]}
		}
		st.gen++
	})
	if err != nil {
		return err
	}
	db.stats.flushes.Add(1)
	db.logger.Debug("flush ends", "table", table.Name, "files", len(res.Files), "bytes", res.BytesWritten)
	db.stats.count(&res)
	return db.releaseLog(unneeded, edit.LogStart)
}

// mergeMem writes a tree's oldest sealed memtable, which st lists, into files of L0 as of a time.
func (db *DB) mergeMem(st *state, asOf int64, table *rtable, tree uint64, m *mem) (compact.Result, error) {
	g, t := table.group(tree), st.trees[tree]
	it := view(m.NewIter(m.last, cell.IterOptions{}), g.hiddenMem(m.last))
	cfg := merge.Config{Families: table.families, AsOf: asOf, MayRank: db.holesIn(st, tree, t.sealed[1:], nil)}
	mi := merge.New(cfg, []cell.Iter{it})
	defer mi.Close()
	db.logger.Debug("flush begins", "table", table.Name, "sequences", m.last-m.first+1)
	older := olderFiles(st.version.Trees[tree], nil, 0)
	stats := m.Stats()
	job := &compact.Job{
		Merge: mi, Ranges: stats.Ranges > 0, Deletes: stats.Deletes > 0, Older: older.overlap, FileBytes: db.opts.TableFileBytes,
		FirstSeq: m.first, LastSeq: m.last, Settled: table.settledMem(g, m.last), Check: db.jobs.check,
		Cuts: db.cuts(st, tree, 0, stats.Bytes, nil),
	}
	db.space.look()
	return db.write(table, tree, []*compact.Job{job}, 0, stats.Bytes)
}

// beginCollect fixes the as-of time of a merge, waits for the batches with holes that looked at the store before, and pins
// what is there then. A batch with a hole that comes later sees a later time and pins all that the merge may drop.
func (db *DB) beginCollect() (*state, int64) {
	asOf := db.clock.collect()
	db.epochs.Raise()
	return db.states.pin(), asOf
}

func (st *state) tableOf(tree uint64) *rtable {
	if t := st.version.Schema.TableOfTree(tree); t != nil {
		return st.tables[t.Name]
	}
	return nil
}

// rollManifest starts a new manifest with the state v, which the old one ends with. When that fails the store fails: which
// of the two a later open would follow is not known.
func (db *DB) rollManifest(v *levels.Version) {
	old := db.manifest
	m, err := levels.CreateManifest(db.fs, db.dir, old.Num()+1, v)
	if errors.Is(err, levels.ErrTooLarge) || errors.Is(err, levels.ErrNotWritten) {
		old.RollAt *= 2
		db.logger.Warn("cannot start a new manifest, the old one goes on", "cause", err)
		return
	}
	if err != nil {
		db.fail("roll the manifest", err)
		return
	}
	db.manifest = m
	if err := errors.Join(old.Close(), levels.RemoveManifest(db.fs, db.dir, old.Num())); err != nil {
		db.logger.Warn("cannot remove the old manifest; the next open will", "cause", err)
	}
}

// unneeded is the sequence through which the log is not needed any more once the given memtables are in files or dropped.
func (db *DB) unneeded(without ...*mem) uint64 {
	db.placeMu.Lock()
	defer db.placeMu.Unlock()
	seq := db.nextSeq - 1
	look := func(m *mem) {
		if m.first != 0 && !slices.Contains(without, m) {
			seq = min(seq, m.first-1)
		}
	}
	for _, t := range db.states.cur.Load().trees {
		look(t.active)
		for _, m := range t.sealed {
			look(m)
		}
	}
	return seq
}

// releaseLog lets the log reuse what is not needed through seq, after the edit that says so and lets replay begin at start.
func (db *DB) releaseLog(seq, start uint64) error {
	if err := db.log.ReleaseFrom(seq, start); err != nil {
		return db.fail("recycle the log", err)
	}
	return nil
}
