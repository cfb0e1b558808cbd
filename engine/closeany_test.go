package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// A table that is dropped while it is compacted is compacted.
func TestCompactingATableThatIsDropped(t *testing.T) {
	s, faulty := faultyStore(t)
	for _, name := range []string{"t", "u"} {
		tb := s.table(name, map[string]gc.Rule{"f": {}})
		for range 2 {
			s.must(tb.Apply(ctx, "r", set("f", "", 1, "x")))
			s.must(s.Flush(ctx))
		}
	}
	dropped := false
	faulty.SetRules(func(o faultfs.Op) error {
		if o.Kind == faultfs.Create && strings.HasSuffix(o.Name, ".sst") && !dropped {
			dropped = true
			return s.DropTable(ctx, "t")
		}
		return nil
	})
	s.must(s.Compact(ctx))
	if !dropped {
		t.Error("nothing was dropped")
	}
}

// Close and cancelled contexts at any moment of anything: named errors, no goroutine left, and the store opens again.
func TestCloseAndCancelAtAnyMoment(t *testing.T) {
	mem := vfs.NewMem()
	before := runtime.NumGoroutine()
	for round := range 15 {
		opts := Options{FS: mem, MemtableBytes: 16 << 10, TableFileBytes: 8 << 10, LevelBytes: 16 << 10, LogSegmentBytes: 64 << 10, L0Files: 2, CacheBytes: 1 << 20}
		db, err := Open("/store", opts)
		if err != nil {
			t.Fatal(round, err)
		}
		if _, err := db.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"f": {}, "g": {Group: "x", GC: gc.MaxVersionsPolicy(1)}, "n": {Aggregate: Sum}}}); err != nil && !errors.Is(err, ErrTableExists) {
			t.Fatal(err)
		}
		tb := db.Table("t")
		var wg sync.WaitGroup
		for g := range 10 {
			r := rand.New(rand.NewPCG(uint64(round), uint64(g)))
			wg.Go(func() {
				for {
					c, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Microsecond)
					row := fmt.Sprint(r.IntN(50))
					var err error
					switch (g + r.IntN(2)) % 11 {
					case 0:
						err = tb.Apply(c, row, set("f", "q", ServerTime, strings.Repeat("x", 500)))
					case 1:
						err = tb.DropRowRange(c, NewRange(row, row+"~"))
					case 2:
						err = tb.ModifyFamilies(c, SetGCRule("g", modelRules[r.IntN(len(modelRules))]))
					case 3:
						err = db.Flush(c)
					case 4:
						err = db.Compact(c)
					case 5:
						err = tb.ReadRows(c, AllRows(), func(Row) bool { return true })
					case 6:
						var s *Snapshot
						if s, err = db.Snapshot(); err == nil {
							err = tb.ReadRows(c, AllRows(), func(Row) bool { return true }, AtSnapshot(s), ReverseScan())
							s.Close()
						}
					case 7:
						x := NewReadModifyWrite()
						x.Increment("g", "c", 1)
						_, err = tb.ReadModifyWrite(c, row, x)
					case 8:
						err = tb.ModifyFamilies(c, AddFamily("h", FamilySpec{Group: "x"}))
						if err == nil {
							err = tb.ModifyFamilies(c, DropFamily("h"))
						} else if errors.Is(err, ErrFamilyExists) {
							err = tb.ModifyFamilies(c, DropFamily("h"))
						}
					case 9:
						_, err = db.CreateTable(c, "u", TableSpec{Families: map[string]FamilySpec{"f": {}}})
						db.Table("u").Apply(c, "r", set("f", "", 1, "x"))
						db.DropTable(c, "u")
					case 10:
						err = tb.Apply(c, row, NewCondMutation(ValueFilter("x"), set("f", "q", ServerTime, strings.Repeat("y", 500)), mut(func(m *Mutation) { m.DeleteTimestampRange("g", "c", 1, 5) })), NoSync)
					}
					cancel()
					switch {
					case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrRuleChangePending), errors.Is(err, ErrFamilyExists), errors.Is(err, ErrNoFamily), errors.Is(err, ErrTableExists), errors.Is(err, ErrNotCounter), errors.Is(err, ErrNoTable):
					case errors.Is(err, ErrClosed):
						return
					default:
						t.Errorf("round %d, %d: %v", round, g, err)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(2*round) * time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- db.Close() }()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			buf := make([]byte, 1<<20)
			t.Fatalf("close hangs\n%s", buf[:runtime.Stack(buf, true)])
		}
		wg.Wait()
		if h := db.Health(); h.State != StateOK {
			t.Error(h.Cause)
		}
		if t.Failed() {
			return
		}
		if round%3 == 1 {
			mem = mem.CrashClone(uint64(round), 0.5)
		}
	}
	for try := 0; runtime.NumGoroutine() > before; try++ {
		if time.Sleep(10 * time.Millisecond); try == 500 {
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), before)
		}
	}
}
