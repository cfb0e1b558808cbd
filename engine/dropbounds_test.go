package engine

import (
	"strings"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
)

// A range that is dropped may end at keys that no row can have. The store opens again with what that leaves standing.
func TestDroppedRangesMayEndAtKeysLongerThanAnyRow(t *testing.T) {
	long := strings.Repeat("m", 2*cell.RowKeyMax)
	row := long[:cell.RowKeyMax]
	for name, c := range map[string]struct {
		drop RowRange
		left string
	}{
		"end":     {NewRange("b", long), "ay"},
		"start":   {NewRange(long, "z"), "aclm"},
		"both":    {NewClosedRange(long, long+"z"), "aclmy"},
		"open":    {InfiniteRange(long), "aclm"},
		"longest": {NewOpenRange("l", row), "aclmy"},
		"closed":  {NewClosedRange(row, row), "acly"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, nil)
			tb := s.table("t", map[string]gc.Rule{"f": {}})
			for _, row := range []string{"a", "c", "l", row, "y"} {
				s.must(tb.Apply(ctx, row, set("f", "q", 1, "x")))
			}
			s.must(s.Flush(ctx))
			s.must(tb.DropRowRange(ctx, c.drop))
			check := func() {
				t.Helper()
				got := ""
				s.must(s.Table("t").ReadRows(ctx, AllRows(), func(r Row) bool { got += r.Key[:1]; return true }))
				if got != c.left {
					t.Fatalf("left is %q, want %q", got, c.left)
				}
			}
			check()
			s.reopen()
			check()
		})
	}
}
