package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/engine/internal/executor"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
)

var ctx = context.Background()

// testStore is a store on an in-memory file system with a clock of its own.
type testStore struct {
	*DB
	t    *testing.T
	fs   *vfs.Mem
	now  time.Time
	opts Options
}

func newStore(t *testing.T, change func(*Options)) *testStore {
	t.Helper()
	s := &testStore{t: t, fs: vfs.NewMem(), now: time.UnixMicro(1_000_000_000)}
	seed := rand.New(rand.NewPCG(1, 2))
	s.opts = Options{
		FS: s.fs, Clock: func() time.Time { return s.now }, Background: new(executor.Inline), Random: seed.Uint64,
		MemtableBytes: 64 << 10, TableFileBytes: 64 << 10, LevelBytes: 256 << 10, LogSegmentBytes: 64 << 10, CacheBytes: 1 << 20,
	}
	if change != nil {
		change(&s.opts)
	}
	s.open()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func (s *testStore) open() {
	s.t.Helper()
	db, err := Open("/store", s.opts)
	if err != nil {
		s.t.Fatal(err)
	}
	s.DB = db
}

func (s *testStore) reopen() {
	s.t.Helper()
	if err := s.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.open()
}

func (s *testStore) table(name string, rules map[string]gc.Rule) *Table {
	s.t.Helper()
	spec := TableSpec{Families: map[string]FamilySpec{}}
	for f, r := range rules {
		spec.Families[f] = FamilySpec{GC: r}
	}
	t, err := s.CreateTable(ctx, name, spec)
	if err != nil {
		s.t.Fatal(err)
	}
	return t
}

func (s *testStore) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func set(f, q string, ts Timestamp, v string) *Mutation {
	m := NewMutation()
	m.Set(f, q, ts, []byte(v))
	return m
}

func mut(change func(*Mutation)) *Mutation {
	m := NewMutation()
	change(m)
	return m
}

// show prints rows in a short form: "row f:q@ts=value ...".
func show(rows ...Row) string {
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(r.Key)
		for _, c := range r.Cells {
			fmt.Fprintf(&b, " %s:%s@%d=%s", c.Family, c.Qualifier, c.Timestamp, c.Value)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (s *testStore) scan(t *Table, opts ...ReadOption) string {
	s.t.Helper()
	var rows []Row
	s.must(t.ReadRows(ctx, AllRows(), func(r Row) bool { rows = append(rows, r); return true }, opts...))
	return show(rows...)
}

func (s *testStore) want(got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Fatalf("got\n%swant\n%s", got, want)
	}
}

// everywhere runs check while the data is in the memtable, in L0, in the last level, and after reopening.
func (s *testStore) everywhere(check func(where string)) {
	s.t.Helper()
	check("memtable")
	s.reopen()
	check("replayed")
	s.must(s.Flush(ctx))
	check("L0")
	s.must(s.Compact(ctx))
	check("last level")
	s.reopen()
	check("reopened")
}

func TestWriteAndReadEverywhere(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"a": {}, "b": {}})
	s.must(tb.Apply(ctx, "r1", set("a", "x", 10, "one")))
	s.must(tb.Apply(ctx, "r1", set("a", "x", 20, "two")))
	s.must(tb.Apply(ctx, "r1", set("b", "", 5, "empty qualifier")))
	s.must(tb.Apply(ctx, "r0", set("b", "y", 0, ""), NoSync))
	s.must(tb.Apply(ctx, "r1", set("a", "x", 10, "ONE")))
	s.everywhere(func(where string) {
		tb = s.Table("t")
		s.want(where+"\n"+s.scan(tb), where+"\nr0 b:y@0=\nr1 a:x@20=two a:x@10=ONE b:@5=empty qualifier\n")
		s.want(s.scan(tb, ReverseScan()), "r1 a:x@20=two a:x@10=ONE b:@5=empty qualifier\nr0 b:y@0=\n")
		row, err := tb.ReadRow(ctx, "r1", RowFilter(ChainFilters(ColumnExact("a", "x"), LatestNFilter(1))))
		s.must(err)
		s.want(show(row), "r1 a:x@20=two\n")
		row, err = tb.ReadRow(ctx, "nobody")
		s.must(err)
		s.want(show(row), "nobody\n")
	})
}

