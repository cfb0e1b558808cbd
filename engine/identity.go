package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"

	"github.com/rowandb/rowan/engine/internal/wal"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/levels"
)

// A checkpoint shares its identity with the store that it was made of, and so the seeds of all checksums of the log. Before
// anything is written in it, it becomes a store of its own: what its log holds goes into table files, a log begins under a new
// identity, and a new manifest states both and is no checkpoint's. That manifest is the one step that counts; a crash before it leaves
// the checkpoint as it was, with files beside it that nobody lists, and a crash after it some that nobody needs.

// renew is startWriting for a checkpoint.
func (db *DB) renew(v *levels.Version, manifestNum uint64, rec wal.Recovered) error {
	stale, err := db.staleFiles(v, manifestNum)
	if err != nil {
		return err
	}
	db.nextFile.Store(pastAll(stale, v.NextFile))
	if err := db.space.open(); err != nil {
		return err
	}
	// What an attempt that failed has written must not take the room of this one.
	if err := db.removeStale(tableFiles(stale)); err != nil {
		return err
	}
	if err := db.flushReplayed(); err != nil {
		return diskFull(err)
	}
	v = db.states.cur.Load().version
	id := db.opts.Random()
	o := db.logOptions(v)
	o.StoreID, o.Tight = id, db.space.tight()
	if db.log, err = wal.Open(o, rec.Renewed()); err != nil {
		return diskFull(err)
	}
	next, err := db.applyEdit(v, &levels.Edit{
		Num: v.EditNum + 1, OpenCount: v.OpenCount + 1, StoreID: id, EngineTime: db.clock.collected(), Stamp: db.stamp.Load(),
		NextFile: db.nextFile.Load(), LogStart: db.log.OldestSlot(), LastSeq: db.nextSeq - 1, PutTables: v.Schema.Tables(),
	})
	if err != nil {
		return err
	}
	db.states.change(db.opts.Clock(), func(st *state) {
		st.version = next
		st.tables = tablesOf(next.Schema, st.tables)
	})
	if db.manifest, err = levels.CreateManifest(db.fs, db.dir, manifestNum, next); err != nil {
		return diskFull(err)
	}
	for _, n := range rec.Files() {
		stale = append(stale, record.SlotName(n))
	}
	db.logger.Info("a checkpoint becomes a store of its own", "was", fmt.Sprintf("%016x", v.StoreID), "is", fmt.Sprintf("%016x", id))
	if err := db.removeStale(stale); err != nil {
		return err
	}
	return db.space.begin()
}

// flushReplayed writes what was replayed into table files, which no manifest lists yet.
func (db *DB) flushReplayed() error {
	db.placeMu.Lock()
	db.seal(slices.Collect(maps.Keys(db.states.cur.Load().trees))...)
	db.placeMu.Unlock()
	for _, tree := range slices.Sorted(maps.Keys(db.states.cur.Load().trees)) {
		for len(db.states.cur.Load().trees[tree].sealed) > 0 {
			if err := db.flushFirst(tree); err != nil {
				return err
			}
		}
	}
	return nil
}

// flushFirst is flushOne without log and manifest, which are not open yet.
func (db *DB) flushFirst(tree uint64) error {
	st, asOf := db.beginCollect()
	defer st.unref()
	m := st.trees[tree].sealed[0]
	res, err := db.mergeMem(st, asOf, st.tableOf(tree), tree, m)
	if err != nil {
		return err
	}
	e := &levels.Edit{
		Num: st.version.EditNum + 1, Flushed: []levels.Flushed{{Tree: tree, Seq: m.last}}, EngineTime: asOf, NextFile: db.nextFile.Load(),
	}
	for _, f := range res.Files {
		e.Added = append(e.Added, levels.AddedFile{Tree: tree, Level: 0, File: f})
	}
	if res.Collected > 0 {
		e.Collected = append(e.Collected, levels.Collected{Tree: tree, Time: asOf})
	}
	next, err := db.applyEdit(st.version, e)
	if err != nil {
		return err
	}
	db.states.change(db.opts.Clock(), func(st *state) {
		t := st.trees[tree]
		st.version, st.tables = next, tablesOf(next.Schema, st.tables)
		st.trees[tree] = &memtree{active: t.active, sealed: t.sealed[1:]}
		st.gen++
	})
	return nil
}

// pastAll is a number of a table file above next and above all that are named.
func pastAll(names []string, next levels.Num) levels.Num {
	for _, name := range names {
		if n, ok := levels.ParseTableName(name); ok && n >= next && n < math.MaxUint64 {
			next = n + 1
		}
	}
	return next
}

// tableFiles are the table files among names.
func tableFiles(names []string) (out []string) {
	for _, name := range names {
		if _, ok := levels.ParseTableName(name); ok {
			out = append(out, name)
		}
	}
	return out
}

// removeStale removes files that nothing depends on any more.
func (db *DB) removeStale(names []string) error {
	for _, name := range names {
		if err := db.fs.Remove(path.Join(db.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove stale file: %w", err)
		}
	}
	return nil
}
