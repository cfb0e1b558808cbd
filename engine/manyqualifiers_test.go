package engine

import (
	"fmt"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// A row of very many columns is cut over files like many rows are: no file grows with it, and reading one of its columns, or a
// page of them, looks at a few blocks, from either end.
func TestRowOfManyQualifiers(t *testing.T) {
	const columns = 40_000
	s := newStore(t, func(o *Options) { o.MemtableBytes, o.LogSegmentBytes, o.L0Files = 256<<10, 256<<10, 2 })
	tb, err := s.CreateTable(ctx, "t", TableSpec{BlockBytes: 4096, Codec: CodecNone, Families: map[string]FamilySpec{"f": {GC: gc.MaxVersionsPolicy(1)}}})
	s.must(err)
	name := func(i int) string { return fmt.Sprintf("%06d", i) }
	value := randomBytes(7, 100)
	for i := 0; i < columns; i += 100 {
		m := NewMutation()
		for j := i; j < i+100; j++ {
			m.Set("f", name((j*7919)%columns), 1, value) // all over the row
		}
		s.must(tb.Apply(ctx, "giant", m, NoSync))
	}
	s.must(s.Compact(ctx))
	files := int64(0)
	for _, l := range s.Metrics().Levels {
		files += int64(l.Files)
	}
	list, err := s.fs.List("/store")
	s.must(err)
	for _, e := range list {
		if len(e.Name) > 4 && e.Name[len(e.Name)-4:] == ".sst" && e.Size > 2*s.opts.TableFileBytes {
			t.Errorf("a file of %d bytes, the size to cut at is %d", e.Size, s.opts.TableFileBytes)
		}
	}
	if least := s.tableBytes() / (2 * s.opts.TableFileBytes); files < least || files < 20 {
		t.Errorf("%d files, at least %d expected", files, least)
	}
	all := s.workOf(func() {
		if n := s.cells(tb, SingleRow("giant")); n != columns {
			t.Errorf("%d cells of %d", n, columns)
		}
	})
	for _, c := range []struct {
		name string
		opts []ReadOption
		want int
	}{
		{"one column", []ReadOption{RowFilter(ColumnExact("f", name(columns/2)))}, 1},
		{"an absent column", []ReadOption{RowFilter(ColumnExact("f", name(columns/2)+"x"))}, 0},
		{"a range", []ReadOption{RowFilter(ColumnRangeFilter("f", QualifierRange(NewRange(name(100), name(120)))))}, 20},
		{"the first page", []ReadOption{LimitCells(20)}, 20},
		{"a page in the middle", []ReadOption{LimitCells(20), After(Position{Row: "giant", Family: "f", Qualifier: name(columns / 2), Timestamp: 1})}, 20},
		{"the last page", []ReadOption{LimitCells(20), After(Position{Row: "giant", Family: "f", Qualifier: name(columns - 11), Timestamp: 1})}, 10},
	} {
		w := s.workOf(func() {
			if n := s.cells(tb, SingleRow("giant"), c.opts...); n != c.want {
				t.Errorf("%s: %d cells, want %d", c.name, n, c.want)
			}
		})
		if w.blocks > 4 {
			t.Errorf("%s: %d blocks of %d", c.name, w.blocks, all.blocks)
		}
	}
	s.must(tb.Apply(ctx, "giant", mut(func(m *Mutation) { m.DeleteRow() })))
	s.must(s.Compact(ctx))
	if n := s.tableBytes(); n != 0 {
		t.Errorf("%d bytes are left of the deleted row", n)
	}
}