func TestDeletesRemoveWhatIsThereAndNothingLater(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"fam": {}, "fam-1": {}, "fam.": {}})
	for _, f := range []string{"fam", "fam-1", "fam."} {
		for _, q := range []string{"", "a", "ab", "a\x00"} {
			for ts := Timestamp(1); ts <= 3; ts++ {
				s.must(tb.Apply(ctx, "r", set(f, q, ts, "v")))
			}
		}
	}
	s.must(s.Flush(ctx))
	s.must(tb.Apply(ctx, "r", mut(func(m *Mutation) {
		m.DeleteCellsInFamily("fam")
		m.Set("fam", "a", 1, []byte("new"))
		m.DeleteCellsInColumn("fam-1", "a")
		m.DeleteTimestampRange("fam-1", "ab", 2, 3)
		m.DeleteTimestampRange("fam.", "", 2, 0)
		m.DeleteTimestampRange("fam.", "a\x00", 0, 3)
	})))
	want := "r fam:a@1=new fam-1:@3=v fam-1:@2=v fam-1:@1=v fam-1:a\x00@3=v fam-1:a\x00@2=v fam-1:a\x00@1=v fam-1:ab@3=v fam-1:ab@1=v" +
		" fam.:@1=v fam.:a@3=v fam.:a@2=v fam.:a@1=v fam.:a\x00@3=v fam.:ab@3=v fam.:ab@2=v fam.:ab@1=v\n"
	s.everywhere(func(where string) { s.want(where+" "+s.scan(s.Table("t")), where+" "+want) })
	s.must(s.Table("t").Apply(ctx, "r", mut(func(m *Mutation) { m.DeleteRow() })))
	s.everywhere(func(where string) { s.want(where+s.scan(s.Table("t")), where) })
}

func TestRulesHoldAtReadAndOnDisk(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"v2": gc.MaxVersionsPolicy(2), "age": gc.MaxAgePolicy(time.Second), "all": {}})
	now := Time(s.now)
	for i := Timestamp(0); i < 4; i++ {
		s.must(tb.Apply(ctx, "r", mut(func(m *Mutation) {
			m.Set("v2", "q", i, []byte("v"))
			m.Set("age", "q", now-i*400_000, []byte("v"))
			m.Set("all", "q", i, []byte("v"))
		})))
	}
	want := fmt.Sprintf("r age:q@%d=v age:q@%d=v age:q@%d=v all:q@3=v all:q@2=v all:q@1=v all:q@0=v v2:q@3=v v2:q@2=v\n", now, now-400_000, now-800_000)
	s.everywhere(func(where string) { s.want(where+" "+s.scan(s.Table("t")), where+" "+want) })
	s.want(s.scan(s.Table("t"), Raw()), want)
	s.now = s.now.Add(2 * time.Second)
	want = "r all:q@3=v all:q@2=v all:q@1=v all:q@0=v v2:q@3=v v2:q@2=v\n"
	s.everywhere(func(where string) { s.want(where+" "+s.scan(s.Table("t")), where+" "+want) })
	s.want(s.scan(s.Table("t"), Raw()), want)
}

// A hole spares something older than what it removes; what was collected, or may be at any moment, must not come back.
func TestHoleDoesNotBringBackCollectedVersions(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		s := newStore(t, nil)
		tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2)})
		for ts := Timestamp(1); ts <= 4; ts++ {
			s.must(tb.Apply(ctx, "r", set("f", "q", ts, "v")))
		}
		if flushed {
			s.must(s.Flush(ctx))
		}
		s.must(tb.Apply(ctx, "r", mut(func(m *Mutation) { m.DeleteTimestampRange("f", "q", 4, 5) })))
		s.everywhere(func(where string) { s.want(where+" "+s.scan(s.Table("t")), where+" r f:q@3=v\n") })
	}
}

