package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

// diskOptions are for tests on the real file system with real goroutines, tiny so that everything happens often.
func diskOptions() Options {
	return Options{
		MemtableBytes: 64 << 10, TableFileBytes: 32 << 10, LevelBytes: 128 << 10, LogSegmentBytes: 256 << 10, CacheBytes: 256 << 10, L0Files: 2,
	}
}

func openDisk(t *testing.T, dir string, o Options) *DB {
	t.Helper()
	db, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func create(t *testing.T, db *DB, name string, rules map[string]gc.Rule) *Table {
	t.Helper()
	spec := TableSpec{Families: map[string]FamilySpec{}}
	for f, r := range rules {
		spec.Families[f] = FamilySpec{GC: r}
	}
	tb, err := db.CreateTable(ctx, name, spec)
	if err != nil {
		t.Fatal(err)
	}
	return tb
}

// A batch writes the same number to a row of each of two tables. Whoever reads both from one snapshot sees one number, whatever
// flushes, compactions and seals run meanwhile, and a row is never seen in part.
func TestBatchesAreNeverSeenInPart(t *testing.T) {
	db := openDisk(t, t.TempDir(), diskOptions())
	rules := map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1)}
	a, b := create(t, db, "a", rules), create(t, db, "b", rules)
	var stop atomic.Bool
	var wg sync.WaitGroup
	var failed atomic.Pointer[string]
	fail := func(format string, args ...any) {
		s := fmt.Sprintf(format, args...)
		failed.CompareAndSwap(nil, &s)
		stop.Store(true)
	}
	rounds := 500
	if raceEnabled {
		rounds = 200
	}
	const rows = 8
	for w := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for i := 1; i <= rounds && !stop.Load(); i++ {
				row := fmt.Sprint("row", rng.IntN(rows))
				v := fmt.Appendf(nil, "%d-%d-%0100d", w, i, 0)
				ts := Timestamp(i*10 + w)
				m := NewMutation()
				m.DeleteRow()
				for q := range 5 {
					m.Set("f", fmt.Sprint("q", q), ts, v)
				}
				batch := NewBatch()
				batch.Add(a, row, m)
				batch.Add(b, row, m)
				if err := db.Apply(ctx, batch, NoSync); err != nil {
					fail("apply: %v", err)
				}
			}
		})
	}
	var writers sync.WaitGroup
	var reads atomic.Int64
	for r := range 2 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(r), 2))
			for !stop.Load() {
				snap, err := db.Snapshot()
				if err != nil {
					fail("snapshot: %v", err)
					return
				}
				row := fmt.Sprint("row", rng.IntN(rows))
				ra, err1 := a.ReadRow(ctx, row, AtSnapshot(snap))
				rb, err2 := b.ReadRow(ctx, row, AtSnapshot(snap))
				if err := errors.Join(err1, err2, snap.Close()); err != nil {
					fail("read: %v", err)
				}
				if show(ra) != show(rb) || len(ra.Cells) != 0 && len(ra.Cells) != 5 {
					fail("half a batch:\n%s%s", show(ra), show(rb))
				}
				reads.Add(1)
			}
		})
	}
	writers.Go(func() {
		for !stop.Load() {
			if err := errors.Join(db.Flush(ctx), a.Compact(ctx, AllRows())); err != nil {
				fail("compact: %v", err)
			}
		}
	})
	wg.Wait()
	stop.Store(true)
	writers.Wait()
	if p := failed.Load(); p != nil {
		t.Fatal(*p)
	}
	m := db.Metrics()
	if reads.Load() < 50 || m.Flushes < 10 || m.Compactions < 5 {
		t.Fatalf("too little happened: %d reads, %d flushes, %d compactions", reads.Load(), m.Flushes, m.Compactions)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// Close at a random moment under load of every kind: each call gives a result or ErrClosed, nothing hangs or panics, and what
// was acknowledged is there afterwards (syndtr/goleveldb #148, #235: nil dereferences in reads beside a close).
func TestCloseUnderLoad(t *testing.T) {
	rounds := 20
	if raceEnabled {
		rounds = 8
	}
	for round := range rounds {
		dir := t.TempDir()
		db := openDisk(t, dir, diskOptions())
		tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
		var acked [8]int
		var wg sync.WaitGroup
		bad := make(chan error, 100)
		check := func(err error) bool {
			if err != nil && !errors.Is(err, ErrClosed) {
				bad <- err
			}
			return err == nil
		}
		for w := range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					if !check(tb.Apply(ctx, fmt.Sprintf("w%d", w), set("f", fmt.Sprintf("%06d", i), 1, "some value that takes room"))) {
						return
					}
					acked[w] = i + 1
				}
			})
		}
		for range 4 {
			wg.Go(func() {
				for check(tb.ReadRows(ctx, AllRows(), func(Row) bool { return true })) {
				}
			})
			wg.Go(func() {
				for check(db.Flush(ctx)) && check(tb.Compact(ctx, AllRows())) {
				}
			})
			wg.Go(func() {
				for {
					s, err := db.Snapshot()
					if !check(err) {
						return
					}
					_, err = tb.ReadRow(ctx, "w3", AtSnapshot(s))
					check(s.Close())
					if !check(err) {
						return
					}
					_ = db.Metrics()
				}
			})
		}
		time.Sleep(time.Duration(10+round*3) * time.Millisecond)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		close(bad)
		for err := range bad {
			t.Fatal(err)
		}
		if err := tb.Apply(ctx, "r", set("f", "q", 1, "v")); !errors.Is(err, ErrClosed) {
			t.Fatalf("after close: %v", err)
		}
		db = openDisk(t, dir, diskOptions())
		for w := range 8 {
			r, err := db.Table("t").ReadRow(ctx, fmt.Sprintf("w%d", w))
			if err != nil || len(r.Cells) < acked[w] || len(r.Cells) > acked[w]+1 {
				t.Fatalf("row w%d has %d cells, %d were acknowledged: %v", w, len(r.Cells), acked[w], err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Open and close leave no goroutine, mapping or descriptor behind, a failing open neither (dgraph-io/badger #421, #685, #688, #1347;
// pingcap/badger #220).
func TestOpenCloseLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	foreign := t.TempDir()
	if err := os.WriteFile(foreign+"/letter.txt", []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	cycle := func() {
		db := openDisk(t, dir, diskOptions())
		name := fmt.Sprint("t", time.Now().UnixNano())
		tb := create(t, db, name, map[string]gc.Rule{"f": {}})
		for i := range 20 {
			if err := tb.Apply(ctx, fmt.Sprint(i), set("f", "q", 1, "v"), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(db.Flush(ctx), tb.ReadRows(ctx, AllRows(), func(Row) bool { return false }), db.DropTable(ctx, name), db.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(foreign, diskOptions()); !errors.Is(err, ErrNotStore) {
			t.Fatalf("open of a foreign directory: %v", err)
		}
	}
	cycle()
	goroutines, fds, maps := runtime.NumGoroutine(), entries("/proc/self/fd"), mappings(t)
	for range 40 {
		cycle()
	}
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > goroutines && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	if n := entries("/proc/self/fd"); n > fds {
		t.Errorf("%d open files, %d before", n, fds)
	}
	if n := mappings(t); n > maps+2 { // the runtime may grow its heap
		t.Errorf("%d mapped store files, %d before", n, maps)
	}
}

func entries(dir string) int {
	list, _ := os.ReadDir(dir)
	return len(list)
}

// mappings counts mapped table files.
func mappings(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0 // not Linux: descriptors and goroutines are counted all the same
	}
	n := 0
	for i := 0; i+4 < len(b); i++ {
		if string(b[i:i+4]) == ".sst" {
			n++
		}
	}
	return n
}

// A cancelled context ends waiting; a batch that has its place already has an unknown outcome.
func TestContexts(t *testing.T) {
	db := openDisk(t, t.TempDir(), diskOptions())
	defer db.Close()
	tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := tb.Apply(done, "r", set("f", "q", 1, "v")); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknownOutcome) {
		t.Fatalf("apply: %v", err)
	}
	if r, err := tb.ReadRow(ctx, "r"); err != nil || len(r.Cells) != 0 {
		t.Fatalf("a cancelled batch was written: %s %v", show(r), err)
	}
	if _, err := tb.ReadRow(done, "r"); !errors.Is(err, context.Canceled) {
		t.Fatalf("read: %v", err)
	}
	if err := db.Flush(done); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("flush: %v", err)
	}
}
