package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// wholeStore is what one can see of a store: tables with their descriptions, rows with all their cells.
func wholeStore(t *testing.T, db *DB) string {
	t.Helper()
	names, err := db.Tables(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range names {
		info, err := db.Table(name).Describe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "table %s %+v\n", name, info)
		var rows []Row
		if err := db.Table(name).ReadRows(ctx, AllRows(), func(r Row) bool { rows = append(rows, r); return true }); err != nil {
			t.Fatal(err)
		}
		b.WriteString(show(rows...))
	}
	return b.String()
}

// at opens another directory of the store's file system, to be closed by the caller.
func (s *testStore) at(dir string, change func(*Options)) *DB {
	s.t.Helper()
	o := s.opts
	if change != nil {
		change(&o)
	}
	db, err := Open(dir, o)
	s.must(err)
	return db
}

func readOnly(o *Options) { o.ReadOnly = true }

// lookInto opens a directory, says what is in it and closes it.
func (s *testStore) lookInto(dir string, change func(*Options)) string {
	s.t.Helper()
	db := s.at(dir, change)
	defer func() { s.must(db.Close()) }()
	return wholeStore(s.t, db)
}

// files are the names in a directory, the lock aside, with their sizes.
func (s *testStore) files(dir string) string {
	s.t.Helper()
	list, err := s.fs.List(dir)
	s.must(err)
	list = slices.DeleteFunc(list, func(i vfs.Info) bool { return i.Name == lockName })
	return fmt.Sprint(list)
}

// ofEveryKind fills two tables with what the model has: kinds of families, groups, policies, versions, deletes, empty names and values,
// part of it in files and part in the log alone.
func (s *testStore) ofEveryKind() {
	s.t.Helper()
	a, err := s.CreateTable(ctx, "every", TableSpec{Codec: CodecZstd, BlockBytes: 1024, BloomBits: 5, ColumnFilter: true, Families: map[string]FamilySpec{
		"plain": {}, "two": {GC: gc.MaxVersionsPolicy(2)}, "old": {GC: gc.UnionPolicy(gc.MaxVersionsPolicy(3), gc.MaxAgePolicy(1e18))},
		"sum": {Aggregate: Sum}, "far": {Group: "g"},
	}})
	s.must(err)
	b := s.table("other", map[string]gc.Rule{"f": {}})
	for i := range 300 {
		m := NewMutation()
		for _, f := range []string{"plain", "two", "old", "far"} {
			m.Set(f, fmt.Sprint("q", i%7), Timestamp(i), fmt.Appendf(nil, "%d%s", i, strings.Repeat("v", i%50)))
		}
		m.Set("plain", "", Timestamp(i), nil)
		m.AddIntToCell("sum", "n", 5, int64(i))
		switch i % 10 {
		case 3:
			m.DeleteCellsInColumn("plain", "q2")
		case 5:
			m.DeleteTimestampRange("plain", "q1", 0, Timestamp(i/2+1))
		case 7:
			m.DeleteCellsInFamily("far")
		}
		s.must(a.Apply(ctx, fmt.Sprintf("r%02d", i%40), m, NoSync))
		s.must(b.Apply(ctx, fmt.Sprint("x", i), set("f", "q", 1, fmt.Sprint(i)), NoSync))
		switch i {
		case 100:
			s.must(s.Flush(ctx))
		case 150:
			s.must(s.Compact(ctx))
		case 200:
			s.must(s.Flush(ctx))
			s.must(a.DropRowRange(ctx, NewRange("r05", "r08")))
		}
	}
	s.must(a.Apply(ctx, "r01", mut(func(m *Mutation) { m.DeleteRow() }), NoSync))
}

