package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/executor"
	"github.com/rowandb/rowan/gc"
)

// work is what reads did on files.
type work struct{ blocks, leftOut, values uint64 }

func (s *testStore) workOf(read func()) work {
	s.t.Helper()
	a := s.Metrics()
	read()
	b := s.Metrics()
	return work{b.BlocksRead - a.BlocksRead, b.BlocksLeftOut - a.BlocksLeftOut, b.ValuePartsRead - a.ValuePartsRead}
}

func (s *testStore) cells(tb *Table, set RowSet, opts ...ReadOption) (n int) {
	s.t.Helper()
	s.must(tb.ReadCellsBorrowed(ctx, set, func(*BorrowedCell) bool { n++; return true }, opts...))
	return n
}

// lines loads n rows in the order of time into one run of files with small blocks.
func (s *testStore) lines(name string, n int, rule gc.Rule) *Table {
	s.t.Helper()
	tb, err := s.CreateTable(ctx, name, TableSpec{BlockBytes: 1024, Families: map[string]FamilySpec{"f": {GC: rule}, "g": {}}})
	s.must(err)
	for i := range n {
		s.must(tb.Apply(ctx, fmt.Sprintf("%05d", i), mut(func(m *Mutation) {
			m.Set("f", "q", Timestamp(1000+i), []byte(fmt.Sprintf("%60d", i)))
		}), NoSync))
	}
	s.must(s.Flush(ctx))
	s.must(s.Compact(ctx))
	return tb
}

// What a read need not look at is not read.
func TestReadsLeaveOutWhatTheyNeedNotSee(t *testing.T) {
	s := newStore(t, func(o *Options) { o.TableFileBytes = 1 << 20 })
	const rows = 5000
	tb := s.lines("t", rows, gc.NoPolicy())
	all := s.workOf(func() { s.cells(tb, AllRows()) })
	if all.blocks < 100 {
		t.Fatalf("%+v", all)
	}
	for _, c := range []struct {
		name string
		set  RowSet
		opts []ReadOption
		want int
		most uint64 // blocks
	}{
		{"a pattern with a literal prefix", AllRows(), []ReadOption{RowFilter(RowKeyFilter(`0123\d+`))}, 10, 3},
		{"a pattern that is a list", AllRows(), []ReadOption{RowFilter(RowKeyFilter("00001|04000|99999"))}, 2, 4},
		{"a pattern in a chain", NewRange("01", "02"), []ReadOption{RowFilter(ChainFilters(LatestNFilter(1), RowKeyFilter(`0.*`), RowKeyFilter(`0123\C`)))}, 10, 3},
		{"patterns in branches", AllRows(), []ReadOption{RowFilter(InterleaveFilters(RowKeyFilter("00001"), RowKeyFilter("0400.")))}, 11, 5},
		{"the newest hundredth", AllRows(), []ReadOption{RowFilter(TimestampRangeFilter(1000+rows-rows/100, 0))}, rows / 100, all.blocks / 20},
		{"the newest hundredth from the end", AllRows(), []ReadOption{ReverseScan(), RowFilter(TimestampRangeFilter(1000+rows-rows/100, 0))}, rows / 100, all.blocks / 20},
		{"the oldest hundredth", AllRows(), []ReadOption{RowFilter(TimestampRangeFilter(0, 1000+rows/100))}, rows / 100, all.blocks / 20},
		{"the newest version of the newest hundredth", AllRows(), []ReadOption{RowFilter(ChainFilters(LatestNFilter(1), TimestampRangeFilter(1000+rows-rows/100, 0)))}, rows / 100, all.blocks / 20},
		{"a family without cells", AllRows(), []ReadOption{RowFilter(FamilyFilter("g.*"))}, 0, 0},
		{"the first row", AllRows(), []ReadOption{LimitRows(1)}, 1, 1},
		{"the last row", AllRows(), []ReadOption{LimitRows(1), ReverseScan()}, 1, 1},
		{"a page", AllRows(), []ReadOption{LimitCells(1), After(Position{Row: "02000"})}, 1, 2},
		{"an absent prefix", PrefixRange("02000x"), nil, 0, 2},
		{"nothing at all", AllRows(), []ReadOption{RowFilter(ChainFilters(ColumnExact("f", "a"), ColumnExact("f", "b")))}, 0, 0},
	} {
		n := 0
		w := s.workOf(func() { n = s.cells(tb, c.set, c.opts...) })
		if n != c.want || w.blocks > c.most {
			t.Errorf("%s: %d cells, %+v; want %d cells, at most %d blocks of %d", c.name, n, w, c.want, c.most, all.blocks)
		}
	}
	for _, c := range []struct {
		row  string
		f    Filter
		want int
		most uint64
	}{
		{"00100", TimestampRangeFilter(1000+rows-10, 0), 0, 0},
		{"00100", TimestampRangeFilter(1100, 1101), 1, 1},
		{"00100x", PassAllFilter(), 0, 1},
		{"04999", FamilyExact("g"), 0, 0},
	} {
		w := s.workOf(func() {
			if r, err := tb.ReadRow(ctx, c.row, RowFilter(c.f)); err != nil || len(r.Cells) != c.want {
				t.Errorf("row %s: %d cells, %v", c.row, len(r.Cells), err)
			}
		})
		if w.blocks > c.most {
			t.Errorf("row %s: %+v, want at most %d blocks", c.row, w, c.most)
		}
	}
	small := s.lines("small", 10, gc.NoPolicy())
	first := LimitRows(1)
	if few, many := s.workOf(func() { s.cells(small, AllRows(), first) }), s.workOf(func() { s.cells(tb, AllRows(), first) }); few != many {
		t.Errorf("the first row of 10 takes %+v, that of %d %+v", few, rows, many)
	}
}

