package engine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

func openFiles(s *testStore) int {
	m := s.Metrics()
	return m.MappedFiles + m.PositionalFiles
}

// Families of one group share a tree of their own; a read opens no file of a group that it cannot touch, whatever way it says so.
func TestAReadOpensTheFilesOfItsGroups(t *testing.T) {
	s := newStore(t, nil)
	tb, err := s.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{
		"a": {Group: "hot"}, "b": {Group: "hot"}, "c": {}, "d": {Group: "cold"},
	}})
	s.must(err)
	for i := range 20 {
		s.must(tb.Apply(ctx, fmt.Sprintf("r%02d", i), mut(func(m *Mutation) {
			for _, f := range []string{"a", "b", "c", "d"} {
				m.Set(f, "q", 1, []byte("v"+f))
			}
		}), NoSync))
	}
	s.must(s.Compact(ctx))
	for _, c := range []struct {
		name   string
		groups int
		read   func() string
	}{
		{"nothing", 0, func() string { return "" }},
		{"a family", 1, func() string { return s.scan(tb, RowFilter(FamilyExact("a"))) }},
		{"a family of a row", 1, func() string {
			r, err := tb.ReadRow(ctx, "r03", RowFilter(FamilyExact("d")))
			s.must(err)
			return show(r)
		}},
		{"a column range", 1, func() string { return s.scan(tb, RowFilter(ColumnRangeFilter("c", QualifierRange{}))) }},
		{"two families of a group", 1, func() string { return s.scan(tb, RowFilter(FamilyFilter("a|b"))) }},
		{"families of two groups", 2, func() string { return s.scan(tb, RowFilter(InterleaveFilters(FamilyExact("a"), FamilyExact("d")))) }},
		{"a delete of single versions", 1, func() string {
			s.must(tb.ModifyFamilies(ctx, SetGCRule("d", gc.MaxVersionsPolicy(2))))
			s.must(tb.Apply(ctx, "r03", mut(func(m *Mutation) { m.DeleteTimestampRange("d", "q", 5, 6) })))
			return ""
		}},
		{"all", 3, func() string { return s.scan(tb) }},
		{"all backward", 3, func() string { return s.scan(tb, ReverseScan()) }},
		{"a row", 3, func() string { r, err := tb.ReadRow(ctx, "r03"); s.must(err); return show(r) }},
	} {
		s.reopen()
		tb = s.Table("t")
		got := c.read()
		if n := openFiles(s); n != c.groups {
			t.Errorf("%s: %d files are open, want %d:\n%s", c.name, n, c.groups, got)
		}
	}
	row, err := tb.ReadRow(ctx, "r03")
	s.must(err)
	s.want(show(row), "r03 a:q@1=va b:q@1=vb c:q@1=vc d:q@1=vd\n")
}

// Deletes reach the families they name in whatever group, and those only; a row delete reaches all groups.
func TestDeletesOverGroups(t *testing.T) {
	s := newStore(t, nil)
	tb, err := s.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"f": {}, "f-1": {Group: "x"}, "g": {Group: "y"}}})
	s.must(err)
	fill := func(row string) {
		s.must(tb.Apply(ctx, row, mut(func(m *Mutation) {
			for _, f := range []string{"f", "f-1", "g"} {
				m.Set(f, "", 1, []byte("1"))
				m.Set(f, "q", 2, []byte("2"))
			}
		})))
	}
	for _, r := range []string{"a", "b", "c", "d"} {
		fill(r)
	}
	s.must(s.Flush(ctx))
	s.must(tb.Apply(ctx, "a", mut(func(m *Mutation) { m.DeleteRow() })))
	s.must(tb.Apply(ctx, "b", mut(func(m *Mutation) { m.DeleteCellsInFamily("f") })))
	s.must(tb.Apply(ctx, "c", mut(func(m *Mutation) { m.DeleteCellsInColumn("f-1", "q") })))
	s.must(tb.Apply(ctx, "d", mut(func(m *Mutation) { m.DeleteRow(); m.Set("g", "z", 3, []byte("3")) })))
	s.everywhere(func(where string) {
		tb = s.Table("t")
		s.want(s.scan(tb), "b f-1:@1=1 f-1:q@2=2 g:@1=1 g:q@2=2\nc f:@1=1 f:q@2=2 f-1:@1=1 g:@1=1 g:q@2=2\nd g:z@3=3\n")
	})
	s.must(s.Flush(ctx))
}