// What a checkpoint, and a store restored from it, shows is what the store showed: families of every kind, policies, versions,
// empty qualifiers and values, deletes (flipkart-incubator/dkv #70: times to live were lost in a backup and its restoring).
func TestCheckpointShowsWhatTheStoreShowed(t *testing.T) {
	s := newStore(t, nil)
	s.ofEveryKind()
	want := wholeStore(t, s.DB)
	info, err := s.Checkpoint(ctx, "/backup", VerifyBlocks)
	s.must(err)
	if info.Tables == 0 || info.Linked != info.Tables || info.LogBytes == 0 || info.Seq != s.Metrics().VisibleSeq {
		t.Fatalf("%+v", info)
	}
	before := s.files("/backup")
	s.want(s.lookInto("/backup", readOnly), want)
	s.want(s.files("/backup"), before)

	s.must(s.Table("other").Apply(ctx, "later", set("f", "q", 1, "x")))
	for _, c := range []struct {
		to string
		o  RestoreOptions
	}{{"/linked", RestoreOptions{}}, {"/copied", RestoreOptions{Copy: true}}} {
		c.o.FS = s.fs
		again, err := Restore(ctx, "/backup", c.to, c.o)
		s.must(err)
		if again.Seq != info.Seq || again.Tables != info.Tables || (again.Linked == 0) != c.o.Copy {
			t.Fatalf("%+v, the checkpoint was %+v", again, info)
		}
		s.want(s.lookInto(c.to, nil), want)
		s.want(s.lookInto(c.to, nil), want)
	}
	s.want(s.files("/backup"), before)
	s.want(s.lookInto("/backup", nil), want)
}

// The store and its checkpoint, opened for writing, run side by side: the one recycles its log and compacts what the other links.
func TestCheckpointIsAStoreOfItsOwn(t *testing.T) {
	s := newStore(t, nil)
	s.ofEveryKind()
	want := wholeStore(t, s.DB)
	_, err := s.Checkpoint(ctx, "/backup")
	s.must(err)
	db := s.at("/backup", nil)
	if v := db.states.cur.Load().version; v.StoreID == s.states.cur.Load().version.StoreID || v.CheckpointOf != 0 {
		t.Fatalf("store %x, checkpoint of %x", v.StoreID, v.CheckpointOf)
	}
	s.want(wholeStore(t, db), want)
	for i := range 2000 {
		row := fmt.Sprint("n", i)
		s.must(s.Table("other").Apply(ctx, row, set("f", "q", 1, strings.Repeat("o", 300)), NoSync))
		s.must(db.Table("other").Apply(ctx, row, set("f", "q", 1, strings.Repeat("c", 300)), NoSync))
	}
	s.must(s.Compact(ctx))
	s.must(db.Compact(ctx))
	if s.Metrics().Log.SlotsReused == 0 {
		t.Fatal("the log was not recycled")
	}
	here, there := wholeStore(t, s.DB), wholeStore(t, db)
	if strings.ReplaceAll(here, strings.Repeat("o", 300), strings.Repeat("c", 300)) != there {
		t.Fatal("the same was written and something else is there")
	}
	// A checkpoint of a checkpoint that became a store, of one that is only read, and a store that is not one any more.
	_, err = db.Checkpoint(ctx, "/second")
	s.must(err)
	s.must(db.Close())
	s.want(s.lookInto("/backup", nil), there)
	read := s.at("/second", readOnly)
	_, err = read.Checkpoint(ctx, "/third")
	s.must(err)
	s.must(read.Close())
	s.want(s.lookInto("/second", nil), there)
	s.want(s.lookInto("/third", nil), there)
	if _, err := Restore(ctx, "/backup", "/fourth", RestoreOptions{FS: s.fs}); !errors.Is(err, ErrNotCheckpoint) {
		t.Fatal(err)
	}
	s.want(wholeStore(t, s.DB), here)
}

