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

// Drops of rows that were dropped before do not add up while the background is held up.
func TestRepeatedDropsLeaveOneChange(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	for _, row := range []string{"a", "c", "e", "z"} {
		s.must(tb.Apply(ctx, row, set("f", "q", 1, "x")))
	}
	s.must(s.Flush(ctx))
	for range 100 {
		s.must(tb.DropRowRange(ctx, NewRange("c", "d")))
		s.must(tb.Apply(ctx, "c1", set("f", "q", 1, "x"), NoSync))
	}
	if n := s.Metrics().StandingChanges; n > 1 {
		t.Fatalf("%d changes stand", n)
	}
	s.must(tb.DropRowRange(ctx, NewRange("e", "f")))
	s.must(tb.DropRowRange(ctx, NewRange("b", "y")))
	if n := s.Metrics().StandingChanges; n > 1 {
		t.Fatalf("%d changes stand", n)
	}
	s.must(tb.Apply(ctx, "e", set("f", "q", 2, "y"), NoSync))
	s.everywhere(func(string) { s.want(s.scan(s.Table("t")), "a f:q@1=x\ne f:q@2=y\nz f:q@1=x\n") })
}
