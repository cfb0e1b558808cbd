package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
)

// Every kind of bad input has its own error, says what and where, and leaves nothing behind.
func TestBadInput(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(3)})
	other := newStore(t, nil).table("t", map[string]gc.Rule{"f": {}})
	s.must(tb.Apply(ctx, "r", set("f", "q", 1, "v")))
	before := s.scan(tb)
	long := strings.Repeat("x", cell.RowKeyMax+1)
	batch := func(change func(*Batch)) func() error {
		return func() error {
			b := NewBatch()
			b.Add(tb, "good", set("f", "q", 1, "v"))
			change(b)
			return s.Apply(ctx, b)
		}
	}
	apply := func(row string, m *Mutation) func() error { return func() error { return tb.Apply(ctx, row, m) } }
	read := func(set RowSet, opts ...ReadOption) func() error {
		return func() error { return tb.ReadRows(ctx, set, func(Row) bool { return true }, opts...) }
	}
	rmw := func(row string, m *ReadModifyWrite) func() error {
		return func() error { _, err := tb.ReadModifyWrite(ctx, row, m); return err }
	}
	incr := func(family, qualifier string) *ReadModifyWrite {
		m := NewReadModifyWrite()
		m.Increment(family, qualifier, 1)
		return m
	}
	appendTo := func(family, qualifier string, v []byte) *ReadModifyWrite {
		m := NewReadModifyWrite()
		m.AppendValue(family, qualifier, v)
		return m
	}
	createTable := func(name string, spec TableSpec) func() error {
		return func() error { _, err := s.CreateTable(ctx, name, spec); return err }
	}
	family := func(name string, r gc.Rule) TableSpec {
		return TableSpec{Families: map[string]FamilySpec{name: {GC: r}}}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	value := make([]byte, cell.ValueMax+1)
	tooMany := NewMutation()
	for range BatchCellsMax + 1 {
		tooMany.DeleteRow()
	}
	huge := NewMutation()
	for i := range 3 {
		huge.Set("f", fmt.Sprint(i), 1, value[:cell.ValueMax])
	}
	for _, c := range []struct {
		name  string
		call  func() error
		want  error
		place string // what the message must name
	}{
		{"unknown table", func() error { return s.Table("nope").Apply(ctx, "r", set("f", "q", 1, "v")) }, ErrNoTable, `"nope"`},
		{"table of another store", batch(func(b *Batch) { b.Add(other, "r", set("f", "q", 1, "v")) }), ErrNoTable, "mutation 2 of 2"},
		{"nil table", batch(func(b *Batch) { b.Add(nil, "r", set("f", "q", 1, "v")) }), ErrNoTable, "mutation 2 of 2"},
		{"unknown family", batch(func(b *Batch) { b.Add(tb, "r", set("g", "q", 1, "v")) }), ErrNoFamily, `mutation 2 of 2, row "r": change 1 of 1`},
		{"unknown family to delete", apply("r", mut(func(m *Mutation) { m.DeleteCellsInFamily("g") })), ErrNoFamily, `"g"`},
		{"malformed family", apply("r", set("a b", "q", 1, "v")), ErrFamilyName, `"a b"`},
		{"empty family", apply("r", set("", "q", 1, "v")), ErrFamilyName, "0 bytes"},
		{"long family", apply("r", set(strings.Repeat("f", 65), "q", 1, "v")), ErrFamilyName, "65 bytes"},
		{"empty row key", apply("", set("f", "q", 1, "v")), ErrRowKey, "0"},
		{"long row key", apply(long, set("f", "q", 1, "v")), ErrRowKey, "65537"},
		{"long qualifier", apply("r", set("f", strings.Repeat("q", cell.QualifierMax+1), 1, "v")), ErrQualifier, "16385"},
		{"long value", apply("r", mut(func(m *Mutation) { m.Set("f", "q", 1, value) })), ErrValue, "change 1 of 1"},
		{"timestamp below -1", apply("r", set("f", "q", -2, "v")), ErrTimestamp, "-2"},
		{"lowest timestamp", apply("r", set("f", "q", math.MinInt64, "v")), ErrTimestamp, "-9223372036854775808"},
		{"inverted time range", apply("r", mut(func(m *Mutation) { m.DeleteTimestampRange("f", "q", 5, 5) })), ErrTimeRange, "[5, 5)"},
		{"negative time range", apply("r", mut(func(m *Mutation) { m.DeleteTimestampRange("f", "q", -1, 5) })), ErrTimeRange, "[-1, 5)"},
		{"nil mutation", apply("r", nil), ErrNilMutation, ""},
		{"nil apply option", func() error { return tb.Apply(ctx, "r", set("f", "q", 1, "v"), nil) }, ErrOption, "nil apply option"},
		{"result of no condition", func() error { return tb.Apply(ctx, "r", set("f", "q", 1, "v"), GetCondMutationResult(new(bool))) }, ErrOption, "0 conditional"},
		{"result to nowhere", func() error {
			return tb.Apply(ctx, "r", NewCondMutation(nil, set("f", "q", 1, "v"), nil), GetCondMutationResult(nil))
		}, ErrOption, "nil pointer"},
		{"results of two conditions", func() error {
			m := NewCondMutation(nil, set("f", "q", 1, "v"), nil)
			_, err := tb.ApplyBulk(ctx, []string{"r", "s"}, []*Mutation{m, m}, GetCondMutationResult(new(bool)))
			return err
		}, ErrOption, "2 conditional"},
		{"nothing to choose from", apply("r", NewCondMutation(nil, nil, nil)), ErrCondMutation, "neither branch"},
		{"two empty branches", apply("r", NewCondMutation(nil, NewMutation(), NewMutation())), ErrCondMutation, "neither branch"},
		{"condition in a condition", apply("r", NewCondMutation(nil, NewCondMutation(nil, set("f", "q", 1, "v"), nil), nil)), ErrCondMutation, "branch for true"},
		{"changes beside a condition", apply("r", mut(func(m *Mutation) {
			*m = *NewCondMutation(nil, set("f", "q", 1, "v"), nil)
			m.DeleteRow()
		})), ErrCondMutation, "1 changes"},
		{"bad filter of a condition", apply("r", NewCondMutation(ChainFilters(), set("f", "q", 1, "v"), nil)), ErrFilter, "condition"},
		{"sink in a condition", apply("r", NewCondMutation(ChainFilters(FamilyExact("f"), SinkFilter()), set("f", "q", 1, "v"), nil)), ErrFilter, "condition: chain: filter 2 of 2"},
		{"sink in a precondition", batch(func(b *Batch) { b.Require(tb, "r", InterleaveFilters(PassAllFilter(), SinkFilter()), true) }), ErrFilter, "condition: interleave: filter 2 of 2"},
		{"unknown family in a condition", apply("r", NewCondMutation(FamilyExact("g"), set("f", "q", 1, "v"), nil)), ErrNoFamily, `"g"`},
		{"unknown family in the branch", apply("r", NewCondMutation(nil, set("g", "q", 1, "v"), nil)), ErrNoFamily, `"g"`},
		{"bad change in the other branch", apply("r", NewCondMutation(nil, set("f", "q", 1, "v"), set("f", "q", -2, "v"))), ErrTimestamp, "if the condition is false: change 1 of 1"},
		{"precondition", batch(func(b *Batch) { b.Require(tb, "nothere", nil, true) }), ErrPrecondition, `mutation 2 of 2, row "nothere"`},
		{"precondition the other way", batch(func(b *Batch) { b.Require(tb, "r", nil, false) }), ErrPrecondition, `mutation 2 of 2, row "r"`},
		{"precondition on a bad filter", batch(func(b *Batch) { b.Require(tb, "r", LatestNFilter(0), true) }), ErrFilter, "mutation 2 of 2"},
		{"precondition on an empty key", batch(func(b *Batch) { b.Require(tb, "", nil, true) }), ErrRowKey, "mutation 2 of 2"},
		{"precondition on an unknown table", batch(func(b *Batch) { b.Require(s.Table("nope"), "r", nil, true) }), ErrNoTable, `"nope"`},
		{"nil read-modify-write", rmw("r", nil), ErrNilReadModifyWrite, ""},
		{"read-modify-write without rules", rmw("r", NewReadModifyWrite()), ErrNoRules, ""},
		{"read-modify-write of an empty key", rmw("", incr("f", "q")), ErrRowKey, ""},
		{"increment in an unknown family", rmw("r", incr("g", "q")), ErrNoFamily, "rule 1 of 1"},
		{"increment in a malformed family", rmw("r", incr("g:", "q")), ErrFamilyName, "rule 1 of 1"},
		{"increment of a long qualifier", rmw("r", incr("f", strings.Repeat("q", cell.QualifierMax+1))), ErrQualifier, "rule 1 of 1"},
		{"increment of what is no counter", rmw("r", incr("f", "q")), ErrNotCounter, `"f:q" has 1 bytes`},
		{"append of a long value", rmw("r", appendTo("f", "q", value)), ErrValue, "rule 1 of 1"},
		{"append that makes a long value", rmw("r", appendTo("f", "q", value[:cell.ValueMax])), ErrValue, `"f:q" makes 104857601 bytes`},
		{"read-modify-write in a batch", batch(func(b *Batch) { b.AddReadModifyWrite(tb, "r", incr("f", "q")) }), ErrNotCounter, "mutation 2 of 2"},
		{"Add to a plain family", apply("r", mut(func(m *Mutation) { m.AddIntToCell("f", "q", 1, 1) })), ErrNotAggregate, `"f"`},
		{"Add at ServerTime", apply("r", mut(func(m *Mutation) { m.AddIntToCell("f", "q", ServerTime, 1) })), ErrAddTimestamp, "-1"},
		{"state of a wrong size", apply("r", mut(func(m *Mutation) { m.MergeBytesToCell("f", "q", 1, []byte("seven b")) })), ErrState, "7 bytes"},
		{"nil batch", func() error { return s.Apply(ctx, nil) }, ErrNilBatch, ""},
		{"too many changes", apply("r", tooMany), ErrBatchTooLong, "1048577"},
		{"too many bytes", apply("r", huge), ErrBatchTooBig, "268435456"},
		{"cancelled", func() error { return tb.Apply(cancelled, "r", set("f", "q", 1, "v")) }, context.Canceled, ""},
		{"cancelled read", func() error { _, err := tb.ReadRow(cancelled, "r"); return err }, context.Canceled, ""},
		{"read of an unknown table", func() error { _, err := s.Table("nope").ReadRow(ctx, "r"); return err }, ErrNoTable, `"nope"`},
		{"read of an empty key", func() error { _, err := tb.ReadRow(ctx, ""); return err }, ErrRowKey, ""},
		{"read of an empty key in a list", read(RowList{"a", ""}), ErrRowKey, "row 2 of 2"},
		{"range the wrong way round", read(Rows{AllRows(), NewRange("b", "a")}), ErrRange, "part 2 of 2"},
		{"nil row set", read(nil), ErrRange, ""},
		{"nil position", read(AllRows(), ContinueAt(nil)), ErrOption, "position"},
		{"position in a malformed family", read(AllRows(), After(Position{Row: "r", Family: "a b"})), ErrFamilyName, "position"},
		{"position without a family", read(AllRows(), After(Position{Row: "r", Qualifier: "q"})), ErrOption, "position"},
		{"position without a row", read(AllRows(), After(Position{Family: "f"})), ErrRowKey, "position"},
		{"position at a negative time", read(AllRows(), After(Position{Row: "r", Family: "f", Timestamp: -1})), ErrTimestamp, "position"},
		{"position with negative copies", read(AllRows(), After(Position{Row: "r", Family: "f", Copies: -1})), ErrOption, "position"},
		{"negative budget of cells", read(AllRows(), LimitCells(-1)), ErrLimit, "cells"},
		{"negative budget of bytes", read(AllRows(), LimitBytes(-1)), ErrLimit, "bytes"},
		{"pattern that is none", read(AllRows(), RowFilter(ChainFilters(PassAllFilter(), ValueFilter("(")))), ErrFilter, "chain: filter 2 of 2"},
		{"filters nested too deep", read(AllRows(), RowFilter(nested(1000))), ErrFilter, "256 deep"},
		{"nil read option", read(AllRows(), nil), ErrOption, "nil read option"},
		{"nil function", func() error { return tb.ReadRows(ctx, AllRows(), nil) }, ErrOption, "nil function"},
		{"nil function for cells", func() error { return tb.ReadCellsBorrowed(ctx, AllRows(), nil) }, ErrOption, "nil function"},
		{"negative limit", read(AllRows(), LimitRows(-1)), ErrLimit, "-1"},
		{"filter on an unknown family", read(AllRows(), RowFilter(FamilyExact("g"))), ErrNoFamily, `"g"`},
		{"no versions", read(AllRows(), RowFilter(ChainFilters(FamilyExact("f"), LatestNFilter(0)))), ErrFilter, "filter 2 of 2"},
		{"empty chain", read(AllRows(), RowFilter(ChainFilters())), ErrFilter, "chain"},
		{"nil in a chain", read(AllRows(), RowFilter(ChainFilters(nil))), ErrFilter, "filter 1 of 1"},
		{"inverted timestamp filter", read(AllRows(), RowFilter(TimestampRangeFilter(5, 4))), ErrFilter, "[5, 4)"},
		{"inverted column filter", read(AllRows(), RowFilter(ColumnRangeFilter("f", QualifierRange(NewRange("b", "a"))))), ErrFilter, "column range"},
		{"table exists", createTable("t", family("f", gc.Rule{})), ErrTableExists, `"t"`},
		{"empty table name", createTable("", family("f", gc.Rule{})), ErrTableName, `""`},
		{"bad table name", createTable("a/b", family("f", gc.Rule{})), ErrTableName, `"a/b"`},
		{"no families", createTable("n", TableSpec{}), ErrOption, `"n"`},
		{"bad family of a new table", createTable("n", family("f:", gc.Rule{})), ErrFamilyName, `"f:"`},
		{"bad rule", createTable("n", family("f", gc.MaxVersionsPolicy(0))), ErrRule, `family "f"`},
		{"bad age", createTable("n", family("f", gc.MaxAgePolicy(time.Microsecond))), ErrRule, `family "f"`},
		{"bad codec", createTable("n", TableSpec{Families: family("f", gc.Rule{}).Families, Codec: 9}), ErrOption, "codec 9"},
		{"bad block size", createTable("n", TableSpec{Families: family("f", gc.Rule{}).Families, BlockBytes: 1}), ErrOption, "BlockBytes is 1"},
		{"bad bloom bits", createTable("n", TableSpec{Families: family("f", gc.Rule{}).Families, BloomBits: -1}), ErrOption, "BloomBits is -1"},
		{"drop of an unknown table", func() error { return s.DropTable(ctx, "nope") }, ErrNoTable, `"nope"`},
		{"compaction of an unknown table", func() error { return s.Table("nope").Compact(ctx, AllRows()) }, ErrNoTable, `"nope"`},
		{"description of an unknown table", func() error { _, err := s.Table("nope").Describe(ctx); return err }, ErrNoTable, `"nope"`},
	} {
		err := c.call()
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.place) {
			t.Errorf("%s: %v; want %v naming %s", c.name, err, c.want, c.place)
		}
		if got := s.scan(tb); got != before {
			t.Fatalf("%s left something behind:\n%s", c.name, got)
		}
	}
	// Entries of ApplyBulk are independent.
	errs, err := tb.ApplyBulk(ctx, []string{"a", "", "c"}, []*Mutation{set("f", "q", 1, "v"), set("f", "q", 1, "v"), nil})
	if err != nil || errs[0] != nil || !errors.Is(errs[1], ErrRowKey) || !errors.Is(errs[2], ErrNilMutation) {
		t.Fatalf("bulk: %v, %v", errs, err)
	}
	s.want(s.scan(tb), "a f:q@1=v\n"+before)
}

