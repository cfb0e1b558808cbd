package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/levels"
)

// Compact leaves files alone that are as it would leave them, and only those: whatever rules, deletes or newer entries would take
// from one has it merged again.
func TestCompactLeavesAloneWhatIsDone(t *testing.T) {
	s := newStore(t, func(o *Options) { o.TableFileBytes, o.MemtableBytes, o.LevelBytes = 8<<10, 1<<20, 1<<20 })
	tb := s.table("t", map[string]gc.Rule{"keep": {}, "two": gc.MaxVersionsPolicy(2), "hour": gc.MaxAgePolicy(time.Hour)})
	now := s.now.UnixMicro()
	fill := func(fam string, versions int) {
		for i := range 64 {
			for v := range versions {
				s.must(tb.Apply(ctx, fmt.Sprintf("%03d", i), set(fam, "q", Timestamp(now-int64(v)), noise(fmt.Sprint(i)))))
			}
		}
	}
	// again compacts, and reports how many files were made in doing so.
	again := func() int {
		t.Helper()
		before := map[levels.Num]bool{}
		for _, n := range s.liveFiles() {
			before[n] = true
		}
		s.must(s.Compact(ctx))
		fresh := 0
		for _, n := range s.liveFiles() {
			if !before[n] {
				fresh++
			}
		}
		return fresh
	}
	still := func(why string) {
		t.Helper()
		if n := again(); n != 0 {
			t.Errorf("%s: %d files were written, nothing was to be done", why, n)
		}
	}
	fill("keep", 3)
	fill("two", 2)
	if n := again(); n < 8 {
		t.Fatalf("%d files", n)
	}
	all := len(s.liveFiles())
	still("nothing has changed")
	s.now = s.now.Add(24 * time.Hour)
	still("time alone changes nothing without ages")

	s.must(tb.Apply(ctx, "030", set("keep", "q", 1, "v")))
	if n := again(); n == 0 || n > 2 {
		t.Errorf("one row was written, %d files of %d are new", n, all)
	}
	still("after one row")

	s.must(tb.Apply(ctx, "031", mut(func(m *Mutation) { m.DeleteRow() })))
	if n := again(); n == 0 || n > 2 {
		t.Errorf("one row was deleted, %d files of %d are new", n, all)
	}
	still("after one delete")

	now = s.now.UnixMicro()
	fill("hour", 1)
	s.must(s.Compact(ctx))
	still("the hour has not passed")
	s.now = s.now.Add(2 * time.Hour)
	if n := again(); n < all/2 {
		t.Errorf("cells were too old, %d files of %d are new", n, all)
	}
	still("after what was too old went")

	s.must(tb.ModifyFamilies(ctx, SetGCRule("two", gc.MaxVersionsPolicy(1))))
	if n := again(); n < all/2 {
		t.Errorf("a rule keeps less, %d files of %d are new", n, all)
	}
	still("after the rule")

	s.must(tb.ModifyFamilies(ctx, DropFamily("keep")))
	if n := again(); n < 1 {
		t.Errorf("a family was dropped, %d files are new", n)
	}
	still("after the family")
}

// Files that are cut inside a row, and those of a family that adds up, are never taken for done: what a row has beside them is not known
// from them alone.
func TestWhatIsNeverDone(t *testing.T) {
	s := newStore(t, func(o *Options) { o.TableFileBytes, o.MemtableBytes, o.LevelBytes = 8<<10, 1<<20, 1<<20 })
	tb := s.table("wide", map[string]gc.Rule{"f": {}})
	_, err := s.CreateTable(ctx, "sums", TableSpec{Families: map[string]FamilySpec{"n": {Aggregate: Sum}}})
	s.must(err)
	for i := range 64 {
		s.must(tb.Apply(ctx, "row", set("f", fmt.Sprintf("%03d", i), 1, noise(fmt.Sprint(i)))))
		s.must(s.Table("sums").Apply(ctx, fmt.Sprint(i), mut(func(m *Mutation) { m.AddIntToCell("n", "q", 1, 1) })))
	}
	s.must(s.Compact(ctx))
	before := s.liveFiles()
	if len(before) < 6 {
		t.Fatalf("%d files", len(before))
	}
	s.must(s.Compact(ctx))
	for _, n := range s.liveFiles() {
		if slices.Contains(before, n) {
			t.Errorf("file %d was left alone", n)
		}
	}
}

// What Compact leaves alone is judged by the rules that are in force when it is planned, not by those of when it was called.
func TestRuleChangesWhileCompactLooks(t *testing.T) {
	s, faulty := faultyStore(t)
	s.must(s.Close())
	s.opts.TableFileBytes, s.opts.MemtableBytes, s.opts.LevelBytes = 8<<10, 1<<20, 1<<20
	s.open()
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2)})
	for i := range 32 {
		for v := range 2 {
			s.must(tb.Apply(ctx, fmt.Sprint(i), set("f", "q", Timestamp(1+v), noise(fmt.Sprint(i, v)))))
		}
	}
	s.must(s.Compact(ctx))
	s.reopen()
	tb = s.Table("t")
	before := s.liveFiles()
	changed := false
	faulty.SetRules(func(o faultfs.Op) error {
		if !changed && o.Kind == faultfs.Open && strings.HasSuffix(o.Name, ".sst") { // it looks at the first file
			changed = true
			s.must(tb.ModifyFamilies(ctx, SetGCRule("f", gc.MaxVersionsPolicy(1))))
		}
		return nil
	})
	s.must(tb.Compact(ctx, AllRows()))
	faulty.SetRules()
	if !changed {
		t.Fatal("nothing was looked at")
	}
	for _, n := range s.liveFiles() {
		if slices.Contains(before, n) {
			t.Errorf("file %d was left alone, half of its cells are not kept", n)
		}
	}
}