// Every kind of wrong directory is refused, and nothing is left of a checkpoint that failed.
func TestCheckpointRefusals(t *testing.T) {
	s := newStore(t, nil)
	s.ofEveryKind()
	s.must(s.fs.MkdirAll("/full"))
	s.must(s.fs.MkdirAll("/full/of"))
	s.must(s.fs.MkdirAll("/empty"))
	done, cancel := context.WithCancel(ctx)
	cancel()
	s.must(s.Sync(ctx))
	before := s.files("/store") // a refused checkpoint touches nothing
	for dir, want := range map[string]error{"/full": ErrNotEmpty, "/store": ErrNotEmpty, "/not/there": os.ErrNotExist} {
		if _, err := s.Checkpoint(ctx, dir); !errors.Is(err, want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	s.want(s.files("/store"), before)
	for _, dir := range []string{"/fresh", "/empty"} {
		if _, err := s.Checkpoint(done, dir); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if _, err := s.Checkpoint(ctx, "/fresh", 7); !errors.Is(err, ErrOption) {
		t.Error(err)
	}
	if _, err := s.fs.List("/fresh"); !errors.Is(err, os.ErrNotExist) {
		t.Error("a directory is left")
	}
	s.want(s.files("/empty"), "[]")
	_, err := s.Checkpoint(ctx, "/empty")
	s.must(err)
	if _, err := Restore(ctx, "/empty", "/full", RestoreOptions{FS: s.fs}); !errors.Is(err, ErrNotEmpty) {
		t.Error(err)
	}
	if _, err := Restore(ctx, "/full", "/x", RestoreOptions{FS: s.fs}); !errors.Is(err, ErrNotStore) {
		t.Error(err)
	}
}

// Where files cannot be linked they are copied; other failures of a link are told.
func TestCheckpointCopiesWhereItCannotLink(t *testing.T) {
	s, faulty := faultyStore(t)
	s.ofEveryKind()
	want := wholeStore(t, s.DB)
	for _, cause := range []error{syscall.EXDEV, syscall.EPERM, syscall.ENOTSUP, syscall.EMLINK} {
		faulty.SetRules(faultfs.FailIf(faultfs.Link, "", cause))
		dir := fmt.Sprint("/", int(cause.(syscall.Errno)))
		info, err := s.Checkpoint(ctx, dir)
		s.must(err)
		if info.Linked != 0 || info.Tables == 0 {
			t.Fatalf("%v: %+v", cause, info)
		}
		s.want(s.lookInto(dir, readOnly), want)
	}
	faulty.SetRules(faultfs.FailIf(faultfs.Link, "", syscall.EIO))
	if _, err := s.Checkpoint(ctx, "/eio"); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	faulty.SetRules()
}

// A checkpoint of damaged or missing files fails and names the file; the store lives on.
func TestCheckpointOfADamagedStoreFails(t *testing.T) {
	s := newStore(t, nil)
	s.ofEveryKind()
	var num levels.Num
	s.states.cur.Load().version.Live(func(_ uint64, _ int, f *levels.File) { num = f.Num })
	name := path.Join("/store", levels.TableName(num))
	flip(t, s.fs, name, 200)
	_, err := s.Checkpoint(ctx, "/shallow")
	s.must(err)
	_, err = s.Checkpoint(ctx, "/deep", VerifyBlocks)
	if !errors.Is(err, damage.Err) || !strings.Contains(err.Error(), levels.TableName(num)) {
		t.Fatal(err)
	}
	s.must(s.fs.Remove(name))
	if _, err = s.Checkpoint(ctx, "/missing"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), levels.TableName(num)) {
		t.Fatal(err)
	}
	if _, err := s.fs.List("/deep"); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("a checkpoint that failed is left")
	}
}

// Checkpoints under full load hold a prefix of each writer's batches, at least all that were acknowledged before
// (facebook/rocksdb #7787, #10083: a backup missed a log file in the middle).
func TestCheckpointsUnderLoadHoldAPrefix(t *testing.T) {
	rounds := 25
	switch {
	case os.Getenv("ROWAN_SWEEP") == "full":
		rounds = 500
	case raceEnabled || testing.Short():
		rounds = 10
	}
	const writers = 3
	mem := vfs.NewMem(vfs.MemOptions{NoCrash: true})
	o := Options{FS: mem, MemtableBytes: 32 << 10, TableFileBytes: 32 << 10, LevelBytes: 64 << 10, LogSegmentBytes: 16 << 10, CacheBytes: 1 << 20}
	db, err := Open("/store", o)
	if err != nil {
		t.Fatal(err)
	}
	var tables [2]*Table
	for i, name := range []string{"a", "b"} {
		if tables[i], err = db.CreateTable(ctx, name, TableSpec{Families: map[string]FamilySpec{"f": {GC: gc.MaxVersionsPolicy(1)}}}); err != nil {
			t.Fatal(err)
		}
	}
	// Writer w's batch n sets the counter of w to n in both tables, and adds a row.
	var acked [writers]atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	defer func() { stop.Store(true); wg.Wait() }()
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for n := int64(1); !stop.Load(); n++ {
				b := NewBatch()
				for _, tb := range tables {
					b.Add(tb, fmt.Sprint("counter", w), set("f", "n", 1, fmt.Sprint(n)))
					b.Add(tb, fmt.Sprintf("row%d-%d", w, n%500), set("f", "n", 1, fmt.Sprint(n, strings.Repeat("x", rng.IntN(400)))))
				}
				var opts []ApplyOption
				if rng.IntN(4) > 0 {
					opts = append(opts, NoSync)
				}
				if err := db.Apply(ctx, b, opts...); err != nil {
					t.Error(err)
					return
				}
				acked[w].Store(n)
			}
		})
	}
	enough := func() bool { m := db.Metrics(); return m.Log.SlotsReused > 0 && m.Compactions > 0 }
	made := 0
	for ; made < rounds || !enough() && made < 20*rounds; made++ {
		i := made
		var before, after [writers]int64
		for w := range before {
			before[w] = acked[w].Load()
		}
		dir := fmt.Sprint("/backup", i)
		if _, err := db.Checkpoint(ctx, dir); err != nil {
			t.Fatalf("checkpoint %d: %v", i, err)
		}
		for w := range after {
			after[w] = acked[w].Load() + 1
		}
		if err := checkPrefix(mem, dir, o, before[:], after[:]); err != nil {
			t.Fatalf("checkpoint %d: %v", i, err)
		}
		if i%2 == 0 { // the store must not need it, nor it the store
			list, _ := mem.List(dir)
			for _, e := range list {
				_ = mem.Remove(path.Join(dir, e.Name))
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	if !enough() {
		t.Errorf("too little happened: %+v", db.Metrics())
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d checkpoints, %d batches", made, acked[0].Load()+acked[1].Load()+acked[2].Load())
}

// checkPrefix opens a checkpoint, inspects every byte of what it becomes, and compares both tables.
func checkPrefix(mem *vfs.Mem, dir string, o Options, least, most []int64) (err error) {
	db, err := Open(dir, o)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, db.Close()); err != nil {
			return
		}
		var s *inspect.Store
		if s, err = inspect.Open(mem, dir); err == nil {
			r, bad := s.Verify(ctx, nil)
			err = errors.Join(append(r.Errors, bad)...)
		}
	}()
	for w := range least {
		var last int64
		for i, name := range []string{"a", "b"} {
			tb := db.Table(name)
			row, err := tb.ReadRow(ctx, fmt.Sprint("counter", w))
			if err != nil {
				return err
			}
			n := int64(0)
			if len(row.Cells) > 0 {
				fmt.Sscan(string(row.Cells[0].Value), &n)
			}
			if n < least[w] || n > most[w] || i == 1 && n != last {
				return fmt.Errorf("writer %d, table %s: %d batches; %d were acknowledged before, %d begun after; the other table has %d", w, name, n, least[w], most[w], last)
			}
			last = n
			// The rows that the last batches wrote must be there, each with the newest batch that wrote it.
			for k := max(n-499, 1); k <= n; k++ {
				row, err := tb.ReadRow(ctx, fmt.Sprintf("row%d-%d", w, k%500))
				if err != nil {
					return err
				}
				if len(row.Cells) != 1 || !strings.HasPrefix(string(row.Cells[0].Value), fmt.Sprint(k)) {
					return fmt.Errorf("writer %d, table %s: row of batch %d of %d: %s", w, name, k, n, show(row))
				}
			}
		}
	}
	return nil
}