func TestLimitsAreReachable(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	row, q := strings.Repeat("r", cell.RowKeyMax), strings.Repeat("q", cell.QualifierMax)
	s.must(tb.Apply(ctx, row, set("f", q, math.MaxInt64, "v")))
	s.must(tb.Apply(ctx, row, set("f", q, 0, "v")))
	s.everywhere(func(where string) {
		r, err := s.Table("t").ReadRow(ctx, row)
		s.must(err)
		if len(r.Cells) != 2 || r.Cells[0].Qualifier != q || r.Cells[0].Timestamp != math.MaxInt64 || r.Cells[1].Timestamp != 0 {
			t.Fatalf("%s: %d cells", where, len(r.Cells))
		}
	})
}

// A batch larger than several log slots, with a value larger than a memtable.
func TestBatchLargerThanALogSlot(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	m := NewMutation()
	for i := range 5 {
		m.Set("f", fmt.Sprint(i), 1, []byte(strings.Repeat(fmt.Sprint(i), 150<<10)))
	}
	s.must(tb.Apply(ctx, "r", m))
	s.everywhere(func(where string) {
		r, err := s.Table("t").ReadRow(ctx, "r")
		s.must(err)
		for i, c := range r.Cells {
			if len(r.Cells) != 5 || string(c.Value) != strings.Repeat(fmt.Sprint(i), 150<<10) {
				t.Fatalf("%s: wrong value %d", where, i)
			}
		}
	})
}

