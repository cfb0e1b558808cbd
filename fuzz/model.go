// Package fuzz holds the oracle: a model of the store in plain maps, lists of operations with a text form, a generator, a
// runner that compares a store with the model after every step, and a shrinker of failing lists.
//
//	go test ./fuzz -run Oracle -seed 17 -set mapped        run one seed
//	go test ./fuzz -run Replay -file failing.txt         run a list from a file
package fuzz

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
)

// Model is what a store promises: rows, columns, versions, rules. It never collects anything, it only does not show it; so
// whatever a store collects too early, or shows too late, is a difference.
type Model struct {
	Tables map[string]*ModelTable
	Now    int64 // engine time, microseconds
}

// Alter changes families. What the old rule has collected by now stays away for good: whether that takes a mark of its own or
// not is the store's business.
func (m *Model) Alter(table string, changes []Alter) {
	t := m.Tables[table]
	t.Rules = maps.Clone(t.Rules)
	for _, a := range changes {
		for key, row := range t.Rows {
			row = row.clone()
			row.Cols = slices.DeleteFunc(row.Cols, func(c ModelColumn) bool { return a.Anew && c.Family == a.Family })
			for i := range row.Cols {
				if c := &row.Cols[i]; c.Family == a.Family {
					if floor, has := t.Rules[a.Family].floor(stamps(c.Versions), m.Now); has {
						c.Versions = slices.DeleteFunc(c.Versions, func(v Version) bool { return v.TS < floor })
					}
				}
			}
			t.put(key, row)
		}
		t.Rules[a.Family] = RulePool[a.Rule]
	}
}

// DropRows removes rows.
func (m *Model) DropRows(table string, rows KeySet) {
	maps.DeleteFunc(m.Tables[table].Rows, func(key string, _ *ModelRow) bool { return rows.Contains(key) })
}

// put makes row the table's, without the columns that have no version.
func (t *ModelTable) put(key string, row *ModelRow) {
	row.Cols = slices.DeleteFunc(row.Cols, func(c ModelColumn) bool { return len(c.Versions) == 0 })
	if len(row.Cols) == 0 {
		delete(t.Rows, key)
	} else {
		t.Rows[key] = row
	}
}

// ModelTable is one table.
type ModelTable struct {
	Rules map[string]Rule      // by family
	Folds map[string]string    // by aggregate family: sum, min or max
	Rows  map[string]*ModelRow // rows without versions are absent
}

// ModelRow is immutable once it is in a table: changes go to a copy. Columns are sorted by family, then qualifier.
type ModelRow struct{ Cols []ModelColumn }

// ModelColumn has its versions newest first.
type ModelColumn struct {
	Family, Qualifier string
	Versions          []Version
}

// Version is a timestamp and a value.
type Version struct {
	TS    int64
	Value []byte
}

// NewModel returns an empty store.
func NewModel(now int64) *Model { return &Model{Tables: map[string]*ModelTable{}, Now: now} }

// Clone returns a copy that shares only what never changes.
func (m *Model) Clone() *Model {
	c := NewModel(m.Now)
	for name, t := range m.Tables {
		rows := make(map[string]*ModelRow, len(t.Rows))
		for k, r := range t.Rows {
			rows[k] = r
		}
		c.Tables[name] = &ModelTable{Rules: t.Rules, Folds: t.Folds, Rows: rows}
	}
	return c
}

func (r *ModelRow) clone() *ModelRow {
	c := &ModelRow{}
	if r != nil {
		for _, col := range r.Cols {
			col.Versions = slices.Clone(col.Versions)
			c.Cols = append(c.Cols, col)
		}
	}
	return c
}

func (r *ModelRow) find(family, qualifier string) (int, bool) {
	return slices.BinarySearchFunc(r.Cols, [2]string{family, qualifier}, func(c ModelColumn, k [2]string) int {
		if d := strings.Compare(c.Family, k[0]); d != 0 {
			return d
		}
		return strings.Compare(c.Qualifier, k[1])
	})
}

// Refusal is why a batch was refused whole although nothing was wrong with it: the rows are not as it needs them.
type Refusal string

// The refusals.
const (
	Precondition Refusal = "precondition"
	NoCounter    Refusal = "no counter"
)

// Outcome is what a batch tells: the conditions in order, and what read-modify-writes wrote.
type Outcome struct {
	Matched  []bool
	Modified []Row
	Changes  int // that the batch came down to; without any it has no place in the write order
}