// What is wrong with a change of families is said with its place; nothing of the list is done then.
func TestBadFamilyChanges(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1), "g": {}})
	before, err := tb.Describe(ctx)
	s.must(err)
	for _, c := range []struct {
		want    error
		text    string
		changes []FamilyChange
	}{
		{ErrFamilyExists, `table "t": change 2 of 2: column family exists: "f"`, []FamilyChange{DropFamily("g"), AddFamily("f", FamilySpec{})}},
		{ErrFamilyExists, "change 2 of 2", []FamilyChange{AddFamily("h", FamilySpec{}), AddFamily("h", FamilySpec{})}},
		{ErrNoFamily, `"h"`, []FamilyChange{DropFamily("h")}},
		{ErrNoFamily, "change 2 of 2", []FamilyChange{DropFamily("g"), SetGCRule("g", gc.MaxVersionsPolicy(1))}},
		{ErrNoFamily, "change 3 of 3", []FamilyChange{DropFamily("g"), AddFamily("g", FamilySpec{}), DropFamily("x")}},
		{ErrRule, `family "f"`, []FamilyChange{SetGCRule("f", gc.MaxVersionsPolicy(0))}},
		{ErrRule, `family "h"`, []FamilyChange{AddFamily("h", FamilySpec{GC: gc.MaxAgePolicy(0)})}},
		{ErrOption, "aggregate 9", []FamilyChange{AddFamily("h", FamilySpec{Aggregate: 9})}},
		{ErrOption, "group", []FamilyChange{AddFamily("h", FamilySpec{Group: "a/b"})}},
		{ErrFamilyName, "a b", []FamilyChange{AddFamily("a b", FamilySpec{})}},
		{ErrFamilyName, "", []FamilyChange{{}}},
	} {
		err := tb.ModifyFamilies(ctx, c.changes...)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v", c.changes, err)
		}
	}
	after, err := tb.Describe(ctx)
	s.must(err)
	s.want(fmt.Sprint(after), fmt.Sprint(before))
	s.must(tb.ModifyFamilies(ctx))
	none := s.Table("none")
	for what, err := range map[string]error{
		"modify": none.ModifyFamilies(ctx, DropFamily("f")), "drop rows": none.DropRowRange(ctx, AllRows()), "drop all": none.DropAllRows(ctx),
	} {
		if !errors.Is(err, ErrNoTable) {
			t.Errorf("%s of no table: %v", what, err)
		}
	}
	if err := tb.DropRowRange(ctx, NewRange("b", "a")); !errors.Is(err, ErrRange) {
		t.Error(err)
	}
	s.must(tb.DropRowRange(ctx, NewRange("a", "a")))
	if _, err := s.CreateTable(ctx, "u", TableSpec{Families: map[string]FamilySpec{"f": {Group: "?"}}}); !errors.Is(err, ErrOption) {
		t.Error(err)
	}
}

// A change of a rule that may keep more is refused while an earlier one is not finished, and metrics show how far that has come.
func TestRuleChangePending(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1), "g": gc.MaxVersionsPolicy(1)})
	s.must(tb.Apply(ctx, "r", mut(func(m *Mutation) {
		for ts := range 4 {
			m.Set("f", "q", Timestamp(ts), []byte("v"))
		}
	})))
	s.must(s.Flush(ctx))
	s.must(tb.ModifyFamilies(ctx, SetGCRule("f", gc.MaxVersionsPolicy(3))))
	if m := s.Metrics(); m.StandingChanges != 1 || m.BehindFiles != 1 || m.BehindBytes == 0 {
		t.Fatalf("%d changes, %d files, %d bytes", m.StandingChanges, m.BehindFiles, m.BehindBytes)
	}
	if err := tb.ModifyFamilies(ctx, SetGCRule("f", gc.MaxVersionsPolicy(4))); !errors.Is(err, ErrRuleChangePending) {
		t.Fatal(err)
	}
	s.want(s.scan(tb), "r f:q@3=v\n")
	// A tighter rule, and changes of other families, do not wait.
	s.must(tb.ModifyFamilies(ctx, SetGCRule("f", gc.MaxVersionsPolicy(2)), SetGCRule("g", gc.NoPolicy())))
	s.must(tb.Apply(ctx, "r", mut(func(m *Mutation) { m.Set("f", "q", 1, []byte("w")); m.Set("f", "q", 2, []byte("w")) })))
	s.want(s.scan(tb), "r f:q@3=v f:q@2=w\n")
	s.must(tb.Compact(ctx, AllRows()))
	if m := s.Metrics(); m.StandingChanges != 0 || m.BehindFiles != 0 {
		t.Fatalf("%d changes, %d files", m.StandingChanges, m.BehindFiles)
	}
	s.must(tb.ModifyFamilies(ctx, SetGCRule("f", gc.MaxVersionsPolicy(4))))
	s.want(s.scan(tb), "r f:q@3=v f:q@2=w\n")
}

