package engine

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// Nothing is removed before what takes its place is durable with its name, and no table file is named by a manifest that was synced
// before the file and its name were (google/leveldb #74, #189, #195; facebook/rocksdb #8682, #10573: a pointer that is empty or names a
// manifest that is not there; google/leveldb #333; dgraph-io/badger #1645; apache/horaedb #394; facebook/rocksdb #5287;
// skyzh/mini-lsm #172: a table file of length zero or none at all under a manifest that names it). The power is cut, with nothing
// kept that was not durable, right after every sync of a manifest and right before every removal.
func TestFilesAreDurableBeforeTheyAreNamed(t *testing.T) {
	mem := vfs.NewMem()
	var s *testStore
	want, looks, edits, removals := "", 0, 0, 0
	pending := ""
	look := func(o faultfs.Op) {
		looks++
		opts := s.opts
		opts.FS = mem.CrashClone(uint64(looks), 0)
		db, err := Open("/store", opts)
		if err != nil {
			t.Fatalf("after %s, before %s: %v", pending, o, err)
		}
		if h := db.Health(); h.State != StateOK || len(h.SetAside) > 0 {
			t.Fatalf("after %s, before %s: %+v", pending, o, h)
		}
		got := ""
		if err := db.Table("t").ReadRows(ctx, AllRows(), func(r Row) bool { got += show(r); return true }); err != nil || !strings.HasPrefix(got, want) {
			t.Fatalf("after %s, before %s: %d bytes of %d, %v", pending, o, len(got), len(want), err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	watching := false
	rule := func(o faultfs.Op) error {
		if !watching || o.N == 0 {
			return nil
		}
		base := path.Base(o.Name)
		switch {
		case strings.HasPrefix(base, "manifest-") && o.Kind == faultfs.Sync:
			pending = o.String()
			edits++
			return nil
		case o.Kind == faultfs.Remove:
			removals++
			look(o)
		case pending != "": // the first call that changes anything after an edit was synced
			look(o)
		}
		pending = ""
		return nil
	}
	s = newStore(t, func(o *Options) {
		o.FS = faultfs.New(mem, faultfs.Options{Rules: []faultfs.Rule{rule}})
		o.MemtableBytes, o.TableFileBytes, o.LevelBytes, o.LogSegmentBytes, o.L0Files = 16<<10, 8<<10, 16<<10, 16<<10, 2
	})
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	watching = true
	for i := range 64 {
		row := fmt.Sprintf("r%03d", i)
		s.must(tb.Apply(ctx, row, set("f", "q", 1, noise(row))))
		want += show(Row{Key: row, Cells: []Cell{{Family: "f", Qualifier: "q", Timestamp: 1, Value: []byte(noise(row))}}})
		if i%8 == 7 {
			if i%24 == 23 {
				s.manifest.RollAt = 1 // the next edit starts a manifest
			}
			s.must(s.Flush(ctx))
		}
	}
	s.must(s.Compact(ctx))
	watching = false
	s.want(s.scan(tb), want)
	if edits < 20 || removals < 10 || s.manifest.Num() < 3 {
		t.Errorf("%d edits, %d removals, manifest %s: too little happened", edits, removals, levels.ManifestName(s.manifest.Num()))
	}
}

// Unsynced writes go over several log slots, then only the last is synced by a write: everything before it is durable as well, and
// at every moment what a power cut leaves is a prefix (google/leveldb #193: the older log was never synced when the newer one was).
func TestSyncOfANewSlotCoversTheOldOnes(t *testing.T) {
	for _, buffered := range []bool{false, true} {
		s := newStore(t, func(o *Options) { o.LogSegmentBytes, o.MemtableBytes, o.Buffered = 16<<10, 1<<20, buffered })
		tb := s.table("t", map[string]gc.Rule{"f": {}})
		held := func(keep float64, seed uint64) int {
			t.Helper()
			opts := s.opts
			opts.FS = s.fs.CrashClone(seed, keep)
			db, err := Open("/store", opts)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			err = db.Table("t").ReadRows(ctx, AllRows(), func(r Row) bool {
				if want := fmt.Sprintf("r%03d", n); r.Key != want {
					t.Fatalf("buffered %t, seed %d: row %s where %s should be", buffered, seed, r.Key, want)
				}
				n++
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			return n
		}
		const n = 80
		for i := range n {
			row := fmt.Sprintf("r%03d", i)
			s.must(tb.Apply(ctx, row, set("f", "q", 1, noise(row)), NoSync))
			if i%8 == 0 {
				held(0.5, uint64(i))
			}
		}
		if slots := s.Metrics().Log.SlotsMade; slots < 4 {
			t.Fatalf("the writes went over %d slots", slots)
		}
		s.must(tb.Apply(ctx, fmt.Sprintf("r%03d", n), set("f", "q", 1, "v")))
		if got := held(0, 1); got != n+1 {
			t.Errorf("buffered %t: %d rows after a synced write, wanted %d", buffered, got, n+1)
		}
	}
}