// Apply applies a batch whose items are all valid. If it is refused nothing has changed.
func (m *Model) Apply(items []Item) (out Outcome, refused Refusal) {
	var before undo
	for _, it := range items {
		t := m.Tables[it.Table]
		before = append(before, oldRow{it.Table, it.Row, t.Rows[it.Row]})
		row := t.Rows[it.Row].clone()
		switch it.Kind {
		case ItemChanges:
			out.Changes += m.changes(t, row, it.Changes)
		case ItemIf:
			matched := m.passes(it)
			if out.Matched = append(out.Matched, matched); matched {
				out.Changes += m.changes(t, row, it.Changes)
			} else {
				out.Changes += m.changes(t, row, it.Else)
			}
		case ItemNeed:
			if m.passes(it) != it.Want {
				m.undo(before)
				return Outcome{}, Precondition
			}
		case ItemModify:
			written, ok := m.modify(it, row)
			if !ok {
				m.undo(before)
				return Outcome{}, NoCounter
			}
			out.Modified = append(out.Modified, written)
			out.Changes += len(written.Cells)
		}
		t.put(it.Row, row)
	}
	return out, ""
}

// passes reports whether the item's filter passes any cell that shows.
func (m *Model) passes(it Item) bool {
	cells := Read{}.filter(m.Visible(it.Table, it.Row))
	if it.Filter != nil {
		return len(it.Filter.Apply(it.Row, cells)) > 0
	}
	return len(cells) > 0
}

// modify applies the rules of a read-modify-write to row, a copy of what the table has.
func (m *Model) modify(it Item, row *ModelRow) (written Row, ok bool) {
	written.Key = it.Row
	for _, rule := range it.Modify {
		c := Cell{Family: rule.Family, Qualifier: rule.Qualifier, TS: m.Now}
		if rule.Increment {
			c.Value = make([]byte, 8)
		}
		at := slices.IndexFunc(written.Cells, func(w Cell) bool { return w.Family == c.Family && w.Qualifier == c.Qualifier })
		if at >= 0 {
			c = written.Cells[at]
		} else if base := (Read{Family: c.Family, Column: true, Qualifiers: KeyRange{Start: c.Qualifier, StartAt: 's'}, Latest: 1}).filter(m.Visible(it.Table, it.Row)); len(base) > 0 {
			c.TS, c.Value = max(c.TS, base[0].TS), base[0].Value
		}
		if rule.Increment {
			if len(c.Value) != 8 {
				return written, false
			}
			c.Value = state(int64(binary.BigEndian.Uint64(c.Value)) + rule.Delta)
		} else {
			c.Value = slices.Concat(c.Value, rule.Append.Bytes())
		}
		if at >= 0 {
			written.Cells[at] = c
		} else {
			written.Cells = append(written.Cells, c)
		}
		row.set(c.Family, c.Qualifier, c.TS, c.Value)
	}
	slices.SortFunc(written.Cells, func(a, b Cell) int {
		return cmp.Or(strings.Compare(a.Family, b.Family), strings.Compare(a.Qualifier, b.Qualifier))
	})
	return written, true
}

