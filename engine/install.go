package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/rowandb/rowan/levels"
)

// install writes an edit to the manifest and then makes it the current state. change moves memtables about in the same
// swap. files are the new ones, removed when the edit is refused.
func (db *DB) install(edit *levels.Edit, files []*levels.File, change func(st *state)) error {
	return db.installBy(files, func(*levels.Version) (*levels.Edit, error) { return edit, nil }, change)
}

// installJob is install for the outcome of a merge of one tree under the table as it was then. A merge that has collected by a
// rule as of a later time than a change of that rule grants is refused with errOutrun, and begun again.
func (db *DB) installJob(edit *levels.Edit, files []*levels.File, table *rtable, change func(st *state)) error {
	return db.installBy(files, func(v *levels.Version) (*levels.Edit, error) {
		if edit.EngineTime > db.clock.mark.Load() {
			return nil, errOutrun // time was set back meanwhile
		}
		if t := v.Schema.Table(table.Name); t != nil && t.ID == table.ID && t != table.Table {
			for i := range t.Changes {
				if c := &t.Changes[i]; c.Kind == levels.ChangeRule && c.Num > table.LastChange && c.Time < edit.EngineTime {
					return nil, errOutrun
				}
			}
		}
		return edit, nil
	}, change)
}

// installBy is install for an edit that is made of the version that it changes.
func (db *DB) installBy(files []*levels.File, make func(v *levels.Version) (*levels.Edit, error), change func(st *state)) error {
	db.installMu.Lock()
	defer db.installMu.Unlock()
	removeAll := func(err error) error {
		for _, f := range files {
			if e := db.fs.Remove(db.files.path(f.Num)); !errors.Is(e, fs.ErrNotExist) { // its version may have let go of it
				err = errors.Join(err, e)
			}
		}
		return err
	}
	if err := db.health.failed(); err != nil {
		return removeAll(err)
	}
	old := db.states.cur.Load().version
	edit, err := make(old)
	if err != nil {
		return removeAll(err)
	}
	if dropped(old, edit) {
		return removeAll(errTreeGone)
	}
	edit.Num = old.EditNum + 1
	edit.Stamp = db.stamp.Load()
	edit.NextFile = db.nextFile.Load()
	next, err := db.applyEdit(old, edit)
	if err == nil {
		err = checkEdit(old, next, edit)
		if err != nil {
			next.Unref()
		}
	}
	if err != nil {
		return removeAll(err)
	}
	err = db.manifest.Append(edit)
	if errors.Is(err, levels.ErrNotWritten) && db.space.giveUpNow() {
		db.logger.Warn("disk full: the manifest is written again without the reserve", "cause", err)
		err = db.manifest.Append(edit)
	}
	if errors.Is(err, levels.ErrTooLarge) || errors.Is(err, levels.ErrNotWritten) {
		next.Unref() // nothing was written
		return removeAll(diskFull(err))
	} else if err != nil {
		err = db.fail("write the manifest", err)
		next.Unref() // its files stay, see obsolete: the edit may be on disk
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	if db.manifest.Full() {
		db.rollManifest(next)
	}
	db.states.change(db.opts.Clock(), func(st *state) {
		st.version = next
		st.tables = tablesOf(next.Schema, st.tables)
		if change != nil {
			change(st)
		}
	})
	db.forgetAside(next)
	return nil
}

// applyEdit applies an edit and adds to it what it lets be forgotten: changes of tables that no source is behind any more.
func (db *DB) applyEdit(old *levels.Version, edit *levels.Edit) (*levels.Version, error) {
	next, err := old.Apply(edit)
	if err != nil {
		return nil, err
	}
	if !db.forget(next, edit) {
		return next, nil
	}
	defer next.Unref() // not before the files it adds are listed by another
	return old.Apply(edit)
}

// forget adds to an edit, which has led to v, that the tables it is about need no longer keep the changes that nothing is behind,
// and reports whether there are any. The log may still hold entries from before such a change: that they are in files, or
// gone, is said in the same edit. Holds installMu.
func (db *DB) forget(v *levels.Version, edit *levels.Edit) (any bool) {
	seen := map[*levels.Table]bool{}
	look := func(t *levels.Table) {
		if t == nil || seen[t] || len(t.Changes) == 0 {
			return
		}
		seen[t] = true
		var left []levels.Change
		through := map[uint64]uint64{} // trees and sequences
		for i := range t.Changes {
			c := &t.Changes[i]
			if db.anyBehind(v, t, c) {
				left = append(left, *c)
				continue
			}
			for _, g := range t.Groups {
				if c.Concerns(g.Tree) {
					through[g.Tree] = max(through[g.Tree], c.Seq)
				}
			}
		}
		if len(left) == len(t.Changes) {
			return
		}
		any = true
		c := *t
		c.Changes = left
		edit.PutTables = append(edit.PutTables, &c)
		for _, g := range t.Groups {
			if seq := through[g.Tree]; seq > v.Trees[g.Tree].FlushedThrough {
				edit.Flushed = append(edit.Flushed, levels.Flushed{Tree: g.Tree, Seq: seq})
			}
		}
	}
	for _, t := range slices.Clone(edit.PutTables) {
		look(v.Schema.Table(t.Name))
	}
	for _, d := range edit.Deleted {
		look(v.Schema.TableOfTree(d.Tree))
	}
	for _, f := range slices.Clone(edit.Flushed) {
		look(v.Schema.TableOfTree(f.Tree))
	}
	return any
}

// anyBehind reports whether a source of v is behind a change of t: a file, or a memtable that is not flushed there.
func (db *DB) anyBehind(v *levels.Version, t *levels.Table, c *levels.Change) bool {
	db.placeMu.Lock()
	defer db.placeMu.Unlock()
	mems := db.states.cur.Load().trees
	for _, g := range t.Groups {
		if !c.Concerns(g.Tree) {
			continue
		}
		tree := v.Trees[g.Tree]
		if !c.Forgettable(tree) {
			return true
		}
		if m := mems[g.Tree]; m != nil {
			for _, s := range append(m.sealed[:len(m.sealed):len(m.sealed)], m.active) {
				if s.first != 0 && s.first <= c.Seq && s.last > tree.FlushedThrough {
					return true
				}
			}
		}
	}
	return false
}

var (
	// errTreeGone: the table was dropped while a job worked on it.
	errTreeGone = errors.New("table was dropped meanwhile")
	// errOutrun: a rule was changed, or time set back, while a job collected as of a later time.
	errOutrun = errors.New("rule or time was changed meanwhile")
)

func dropped(v *levels.Version, e *levels.Edit) bool {
	for _, a := range e.Added {
		if v.Trees[a.Tree] == nil {
			return true
		}
	}
	for _, d := range e.Deleted {
		if v.Trees[d.Tree] == nil {
			return true
		}
	}
	for _, f := range e.Flushed {
		if v.Trees[f.Tree] == nil {
			return true
		}
	}
	return false
}

// checkEdit holds the order of levels, see levels.Check.
func checkEdit(old, next *levels.Version, e *levels.Edit) error {
	seen := map[uint64]bool{}
	check := func(tree uint64) error {
		o, n := old.Trees[tree], next.Trees[tree]
		if seen[tree] || o == nil || n == nil {
			return nil
		}
		seen[tree] = true
		return levels.Check(o, n, e)
	}
	for _, a := range e.Added {
		if err := check(a.Tree); err != nil {
			return err
		}
	}
	for _, d := range e.Deleted {
		if err := check(d.Tree); err != nil {
			return err
		}
	}
	return nil
}
