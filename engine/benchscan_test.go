package engine

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// halfRandom fills p so that it shrinks to about half.
func halfRandom(rng *rand.Rand, p []byte) {
	for i := 0; i < len(p)/2; i += 8 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], rng.Uint64())
		copy(p[i:len(p)/2], b[:])
	}
	copy(p[len(p)/2:], p[:len(p)/2])
}

// look reads every byte of p.
func look(p []byte) (sum uint64) {
	for ; len(p) >= 8; p = p[8:] {
		sum += binary.LittleEndian.Uint64(p)
	}
	for _, c := range p {
		sum += uint64(c)
	}
	return sum
}

func scanKey(i int) string {
	var k [16]byte
	binary.BigEndian.PutUint64(k[:], uint64(i)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(k[8:], uint64(i))
	return string(k[:])
}

// scanStore loads rows of one cell, in parts that are flushed one by one, so that every part is a source of its own.
func scanStore(b *testing.B, rows int, parts []int) *Table {
	b.Helper()
	db, tb := modelStore(b, Options{MemtableBytes: 256 << 20, CacheBytes: 256 << 20, L0Files: 100}, TableSpec{})
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 100)
	total := 0
	for _, p := range parts {
		total += p
	}
	for p := range parts {
		batch := NewBatch()
		for i := range rows {
			at := i % total
			in := 0
			for at >= parts[in] {
				at -= parts[in]
				in++
			}
			if in == p {
				halfRandom(rng, value)
				batch.Add(tb, scanKey(i*7919%rows), set("f", "q", 1e15+Timestamp(rng.Int64N(3.6e9)), string(value)))
			}
			if batch.Len() == 1000 || i == rows-1 {
				if err := db.Apply(ctx, batch, NoSync); err != nil {
					b.Fatal(err)
				}
				batch = NewBatch()
			}
		}
		if err := db.Flush(ctx); err != nil {
			b.Fatal(err)
		}
	}
	if len(parts) == 1 {
		if err := db.Compact(ctx); err != nil {
			b.Fatal(err)
		}
	}
	return tb
}

// Scans of rows of one cell, every byte of the values looked at: of 100 rows from anywhere, in both directions, and of all. From one
// source, and from four of which the rows alternate at random, most of them in one.
func BenchmarkScan(b *testing.B) {
	const rows = 400_000
	for _, from := range []struct {
		name  string
		parts []int
	}{{"one", []int{1}}, {"four", []int{85, 10, 4, 1}}} {
		tb := scanStore(b, rows, from.parts)
		for _, short := range []struct {
			name string
			opts []ReadOption
			set  func(key string) RowSet
		}{
			{"forward", nil, func(key string) RowSet { return InfiniteRange(key) }},
			{"reverse", []ReadOption{ReverseScan()}, func(key string) RowSet { return InfiniteReverseRange(key) }},
		} {
			b.Run(from.name+"/100 "+short.name, func(b *testing.B) {
				rng := rand.New(rand.NewPCG(3, 4))
				sum := uint64(0)
				b.ReportAllocs()
				for b.Loop() {
					n := 0
					err := tb.ReadCellsBorrowed(ctx, short.set(scanKey(rng.IntN(rows))), func(c *BorrowedCell) bool {
						sum += look(c.Value)
						n++
						return n < 100
					}, short.opts...)
					if err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(from.name+"/all "+short.name, func(b *testing.B) {
				n, sum := 0, uint64(0)
				b.ReportAllocs()
				for b.Loop() {
					if err := tb.ReadCellsBorrowed(ctx, AllRows(), func(c *BorrowedCell) bool {
						sum += look(c.Value)
						n++
						return true
					}, short.opts...); err != nil {
						b.Fatal(err)
					}
				}
				if n%rows != 0 {
					b.Fatal(n)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/cell")
			})
		}
	}
}

// A scan of rows of ten columns in two families, with one to three versions, of which the rules keep all.
func BenchmarkScanRows(b *testing.B) {
	const rows = 20_000
	db, tb := modelStore(b, Options{MemtableBytes: 256 << 20, CacheBytes: 256 << 20, L0Files: 100}, TableSpec{Families: map[string]FamilySpec{
		"a": {GC: gc.MaxVersionsPolicy(3)}, "b": {GC: gc.MaxVersionsPolicy(3)}}})
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 50)
	batch := NewBatch()
	for i := range rows {
		m := NewMutation()
		for c := range 10 {
			for range 1 + rng.IntN(3) {
				halfRandom(rng, value)
				m.Set(string(rune('a'+c%2)), fmt.Sprintf("column%d", c), 1e15+Timestamp(rng.Int64N(3.6e9)), value)
			}
		}
		batch.Add(tb, scanKey(i), m)
		if i%100 == 99 {
			if err := db.Apply(ctx, batch, NoSync); err != nil {
				b.Fatal(err)
			}
			batch = NewBatch()
		}
	}
	if err := db.Compact(ctx); err != nil {
		b.Fatal(err)
	}
	for _, dir := range []struct {
		name string
		opts []ReadOption
	}{{"forward", nil}, {"reverse", []ReadOption{ReverseScan()}}} {
		b.Run(dir.name, func(b *testing.B) {
			n, sum := 0, uint64(0)
			for b.Loop() {
				if err := tb.ReadCellsBorrowed(ctx, AllRows(), func(c *BorrowedCell) bool {
					sum += look(c.Value)
					n++
					return true
				}, dir.opts...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/cell")
		})
		b.Run("copied "+dir.name, func(b *testing.B) {
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				if err := tb.ReadRows(ctx, AllRows(), func(r Row) bool {
					n += len(r.Cells)
					return true
				}, dir.opts...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/cell")
		})
	}
}
