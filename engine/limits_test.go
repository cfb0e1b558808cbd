package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
)

// One below, at, and above each limit: what is over it is refused with the limit in the message before anything is written, what
// is at it is kept, and the store goes on. Sizes are summed in 64 bits: what would wrap 32 is too big as well.
func TestLimitsOfWrites(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes, o.LogSegmentBytes = 16<<20, 4<<20 })
	tb, err := s.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"f": {GC: gc.MaxVersionsPolicy(1)}, "sum": {Aggregate: Sum}}})
	s.must(err)
	text := func(n int) string { return strings.Repeat("x", n) }
	times := func(n int, add func(m *Mutation)) *Mutation {
		m := NewMutation()
		for range n {
			add(m)
		}
		return m
	}
	bigger := make([]byte, cell.ValueMax+1)
	big := bigger[:cell.ValueMax]
	million := &Mutation{ops: make([]op, 0, BatchCellsMax+1)}
	for range BatchCellsMax + 1 {
		million.DeleteRow()
	}
	rmw := func(row string, v []byte) error {
		m := NewReadModifyWrite()
		m.AppendValue("f", "q", v)
		_, err := tb.ReadModifyWrite(ctx, row, m)
		return err
	}
	for _, c := range []struct {
		name  string
		limit int
		want  error
		call  func(n int) error
		most  string
	}{
		{"row key", cell.RowKeyMax, ErrRowKey, func(n int) error { return tb.Apply(ctx, text(n), set("f", "q", 1, "v")) }, "65536"},
		{"row key of an increment", cell.RowKeyMax, ErrRowKey, func(n int) error { return rmw(text(n), nil) }, "65536"},
		{"family name", cell.FamilyMax, ErrFamilyName, func(n int) error {
			return tb.ModifyFamilies(ctx, AddFamily(text(n), FamilySpec{}))
		}, "64"},
		{"table name", TableNameMax, ErrTableName, func(n int) error {
			_, err := s.CreateTable(ctx, text(n), TableSpec{Families: map[string]FamilySpec{"f": {}}})
			return err
		}, "255"},
		{"value", cell.ValueMax, ErrValue, func(n int) error {
			return tb.Apply(ctx, "large", mut(func(m *Mutation) { m.Set("f", "q", 1, bigger[:n]) }), NoSync)
		}, "100 MiB"},
		{"qualifier", cell.QualifierMax, ErrQualifier, func(n int) error { return tb.Apply(ctx, "r", set("f", text(n), 1, "v")) }, "16384"},
		{"qualifier of an Add", cell.QualifierMax, ErrQualifier, func(n int) error {
			return tb.Apply(ctx, "r", mut(func(m *Mutation) { m.AddIntToCell("sum", text(n), 1, 1) }))
		}, "16384"},
		{"changes of a batch", BatchCellsMax, ErrBatchTooLong, func(n int) error {
			return tb.Apply(ctx, "r", &Mutation{ops: million.ops[:n]}, NoSync)
		}, "1048576"},
	} {
		for n := c.limit - 1; n <= c.limit+1; n++ {
			if raceEnabled && c.limit >= BatchCellsMax && n <= c.limit || c.limit == cell.ValueMax && n < c.limit {
				continue // a million changes, or 100 MiB, take long
			}
			err := c.call(n)
			if n <= c.limit && err != nil {
				t.Errorf("%s of %d: %v", c.name, n, err)
			}
			if n > c.limit && (!errors.Is(err, c.want) || !strings.Contains(err.Error(), c.most)) {
				t.Errorf("%s of %d: %v, want %v naming %s", c.name, n, err, c.want, c.most)
			}
		}
	}
	before := s.scan(tb)
	for _, n := range []int{3, 41, 100} { // 300 MiB, a little over 4 GiB, 10 GB
		m := times(n, func(m *Mutation) { m.Set("f", "q", 1, big) })
		for _, m := range []*Mutation{m, NewCondMutation(nil, nil, m)} {
			if err := tb.Apply(ctx, "r", m); !errors.Is(err, ErrBatchTooBig) || !strings.Contains(err.Error(), "268435456") {
				t.Errorf("%d values of 100 MiB: %v", n, err)
			}
		}
	}
	if s.scan(tb) != before {
		t.Error("what is too big left something behind")
	}
	s.must(tb.Apply(ctx, "after", set("f", "q", 1, "v")))
}