// Under a rule that counts versions what is newer than the time asked for is counted from keys; what is older is left out.
func TestTimesUnderARuleThatCounts(t *testing.T) {
	s := newStore(t, func(o *Options) { o.TableFileBytes = 1 << 20 })
	tb := s.lines("t", 2000, gc.MaxVersionsPolicy(1))
	all := s.workOf(func() { s.cells(tb, AllRows()) })
	w := s.workOf(func() {
		if n := s.cells(tb, AllRows(), RowFilter(TimestampRangeFilter(1000, 1020))); n != 20 {
			t.Errorf("%d old cells", n)
		}
	})
	if w.blocks != all.blocks || w.values > 2 {
		t.Errorf("oldest: %+v of %+v", w, all)
	}
	if w := s.workOf(func() { s.cells(tb, AllRows(), RowFilter(TimestampRangeFilter(2980, 0))) }); w.blocks*20 > all.blocks {
		t.Errorf("newest: %+v of %+v", w, all)
	}
	// A newer version in another file hides the one asked for.
	s.must(tb.Apply(ctx, "00005", set("f", "q", 9000, "new")))
	s.must(s.Flush(ctx))
	if n := s.cells(tb, AllRows(), RowFilter(TimestampRangeFilter(1000, 1020))); n != 19 {
		t.Errorf("%d cells, a newer version hides one of 20", n)
	}
}

// lateWork runs no background work while it is held.
type lateWork struct {
	executor.Inline
	held bool
}

func (x *lateWork) Help() bool { return !x.held && x.Inline.Help() }

