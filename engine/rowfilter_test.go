package engine

import (
	"fmt"
	"sync"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// An option that is used again and again filters as one made for each read does: in several tables, when a schema has changed, and by
// several goroutines at once.
func TestRowFilterUsedAgain(t *testing.T) {
	s := newStore(t, nil)
	tables := []*Table{s.table("t", map[string]gc.Rule{"f": gc.NoPolicy(), "g": gc.MaxVersionsPolicy(2)}), s.table("u", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1)})}
	fill := func(tb *Table, families ...string) {
		for i := range 20 {
			s.must(tb.Apply(ctx, fmt.Sprintf("row%02d", i%10), mut(func(m *Mutation) {
				for _, f := range families {
					m.Set(f, fmt.Sprint("q", i%4), Timestamp(i), fmt.Append(nil, i%7))
				}
			}), NoSync))
		}
	}
	fill(tables[0], "f", "g")
	fill(tables[1], "f")
	filters := map[string]func() Filter{
		"families": func() Filter { return FamilyFilter(".*") },
		"newest":   func() Filter { return ChainFilters(ColumnExact("f", "q1"), LatestNFilter(1)) },
		"pattern":  func() Filter { return ValueFilter("[1-3]") },
		"branches": func() Filter {
			return ConditionFilter(ValueFilter("5"), LabelFilter("five"), InterleaveFilters(ColumnFilter("q0"), CellsPerRowLimitFilter(1)))
		},
	}
	kept := map[string]ReadOption{}
	for name, f := range filters {
		kept[name] = RowFilter(f())
	}
	check := func(when string) {
		t.Helper()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 3 {
					for _, tb := range tables {
						for name, f := range filters {
							want, err := rowsText(tb, RowFilter(f()))
							got, err2 := rowsText(tb, kept[name])
							if got != want || err != nil || err2 != nil {
								t.Errorf("%s, %s: got\n%s%v, want\n%s%v", when, name, got, err2, want, err)
							}
						}
					}
				}
			})
		}
		wg.Wait()
	}
	check("at first")
	before, _ := rowsText(tables[1], kept["families"])
	s.must(tables[1].ModifyFamilies(ctx, AddFamily("h", FamilySpec{})))
	fill(tables[1], "h")
	check("with one more family")
	if after, _ := rowsText(tables[1], kept["families"]); after == before {
		t.Error("the new family does not pass")
	}
	s.must(tables[0].ModifyFamilies(ctx, DropFamily("g")))
	check("with a family less")
}

func rowsText(tb *Table, opts ...ReadOption) (s string, err error) {
	for i := range 10 {
		row, err := tb.ReadRow(ctx, fmt.Sprintf("row%02d", i), opts...)
		if err != nil {
			return s, err
		}
		for _, c := range row.Cells {
			s += fmt.Sprintf("%s %s:%s@%d=%s%v\n", row.Key, c.Family, c.Qualifier, c.Timestamp, c.Value, c.Labels)
		}
	}
	err = tb.ReadRows(ctx, AllRows(), func(r Row) bool { s += fmt.Sprintln(r.Key, len(r.Cells)); return true }, opts...)
	return s, err
}
