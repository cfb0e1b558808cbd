package fuzz

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowandb/rowan/engine"
)

// read runs a read on both sides.
func (r *runner) read(o Op) error {
	model, opts := r.model, options(o.Read)
	if s := r.snaps[o.Read.Snapshot]; o.Read.Snapshot != 0 {
		model, opts = s.m, append(opts, engine.AtSnapshot(s.s))
		r.counts.add("read of a snapshot", 1)
	}
	t := r.db.Table(o.Table)
	if at := o.Read.AsOf; at != 0 {
		if at < r.cutAt {
			return nil // which batches a power cut took is told from the cells that show; those that were hidden by then tell nothing
		}
		opts = append(opts, engine.AsOf(time.UnixMicro(at)))
		err := t.ReadCellsBorrowed(ctx, engine.AllRows(), func(*engine.BorrowedCell) bool { return false }, engine.AsOf(time.UnixMicro(at)))
		switch {
		case errors.Is(err, engine.ErrAsOf) && at < model.Now:
			r.counts.add("read as of too early a time", 1)
			return nil // what was there then may be collected by now
		case err != nil:
			return err
		}
		r.counts.add("read as of another time", 1)
		model = &Model{Tables: model.Tables, Now: at}
	}
	if !model.Tables[o.Table].knows(o.Read.named()) {
		err := t.ReadCellsBorrowed(ctx, engine.AllRows(), func(*engine.BorrowedCell) bool { return false }, opts...)
		if !errors.Is(err, engine.ErrNoFamily) {
			return fmt.Errorf("a filter that names a family that is not there gave %v", err)
		}
		r.counts.add("filter refused", 1)
		return nil
	}
	if o.Read.Filter != nil {
		r.counts.add("filter tree", 1)
	}
	switch o.Kind {
	case OpPages:
		return r.pages(t, o, model, opts)
	case OpGet:
		row, err := t.ReadRow(ctx, o.Read.Row, opts...)
		if err != nil {
			return err
		}
		var got, want []Row
		if len(row.Cells) > 0 {
			got = append(got, fromEngine(row))
		}
		if cells := o.Read.filter(o.Read.Row, model.Visible(o.Table, o.Read.Row)); len(cells) > 0 {
			want = append(want, Row{o.Read.Row, cells})
		}
		return diff(got, want)
	case OpStream:
		return r.stream(t, o, model, opts)
	}
	var got []Row
	err := t.ReadRows(ctx, rowSet(o.Read.Rows), func(row engine.Row) bool {
		got = append(got, fromEngine(row))
		return true
	}, opts...)
	if err != nil {
		return err
	}
	if o.Read.Reverse {
		r.counts.add("row stepped back to", len(got))
	}
	return diff(got, model.Read(o.Table, o.Read))
}

func (r *runner) stream(t *engine.Table, o Op, model *Model, opts []engine.ReadOption) error {
	var got []Row
	err := t.ReadCellsBorrowed(ctx, rowSet(o.Read.Rows), func(c *engine.BorrowedCell) bool {
		if n := len(got); n == 0 || got[n-1].Key != string(c.Row) {
			got = append(got, Row{Key: string(c.Row)})
		}
		row := &got[len(got)-1]
		row.Cells = append(row.Cells, Cell{string(c.Family), string(c.Qualifier), int64(c.Timestamp), bytes.Clone(c.Value), label(c.Labels)})
		return true
	}, opts...)
	if err != nil {
		return err
	}
	return diff(got, model.Read(o.Table, o.Read))
}