// After a rule that counted was let go, what was written under it stays as it was then: old times are not sought past it.
func TestTimesUnderARuleThatWasLetGo(t *testing.T) {
	x := &lateWork{held: true}
	s := newStore(t, func(o *Options) { o.Background = x })
	defer func() { x.held = false }()
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2)})
	for i := range 100 {
		s.must(tb.Apply(ctx, "r", set("f", "q", Timestamp(i+1), "v"), NoSync))
	}
	s.must(tb.ModifyFamilies(ctx, SetGCRule("f", gc.NoPolicy())))
	for i := range 100 {
		s.must(tb.Apply(ctx, "r", set("f", "q", Timestamp(i+201), "v"), NoSync))
	}
	for _, where := range []string{"memtables", "files"} {
		for _, c := range []struct {
			f    Filter
			want int
		}{
			{TimestampRangeFilter(0, 99), 0},
			{TimestampRangeFilter(0, 201), 2},
			{TimestampRangeFilter(100, 203), 3},
			{ChainFilters(TimestampRangeFilter(0, 150), LatestNFilter(1)), 1},
		} {
			if n := s.cells(tb, AllRows(), RowFilter(c.f)); n != c.want {
				t.Errorf("%s: %d cells, want %d", where, n, c.want)
			}
		}
		if n := s.cells(tb, AllRows(), After(Position{Row: "r", Family: "f", Qualifier: "q", Timestamp: 98})); n != 0 {
			t.Errorf("%s: %d cells behind a position", where, n)
		}
		x.held = false
		s.must(s.Flush(ctx))
	}
}

// Reads that need no values load none: stripped ones, and predicates that do not ask for them.
func TestKeysOnlyReadsLoadNoValues(t *testing.T) {
	s := newStore(t, func(o *Options) { o.TableFileBytes = 1 << 20 })
	tb := s.lines("t", 500, gc.NoPolicy())
	for _, c := range []struct {
		name  string
		f     Filter
		cells int
		none  bool
	}{
		{"strip", StripValueFilter(), 500, true},
		{"strip behind other filters", ChainFilters(ColumnExact("f", "q"), LatestNFilter(1), StripValueFilter()), 500, true},
		{"stripped on both branches", InterleaveFilters(StripValueFilter(), ChainFilters(FamilyExact("f"), StripValueFilter())), 1000, true},
		{"stripped after a condition on keys", ChainFilters(ConditionFilter(ColumnFilter("q"), PassAllFilter(), nil), StripValueFilter()), 500, true},
		{"a value filter behind strip", ChainFilters(StripValueFilter(), ValueFilter("")), 500, true},
		{"a value filter before strip", ChainFilters(ValueFilter(".*[0-4]"), StripValueFilter()), 250, false},
		{"a predicate on values", ChainFilters(ConditionFilter(ValueFilter(".*[0-4]"), PassAllFilter(), nil), StripValueFilter()), 250, false},
		{"one branch stripped", InterleaveFilters(StripValueFilter(), PassAllFilter()), 1000, false},
		{"a sink before strip", ChainFilters(InterleaveFilters(SinkFilter(), BlockAllFilter()), StripValueFilter()), 500, false},
	} {
		n := 0
		w := s.workOf(func() { n = s.cells(tb, AllRows(), RowFilter(c.f)) })
		if n != c.cells || w.blocks == 0 || (w.values == 0) != c.none {
			t.Errorf("%s: %d cells, %+v", c.name, n, w)
		}
	}
	mu := NewCondMutation(ColumnExact("f", "q"), nil, set("f", "x", 1, "v"))
	if w := s.workOf(func() { s.must(tb.Apply(ctx, "00007", mu)) }); w.values != 0 {
		t.Errorf("a condition on a column: %+v", w)
	}
}