// Dropping 100,000 cells is one edit, and gives back whole files at once.
func TestDropOfManyCellsIsOneEdit(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes = 4 << 20 })
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	m := NewMutation()
	for i := range 100_000 {
		m.Set("f", fmt.Sprint(i), 1, nil)
	}
	s.must(tb.Apply(ctx, "video", m, NoSync))
	s.must(tb.Apply(ctx, "other", set("f", "q", 1, "v")))
	s.must(s.Flush(ctx))
	files, edit := s.Metrics().Levels[0].Files, s.states.cur.Load().version.EditNum
	s.must(tb.DropRowRange(ctx, PrefixRange("video")))
	s.want(s.scan(tb), "other f:q@1=v\n")
	if n := s.states.cur.Load().version.EditNum; n != edit+1 {
		t.Errorf("%d edits", n-edit)
	}
	if n := s.Metrics().Levels[0].Files; n >= files {
		t.Errorf("%d files of %d are left", n, files)
	}
	s.exec.Help() // background work alone brings the rest
	if m := s.Metrics(); m.StandingChanges != 0 || m.DiskBytes > 8<<10 {
		t.Errorf("%d bytes are left, %d changes", m.DiskBytes, m.StandingChanges)
	}
	s.must(tb.DropAllRows(ctx))
	s.want(s.scan(tb), "")
	if m := s.Metrics(); m.DiskBytes != 0 || m.StandingChanges != 0 {
		t.Errorf("%d bytes are left, %d changes", m.DiskBytes, m.StandingChanges)
	}
}

// BenchmarkModelLocalityGroup reads one family of ten from wide rows on disk, from a group of its own and from one group with all
// others, in turns, with the page cache dropped before both (as root; warm otherwise). x is how many times faster the former
// is, by the medians.
func BenchmarkModelLocalityGroup(b *testing.B) {
	const rows = 12000
	dir := b.TempDir()
	open := func() *DB {
		db, err := Open(dir, Options{CacheBytes: 16 << 20})
		if err != nil {
			b.Fatal(err)
		}
		return db
	}
	db := open()
	defer func() { db.Close() }()
	for _, group := range []string{"own", ""} {
		spec := TableSpec{Families: map[string]FamilySpec{"f0": {Group: group}}}
		for i := range 9 {
			spec.Families[fmt.Sprint("f", i+1)] = FamilySpec{}
		}
		tb, err := db.CreateTable(ctx, "t"+group, spec)
		if err != nil {
			b.Fatal(err)
		}
		for i := range rows {
			m := NewMutation()
			for f := range 10 {
				for q := range 10 {
					m.Set(fmt.Sprint("f", f), fmt.Sprint("q", q), 1, randomBytes(uint64(i*100+f*10+q), 150))
				}
			}
			if err := tb.Apply(ctx, fmt.Sprintf("row%06d", i), m, NoSync); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := db.Compact(ctx); err != nil {
		b.Fatal(err)
	}
	var took [2][]time.Duration
	for b.Loop() {
		for i, name := range []string{"town", "t"} {
			// Pages that are mapped are not dropped.
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
			dropPageCache()
			db = open()
			tb := db.Table(name)
			began, n := time.Now(), 0
			if err := tb.ReadCellsBorrowed(ctx, AllRows(), func(*BorrowedCell) bool { n++; return true }, RowFilter(FamilyExact("f0"))); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(began))
			if n != rows*10 {
				b.Fatal(n)
			}
		}
	}
	for i, name := range []string{"own-ns/cell", "shared-ns/cell"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Nanoseconds())/(rows*10), name)
	}
	b.ReportMetric(float64(took[1][len(took[1])/2])/float64(took[0][len(took[0])/2]), "x")
}

// dropPageCache empties the operating system's cache, where it lets us.
func dropPageCache() { _ = os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0) }

func randomBytes(seed uint64, n int) []byte {
	p := make([]byte, n)
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range p {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		p[i] = byte(x)
	}
	return p
}
