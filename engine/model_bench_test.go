package engine

import (
	"fmt"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// modelStore is a store on disk with a table of one family.
func modelStore(b testing.TB, o Options, spec TableSpec) (*DB, *Table) {
	b.Helper()
	db, err := Open(b.TempDir(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	if spec.Families == nil {
		spec.Families = map[string]FamilySpec{"f": {GC: gc.NoPolicy()}}
	}
	tb, err := db.CreateTable(ctx, "t", spec)
	if err != nil {
		b.Fatal(err)
	}
	return db, tb
}

func put(b testing.TB, tb *Table, row string, cells int, set func(m *Mutation, i int)) {
	b.Helper()
	for i := 0; i < cells; {
		m := NewMutation()
		for n := 0; n < 1000 && i < cells; n++ {
			set(m, i)
			i++
		}
		if err := tb.Apply(ctx, row, m, NoSync); err != nil {
			b.Fatal(err)
		}
	}
}

// The newest cell of one column in a row of 10,000 cells against the same read in a row of 10: of 10,000 columns, and of as
// many versions. From the memtable and from a warm file.
func BenchmarkModelNewestCell(b *testing.B) {
	db, tb := modelStore(b, Options{MemtableBytes: 64 << 20}, TableSpec{})
	value := make([]byte, 100)
	columns := func(m *Mutation, i int) { m.Set("f", fmt.Sprintf("column%05d", i), 1000, value) }
	versions := func(m *Mutation, i int) { m.Set("f", fmt.Sprintf("column%05d", i%10), Timestamp(1000+i), value) }
	put(b, tb, "small", 10, columns)
	put(b, tb, "columns", 10_000, columns)
	put(b, tb, "versions", 10_000, versions)
	read := RowFilter(ChainFilters(ColumnExact("f", "column00005"), LatestNFilter(1)))
	all := RowFilter(LatestNFilter(1))
	for _, where := range []string{"memtable", "file", "memtable and file"} {
		if where == "memtable and file" {
			for _, row := range []string{"small", "columns", "versions"} {
				put(b, tb, row, 1, func(m *Mutation, i int) { m.Set("f", "column00005", 100_000, value) })
			}
		}
		for _, row := range []string{"small", "columns", "versions"} {
			b.Run(where+"/"+row, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if r, err := tb.ReadRow(ctx, row, read); err != nil || len(r.Cells) != 1 {
						b.Fatal(r, err)
					}
				}
			})
		}
		// The newest of each of 10 columns, with 1,000 older versions between them.
		for _, row := range []string{"small", "versions"} {
			b.Run(where+"/each of 10 columns/"+row, func(b *testing.B) {
				for b.Loop() {
					if r, err := tb.ReadRow(ctx, row, all); err != nil || len(r.Cells) != 10 {
						b.Fatal(r, err)
					}
				}
			})
		}
		if err := db.Flush(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// blocksOf reports how many blocks of files a read looks at.
func blocksOf(b testing.TB, db *DB, read func()) uint64 {
	b.Helper()
	before := db.Metrics().BlocksRead
	read()
	return db.Metrics().BlocksRead - before
}

// timeline loads rows in the order of time, 100 bytes each, and returns how many blocks they take.
func timeline(b testing.TB, rows int) (db *DB, tb *Table, blocks uint64) {
	db, tb = modelStore(b, Options{MemtableBytes: 8 << 20}, TableSpec{BlockBytes: 4096})
	batch := NewBatch()
	for i := range rows {
		batch.Add(tb, fmt.Sprintf("%09d", i), set("f", "q", Timestamp(i+1), fmt.Sprintf("%100d", i)))
		if i%1000 == 999 || i == rows-1 {
			if err := db.Apply(ctx, batch, NoSync); err != nil {
				b.Fatal(err)
			}
			batch = NewBatch()
		}
	}
	if err := db.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	if err := db.Compact(ctx); err != nil {
		b.Fatal(err)
	}
	return db, tb, blocksOf(b, db, func() { count(b, tb, AllRows()) })
}

func count(b testing.TB, tb *Table, rows RowSet, opts ...ReadOption) (n int) {
	b.Helper()
	if err := tb.ReadCellsBorrowed(ctx, rows, func(*BorrowedCell) bool { n++; return true }, opts...); err != nil {
		b.Fatal(err)
	}
	return n
}

// What a read need not look at is not read: a pattern with a literal prefix, the newest hundredth of what was written in the
// order of time, the first row of a large table against that of a small one.
func BenchmarkModelBlocks(b *testing.B) {
	const rows = 10_000_000
	db, tb, all := timeline(b, rows)
	small, few, _ := timeline(b, 10)
	for _, c := range []struct {
		name string
		read func() int
		want int
	}{
		{"literal prefix of 1 in 10000 rows", func() int { return count(b, tb, AllRows(), RowFilter(RowKeyFilter(`000123\d+`))) }, rows / 10000},
		{"newest hundredth", func() int { return count(b, tb, AllRows(), RowFilter(TimestampRangeFilter(rows-rows/100+1, 0))) }, rows / 100},
		{"first row of many", func() int { return count(b, tb, AllRows(), LimitRows(1)) }, 1},
		{"last row of many", func() int { return count(b, tb, AllRows(), LimitRows(1), ReverseScan()) }, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			var blocks uint64
			for b.Loop() {
				blocks = blocksOf(b, db, func() {
					if n := c.read(); n != c.want {
						b.Fatal(n)
					}
				})
			}
			b.ReportMetric(float64(blocks), "blocks")
			b.ReportMetric(float64(blocks)/float64(all), "of-all")
		})
	}
	b.Run("first row of 10", func(b *testing.B) {
		var blocks uint64
		for b.Loop() {
			blocks = blocksOf(b, small, func() { count(b, few, AllRows(), LimitRows(1)) })
		}
		b.ReportMetric(float64(blocks), "blocks")
	})
}
