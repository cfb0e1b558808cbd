package fuzz

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rowandb/rowan/engine"
)

// read runs a read on both sides.
func (r *runner) read(o Op) error {
	err := r.readNow(o)
	if o.Read.AsOf != 0 && o.Read.AsOf < r.model.Now && errors.Is(err, engine.ErrAsOf) {
		r.counts.add("as of too early", 1)
		return nil
	}
	return err
}

func (r *runner) readNow(o Op) error {
	model, opts := r.model, options(o.Read)
	if s := r.snaps[o.Read.Snapshot]; o.Read.Snapshot != 0 {
		model, opts = s.m, append(opts, engine.AtSnapshot(s.s))
		r.counts.add("read of a snapshot", 1)
	}
	if o.Read.AsOf != 0 {
		model = &Model{Tables: model.Tables, Now: o.Read.AsOf}
		r.counts.add("read as of another time", 1)
	}
	t := r.db.Table(o.Table)
	switch o.Kind {
	case OpGet:
		row, err := t.ReadRow(ctx, o.Read.Row, opts...)
		if err != nil {
			return err
		}
		var got, want []Row
		if len(row.Cells) > 0 {
			got = append(got, fromEngine(row))
		}
		if cells := o.Read.cells(o.Read.Row, model.Visible(o.Table, o.Read.Row)); len(cells) > 0 {
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
	err := t.ReadCellsBorrowed(ctx, rowSet(o.Read.Rows), func(c engine.BorrowedCell) bool {
		if n := len(got); n == 0 || got[n-1].Key != string(c.Row) {
			got = append(got, Row{Key: string(c.Row)})
		}
		row := &got[len(got)-1]
		row.Cells = append(row.Cells, Cell{string(c.Family), string(c.Qualifier), int64(c.Timestamp), bytes.Clone(c.Value), strings.Join(c.Labels, " ")})
		return true
	}, opts...)
	if err != nil {
		return err
	}
	return diff(got, model.Read(o.Table, o.Read))
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
		out.Cells[i] = Cell{c.Family, c.Qualifier, int64(c.Timestamp), c.Value, strings.Join(c.Labels, " ")}
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
	if r.Filter != nil {
		chain = append(chain, r.Filter.Engine())
		r = Read{Limit: r.Limit, Reverse: r.Reverse, AsOf: r.AsOf}
	}
	if r.AsOf != 0 {
		opts = append(opts, engine.AsOf(time.UnixMicro(r.AsOf)))
	}
	switch {
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
