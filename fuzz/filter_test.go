package fuzz

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/io/vfs"
)

// filterStore has rows with many versions in every family, in memtables and files, and the model beside it.
func filterStore(t testing.TB, seed uint64) (*engine.Table, *Model, *FilterGen) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	now := Start
	db, err := engine.Open("/store", base(engine.Options{
		FS: vfs.NewMem(vfs.MemOptions{NoCrash: true}), Clock: func() time.Time { return time.UnixMicro(now) }, MemtableBytes: 32 << 10,
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	spec := engine.TableSpec{BlockBytes: 512, Families: map[string]engine.FamilySpec{}}
	rules := map[string]Rule{}
	for name, f := range Families {
		if f.Fold != engine.NoAggregate {
			continue
		}
		s := engine.FamilySpec{GC: f.Rule.Policy()}
		if seed%2 == 1 && name[0] != 'f' {
			s.Group = "other"
		}
		spec.Families[name], rules[name] = s, f.Rule
	}
	tb, err := db.CreateTable(ctx, "t", spec)
	if err != nil {
		t.Fatal(err)
	}
	m := NewModel(now)
	m.Tables["t"] = &ModelTable{Rules: rules, Rows: map[string]*ModelRow{}}
	row := func() string {
		return []string{"a", "ab", "a\n", "b", "row1", "row2", "row\xff", "\x00", "deep"}[r.IntN(9)]
	}
	qual := func() string { return qualifiers[r.IntN(len(qualifiers))] }
	val := func() string {
		return []string{"", "a", "ab", "abc", "\xc2\xa7", "\xff\xff", "1234", "a\nb"}[r.IntN(8)]
	}
	stamp := func() int64 { return now - 250*r.Int64N(16) }
	for i := range 1600 {
		k, c := row(), Change{Kind: Set, Family: familyNames[r.IntN(7)], Qualifier: qual(), TS: stamp()}
		v := val()
		switch {
		case i >= 1400: // enough in one row to make seeks worth it: versions of two columns, then columns
			k, c.Family, c.Qualifier, c.TS = "deep", []string{"fam", "v2"}[i%2], "a", now-25*int64(i-1400)
		case i >= 1300:
			k, c.Family, c.Qualifier = "deep", "age", fmt.Sprint("b", i)
		}
		mut := engine.NewMutation()
		if i%40 == 39 {
			c.Kind = DeleteColumn
			mut.DeleteCellsInColumn(c.Family, c.Qualifier)
			m.Apply([]Item{{Table: "t", Row: k, Changes: []Change{c}}})
		} else {
			mut.Set(c.Family, c.Qualifier, engine.Timestamp(c.TS), []byte(v))
			changed := m.Tables["t"].Rows[k].clone()
			changed.set(c.Family, c.Qualifier, c.TS, []byte(v))
			m.Tables["t"].Rows[k] = changed
		}
		if err := tb.Apply(ctx, k, mut, engine.NoSync); err != nil {
			t.Fatal(err)
		}
		if i%300 == 250 {
			if err := db.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	return tb, m, &FilterGen{R: r, Families: familyNames[:7], Rows: row, Qualifiers: qual, Values: val, Stamp: stamp, Sinks: true}
}

type filteredRow struct {
	key   string
	cells []FilterCell
}

func (m *Model) filtered(table string, f *Filter) (out []filteredRow) {
	for _, k := range m.Tables[table].Keys() {
		if cells := f.Apply(k, (Read{}).filter(k, m.Visible(table, k))); len(cells) > 0 {
			out = append(out, filteredRow{k, cells})
		}
	}
	return out
}

func fromFiltered(row engine.Row) filteredRow {
	out := filteredRow{key: row.Key}
	for _, c := range row.Cells {
		x := FilterCell{Cell: Cell{Family: c.Family, Qualifier: c.Qualifier, TS: int64(c.Timestamp), Value: c.Value}}
		if len(c.Labels) > 0 {
			x.Label = c.Labels[0]
		}
		out.cells = append(out.cells, x)
	}
	return out
}

func (r filteredRow) String() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%q", r.key)
	for _, c := range r.cells {
		fmt.Fprintf(&b, " %s:%q@%d=%q%s", c.Family, c.Qualifier, c.TS, c.Value, c.Label)
	}
	return b.String()
}

// Random filters over random rows: the engine's answers are those of the definition, from the first cell and from any other.
func TestFiltersAgreeWithTheirDefinition(t *testing.T) {
	for seed := range uint64(2) {
		tb, m, g := filterStore(t, seed)
		for i := range defaultOps / 2000 { // fewer under the race detector
			f := g.Filter(1 + g.R.IntN(14))
			parsed, err := ParseFilter(f.String())
			if err != nil || parsed.String() != f.String() {
				t.Fatalf("%s reads back as %s, %v", f, parsed, err)
			}
			want := m.filtered("t", f)
			var got []filteredRow
			opts := []engine.ReadOption{engine.RowFilter(f.Engine())}
			err = tb.ReadRows(ctx, engine.AllRows(), func(r engine.Row) bool { got = append(got, fromFiltered(r)); return true }, opts...)
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("seed %d, filter %d: %s\n got %v\nwant %v", seed, i, f, got, want)
			}
			for j, k := range m.Tables["t"].Keys() {
				if j%4 != i%4 {
					continue
				}
				row, err := tb.ReadRow(ctx, k, opts...)
				if err != nil {
					t.Fatal(err)
				}
				one := filteredRow{key: k}
				for _, x := range want {
					if x.key == k {
						one = x
					}
				}
				if fmt.Sprint(fromFiltered(row)) != fmt.Sprint(one) {
					t.Fatalf("seed %d, filter %d: %s\n got %v\nwant %v", seed, i, f, fromFiltered(row), one)
				}
			}
			if n := 1 + g.R.Int64N(30); i%3 == 0 {
				pageThrough(t, tb, f, want, n, g.R.IntN(2) == 0, g.R.IntN(3) == 0)
			}
		}
	}
}

// pageThrough reads in pages of n cells, each a read of its own that goes on where the one before ended.
func pageThrough(t *testing.T, tb *engine.Table, f *Filter, want []filteredRow, n int64, reverse, stream bool) {
	t.Helper()
	var flat, got []string
	if reverse {
		rev := make([]filteredRow, 0, len(want))
		for i := range want {
			rev = append(rev, want[len(want)-1-i])
		}
		want = rev
	}
	for _, r := range want {
		for _, c := range r.cells {
			flat = append(flat, filteredRow{r.key, []FilterCell{c}}.String())
		}
	}
	var pos engine.Position
	for page := 0; ; page++ {
		opts := []engine.ReadOption{engine.RowFilter(f.Engine()), engine.After(pos), engine.ContinueAt(&pos), engine.LimitCells(n)}
		if reverse {
			opts = append(opts, engine.ReverseScan())
		}
		count := int64(0)
		var err error
		if stream {
			err = tb.ReadCellsBorrowed(ctx, engine.AllRows(), func(c *engine.BorrowedCell) bool {
				x := engine.Cell{Family: string(c.Family), Qualifier: string(c.Qualifier), Timestamp: c.Timestamp, Value: bytes.Clone(c.Value)}
				x.Labels = append(x.Labels, c.Labels...)
				got = append(got, fromFiltered(engine.Row{Key: string(c.Row), Cells: []engine.Cell{x}}).String())
				count++
				return true
			}, opts...)
		} else {
			err = tb.ReadRows(ctx, engine.AllRows(), func(r engine.Row) bool {
				for _, c := range r.Cells {
					got = append(got, fromFiltered(engine.Row{Key: r.Key, Cells: []engine.Cell{c}}).String())
					count++
				}
				return true
			}, opts...)
		}
		if err != nil {
			t.Fatal(err)
		}
		if count > n || page > len(flat)+1 {
			t.Fatalf("%s: page %d of %d cells has %d", f, page, n, count)
		}
		if (pos == engine.Position{}) {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(flat) {
		t.Fatalf("%s in pages of %d, reverse %v, stream %v:\n got %v\nwant %v", f, n, reverse, stream, got, flat)
	}
}

// More conditions than a word has bits, one after the other and one in the other.
func TestManyConditions(t *testing.T) {
	tb, m, g := filterStore(t, 9)
	after := &Filter{Kind: "chain"}
	var inside *Filter
	for i := range 70 {
		p := &Filter{Kind: "chain", Kids: []*Filter{{Kind: "column-exact", Text: g.family(), Range: KeyRange{Start: g.Qualifiers(), StartAt: 's'}}, {Kind: "offset", N: int64(i % 5)}}}
		c := &Filter{Kind: "if", Kids: []*Filter{p, {Kind: "offset", N: 1}, {Kind: "pass"}}}
		after.Kids = append(after.Kids, c)
		if inside == nil {
			inside = c
		} else {
			inside = &Filter{Kind: "if", Kids: []*Filter{inside, c, {Kind: "chain", Kids: []*Filter{p, {Kind: "pass"}}}}}
		}
	}
	for _, f := range []*Filter{after, inside} {
		var got []filteredRow
		err := tb.ReadRows(ctx, engine.AllRows(), func(r engine.Row) bool { got = append(got, fromFiltered(r)); return true }, engine.RowFilter(f.Engine()))
		if want := m.filtered("t", f); err != nil || len(want) == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v\n got %v\nwant %v", err, got, want)
		}
	}
}

func TestFilterOfNoKindIsRefused(t *testing.T) {
	tb, _, _ := filterStore(t, 0)
	err := tb.ReadRows(ctx, engine.AllRows(), func(engine.Row) bool { return true }, engine.RowFilter((&Filter{Kind: "none"}).Engine()))
	if !errors.Is(err, engine.ErrFilter) {
		t.Fatal(err)
	}
}
