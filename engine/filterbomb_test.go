package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// Filters that are small to write down and take for ever are refused; large ones that do not are taken.
func TestFiltersThatTakeForEverAreRefused(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	for i := range 20 {
		s.must(tb.Apply(ctx, fmt.Sprint(i), set("f", fmt.Sprint(i), 1, "v")))
	}
	nest := func(n int, x Filter, f func(Filter) Filter) Filter {
		for range n {
			x = f(x)
		}
		return x
	}
	twice := InterleaveFilters(PassAllFilter(), PassAllFilter())
	columns, groups := 20_000, 1000
	if raceEnabled { // one goroutine, so that the detector has nothing to find
		columns, groups = 2_000, 100
	}
	hard := ValueFilter(strings.Repeat("(a|bc)*", groups))
	var list []Filter
	for i := range columns {
		list = append(list, ColumnExact("f", fmt.Sprint(i)))
	}
	for name, c := range map[string]struct {
		f Filter
		n int // cells; -1: refused
	}{
		"chains of a chain":            {nest(60, PassAllFilter(), func(f Filter) Filter { return ChainFilters(f, f) }), -1},
		"interleaves of an interleave": {nest(60, PassAllFilter(), func(f Filter) Filter { return InterleaveFilters(f, f) }), -1},
		"conditions of a condition":    {nest(60, PassAllFilter(), func(f Filter) Filter { return ConditionFilter(f, f, f) }), -1},
		"a chain that doubles":         {nest(60, BlockAllFilter(), func(f Filter) Filter { return ChainFilters(twice, f) }), -1},
		"a chain that doubles before":  {ChainFilters(nest(60, PassAllFilter(), func(f Filter) Filter { return ChainFilters(f, twice) }), ValueFilter("x")), -1},
		"a sink that doubles":          {nest(60, SinkFilter(), func(f Filter) Filter { return ChainFilters(twice, f) }), -1},
		"one pattern many times":       {nest(5, hard, func(f Filter) Filter { return InterleaveFilters(f, f, f) }), 0},
		"many columns":                 {InterleaveFilters(list...), 20},
		"a thousand copies":            {nest(10, PassAllFilter(), func(f Filter) Filter { return InterleaveFilters(f, f) }), 20 << 10},
		"deep":                         {nest(250, PassAllFilter(), func(f Filter) Filter { return ChainFilters(f, PassAllFilter()) }), 20},
		"too deep":                     {nest(1000, PassAllFilter(), func(f Filter) Filter { return ChainFilters(f, PassAllFilter()) }), -1},
	} {
		n := 0
		err := tb.ReadCellsBorrowed(ctx, AllRows(), func(*BorrowedCell) bool { n++; return true }, RowFilter(c.f))
		if c.n < 0 && !errors.Is(err, ErrFilter) || c.n >= 0 && (err != nil || n != c.n) {
			t.Errorf("%s: %d cells, %v", name, n, err)
		}
	}
}