// pages reads a set page by page, each going on where the one before ended, with background work in between.
func (r *runner) pages(t *engine.Table, o Op, model *Model, opts []engine.ReadOption) error {
	var got []Row
	add := func(key string, cells ...Cell) {
		if n := len(got); n == 0 || got[n-1].Key != key {
			got = append(got, Row{Key: key})
		}
		row := &got[len(got)-1]
		row.Cells = append(row.Cells, cells...)
	}
	var at engine.Position
	for n := 0; ; n++ {
		var next engine.Position
		budget := engine.LimitCells(o.N)
		if n%3 == 1 {
			budget = engine.LimitBytes(o.N * 40)
		}
		page := append(slices.Clone(opts), engine.After(at), engine.ContinueAt(&next), budget)
		var err error
		if n%2 == 0 {
			err = t.ReadRows(ctx, rowSet(o.Read.Rows), func(row engine.Row) bool {
				add(row.Key, fromEngine(row).Cells...)
				return true
			}, page...)
		} else {
			err = t.ReadCellsBorrowed(ctx, rowSet(o.Read.Rows), func(c *engine.BorrowedCell) bool {
				add(string(c.Row), Cell{string(c.Family), string(c.Qualifier), int64(c.Timestamp), bytes.Clone(c.Value), label(c.Labels)})
				return true
			}, page...)
		}
		if err != nil {
			return fmt.Errorf("page %d after %+v: %w", n, at, err)
		}
		r.counts.add("page", 1)
		if next == (engine.Position{}) {
			break
		}
		if next == at {
			return fmt.Errorf("page %d ends where it began, at %+v", n, at)
		}
		at = next
		if n%4 == 3 {
			r.exec.run(1)
		}
	}
	return diff(got, model.Read(o.Table, o.Read))
}

// named is a filter that names the families that the read names.
func (r Read) named() *Filter {
	if r.Filter == nil && r.Family != "" {
		return &Filter{Kind: "family-exact", Text: r.Family}
	}
	return r.Filter
}

func label(l []string) string {
	if len(l) == 0 {
		return ""
	}
	return strings.Join(l, ",")
}

// compareAll compares all tables whole, or every skip'th row of them read by itself.
func (r *runner) compareAll(m *Model, skip int, opts ...engine.ReadOption) error {
	names, err := r.db.Tables(ctx)
	if err != nil {
		return err
	}
	if len(names) != len(m.Tables) {
		return fmt.Errorf("tables %q, the model has %d", names, len(m.Tables))
	}
	for _, name := range names {
		if m.Tables[name] == nil {
			return fmt.Errorf("table %q, which the model does not have", name)
		}
		if err := r.compareFamilies(name, m); err != nil {
			return fmt.Errorf("table %q: %w", name, err)
		}
		if skip > 0 {
			for i, k := range m.Tables[name].Keys() {
				if i%skip != r.r.IntN(skip) {
					continue
				}
				if err := r.read(Op{Kind: OpGet, Table: name, Read: Read{Row: k}}); err != nil {
					return fmt.Errorf("get %q %q: %w", name, k, err)
				}
			}
			continue
		}
		if err := r.compareTable(name, m, opts...); err != nil {
			return fmt.Errorf("table %q: %w", name, err)
		}
	}
	return nil
}

func (r *runner) compareFamilies(name string, m *Model) error {
	info, err := r.db.Table(name).Describe(ctx)
	if err != nil {
		return err
	}
	rules := m.Tables[name].Rules
	for f, s := range info.Families {
		if rule, ok := rules[f]; !ok || !s.GC.Equal(rule.Policy()) || s.Aggregate != Families[f].Fold {
			return fmt.Errorf("family %q is %+v, the model has %v, %+v", f, s, ok, rule)
		}
	}
	if len(info.Families) != len(rules) {
		return fmt.Errorf("%d families, the model has %d", len(info.Families), len(rules))
	}
	return nil
}

func (r *runner) compareTable(name string, m *Model, opts ...engine.ReadOption) error {
	var got []Row
	err := r.db.Table(name).ReadRows(ctx, engine.AllRows(), func(row engine.Row) bool {
		got = append(got, fromEngine(row))
		return true
	}, opts...)
	if err != nil {
		return err
	}
	return diff(got, m.Read(name, Read{Rows: KeySet{{}}}))
}

func (r *runner) compareSnap(s *snap) error {
	for name := range s.m.Tables {
		if err := r.compareTable(name, s.m, engine.AtSnapshot(s.s)); err != nil {
			return fmt.Errorf("snapshot, table %q: %w", name, err)
		}
	}
	return nil
}