func TestRowTooLargeToBeReadWhole(t *testing.T) {
	s := newStore(t, func(o *Options) { o.RowBytesMax = 1000 })
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	for i := range 20 {
		s.must(tb.Apply(ctx, "r", set("f", fmt.Sprint("q", i), 1, strings.Repeat("x", 100))))
	}
	if _, err := tb.ReadRow(ctx, "r"); !errors.Is(err, ErrRowTooLarge) {
		t.Fatalf("read row: %v", err)
	}
	n := 0
	s.must(tb.ReadCellsBorrowed(ctx, SingleRow("r"), func(c *BorrowedCell) bool { n += len(c.Value); return true }))
	if n != 2000 {
		t.Fatalf("%d bytes as cells", n)
	}
}

func TestOpenModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "store")
	open := func(o Options) error {
		o.MemtableBytes, o.LogSegmentBytes = 64<<10, 64<<10
		db, err := Open(dir, o)
		if err == nil {
			err = db.Close()
		}
		return err
	}
	expect := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Fatalf("%s: %v, want %v", what, err, want)
		}
	}
	expect("must exist", open(Options{MustExist: true}), ErrNotExist)
	expect("read only", open(Options{ReadOnly: true}), ErrNotExist)
	if _, err := os.Stat(dir); err == nil {
		t.Fatal("a refused open made the directory")
	}
	expect("create only", open(Options{CreateOnly: true}), nil)
	expect("create only again", open(Options{CreateOnly: true}), ErrExists)
	expect("must exist", open(Options{MustExist: true}), nil)
	expect("contradiction", open(Options{MustExist: true, CreateOnly: true}), ErrOption)
	expect("tiny memtable", open(Options{CacheBytes: -1}), ErrOption)

	db, err := Open(dir, Options{})
	expect("open", err, nil)
	tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
	expect("write", tb.Apply(ctx, "r", set("f", "q", 1, "v")), nil)
	expect("double open", open(Options{}), ErrLocked)
	expect("double open, read only", open(Options{ReadOnly: true}), ErrLocked)
	expect("close", db.Close(), nil)
	expect("close again", db.Close(), nil)
	expect("use after close", tb.Apply(ctx, "r", set("f", "q", 1, "v")), ErrClosed)

	before, err := os.ReadDir(dir)
	expect("list", err, nil)
	db, err = Open(dir, Options{ReadOnly: true})
	expect("read only", err, nil)
	r, err := db.Table("t").ReadRow(ctx, "r")
	if err != nil || show(r) != "r f:q@1=v\n" {
		t.Fatalf("read only: %s %v", show(r), err)
	}
	expect("write", db.Table("t").Apply(ctx, "r", set("f", "q", 1, "v")), ErrReadOnly)
	_, err = db.CreateTable(ctx, "u", TableSpec{Families: map[string]FamilySpec{"f": {}}})
	expect("create table", err, ErrReadOnly)
	expect("drop table", db.DropTable(ctx, "t"), ErrReadOnly)
	expect("flush", db.Flush(ctx), ErrReadOnly)
	expect("sync", db.Sync(ctx), ErrReadOnly)
	expect("compact", db.Compact(ctx), ErrReadOnly)
	expect("close", db.Close(), nil)
	after, err := os.ReadDir(dir)
	if err != nil || len(after) != len(before) {
		t.Fatalf("a read-only open changed the directory: %v, %v", before, after)
	}
}