// In a long row limits end the read early, versions beyond those asked for and columns between those asked for are skipped, and
// a page begins where the one before ended.
func TestLongRowsAreNotReadWhole(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes, o.TableFileBytes = 16<<20, 16<<20 })
	tb, err := s.CreateTable(ctx, "t", TableSpec{BlockBytes: 1024, Families: map[string]FamilySpec{"f": {}}})
	s.must(err)
	const cells = 20_000
	for i := 0; i < cells; i += 500 {
		s.must(tb.Apply(ctx, "r", mut(func(m *Mutation) {
			for j := i; j < i+500; j++ {
				m.Set("f", fmt.Sprintf("wide%05d", j), 1, []byte("some value"))
				m.Set("f", fmt.Sprintf("deep%d", j%4), Timestamp(j+1), []byte("some value"))
			}
		}), NoSync))
	}
	s.must(s.Flush(ctx))
	all := s.workOf(func() { s.cells(tb, SingleRow("r")) })
	for _, c := range []struct {
		name string
		opts []ReadOption
		want int
		most uint64
	}{
		{"limit of cells per row", []ReadOption{RowFilter(CellsPerRowLimitFilter(3))}, 3, 2},
		{"newest of deep columns", []ReadOption{RowFilter(ChainFilters(ColumnFilter("deep.*"), LatestNFilter(1)))}, 4, 12},
		{"two columns far apart", []ReadOption{RowFilter(InterleaveFilters(ColumnExact("f", "deep1"), ColumnExact("f", "wide19000")))}, cells/4 + 1, all.blocks/3 + 4},
		{"columns of a pattern", []ReadOption{RowFilter(ColumnFilter("wide0000[12]|wide1999[0-9]"))}, 12, 8},
		{"a condition that the first cell answers", []ReadOption{RowFilter(ConditionFilter(PassAllFilter(), CellsPerRowLimitFilter(1), nil))}, 1, 2},
		{"the newest before a time", []ReadOption{RowFilter(ChainFilters(ColumnFilter("deep1"), TimestampRangeFilter(0, 10_000), LatestNFilter(1)))}, 1, 6},
		{"a page near the end", []ReadOption{After(Position{Row: "r", Family: "f", Qualifier: "wide19990", Timestamp: 1})}, 9, 3},
		{"a page deep in a column", []ReadOption{After(Position{Row: "r", Family: "f", Qualifier: "deep0", Timestamp: 400}), LimitCells(5)}, 5, 3},
		{"a page of 10 cells", []ReadOption{After(Position{Row: "r", Family: "f", Qualifier: "wide10000", Timestamp: 1}), LimitCells(10)}, 10, 4},
	} {
		n := 0
		w := s.workOf(func() { n = s.cells(tb, SingleRow("r"), c.opts...) })
		if n != c.want || w.blocks > c.most {
			t.Errorf("%s: %d cells, %+v; want %d cells, at most %d blocks of %d", c.name, n, w, c.want, c.most, all.blocks)
		}
	}
}

// A long row of which nothing passes does not keep a caller who has given up.
func TestReadOfALongRowIsGivenUp(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes = 16 << 20 })
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	for i := 0; i < 20_000; i += 1000 {
		s.must(tb.Apply(ctx, "r", mut(func(m *Mutation) {
			for j := i; j < i+1000; j++ {
				m.Set("f", fmt.Sprintf("%05d", j), 1, []byte("v"))
			}
		}), NoSync))
	}
	for _, f := range []Filter{ValueFilter("no"), PassAllFilter(), ConditionFilter(ValueFilter("no"), PassAllFilter(), ValueFilter("nope")), nil} {
		stop, cancel := context.WithCancel(ctx)
		opts := []ReadOption{RowFilter(InterleaveFilters(ColumnExact("f", "00000"), ValueFilter("no")))}
		if f != nil {
			opts[0] = RowFilter(InterleaveFilters(ColumnExact("f", "00000"), f))
		} else {
			opts = nil
		}
		n := 0
		err := tb.ReadCellsBorrowed(stop, AllRows(), func(*BorrowedCell) bool { n++; cancel(); return true }, opts...)
		if !errors.Is(err, context.Canceled) || n == 0 || n > 10_000 {
			t.Errorf("%v after %d cells", err, n)
		}
		cancel()
	}
}