func fromEngine(row engine.Row) Row {
	out := Row{Key: row.Key, Cells: make([]Cell, len(row.Cells))}
	for i, c := range row.Cells {
		out.Cells[i] = Cell{c.Family, c.Qualifier, int64(c.Timestamp), c.Value, label(c.Labels)}
	}
	return out
}

// diff describes the first row that differs.
func diff(got, want []Row) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("row %d is missing: want %s", i, want[i])
		case i >= len(want):
			return fmt.Errorf("row %d should not be there: %s", i, got[i])
		case !got[i].equal(want[i]):
			return fmt.Errorf("row %d:\n got %s\nwant %s", i, got[i], want[i])
		}
	}
	return nil
}

func (a Row) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q", a.Key)
	for _, c := range a.Cells {
		fmt.Fprintf(&b, " %s:%q@%d=%.8x(%d)%s", c.Family, c.Qualifier, c.TS, c.Value, len(c.Value), c.Label)
	}
	return b.String()
}

func options(r Read) (opts []engine.ReadOption) {
	var chain []engine.Filter
	switch {
	case r.Filter != nil:
		chain = append(chain, r.Filter.Engine())
	case r.Column && r.Qualifiers.StartAt == 's':
		chain = append(chain, engine.ColumnExact(r.Family, r.Qualifiers.Start))
	case r.Column:
		chain = append(chain, engine.ColumnRangeFilter(r.Family, engine.QualifierRange(rowRange(r.Qualifiers))))
	case r.Family != "":
		chain = append(chain, engine.FamilyExact(r.Family))
	}
	latest := func() {
		if r.Latest > 0 {
			chain = append(chain, engine.LatestNFilter(r.Latest))
		}
	}
	if !r.LatestLast {
		latest()
	}
	if r.Times {
		chain = append(chain, engine.TimestampRangeFilter(engine.Timestamp(r.From), engine.Timestamp(r.To)))
	}
	if r.LatestLast {
		latest()
	}
	switch len(chain) {
	case 0:
	case 1:
		opts = append(opts, engine.RowFilter(chain[0]))
	default:
		opts = append(opts, engine.RowFilter(engine.ChainFilters(chain...)))
	}
	if r.Limit > 0 {
		opts = append(opts, engine.LimitRows(int64(r.Limit)))
	}
	if r.Reverse {
		opts = append(opts, engine.ReverseScan())
	}
	return opts
}

func rowSet(s KeySet) engine.RowSet {
	if len(s) == 1 {
		if s[0].StartAt == 's' {
			return engine.SingleRow(s[0].Start)
		}
		return rowRange(s[0])
	}
	var set engine.Rows
	var list engine.RowList
	for _, r := range s {
		if r.StartAt == 's' {
			list = append(list, r.Start)
		} else {
			set = append(set, rowRange(r))
		}
	}
	if len(list) > 0 {
		set = append(set, list)
	}
	return set
}

func rowRange(r KeyRange) engine.RowRange {
	start, open := r.Start, r.StartAt == '('
	switch {
	case r.StartAt == 'p':
		return engine.PrefixRange(start)
	case r.StartAt == 's':
		return engine.NewClosedRange(start, start)
	case r.EndAt == 0 && r.StartAt == 0:
		return engine.AllRows()
	case r.EndAt == 0 && open:
		return engine.InfiniteRange(start + "\x00")
	case r.EndAt == 0:
		return engine.InfiniteRange(start)
	case r.EndAt == ']' && r.StartAt == 0:
		return engine.InfiniteReverseRange(r.End)
	case r.EndAt == ']' && open:
		return engine.NewOpenClosedRange(start, r.End)
	case r.EndAt == ']':
		return engine.NewClosedRange(start, r.End)
	case open:
		return engine.NewOpenRange(start, r.End)
	}
	return engine.NewRange(start, r.End) // without a start it is "", which is before all
}
