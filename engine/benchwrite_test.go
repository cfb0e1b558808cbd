package engine

import (
	"fmt"
	"sync"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// Counters: what a wrapper would do with a read, a lock and a write is one call. The goal is over 300,000 increments a second
// of one counter by 8 goroutines without sync.
func BenchmarkModelIncrement(b *testing.B) {
	for _, c := range []struct {
		name       string
		goroutines int
		counters   int
	}{{"one counter, 1 goroutine", 1, 1}, {"one counter, 8 goroutines", 8, 1}, {"1000 counters, 8 goroutines", 8, 1000}} {
		b.Run(c.name, func(b *testing.B) {
			db, err := Open(b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			tb, err := db.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"f": {GC: gc.MaxVersionsPolicy(1)}}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for g := range c.goroutines {
				wg.Go(func() {
					m := NewReadModifyWrite()
					m.Increment("f", "q", 1)
					rows := make([]string, c.counters)
					for i := range rows {
						rows[i] = fmt.Sprint("row", i)
					}
					for i := g; i < b.N; i += c.goroutines {
						if _, err := tb.ReadModifyWrite(ctx, rows[i*7%len(rows)], m, NoSync); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "increments/s")
		})
	}
}

func BenchmarkModelAdd(b *testing.B) {
	db, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	tb, err := db.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"sum": {Aggregate: Sum}}})
	if err != nil {
		b.Fatal(err)
	}
	m := NewMutation()
	m.AddIntToCell("sum", "q", 0, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := tb.Apply(ctx, "row", m, NoSync); err != nil {
			b.Fatal(err)
		}
	}
}

// The update of one cell costs the same whatever the width of its row. The goal is within 1.5 times.
func BenchmarkModelUpdateInRowOf(b *testing.B) {
	for _, where := range []string{"memory", "files"} {
		for _, columns := range []int{1, 10_000} {
			for _, how := range []string{"set", "increment"} {
				b.Run(fmt.Sprintf("%d columns in %s, %s", columns, where, how), func(b *testing.B) {
					db, err := Open(b.TempDir(), Options{})
					if err != nil {
						b.Fatal(err)
					}
					defer db.Close()
					tb, err := db.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"f": {GC: gc.MaxVersionsPolicy(1)}}})
					if err != nil {
						b.Fatal(err)
					}
					m := NewMutation()
					for i := range columns {
						m.Set("f", fmt.Sprintf("column%05d", i), 1, make([]byte, 8))
					}
					if err := tb.Apply(ctx, "row", m); err != nil {
						b.Fatal(err)
					}
					if where == "files" {
						if err := db.Compact(ctx); err != nil {
							b.Fatal(err)
						}
					}
					last := fmt.Sprintf("column%05d", columns-1)
					m.Reset()
					m.Set("f", last, ServerTime, make([]byte, 8))
					rmw := NewReadModifyWrite()
					rmw.Increment("f", last, 1)
					b.ReportAllocs()
					for b.Loop() {
						if how == "set" {
							err = tb.Apply(ctx, "row", m, NoSync)
						} else {
							_, err = tb.ReadModifyWrite(ctx, "row", rmw, NoSync)
						}
						if err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