// Filters allocate per read, never per cell or row.
func TestFiltersAllocateNothingPerCell(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes, o.TableFileBytes = 4<<20, 4<<20 })
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(3), "g": {}})
	for i := range 2000 {
		s.must(tb.Apply(ctx, fmt.Sprintf("row%05d\xff", i), mut(func(m *Mutation) {
			m.Set("f", "a\xff", Timestamp(i), []byte("some value\xff"))
			m.Set("f", "b", Timestamp(i), []byte("some value"))
			m.Set("g", "c", Timestamp(i), []byte("other"))
		}), NoSync))
	}
	filters := []Filter{
		ChainFilters(ColumnFilter(`[a-c]\xff?`), ValueFilter(`some.*e\C?`)),
		InterleaveFilters(LatestNFilter(1), ChainFilters(FamilyExact("g"), StripValueFilter(), LabelFilter("x")), BlockAllFilter()),
		ConditionFilter(ChainFilters(FamilyFilter("[fg]"), ColumnRangeFilter("f", QualifierRange(NewRange("b", "c")))), CellsPerRowOffsetFilter(1), nil),
		ChainFilters(RowKeyFilter(`row.*\xff`), RowSampleFilter(0.9, 3), ValueRangeFilter(ValueRange(InfiniteRange("a")))),
		ChainFilters(InterleaveFilters(SinkFilter(), CellsPerRowLimitFilter(2)), ValueBitmaskFilter([]byte("other"))),
		ConditionFilter(ConditionFilter(ValueFilter("no"), PassAllFilter(), nil), nil, ChainFilters(TimestampRangeFilter(5, 1500), LatestNFilter(2))),
	}
	for _, where := range []string{"memtable", "file"} {
		for i, f := range filters {
			n := 0
			allocs := testing.AllocsPerRun(2, func() {
				n = 0
				s.must(tb.ReadCellsBorrowed(ctx, AllRows(), func(c *BorrowedCell) bool { n++; return true }, RowFilter(f)))
			})
			if n < 1000 || allocs > 300 && !raceEnabled { // under the race detector pools forget
				t.Errorf("%s, filter %d: %v allocations for %d cells", where, i, allocs, n)
			}
		}
		s.must(s.Flush(ctx))
	}
}

// Copies of rows stay what they were whatever the store does to the bytes that they came from.
func TestRowsAreCopies(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	for i := range 3000 {
		s.must(tb.Apply(ctx, fmt.Sprintf("%06d", i), set("f", fmt.Sprint("q", i), 1, strings.Repeat(fmt.Sprint(i), 5)), NoSync))
	}
	s.must(s.Compact(ctx))
	var rows []Row
	s.must(tb.ReadRows(ctx, AllRows(), func(r Row) bool { rows = append(rows, r); return true }, RowFilter(LabelFilter("l"))))
	s.now = s.now.Add(time.Second)
	s.must(tb.Apply(ctx, "x", set("f", "q", 1, "v")))
	s.must(s.Compact(ctx))
	s.cells(tb, AllRows())
	for i, r := range rows {
		want := fmt.Sprintf("%06d f:q%d@1=%s\n", i, i, strings.Repeat(fmt.Sprint(i), 5))
		if got := show(r); got != want || r.Cells[0].Labels[0] != "l" {
			t.Fatalf("%q, want %q", got, want)
		}
	}
}

// A build that looks for mistakes overwrites the bytes that it has lent.
func TestBorrowedBytesAreSpoiltOnDemand(t *testing.T) {
	col := cell.AppendColumn(nil, "f", 1, "q")
	for _, spoil := range []bool{false, true} {
		var kept BorrowedCell
		o := cellOutput{rd: &reader{}, spoil: spoil, fn: func(c *BorrowedCell) bool {
			if string(c.Row) != "row" || string(c.Family) != "f" || string(c.Qualifier) != "q" || string(c.Value) != "value" {
				t.Errorf("%+v", c)
			}
			kept = *c
			return true
		}}
		for range 2 {
			o.begin([]byte("row"))
			if !o.Put(&cell.Cell{Col: col, TS: 1, Value: []byte("value")}, false, "") || o.err != nil {
				t.Fatal(o.err)
			}
		}
		if (string(kept.Value) != "value") != spoil || (string(kept.Row) != "row") != spoil {
			t.Errorf("spoil %v: kept %+v", spoil, kept)
		}
	}
}
