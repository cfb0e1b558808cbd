package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// An error of damage says which file, part and offset, what was found and what was to be there, and of which table, level and rows
// the file is (palantir/cassandra #133; scylladb/scylladb #15015: an error without file, table or key, and days of search).
func TestDamageErrorsSayWhereAndWhat(t *testing.T) {
	for part, at := range map[string]int{"keys": 5, "footer": -10, "properties": -70} {
		var lines logLines
		s, files := inThree(t, &lines)
		bad := files[1]
		s.must(s.Close())
		if at < 0 {
			at += int(bad.Size)
		}
		name := path.Join("/store", levels.TableName(bad.Num))
		flip(t, s.fs, name, at)
		s.open()
		tb := s.Table("t")
		_, read := tb.ReadRow(ctx, string(bad.Bounds.LoRow))
		_, scan := s.rows(tb, AllRows())
		for what, err := range map[string]error{"read": read, "again": scan, "compact": s.Compact(ctx)} {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("%s, %s: %v", part, what, err)
			}
			for _, say := range []string{name, part, "at offset ", "checksum ", "computed ", `table "t"`} {
				if !strings.Contains(err.Error(), say) {
					t.Errorf("%s, %s: no %q in %v", part, what, say, err)
				}
			}
			rows := fmt.Sprintf("level %d, rows %q to %q", s.Health().SetAside[0].Level, bad.Bounds.LoRow, bad.Bounds.HiRow)
			if what != "compact" && !strings.Contains(err.Error(), rows) {
				t.Errorf("%s, %s: no %q in %v", part, what, rows, err)
			}
			if n := strings.Count(err.Error(), "level "); what != "compact" && n != 1 {
				t.Errorf("%s, %s: told %d times: %v", part, what, n, err)
			}
		}
		flip(t, s.fs, name, at)
	}
}

