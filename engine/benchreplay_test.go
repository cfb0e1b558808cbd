package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// BenchmarkReplay opens a store whose batches are all in the log: the log is read, checked and put into memtables. The goal is over
// 200 MB of log a second; BenchmarkYardstick in the same run says what the machine can do.
func BenchmarkReplay(b *testing.B) {
	const bytes = 128 << 20
	for _, c := range []struct {
		name         string
		batch, value int // sets in a batch, bytes of a value
		rows         int // cells of a row
	}{{"one row of 100 B a batch", 1, 100, 1}, {"100 rows of 100 B a batch", 100, 100, 1}, {"20 columns of 50 B a row", 20, 50, 20}, {"1 KiB values", 1, 1024, 1}} {
		b.Run(c.name, func(b *testing.B) {
			dir := b.TempDir()
			o := Options{MemtableBytes: 1 << 30, LogBytes: 1 << 40, LogSegmentBytes: 64 << 20}
			db, err := Open(dir, o)
			if err != nil {
				b.Fatal(err)
			}
			tb, err := db.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"f": {GC: gc.MaxVersionsPolicy(1)}}})
			if err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			value := make([]byte, c.value)
			for i := range value {
				value[i] = byte(rng.Uint32())
			}
			for db.Metrics().Log.Bytes < bytes {
				for range 1000 / c.batch {
					batch := NewBatch()
					for i := 0; i < c.batch; i += c.rows {
						m := NewMutation()
						for k := range c.rows {
							m.Set("f", fmt.Sprint("q", k), 1, value)
						}
						batch.Add(tb, fmt.Sprintf("row%016x", rng.Uint64()), m)
					}
					if err := db.Apply(ctx, batch, NoSync); err != nil {
						b.Fatal(err)
					}
				}
			}
			size := db.Metrics().Log.Bytes
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
			o.ReadOnly = true
			b.ResetTimer()
			for b.Loop() {
				db, err := Open(dir, o)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if n := db.Metrics().ReplayedBatches; n == 0 {
					b.Fatal("nothing was replayed")
				}
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.SetBytes(int64(size))
		})
	}
}
