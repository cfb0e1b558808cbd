package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
)

// 16 goroutines increment one counter, by read-modify-write and by Add, while others read, flush and compact. No update is lost,
// a reader sees one row with sums that never go back, and the timestamps of the results strictly increase.
func TestCountersAreExact(t *testing.T) {
	const writers = 16
	each := 10_000
	if raceEnabled {
		each /= 10
	}
	db, err := Open("/store", Options{FS: vfs.NewMem(vfs.MemOptions{NoCrash: true}), MemtableBytes: 1 << 20, TableFileBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		m := db.Metrics()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if m.Flushes < 2 || m.Compactions < 1 {
			t.Errorf("%d flushes and %d compactions are too few", m.Flushes, m.Compactions)
		}
	}()
	tb, err := db.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"f": {GC: gc.MaxVersionsPolicy(1)}, "sum": {Aggregate: Sum}}})
	if err != nil {
		t.Fatal(err)
	}
	var writing, around sync.WaitGroup
	var done atomic.Bool
	around.Go(func() {
		for i := 0; !done.Load(); i++ {
			time.Sleep(2 * time.Millisecond) // leaves something to flush
			if err := db.Flush(ctx); err != nil {
				t.Error(err)
				return
			}
			if i%4 == 3 {
				if err := db.Compact(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for range 2 {
		around.Go(func() {
			var last [2]int64
			var at Timestamp
			for !done.Load() {
				rows := 0
				err := tb.ReadRows(ctx, AllRows(), func(r Row) bool {
					rows++
					for _, c := range r.Cells {
						n, ok := cell.State(c.Value)
						i := 0
						if c.Family == "sum" {
							i = 1
						} else if c.Timestamp < at {
							t.Errorf("timestamp %d after %d", c.Timestamp, at)
						} else {
							at = c.Timestamp
						}
						if !ok || n < last[i] {
							t.Errorf("%s:%s is %d after %d", c.Family, c.Qualifier, n, last[i])
						}
						last[i] = n
					}
					if len(r.Cells) > 2 {
						t.Errorf("%d cells", len(r.Cells))
					}
					return true
				})
				if err != nil || rows > 1 {
					t.Errorf("%d rows: %v", rows, err)
					return
				}
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			incr, add := NewReadModifyWrite(), NewMutation()
			incr.Increment("f", "n", int64(w+1))
			add.AddIntToCell("sum", "n", 0, int64(w+1))
			at := Timestamp(0)
			for i := range each {
				opts := []ApplyOption{NoSync}
				if i == each-1 {
					opts = nil
				}
				r, err := tb.ReadModifyWrite(ctx, "row", incr, opts...)
				if err == nil {
					err = tb.Apply(ctx, "row", add, opts...)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if len(r.Cells) != 1 || r.Cells[0].Timestamp <= at {
					t.Errorf("%v after %d", r, at)
					return
				}
				at = r.Cells[0].Timestamp
			}
		})
	}
	writing.Wait()
	done.Store(true)
	around.Wait()
	r, err := tb.ReadRow(ctx, "row")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(writers * (writers + 1) / 2 * each)
	for _, c := range r.Cells {
		if n, _ := cell.State(c.Value); fmt.Sprint(n) != want {
			t.Errorf("%s is %d, want %s", c.Family, n, want)
		}
	}
	if len(r.Cells) != 2 {
		t.Errorf("%d cells", len(r.Cells))
	}
}

// A read-modify-write allocates what it returns: the cells and their values. Its counter is in memory although there are files.
func TestReadModifyWriteAllocatesItsResult(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes = 64 << 20 })
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1)})
	m := NewReadModifyWrite()
	m.Increment("f", "n", 1)
	_, err := tb.ReadModifyWrite(ctx, "row", m)
	s.must(err)
	s.must(s.Compact(ctx))
	_, err = tb.ReadModifyWrite(ctx, "row", m)
	s.must(err)
	reads := s.Metrics().RowReads
	n := testing.AllocsPerRun(2000, func() {
		if _, err := tb.ReadModifyWrite(ctx, "row", m, NoSync); err != nil {
			t.Fatal(err)
		}
	})
	if n > 2 && !raceEnabled { // under the race detector pools forget
		t.Errorf("%v allocations an increment", n)
	}
	if now := s.Metrics().RowReads; now != reads {
		t.Errorf("%d increments of a counter in memory looked into files", now-reads)
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes = 64 << 20 })
	tb, err := s.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"f": {}, "sum": {Aggregate: Sum}}})
	s.must(err)
	add := mut(func(m *Mutation) { m.AddIntToCell("sum", "n", 0, 1) })
	n := testing.AllocsPerRun(2000, func() { s.must(tb.Apply(ctx, "row", add, NoSync)) })
	if n >= 1 && !raceEnabled { // under the race detector pools forget
		t.Errorf("%v allocations an Add", n)
	}
}
