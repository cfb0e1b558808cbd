package memtable

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// The one-cell shape: rows of 16 random bytes, one column, values of 100 bytes. Keys are computed, not kept: a list of a
// million keys read in random order would cost a memory miss of its own, which is not the table's.
type benchRows struct {
	key   [16]byte
	value []byte
}

func newBenchRows() *benchRows { return &benchRows{value: make([]byte, 100)} }

// row returns the i-th key, valid until the next call. Distinct i give distinct keys.
func (b *benchRows) row(i int) []byte {
	binary.BigEndian.PutUint64(b.key[:], mix(uint64(i)))
	binary.BigEndian.PutUint64(b.key[8:], mix(uint64(i)+1<<40))
	return b.key[:]
}

// mix is a one-to-one scrambling of 64-bit numbers.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

const benchN = 1 << 20

func (b *benchRows) fill(tb testing.TB, t *Table, n int) {
	for i := range n {
		if err := t.Set(b.row(i), q, int64(i), cell.KindSet, b.value, uint64(i+1)); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkInsert fills tables of a million one-cell rows in random order. objects/op are heap objects per cell.
func BenchmarkInsert(b *testing.B) {
	rows, pool := newBenchRows(), NewPool(1<<30)
	defer pool.Close()
	warm := New(Options{Pool: pool})
	rows.fill(b, warm, benchN)
	overhead := float64(warm.Used())/benchN - 120
	warm.Release()
	var t *Table
	var before, after runtime.MemStats
	var next atomic.Int64
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for done := 0; done < b.N; {
		n := min(b.N-done, benchN)
		b.StopTimer()
		if t != nil {
			t.Release()
		}
		t = New(Options{Pool: pool})
		next.Store(0)
		runtime.GC()
		b.StartTimer()
		gang(func() {
			rows := newBenchRows()
			for {
				hi := int(next.Add(256))
				for i := hi - 256; i < min(hi, n); i++ {
					t.Set(rows.row(i), q, int64(i), cell.KindSet, rows.value, uint64(i+1))
				}
				if hi >= n {
					return
				}
			}
		})
		done += n
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "objects/op")
	b.ReportMetric(overhead, "overheadB/cell")
	t.Release()
}

// gang runs f on every processor of -cpu.
func gang(f func()) {
	n := runtime.GOMAXPROCS(0)
	done := make(chan struct{})
	for range n - 1 {
		go func() { f(); done <- struct{}{} }()
	}
	f()
	for range n - 1 {
		<-done
	}
}

func BenchmarkLookup(b *testing.B) {
	rows := newBenchRows()
	t := New(Options{})
	defer t.Release()
	rows.fill(b, t, benchN)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		r, rows := rand.New(rand.NewPCG(rand.Uint64(), 3)), newBenchRows()
		var it Iter
		it.Init(t, math.MaxUint64, cell.IterOptions{})
		defer it.Close()
		cells := make([]cell.Cell, 0, 4)
		for pb.Next() {
			if !it.SeekExact(rows.row(r.IntN(benchN))) || len(it.Cells(cells[:0])) != 1 {
				b.Error("not found")
				return
			}
		}
	})
}

func BenchmarkScan(b *testing.B) {
	rows := newBenchRows()
	t := New(Options{})
	defer t.Release()
	rows.fill(b, t, benchN)
	for _, way := range []string{"forward", "reverse"} {
		b.Run(way, func(b *testing.B) {
			it := t.NewIter(math.MaxUint64, cell.IterOptions{})
			defer it.Close()
			cells := make([]cell.Cell, 0, 16)
			start, step := it.First, it.Next
			if way == "reverse" {
				start, step = it.Last, it.Prev
			}
			for n := 0; n < b.N; {
				for ok := start(); ok && n < b.N; ok = step() {
					cells = it.Cells(cells[:0])
					n++
				}
			}
		})
	}
}

// BenchmarkWide writes rows of 30 bytes with 20 columns and 50-byte values, cell by cell, in row order or all shuffled.
func BenchmarkWide(b *testing.B) {
	const nrows, ncols = 50_000, 20
	cols := make([][]byte, ncols)
	for i := range cols {
		cols[i] = fmt.Appendf(nil, "fam%d\x00\x01col%02d", i/10, i%10)
	}
	row := func(dst []byte, i int) []byte {
		dst = append(dst[:0], "com.example/row/00000000000000"...)
		binary.BigEndian.PutUint64(dst[22:], uint64(i)*0x9e3779b97f4a7c15)
		return dst
	}
	value := make([]byte, 50)
	pool := NewPool(1 << 30)
	defer pool.Close()
	for _, order := range []string{"rows", "random"} {
		perm := rand.New(rand.NewPCG(5, 6)).Perm(nrows * ncols)
		set := func(t *Table, buf []byte, i int) {
			j := i
			if order == "random" {
				j = perm[i]
			}
			t.Set(row(buf, j/ncols), cols[j%ncols], 7, cell.KindSet, value, uint64(i+1))
		}
		b.Run("insert/"+order, func(b *testing.B) {
			var t *Table
			buf := make([]byte, 0, 30)
			for i := range b.N {
				if i%(nrows*ncols) == 0 {
					b.StopTimer()
					if t != nil {
						t.Release()
					}
					t = New(Options{Pool: pool})
					b.StartTimer()
				}
				set(t, buf, i%(nrows*ncols))
			}
			b.StopTimer()
			b.ReportMetric(float64(t.Used())/float64(t.Stats().Cells)-50-float64(len(cols[0]))-1.5, "overheadB/cell")
			t.Release()
		})
	}
	t := New(Options{Pool: pool})
	defer t.Release()
	buf := make([]byte, 0, 30)
	for i := range nrows * ncols {
		t.Set(row(buf, i/ncols), cols[i%ncols], 7, cell.KindSet, value, uint64(i+1))
	}
	b.Run("scan", func(b *testing.B) {
		it := t.NewIter(math.MaxUint64, cell.IterOptions{})
		defer it.Close()
		cells := make([]cell.Cell, 0, 64)
		for n := 0; n < b.N; {
			for ok := it.First(); ok && n < b.N; ok = it.Next() {
				cells = it.Cells(cells[:0])
				n += len(cells)
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		it := t.NewIter(math.MaxUint64, cell.IterOptions{})
		defer it.Close()
		cells := make([]cell.Cell, 0, 1)
		r := rand.New(rand.NewPCG(8, 8))
		for range b.N {
			it.SeekExact(row(buf, r.IntN(nrows)))
			it.SeekCell(cols[r.IntN(ncols)], math.MaxInt64)
			cells = it.Cells(cells[:0])
		}
	})
}

// BenchmarkBigRow writes one row of many cells in random order.
func BenchmarkBigRow(b *testing.B) {
	t := New(Options{})
	defer t.Release()
	r := rand.New(rand.NewPCG(1, 1))
	col := append([]byte("f\x00\x01"), make([]byte, 8)...)
	for i := range b.N {
		binary.BigEndian.PutUint64(col[3:], r.Uint64())
		t.Set([]byte("row"), col, 1, cell.KindSet, col, uint64(i+1))
	}
}
