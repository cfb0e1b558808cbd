package engine

import (
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

// ServerTime stamps follow the clock, never decrease, and strictly increase per row: over batches, reopening, and a clock that
// stands still or goes back.
func TestServerTimeStamps(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	last := Timestamp(0)
	for i := range 40 {
		switch i % 4 {
		case 1:
			s.now = s.now.Add(-time.Hour)
		case 2:
			s.now = s.now.Add(time.Second)
		case 3:
			s.reopen()
			tb = s.Table("t")
		}
		s.must(tb.Apply(ctx, "r", mut(func(m *Mutation) {
			m.Set("f", "a", ServerTime, nil)
			m.Set("f", "b", ServerTime, nil)
		})))
		r, err := tb.ReadRow(ctx, "r", RowFilter(LatestNFilter(1)))
		s.must(err)
		if len(r.Cells) != 2 || r.Cells[0].Timestamp != r.Cells[1].Timestamp || r.Cells[0].Timestamp <= last {
			t.Fatalf("round %d: %s after %d", i, show(r), last)
		}
		last = r.Cells[0].Timestamp
	}
	s.now = s.now.Add(100 * time.Hour)
	s.must(tb.Apply(ctx, "r", set("f", "a", ServerTime, "")))
	r, err := tb.ReadRow(ctx, "r", RowFilter(ChainFilters(ColumnExact("f", "a"), LatestNFilter(1))))
	s.must(err)
	if r.Cells[0].Timestamp != Time(s.now) {
		t.Fatalf("%s, the clock says %d", show(r), Time(s.now))
	}
}
