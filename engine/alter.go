package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/rowandb/rowan/levels"
)

// altering is a table while an alteration is made of it.
type altering struct {
	table    *levels.Table // a copy, to be changed
	num      uint64        // number of the changes that the alteration leaves standing
	seq      uint64        // its place in line
	now      int64         // engine time
	lastTree uint64        // highest id of a tree, raised for new ones
}

// change leaves a change standing.
func (a *altering) change(c levels.Change) {
	a.table.LastChange = a.num
	c.Num, c.Seq = a.num, a.seq
	a.table.Changes = append(a.table.Changes, c)
}

// alteration is a change of a table that has a place in the order of writes.
type alteration struct {
	// make changes the table. It is called twice, first to see whether it can be done.
	make func(a *altering) error
	// files, if set, adds to the edit what goes away at once.
	files func(v *levels.Version, a *altering, e *levels.Edit)
}

// alter makes an alteration: it waits for the batches of the table that are at work, takes its place in line behind them, seals
// what was written so far if the alteration treats that differently, makes the log durable up to there, and only then makes the
// change durable, and seen, in one edit. Batches of the table wait until then.
func (db *DB) alter(ctx context.Context, name string, alt alteration) error {
	return db.exclusively(ctx, name, func(t *rtable) error { return db.alterTable(ctx, t, alt) })
}

// alterTable is called with the table to itself.
func (db *DB) alterTable(ctx context.Context, t *rtable, alt alteration) error {
	name := t.Name
	make := func(v *levels.Version, seq uint64) (*altering, error) {
		c := *v.Schema.Table(name)
		c.Families, c.Groups, c.Changes = slices.Clone(c.Families), slices.Clone(c.Groups), slices.Clone(c.Changes)
		a := &altering{table: &c, num: c.LastChange + 1, seq: seq, now: db.clock.collect(), lastTree: v.LastTree}
		return a, alt.make(a)
	}
	dry, err := make(db.states.cur.Load().version, 0)
	if err != nil {
		return fmt.Errorf("table %q: %w", name, err)
	}
	if dry.table.LastChange == dry.num {
		db.sealTable(t)
	}
	// Whoever sees the change after a crash must find all that was written before it.
	seq, err := db.settleLog(ctx)
	if err != nil {
		return err
	}
	var made *levels.Table
	err = db.installBy(nil, func(v *levels.Version) (*levels.Edit, error) {
		a, err := make(v, seq)
		if err != nil {
			return nil, fmt.Errorf("table %q: %w", name, err)
		}
		made = a.table
		e := &levels.Edit{PutTables: []*levels.Table{a.table}, LastSeq: seq, EngineTime: a.now}
		if alt.files != nil {
			alt.files(v, a, e)
		}
		return e, nil
	}, func(st *state) {
		db.addTrees(st, made)
		st.gen++
	})
	if err == nil {
		db.jobs.kick()
		db.jobs.wake() // what somebody waits for may have gone
	}
	return err
}

// sealTable closes the active memtables of a table to writers. The table's gate is held, so that none is on its way.
func (db *DB) sealTable(t *rtable) {
	db.placeMu.Lock()
	defer db.placeMu.Unlock()
	for _, g := range t.groups {
		db.seal(g.tree)
	}
}

// addTrees gives a state memtables for the trees of a table that it has none for.
func (db *DB) addTrees(st *state, t *levels.Table) {
	for _, g := range t.Groups {
		if st.trees[g.Tree] == nil {
			st.trees[g.Tree] = &memtree{active: db.newMem()}
		}
	}
}
