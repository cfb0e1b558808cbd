package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// Versions of one column in several files, with values larger than a block: none may get lost on the way down.
func TestVersionsOfLargeValuesOverSeveralFiles(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes, o.TableFileBytes = 1<<20, 1<<20 })
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2)})
	rng := rand.New(rand.NewPCG(3, 3))
	val := func(row, col, ts int) []byte {
		n := rng.IntN(2000)
		if rng.IntN(4) == 0 {
			n = rng.IntN(100_000)
		}
		return append(fmt.Appendf(nil, "%d/%d/%d ", row, col, ts), bytes.Repeat([]byte{byte(rng.Uint32())}, n)...)
	}
	want := map[string]string{}
	for ts := 1; ts <= 3; ts++ {
		for row := 0; row < 30; row++ {
			m := NewMutation()
			for col := 0; col < 12; col++ {
				v := val(row, col, ts)
				m.Set("f", fmt.Sprint("c", col), Timestamp(ts), v)
				want[fmt.Sprint(row, " c", col, " ", ts)] = string(v)
			}
			s.must(tb.Apply(ctx, fmt.Sprintf("row%02d", row), m))
		}
		s.must(s.Flush(ctx))
	}
	s.everywhere(func(where string) {
		for row := 0; row < 30; row++ {
			r, err := s.Table("t").ReadRow(ctx, fmt.Sprintf("row%02d", row))
			s.must(err)
			if len(r.Cells) != 24 {
				t.Fatalf("%s: row %d has %d cells", where, row, len(r.Cells))
			}
			for _, c := range r.Cells {
				if want[fmt.Sprint(row, " ", c.Qualifier, " ", c.Timestamp)] != string(c.Value) {
					t.Fatalf("%s: row %d %s@%d is wrong", where, row, c.Qualifier, c.Timestamp)
				}
			}
		}
	})
}

// One column with 5,000 versions of 1 KiB, over many small files and merges of parts of them, with snapshots held: whatever is
// merged first, a newer version never gets below an older one (google/leveldb #320, #375, #376; slatedb/slatedb #1367;
// cockroachdb/pebble #734, #1495: versions of one key were cut across two files of a level, and the newer half went down first).
func TestOneColumnOfManyVersionsOverManyFiles(t *testing.T) {
	s := newStore(t, func(o *Options) {
		o.MemtableBytes, o.TableFileBytes, o.LevelBytes, o.L0Files = 128<<10, 16<<10, 64<<10, 2
	})
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	const versions = 5000
	type held struct {
		snap *Snapshot
		n    int
	}
	var snaps []held
	latest := func(n int, opts ...ReadOption) {
		t.Helper()
		r, err := tb.ReadRow(ctx, "r", append(opts, RowFilter(LatestNFilter(3)))...)
		s.must(err)
		if len(r.Cells) != min(3, n) {
			t.Fatalf("after %d versions: %d cells", n, len(r.Cells))
		}
		for k, c := range r.Cells {
			if c.Timestamp != Timestamp(n-k) || string(c.Value) != noise(fmt.Sprint(n-k)) {
				t.Fatalf("after %d versions, number %d from the newest is of time %d", n, k, c.Timestamp)
			}
		}
	}
	for n := 1; n <= versions; n++ {
		s.must(tb.Apply(ctx, "r", set("f", "q", Timestamp(n), noise(fmt.Sprint(n))), NoSync))
		if n%100 == 0 {
			latest(n)
		}
		if n%500 == 0 {
			snap, err := s.Snapshot()
			s.must(err)
			snaps = append(snaps, held{snap, n})
			if n%1000 == 0 {
				s.must(tb.Compact(ctx, NewClosedRange("r", "r")))
			}
			for _, h := range snaps {
				latest(h.n, AtSnapshot(h.snap))
			}
		}
	}
	for _, h := range snaps {
		latest(h.n, AtSnapshot(h.snap))
		s.must(h.snap.Close())
	}
	s.must(s.Compact(ctx))
	if m := s.Metrics(); m.Compactions < 20 {
		t.Errorf("only %d compactions", m.Compactions)
	}
	next := Timestamp(versions)
	s.must(tb.ReadCellsBorrowed(ctx, AllRows(), func(c *BorrowedCell) bool {
		if c.Timestamp != next || string(c.Value) != noise(fmt.Sprint(next)) {
			t.Errorf("version %d comes where %d is due", c.Timestamp, next)
		}
		next--
		return !t.Failed()
	}))
	if next != 0 {
		t.Errorf("%d versions are missing", next)
	}
}
