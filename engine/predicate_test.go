package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/gc"
)

// A predicate is asked on a row of a merge: any cell that passes will do, a nil filter passes any, a sink is refused.
func TestPredicate(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}, "g": {}})
	s.must(tb.Apply(ctx, "r", mut(func(m *Mutation) {
		m.Set("f", "a", 5, []byte("x"))
		m.Set("f", "b", 5, []byte("y"))
	})))
	rd, err := tb.begin(ctx, nil)
	s.must(err)
	defer rd.end()
	for _, c := range []struct {
		f    Filter
		row  string
		want bool
	}{
		{nil, "r", true},
		{nil, "q", false},
		{ColumnExact("f", "b"), "r", true},
		{ColumnExact("f", "c"), "r", false},
		{FamilyExact("g"), "r", false},
		{ChainFilters(ColumnExact("f", "a"), ValueFilter("y")), "r", false},
		{ConditionFilter(ColumnExact("f", "a"), ValueFilter("y"), nil), "r", true},
		{ConditionFilter(ColumnExact("f", "c"), ValueFilter("y"), nil), "r", false},
		{RowKeyFilter("r|s"), "r", true},
		{RowKeyFilter("s.*"), "r", false},
	} {
		p, err := compilePredicate(rd.table, c.f)
		s.must(err)
		m, err := rd.point([]byte(c.row), p.options(), merge.Config{Families: rd.table.families})
		s.must(err)
		got, err := p.matches(m, []byte(c.row))
		s.must(err)
		s.must(m.Close())
		if got != c.want {
			t.Errorf("%+v on %q: %v", c.f, c.row, got)
		}
	}
	_, err = compilePredicate(rd.table, ChainFilters(PassAllFilter(), SinkFilter()))
	if !errors.Is(err, ErrFilter) || !strings.Contains(err.Error(), "chain: filter 2 of 2") {
		t.Error(err)
	}
}