// A thousand reads that end early leave one mapping and one descriptor for each file, as it was after the first
// (prometheus/prometheus #5426: the same files mapped again and again).
func TestReadsMapEachFileOnce(t *testing.T) {
	db := openDisk(t, t.TempDir(), diskOptions())
	defer db.Close()
	tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
	for round := range 3 {
		for i := range 50 {
			if err := tb.Apply(ctx, fmt.Sprintf("r%02d", i), set("f", "q", Timestamp(round), "v"), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	read := func() {
		snap, err := db.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := tb.ReadRows(ctx, AllRows(), func(Row) bool { n++; return n < 10 }, AtSnapshot(snap)); err != nil || n != 10 {
			t.Fatal(n, err)
		}
		if err := snap.Close(); err != nil {
			t.Fatal(err)
		}
	}
	read()
	fds, maps := entries("/proc/self/fd"), mappings(t)
	for range 1000 {
		read()
	}
	// Other tests of the process may open and close files of their own meanwhile, but not by the hundred.
	if n := entries("/proc/self/fd"); n > fds+100 {
		t.Errorf("%d descriptors, %d before", n, fds)
	}
	if n := mappings(t); n > maps+100 {
		t.Errorf("%d mappings, %d before", n, maps)
	}
}

// A store written with one alignment of direct I/O goes on with another, a larger or smaller one or none at all
// (facebook/rocksdb #14671: the device says 512, the file system wants 16 KiB).
func TestStoreMovesBetweenAlignments(t *testing.T) {
	mem := vfs.NewMem()
	want := ""
	for i, o := range []faultfs.Options{{Align: 16 << 10}, {}, {Align: 64 << 10}, {RefuseOpen: true}, {Align: 16 << 10}, {RefuseWrite: true}, {}} {
		s := newSweep(mem, uint64(i), o)
		s.opts.LogSegmentBytes, s.opts.FreeFloor = 128<<10, -1
		db, err := Open("/store", s.opts)
		if err != nil {
			t.Fatal(i, err)
		}
		if i == 0 {
			create(t, db, "t", map[string]gc.Rule{"f": {}})
		}
		check := func() {
			t.Helper()
			got := ""
			if err := db.Table("t").ReadRows(ctx, AllRows(), func(r Row) bool { got += show(r); return true }); err != nil || got != want {
				t.Fatalf("%d: %v\n%.500s\nwanted\n%.500s", i, err, got, want)
			}
		}
		check()
		for k := range 20 {
			row := fmt.Sprintf("%d-%02d", i, k)
			if err := db.Table("t").Apply(ctx, row, set("f", "q", 1, noise(row))); err != nil {
				t.Fatal(i, err)
			}
			want += row + " f:q@1=" + noise(row) + "\n"
			if k == 12 {
				if err := db.Flush(ctx); err != nil {
					t.Fatal(i, err)
				}
			}
		}
		check()
		if m := db.Metrics(); m.Log.Direct == (o.RefuseOpen || o.RefuseWrite) {
			t.Errorf("%d: direct I/O of the log: %t", i, m.Log.Direct)
		}
		if i%2 == 0 {
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		} else {
			mem = mem.CrashClone(uint64(i), 0) // all was acknowledged
		}
	}
}

// A table file is mapped only when all of it was written and synced, and never written again: the page cache and a mapping are not
// in step with direct writes everywhere (openzfs/zfs #14548; prometheus/prometheus #8799, #12963; iowarp/clio-core #1028). A
// fresh mapping of it shows what was sent.
func TestFilesAreMappedAfterTheirLastWrite(t *testing.T) {
	var rec *recorder
	s := newStore(t, func(o *Options) {
		rec = &recorder{FS: faultfs.New(o.FS, faultfs.Options{Record: true})}
		o.FS, o.MemtableBytes, o.L0Files = rec, 16<<10, 2
	})
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	for i := range 200 {
		row := fmt.Sprintf("r%03d", i*7%100)
		s.must(tb.Apply(ctx, row, set("f", "q", Timestamp(i), noise(fmt.Sprint(i)))))
		if r, err := tb.ReadRow(ctx, row); err != nil || string(r.Cells[0].Value) != noise(fmt.Sprint(i)) {
			t.Fatal(show(r), err)
		}
	}
	s.must(s.Compact(ctx))
	s.must(tb.ReadRows(ctx, AllRows(), func(r Row) bool { return true }))
	mapped, dirty := map[string]bool{}, map[string]bool{}
	n := 0
	for _, c := range rec.Calls() {
		if path.Ext(c.Name) != ".sst" {
			continue
		}
		switch c.Kind {
		case faultfs.Create, faultfs.Write, faultfs.Truncate, faultfs.Preallocate:
			if mapped[c.Name] {
				t.Fatalf("%s, which was mapped before", c)
			}
			dirty[c.Name] = true
		case faultfs.Sync:
			dirty[c.Name] = false
		case faultfs.Map:
			n++
			if dirty[c.Name] {
				t.Fatalf("%s before it was synced", c)
			}
			mapped[c.Name] = true
		}
	}
	if n < 10 {
		t.Fatalf("only %d files were mapped", n)
	}
}

// A compaction that fails or is given up, at whichever call, leaves none of its files behind, not even until the next open
// (influxdata/influxdb #7712, #8368, #10465: temporary files of compactions piled up until the disk was full).
func TestGivenUpCompactionsLeaveNoFiles(t *testing.T) {
	s, faulty := faultyStore(t)
	s.must(s.Close())
	s.opts.L0Files, s.opts.TableFileBytes = 50, 4<<10
	s.open()
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	for round := range 3 {
		for i := range 30 {
			s.must(tb.Apply(ctx, fmt.Sprintf("r%02d", i), set("f", "q", Timestamp(round+1), noise(fmt.Sprint(i, round)))))
		}
		s.must(s.Flush(ctx))
	}
	tidy := func(what string) {
		t.Helper()
		live := map[string]bool{}
		s.states.cur.Load().version.Live(func(_ uint64, _ int, f *levels.File) { live[levels.TableName(f.Num)] = true })
		list, err := s.fs.List("/store")
		s.must(err)
		n := 0
		for _, e := range list {
			if path.Ext(e.Name) == ".sst" {
				n++
				if !live[e.Name] {
					t.Errorf("%s: %s is left, and no version lists it", what, e.Name)
				}
			}
		}
		if n != len(live) {
			t.Fatalf("%s: %d table files for %d of the version", what, n, len(live))
		}
	}
	tidy("before")
	given := 0
	for n := 1; ; n++ {
		// There is something to be done, whatever the one before got through with.
		for _, row := range []string{"r00", "r29"} {
			s.must(tb.Apply(ctx, row, set("f", "q", Timestamp(100+n), noise(fmt.Sprint(n)))))
		}
		s.must(s.Flush(ctx))
		cancelled, cancel := context.WithCancel(ctx)
		calls := 0
		faulty.SetRules(func(o faultfs.Op) error {
			if path.Ext(o.Name) != ".sst" || !o.Kind.Mutating() || o.Kind == faultfs.Remove {
				return nil
			}
			if calls++; calls != n {
				return nil
			}
			if n%2 == 0 {
				cancel()
				return nil
			}
			return syscall.EIO
		})
		err := s.DB.Compact(cancelled)
		cancel()
		faulty.SetRules()
		tidy(fmt.Sprint("call ", n))
		if err == nil && calls < n {
			break
		}
		if err != nil {
			given++
		}
	}
	if given < 20 {
		t.Errorf("only %d compactions were given up", given)
	}
	if got, err := s.rows(tb, AllRows()); err != nil || len(strings.Fields(got)) != 30 {
		t.Errorf("%s, %v", got, err)
	}
}

// Where the lock is held elsewhere, or the file system has no locks, opening fails at once and says so; it never waits and never
// goes on without (boltdb/bolt #562, #566; numtide/treefmt #408; etcd-io/bbolt #257: open hung for ever).
func TestOpenWithoutALockFailsAtOnce(t *testing.T) {
	s, faulty := faultyStore(t)
	if _, err := Open("/store", s.opts); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "/store/lock") {
		t.Errorf("a second open: %v", err)
	}
	s.must(s.Close())
	for _, cause := range []error{syscall.ENOLCK, syscall.ENOTSUP, syscall.EIO} {
		faulty.SetRules(faultfs.FailIf(faultfs.Lock, "lock", cause))
		before := faulty.Count(faultfs.Lock)
		if _, err := Open("/store", s.opts); !errors.Is(err, cause) || errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "lock") {
			t.Errorf("%v: %v", cause, err)
		}
		if n := faulty.Count(faultfs.Lock) - before; n != 1 {
			t.Errorf("%v: %d tries", cause, n)
		}
	}
	faulty.SetRules()
	s.open()
}

// A process that dies again and again, on default options, with nothing or one row written: the store opens unaided each time, and
// its log tells how many bytes of a write under way it ignored (dgraph-io/badger #476, #744, #1353; smallstep/cli #1295: one kill
// and the store wanted a flag that warned of data loss).
func TestKilledAgainAndAgainOpensUnaided(t *testing.T) {
	mem := vfs.NewMem()
	var lines logLines
	acked := 0
	for i := range 50 {
		o := Options{FS: mem, Logger: slog.New(slog.NewTextHandler(&lines, nil)), CacheBytes: 1 << 20}
		db, err := Open("/store", o)
		if err != nil {
			t.Fatalf("life %d: %v", i, err)
		}
		if i == 0 {
			create(t, db, "t", map[string]gc.Rule{"f": {}})
		}
		n := 0
		if err := db.Table("t").ReadRows(ctx, AllRows(), func(Row) bool { n++; return true }); err != nil || n < acked {
			t.Fatalf("life %d: %d rows of %d acknowledged, %v", i, n, acked, err)
		}
		switch i % 3 {
		case 0:
			if err := db.Table("t").Apply(ctx, fmt.Sprint(i), set("f", "q", 1, "v")); err != nil {
				t.Fatal(err)
			}
			acked++
		case 1:
			if err := db.Table("t").Apply(ctx, fmt.Sprint(i), set("f", "q", 1, "v"), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		image := mem.CrashClone(uint64(i), 0.5)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		mem = image
	}
	if n := lines.count("log bytes ignored"); n != 50 {
		t.Errorf("%d openings told how much they ignored", n)
	}
}