func state(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func (m *Model) changes(t *ModelTable, row *ModelRow, changes []Change) int {
	for _, c := range changes {
		m.change(t, row, c)
	}
	return len(changes)
}

func (m *Model) change(t *ModelTable, row *ModelRow, c Change) {
	switch c.Kind {
	case Set:
		ts := c.TS
		if ts == ServerTime {
			ts = m.Now
		}
		row.set(c.Family, c.Qualifier, ts, c.Value.Bytes())
	case Add:
		n := c.N
		if i, ok := row.find(c.Family, c.Qualifier); ok {
			for _, v := range row.Cols[i].Versions {
				if v.TS == c.TS {
					n = fold(t.Folds[c.Family], n, int64(binary.BigEndian.Uint64(v.Value)))
				}
			}
		}
		row.set(c.Family, c.Qualifier, c.TS, state(n))
	case DeleteRow:
		row.Cols = nil
	case DeleteFamily:
		row.Cols = slices.DeleteFunc(row.Cols, func(x ModelColumn) bool { return x.Family == c.Family })
	case DeleteColumn:
		row.cut(c.Family, c.Qualifier, 0, math.MaxInt64)
	case DeleteTimes:
		lo, hi := c.TS, c.End-1
		if c.End == 0 {
			hi = math.MaxInt64
		}
		if lo > 0 {
			// A hole: first everything below the floor goes, or everything if nothing of the column is visible.
			i, ok := row.find(c.Family, c.Qualifier)
			if !ok || len(row.Cols[i].Versions) == 0 {
				return
			}
			vs := row.Cols[i].Versions
			switch floor, has := t.Rules[c.Family].floor(stamps(vs), m.Now); {
			case has && vs[0].TS < floor:
				row.cut(c.Family, c.Qualifier, 0, math.MaxInt64)
			case has && floor > 0:
				row.cut(c.Family, c.Qualifier, 0, floor-1)
			}
		}
		row.cut(c.Family, c.Qualifier, lo, hi)
	}
}

func fold(how string, a, b int64) int64 {
	switch how {
	case "min":
		return min(a, b)
	case "max":
		return max(a, b)
	}
	return a + b
}

func (r *ModelRow) set(family, qualifier string, ts int64, value []byte) {
	i, ok := r.find(family, qualifier)
	if !ok {
		r.Cols = slices.Insert(r.Cols, i, ModelColumn{Family: family, Qualifier: qualifier})
	}
	vs := r.Cols[i].Versions
	j, ok := slices.BinarySearchFunc(vs, ts, func(v Version, ts int64) int {
		switch {
		case v.TS > ts:
			return -1
		case v.TS < ts:
			return 1
		}
		return 0
	})
	if ok {
		vs[j].Value = value
	} else {
		r.Cols[i].Versions = slices.Insert(vs, j, Version{ts, value})
	}
}

// cut removes the versions from lo to hi, both included.
func (r *ModelRow) cut(family, qualifier string, lo, hi int64) {
	if i, ok := r.find(family, qualifier); ok {
		c := &r.Cols[i]
		c.Versions = slices.DeleteFunc(c.Versions, func(v Version) bool { return lo <= v.TS && v.TS <= hi })
	}
}

// Visible returns what a read shows of a row.
func (m *Model) Visible(table, key string) *ModelRow {
	t := m.Tables[table]
	r := t.Rows[key]
	if r == nil {
		return nil
	}
	out := &ModelRow{}
	for _, c := range r.Cols {
		floor, has := t.Rules[c.Family].floor(stamps(c.Versions), m.Now)
		n := len(c.Versions)
		for has && n > 0 && c.Versions[n-1].TS < floor {
			n--
		}
		if n > 0 {
			c.Versions = c.Versions[:n]
			out.Cols = append(out.Cols, c)
		}
	}
	if len(out.Cols) == 0 {
		return nil
	}
	return out
}

func stamps(vs []Version) []int64 {
	ts := make([]int64, len(vs))
	for i, v := range vs {
		ts[i] = v.TS
	}
	return ts
}

// Keys are the rows of a table that have versions, sorted. Some may show nothing.
func (t *ModelTable) Keys() []string {
	keys := make([]string, 0, len(t.Rows))
	for k := range t.Rows {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Read answers a read.
func (m *Model) Read(table string, r Read) []Row {
	var out []Row
	keys := m.Tables[table].Keys()
	if r.Reverse {
		slices.Reverse(keys)
	}
	for _, k := range keys {
		if !r.Rows.Contains(k) {
			continue
		}
		if cells := r.cells(k, m.Visible(table, k)); len(cells) > 0 {
			out = append(out, Row{k, cells})
			if r.Limit > 0 && len(out) == r.Limit {
				break
			}
		}
	}
	return out
}

// Row is a row as a read returns it.
type Row struct {
	Key   string
	Cells []Cell
}

// Cell is one cell of a Row.
type Cell struct {
	Family, Qualifier string
	TS                int64
	Value             []byte
	Label             string
}

func (a Row) equal(b Row) bool {
	return a.Key == b.Key && slices.EqualFunc(a.Cells, b.Cells, func(x, y Cell) bool {
		return x.Family == y.Family && x.Qualifier == y.Qualifier && x.TS == y.TS && bytes.Equal(x.Value, y.Value) && x.Label == y.Label
	})
}

// cells is what a read shows of a row that is visible.
func (r Read) cells(key string, row *ModelRow) []Cell {
	if r.Filter == nil {
		return r.filter(row)
	}
	var out []Cell
	for _, c := range r.Filter.Apply(key, Read{}.filter(row)) {
		c.Cell.Label = c.Label
		out = append(out, c.Cell)
	}
	return out
}

// filter applies a read's filters to the visible row, in the order in which the read chains them.
func (r Read) filter(row *ModelRow) (cells []Cell) {
	if row == nil {
		return nil
	}
	for _, c := range row.Cols {
		if r.Family != "" && c.Family != r.Family || r.Column && !r.Qualifiers.Contains(c.Qualifier) {
			continue
		}
		vs := c.Versions
		if r.Latest > 0 && !r.LatestLast {
			vs = vs[:min(r.Latest, len(vs))]
		}
		n := 0
		for _, v := range vs {
			if r.Times && (v.TS < r.From || r.To != 0 && v.TS >= r.To) {
				continue
			}
			if n++; r.Latest > 0 && r.LatestLast && n > r.Latest {
				break
			}
			cells = append(cells, Cell{Family: c.Family, Qualifier: c.Qualifier, TS: v.TS, Value: v.Value})
		}
	}
	return cells
}