// Files with our names and no manifest, a manifest of another format, a missing log, damage: never an empty store.
func TestDirectoriesThatAreNotUnderstood(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	s.must(tb.Apply(ctx, "r", set("f", "q", 1, "v")))
	s.must(s.Flush(ctx))
	s.must(tb.Apply(ctx, "r2", set("f", "q", 1, "v")))
	s.must(s.Close())
	list, err := s.fs.List("/store")
	s.must(err)
	find := func(part string) string {
		for _, e := range list {
			if strings.Contains(e.Name, part) {
				return "/store/" + e.Name
			}
		}
		t.Fatalf("no %s in %v", part, list)
		return ""
	}
	both := func(fs *vfs.Mem, harm func(name string)) {
		harm(find(".a"))
		harm(find(".b"))
	}
	for _, c := range []struct {
		name  string
		harm  func(fs *vfs.Mem)
		want  error // nil: it opens, and everything is there
		place string
	}{
		{"manifest gone", func(fs *vfs.Mem) { both(fs, func(name string) { s.must(fs.Remove(name)) }) }, ErrDamaged, "no whole manifest"},
		{"first copy of the manifest gone", func(fs *vfs.Mem) { s.must(fs.Remove(find(".a"))) }, nil, ""},
		{"second copy of the manifest gone", func(fs *vfs.Mem) { s.must(fs.Remove(find(".b"))) }, nil, ""},
		{"log gone", func(fs *vfs.Mem) { s.must(fs.Remove(find("slot-"))) }, ErrDamaged, "slot"},
		{"manifest of another format", func(fs *vfs.Mem) { both(fs, func(name string) { format(t, fs, name) }) }, ErrFormat, "format 2"},
		{"one copy of another format", func(fs *vfs.Mem) { format(t, fs, find(".b")) }, ErrFormat, "format 2"},
		{"manifest header flipped", func(fs *vfs.Mem) { both(fs, func(name string) { flip(t, fs, name, 17) }) }, ErrDamaged, "manifest header"},
		{"manifest edit flipped", func(fs *vfs.Mem) { both(fs, func(name string) { flip(t, fs, name, 70) }) }, ErrDamaged, "manifest-"},
		{"one copy of a manifest edit flipped", func(fs *vfs.Mem) { flip(t, fs, find(".a"), 70) }, nil, ""},
		{"one manifest header flipped", func(fs *vfs.Mem) { flip(t, fs, find(".b"), 17) }, nil, ""},
	} {
		fs := s.fs.CrashClone(1, 1)
		c.harm(fs)
		o := s.opts
		o.FS = fs
		db, err := Open("/store", o)
		if err == nil {
			if got := contents(db)["t"]; got != "r f:q@1=v\nr2 f:q@1=v\n" {
				t.Errorf("%s: %s", c.name, got)
			}
			s.must(db.Close())
		}
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.place) {
			t.Errorf("%s: %v; want %v naming %s", c.name, err, c.want, c.place)
		}
	}
	s.open()
	if got := s.scan(s.Table("t")); got != "r f:q@1=v\nr2 f:q@1=v\n" {
		t.Fatal(got)
	}
}

func nested(n int) Filter {
	f := PassAllFilter()
	for range n {
		f = ChainFilters(PassAllFilter(), f)
	}
	return f
}
