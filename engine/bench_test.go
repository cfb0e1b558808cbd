package engine

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rowandb/rowan/gc"
)

func benchStore(b *testing.B, rows, columns int) (*DB, *Table, func(i int) string) {
	b.Helper()
	db, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	tb, err := db.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"f": {GC: gc.NoPolicy()}}})
	if err != nil {
		b.Fatal(err)
	}
	key := func(i int) string {
		var k [16]byte
		binary.BigEndian.PutUint64(k[:], uint64(i)*0x9e3779b97f4a7c15)
		binary.BigEndian.PutUint64(k[8:], uint64(i))
		return string(k[:])
	}
	val := make([]byte, 100)
	for i := range rows {
		m := NewMutation()
		for c := range columns {
			m.Set("f", fmt.Sprintf("column%02d", c), Timestamp(i), val)
		}
		if err := tb.Apply(ctx, key(i), m, NoSync); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Compact(ctx); err != nil {
		b.Fatal(err)
	}
	return db, tb, key
}

func BenchmarkApplyNoSync(b *testing.B) {
	_, tb, key := benchStore(b, 1, 1)
	m := NewMutation()
	m.Set("f", "q", 1, make([]byte, 100))
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if err := tb.Apply(ctx, key(i), m, NoSync); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkReadRow(b *testing.B) {
	const rows = 200_000
	_, tb, key := benchStore(b, rows, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for b.Loop() {
		if r, err := tb.ReadRow(ctx, key(rng.IntN(rows))); err != nil || len(r.Cells) != 1 {
			b.Fatal(err)
		}
	}
}

func BenchmarkScanCells(b *testing.B) {
	for _, columns := range []int{1, 20} {
		b.Run(fmt.Sprint("columns=", columns), func(b *testing.B) {
			rows := 400_000 / columns
			_, tb, _ := benchStore(b, rows, columns)
			n := 0
			for b.Loop() {
				if err := tb.ReadCellsBorrowed(ctx, AllRows(), func(c *BorrowedCell) bool { n += len(c.Value); return true }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n/100), "ns/cell")
		})
	}
}

// A scan of borrowed cells allocates per call and per file, never per row or cell.
func TestScanAllocatesNothingPerCell(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes, o.TableFileBytes = 4<<20, 4<<20 })
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(3)})
	for i := range 5000 {
		s.must(tb.Apply(ctx, fmt.Sprintf("row%05d", i), mut(func(m *Mutation) {
			m.Set("f", "a", Timestamp(i), []byte("some value"))
			m.Set("f", "b", Timestamp(i), []byte("some value"))
		}), NoSync))
	}
	for _, where := range []string{"memtable", "file"} {
		for _, opts := range [][]ReadOption{nil, {ReverseScan()}, {RowFilter(LatestNFilter(1))}} {
			n := 0
			allocs := testing.AllocsPerRun(3, func() {
				s.must(tb.ReadCellsBorrowed(ctx, AllRows(), func(c *BorrowedCell) bool { n++; return true }, opts...))
			})
			if n != 4*10_000 || allocs > 200 {
				t.Errorf("%s, %d options: %v allocations for %d cells", where, len(opts), allocs, n/4)
			}
		}
		s.must(s.Flush(ctx))
	}
}

// A short scan of borrowed cells allocates nothing but what its options and its set take: 1 for an end of rows that is included.
func TestAShortScanAllocatesNothing(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	for i := range 2000 {
		s.must(tb.Apply(ctx, fmt.Sprintf("row%05d", i), set("f", "q", 1, strings.Repeat("v", i%100)), NoSync))
	}
	s.must(s.Compact(ctx))
	for _, c := range []struct {
		name string
		set  RowSet
		opts []ReadOption
		most float64
	}{
		{"forward", InfiniteRange("row00800"), nil, 0},
		{"limited", InfiniteRange("row00800"), []ReadOption{LimitRows(100)}, 0},
		{"backward", InfiniteReverseRange("row00800"), []ReadOption{ReverseScan()}, 1},
	} {
		n := 0
		fn := func(*BorrowedCell) bool { n++; return n%100 != 0 }
		read := func() { s.must(tb.ReadCellsBorrowed(ctx, c.set, fn, c.opts...)) }
		read()
		if got := testing.AllocsPerRun(100, read); got > c.most && !raceEnabled { // under the race detector pools forget
			t.Errorf("%s: %v allocations", c.name, got)
		}
		if n%100 != 0 || n < 100*100 {
			t.Errorf("%s: %d cells", c.name, n)
		}
	}
}
