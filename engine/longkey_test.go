package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// A row key may be longer than what is left of a block, and than a whole one, wherever it comes.
func TestLongRowKeysAreFlushedAndCompacted(t *testing.T) {
	for _, size := range []int{1024, 4096, 0} {
		for _, n := range []int{200, 300, 1000, 5000, cell.RowKeyMax} {
			s := newStore(t, nil)
			tb, err := s.CreateTable(ctx, "t", TableSpec{BlockBytes: size, Codec: CodecNone, Families: map[string]FamilySpec{"f": {}}})
			s.must(err)
			for i := range 12 {
				row := fmt.Sprintf("%02d", i)
				if i%3 > 0 {
					row += strings.Repeat("m", n-2)
				}
				// Descending, so that a row's first cell would sort behind the last one of the row before.
				s.must(tb.Apply(ctx, row, mut(func(m *Mutation) {
					m.Set("f", "q", Timestamp(1000-10*i), make([]byte, 90*i))
					m.Set("f", "q", Timestamp(999-10*i), nil)
					m.DeleteTimestampRange("f", "r", Timestamp(1), Timestamp(2+i))
				}), NoSync))
			}
			want := s.scan(tb)
			s.everywhere(func(where string) {
				if got := s.scan(s.Table("t")); got != want {
					t.Fatalf("blocks of %d, keys of %d, %s: got\n%.300s", size, n, where, got)
				}
				for i := range 12 {
					row := fmt.Sprintf("%02d", i)
					if i%3 > 0 {
						row += strings.Repeat("m", n-2)
					}
					if r, err := s.Table("t").ReadRow(ctx, row, RowFilter(LatestNFilter(1))); err != nil || len(r.Cells) != 1 {
						t.Fatalf("blocks of %d, keys of %d, %s: row %d has %d cells, %v", size, n, where, i, len(r.Cells), err)
					}
				}
			})
		}
	}
}