// The batch's own earlier changes count when the pin of a hole is chosen.
func TestHoleSeesItsOwnBatch(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2)})
	s.must(tb.Apply(ctx, "r", set("f", "q", 1, "v")))
	s.must(tb.Apply(ctx, "r", mut(func(m *Mutation) {
		m.Set("f", "q", 2, []byte("v"))
		m.Set("f", "q", 3, []byte("v"))
		m.DeleteTimestampRange("f", "q", 3, 4)
	})))
	s.everywhere(func(where string) { s.want(where+" "+s.scan(s.Table("t")), where+" r f:q@2=v\n") })
}

func TestSnapshotShowsItsMoment(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1)})
	s.must(tb.Apply(ctx, "r", set("f", "q", 1, "old")))
	snap, err := s.Snapshot()
	s.must(err)
	s.must(tb.Apply(ctx, "r", set("f", "q", 2, "new")))
	s.must(tb.Apply(ctx, "s", set("f", "q", 2, "new")))
	for i := 0; i < 3; i++ {
		s.want(s.scan(tb, AtSnapshot(snap)), "r f:q@1=old\n")
		s.want(s.scan(tb), "r f:q@2=new\ns f:q@2=new\n")
		s.must(s.Compact(ctx))
	}
	s.must(snap.Close())
	if err := tb.ReadRows(ctx, AllRows(), func(Row) bool { return true }, AtSnapshot(snap)); !errors.Is(err, ErrClosed) {
		t.Fatalf("read at a closed snapshot: %v", err)
	}
}

func TestDropTableTakesEverythingWithIt(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	s.must(tb.Apply(ctx, "flushed", set("f", "q", 1, "old")))
	s.must(s.Flush(ctx))
	s.must(tb.Apply(ctx, "logged", set("f", "q", 1, "old")))
	s.must(s.DropTable(ctx, "t"))
	if err := tb.Apply(ctx, "r", set("f", "q", 1, "x")); !errors.Is(err, ErrNoTable) {
		t.Fatalf("write to a dropped table: %v", err)
	}
	s.reopen()
	if _, err := s.Table("t").ReadRow(ctx, "r"); !errors.Is(err, ErrNoTable) {
		t.Fatalf("read of a dropped table: %v", err)
	}
	tb = s.table("t", map[string]gc.Rule{"f": {}})
	s.must(tb.Apply(ctx, "new", set("f", "q", 1, "new")))
	s.everywhere(func(where string) { s.want(where+" "+s.scan(s.Table("t")), where+" new f:q@1=new\n") })
}

// A million cells of small rows through tiny memtables and files: flushes, compactions and moves of every kind.
func TestManyRowsThroughTinyFiles(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1)})
	rng := rand.New(rand.NewPCG(7, 7))
	want := map[string]string{}
	for i := 0; i < 20_000; i++ {
		row := fmt.Sprintf("row%05d", rng.IntN(5000))
		if rng.IntN(10) == 0 {
			s.must(tb.Apply(ctx, row, mut(func(m *Mutation) { m.DeleteRow() }), NoSync))
			delete(want, row)
			continue
		}
		v := fmt.Sprintf("value %d of some length", i)
		s.must(tb.Apply(ctx, row, set("f", "q", Timestamp(i), v), NoSync))
		want[row] = v
	}
	check := func(where string) {
		tb := s.Table("t")
		n := 0
		s.must(tb.ReadRows(ctx, AllRows(), func(r Row) bool {
			n++
			if len(r.Cells) != 1 || string(r.Cells[0].Value) != want[r.Key] {
				t.Fatalf("%s: %s, want %q", where, show(r), want[r.Key])
			}
			return true
		}))
		if n != len(want) {
			t.Fatalf("%s: %d rows, want %d", where, n, len(want))
		}
		for i := 0; i < 5000; i += 7 {
			row := fmt.Sprintf("row%05d", i)
			r, err := tb.ReadRow(ctx, row)
			s.must(err)
			if v, ok := r.Latest("f", "q"); string(v) != want[row] || ok != (want[row] != "") {
				t.Fatalf("%s: %s = %q, want %q", where, row, v, want[row])
			}
		}
	}
	if m := s.Metrics(); m.Flushes < 5 || m.Compactions < 2 {
		t.Fatalf("too few flushes or compactions: %+v", m)
	}
	s.everywhere(check)
}
