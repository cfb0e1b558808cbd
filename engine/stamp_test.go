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

// After a crash, with a clock that went back, a row's new stamp is above every stamp that the row still has and above every one
// that was acknowledged as durable, whichever kind of write asked for it.
func TestStampsIncreaseOverCrashes(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	durable := map[string]Timestamp{}
	newest := func(tb *Table, row string) Timestamp {
		r, err := tb.ReadRow(ctx, row, RowFilter(LatestNFilter(1)))
		s.must(err)
		if len(r.Cells) == 0 {
			return 0
		}
		return r.Cells[0].Timestamp
	}
	incr := NewReadModifyWrite()
	incr.Increment("f", "n", 1)
	write := func(tb *Table, i int, opts ...ApplyOption) {
		row := []string{"a", "b"}[i%2]
		before := max(newest(tb, row), durable[row])
		switch i % 3 {
		case 0:
			_, err := tb.ReadModifyWrite(ctx, row, incr, opts...)
			s.must(err)
		case 1:
			s.must(tb.Apply(ctx, row, mut(func(m *Mutation) { m.DeleteCellsInColumn("f", "n"); m.Set("f", "n", ServerTime, make([]byte, 8)) }), opts...))
		case 2:
			s.must(tb.Apply(ctx, row, NewCondMutation(nil, set("f", "n", ServerTime, "8 bytes."), set("f", "n", ServerTime, "no cells")), opts...))
		}
		got := newest(tb, row)
		if got <= before {
			t.Fatalf("write %d of row %s has stamp %d after %d", i, row, got, before)
		}
		if opts == nil {
			durable[row] = got
		}
	}
	for i := range 120 {
		switch i % 7 {
		case 2:
			s.now = s.now.Add(time.Millisecond)
		case 4:
			s.now = s.now.Add(-time.Minute)
		}
		if i%4 == 0 {
			write(tb, i)
		} else {
			write(tb, i, NoSync)
		}
		if i%5 == 4 {
			s.must(s.Flush(ctx))
		}
		if i%11 == 10 { // the machine stops; what was not synced may be gone
			fs := s.fs.CrashClone(uint64(i), 0.5)
			s.must(s.Close())
			s.fs, s.opts.FS = fs, fs
			s.now = s.now.Add(-time.Hour)
			s.open()
			tb = s.Table("t")
		}
	}
}
