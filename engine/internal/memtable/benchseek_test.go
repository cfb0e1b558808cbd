package memtable

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// BenchmarkSeek places an iterator before a key that is not there, and reads a few rows from there.
func BenchmarkSeek(b *testing.B) {
	rows, pool := newBenchRows(), NewPool(1<<30)
	defer pool.Close()
	t := New(Options{Pool: pool})
	rows.fill(b, t, benchN)
	defer t.Release()
	for _, back := range []bool{false, true} {
		name := "forward"
		if back {
			name = "backward"
		}
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			var it Iter
			var buf [1]cell.Cell
			for b.Loop() {
				it.Init(t, math.MaxUint64, cell.IterOptions{})
				key := rows.row(rng.IntN(benchN))
				key[15] ^= 1
				ok := false
				if back {
					ok = it.SeekLT(key)
				} else {
					ok = it.SeekGE(key)
				}
				for n := 0; ok && n < 3; n++ {
					it.Cells(buf[:0])
					if back {
						ok = it.Prev()
					} else {
						ok = it.Next()
					}
				}
				it.Close()
			}
		})
	}
}
