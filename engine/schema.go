package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rowandb/rowan/levels"
)

// Table is a handle on a table by name. It stays valid when the table is dropped: calls give ErrNoTable then, and work
// again, on the new table, when one is created under the name. Safe for concurrent use.
type Table struct {
	db   *DB
	name string
}

// Table returns the handle of a table, which need not exist yet.
func (db *DB) Table(name string) *Table { return &Table{db: db, name: name} }

// Name is the table's name.
func (t *Table) Name() string { return t.name }

// TableInfo describes a table.
type TableInfo struct {
	Name     string
	ID       uint64 // never used again for another table
	Families map[string]FamilySpec
	Codec    Codec
}

func checkTableName(name string) error {
	ok := len(name) > 0 && len(name) <= TableNameMax
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	if !ok {
		return fmt.Errorf("%w: %.300q", ErrTableName, name)
	}
	return nil
}

func (s TableSpec) check() error {
	if len(s.Families) == 0 {
		return fmt.Errorf("%w: a table needs at least one family", ErrOption)
	}
	for name, f := range s.Families {
		if err := f.check(name); err != nil {
			return err
		}
	}
	if s.Codec > CodecZstd {
		return fmt.Errorf("%w: codec %d", ErrOption, uint8(s.Codec))
	}
	if s.BlockBytes != 0 && (s.BlockBytes < blockBytesMin || s.BlockBytes > blockBytesMax) {
		return fmt.Errorf("%w: BlockBytes is %d, allowed are %d to %d", ErrOption, s.BlockBytes, blockBytesMin, blockBytesMax)
	}
	if s.BloomBits < 0 || s.BloomBits > bloomBitsMax {
		return fmt.Errorf("%w: BloomBits is %d, allowed are 0 to %d", ErrOption, s.BloomBits, bloomBitsMax)
	}
	return nil
}

// CreateTable creates a table. It is durable when it returns. A name that is taken gives ErrTableExists; Table is the handle then.
func (db *DB) CreateTable(ctx context.Context, name string, spec TableSpec) (*Table, error) {
	if err := checkTableName(name); err != nil {
		return nil, err
	}
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("table %q: %w", name, err)
	}
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	if err := db.writable(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := db.space.admit(); err != nil {
		return nil, err
	}
	db.schemaMu.Lock()
	defer db.schemaMu.Unlock()
	v := db.states.cur.Load().version
	if v.Schema.Table(name) != nil {
		return nil, fmt.Errorf("%w: %q", ErrTableExists, name)
	}
	t := &levels.Table{
		ID: v.LastTable + 1, Name: name,
		Options: levels.TableOptions{
			Codec: uint8(spec.Codec), BlockSize: uint32(spec.BlockBytes), BloomBits: uint32(spec.BloomBits), ColumnFilter: spec.ColumnFilter,
		},
	}
	tree := v.LastTree
	for _, n := range slices.Sorted(maps.Keys(spec.Families)) {
		addFamily(t, n, spec.Families[n], &tree)
	}
	// Whoever sees the table after a crash must find all that was written before it.
	if _, err := db.settleLog(ctx); err != nil {
		return nil, err
	}
	err := db.install(&levels.Edit{PutTables: []*levels.Table{t}}, nil, func(st *state) {
		db.addTrees(st, t)
		st.gen++
	})
	if err != nil {
		return nil, err
	}
	return db.Table(name), nil
}

// DropTable removes a table with everything in it. It is durable when it returns; space is given back when the last read
// or snapshot that sees the table ends.
func (db *DB) DropTable(ctx context.Context, name string) error {
	return db.exclusively(ctx, name, func(t *rtable) error { return db.dropTable(ctx, t) })
}

// exclusively calls fn with a table while no batch of it is at work and no other change of the schema is made: each batch has its
// place already, and is in the memtables, or waits until fn returns.
func (db *DB) exclusively(ctx context.Context, name string, fn func(t *rtable) error) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	if err := db.writable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	db.schemaMu.Lock()
	defer db.schemaMu.Unlock()
	t := db.states.cur.Load().tables[name]
	if t == nil {
		return fmt.Errorf("%w: %q", ErrNoTable, name)
	}
	t.gate.Lock()
	defer t.gate.Unlock()
	return fn(t)
}

// dropTable is called with the table to itself.
func (db *DB) dropTable(ctx context.Context, t *rtable) error {
	// A batch may span tables: if the drop is durable, what was written before it must be too, or a crash would lose the
	// other tables' part of a batch that this table's readers saw before the drop.
	seq, err := db.settleLog(ctx)
	if err != nil {
		return err
	}
	var mems []*mem
	for _, g := range t.groups {
		m := db.states.cur.Load().trees[g.tree]
		mems = append(append(mems, m.sealed...), m.active)
	}
	unneeded := db.unneeded(mems...)
	edit := &levels.Edit{DropTables: []uint64{t.ID}, LastSeq: seq, LogStart: db.log.OldestSlotFor(unneeded)}
	err = db.install(edit, nil, func(st *state) {
		for _, g := range t.groups {
			delete(st.trees, g.tree)
		}
		st.gen++
	})
	if err != nil {
		return err
	}
	db.jobs.kick()
	db.jobs.wake() // what somebody waits for may have gone
	return db.releaseLog(unneeded, edit.LogStart)
}

// settleLog makes durable what has its place in the write order: an edit that a user can see is installed only on top of it. It
// returns the last such sequence.
func (db *DB) settleLog(ctx context.Context) (uint64, error) {
	db.placeMu.Lock()
	seq := db.nextSeq - 1
	db.placeMu.Unlock()
	if seq == 0 {
		return 0, nil
	}
	if err := db.log.Wait(ctx, seq); err != nil {
		if failed := db.log.Err(); failed != nil {
			return 0, db.fail("write the log", failed)
		}
		return 0, err
	}
	return seq, nil
}

// Tables returns the names of all tables, sorted.
func (db *DB) Tables(ctx context.Context) ([]string, error) {
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var names []string
	for _, t := range db.states.cur.Load().version.Schema.Tables() {
		names = append(names, t.Name)
	}
	return names, nil
}

// Describe returns the table's families, rules and options.
func (t *Table) Describe(ctx context.Context) (TableInfo, error) {
	if err := t.db.enter(); err != nil {
		return TableInfo{}, err
	}
	defer t.db.leave()
	if err := ctx.Err(); err != nil {
		return TableInfo{}, err
	}
	r := t.db.states.cur.Load().tables[t.name]
	if r == nil {
		return TableInfo{}, fmt.Errorf("%w: %q", ErrNoTable, t.name)
	}
	info := TableInfo{Name: r.Name, ID: r.ID, Families: map[string]FamilySpec{}, Codec: Codec(r.Options.Codec)}
	for _, f := range r.Families {
		info.Families[f.Name] = FamilySpec{GC: f.Rule, Aggregate: Aggregate(f.Fold), Group: r.Groups[f.Group].Name}
	}
	return info, nil
}
