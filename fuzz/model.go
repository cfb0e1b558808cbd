// Package fuzz holds the oracle: a model of the store in plain maps, lists of operations with a text form, a generator, a
// runner that compares a store with the model after every step, and a shrinker of failing lists.
//
//	go test ./fuzz -run Oracle -seed 17 -set mapped        run one seed
//	go test ./fuzz -run Replay -file failing.txt         run a list from a file
package fuzz

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/rowandb/rowan/engine"
)

// Model is what a store promises: rows, columns, versions, rules. It never collects anything, it only does not show it; so
// whatever a store collects too early, or shows too late, is a difference.
type Model struct {
	Tables map[string]*ModelTable
	Now    int64 // engine time, microseconds
}

// ModelTable is one table.
type ModelTable struct {
	Rules map[string]Rule      // by family
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
		c.Tables[name] = &ModelTable{Rules: t.Rules, Rows: rows}
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

// Apply applies a batch, or nothing of it if it is to be refused; then the error is the store's. rows are the results of its
// read-modify-writes; wrote tells whether there was anything to write, be it a delete of nothing.
func (m *Model) Apply(items []Item) (rows []Row, wrote bool, err error) {
	type place struct{ table, row string }
	work := map[place]*ModelRow{}
	for _, it := range items {
		t := m.Tables[it.Table]
		if t == nil {
			return nil, false, engine.ErrNoTable
		}
		at := place{it.Table, it.Row}
		if work[at] == nil {
			work[at] = t.Rows[it.Row].clone()
		}
		row := work[at]
		changes := it.Changes
		switch it.Kind {
		case ItemIf, ItemRequire:
			if !t.knows(it.Filter) {
				return nil, false, engine.ErrNoFamily
			}
			yes := len(it.Filter.Apply(it.Row, cellsOf(t.visible(row, m.Now)))) > 0
			if it.Kind == ItemRequire && yes != it.Want {
				return nil, false, engine.ErrPrecondition
			}
			if !yes {
				changes = it.Else
			}
		case ItemModify:
			out, err := m.modify(t, row, it.Rules)
			if err != nil {
				return nil, false, err
			}
			rows, wrote = append(rows, Row{it.Row, out}), true
		}
		for _, c := range changes {
			if err := t.allows(c); err != nil {
				return nil, false, err
			}
			m.change(t, row, c)
			wrote = true
		}
		row.prune()
	}
	for at, row := range work {
		if t := m.Tables[at.table]; len(row.Cols) == 0 {
			delete(t.Rows, at.row)
		} else {
			t.Rows[at.row] = row
		}
	}
	return rows, wrote, nil
}

// knows reports whether the table has all families that a filter names.
func (t *ModelTable) knows(f *Filter) bool {
	if f == nil {
		return true
	}
	switch f.Kind {
	case "family-exact", "column-exact", "columns":
		if _, ok := t.Rules[f.Text]; !ok {
			return false
		}
	case "family":
		if name, ok := literal(f.Text); ok {
			_, ok = t.Rules[name]
			return ok
		}
	}
	for _, k := range f.Kids {
		if !t.knows(k) {
			return false
		}
	}
	return true
}

func (t *ModelTable) allows(c Change) error {
	if c.Kind == DeleteRow {
		return nil
	}
	if _, ok := t.Rules[c.Family]; !ok {
		return engine.ErrNoFamily
	}
	switch folds := Families[c.Family].Fold != engine.NoAggregate; {
	case c.Kind == Set && folds:
		return engine.ErrAggregate
	case c.Kind == Add && !folds:
		return engine.ErrNotAggregate
	}
	return nil
}

// modify applies a read-modify-write: each rule to the newest visible version of its column.
func (m *Model) modify(t *ModelTable, row *ModelRow, rules []Modify) ([]Cell, error) {
	written := &ModelRow{}
	for _, u := range rules {
		if _, ok := t.Rules[u.Family]; !ok {
			return nil, engine.ErrNoFamily
		}
		if Families[u.Family].Fold != engine.NoAggregate {
			return nil, engine.ErrAggregate
		}
		ts, value := m.Now, []byte(nil)
		seen := t.visible(row, m.Now)
		i, ok := seen.find(u.Family, u.Qualifier)
		if ok {
			v := seen.Cols[i].Versions[0]
			ts, value = max(ts, v.TS), v.Value
		}
		switch {
		case !u.Increment:
			value = append(slices.Clone(value), u.Value.Bytes()...)
		case ok && len(value) != 8:
			return nil, engine.ErrNotCounter
		case ok:
			value = state(number(value) + u.N)
		default:
			value = state(u.N)
		}
		row.set(u.Family, u.Qualifier, ts, value)
		written.cut(u.Family, u.Qualifier, 0, math.MaxInt64)
		written.set(u.Family, u.Qualifier, ts, value)
	}
	return cellsOf(written), nil
}

func state(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func number(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

func (m *Model) change(t *ModelTable, row *ModelRow, c Change) {
	switch c.Kind {
	case Set:
		ts := c.TS
		if ts == ServerTime {
			ts = m.Now
		}
		row.set(c.Family, c.Qualifier, ts, c.Value.Bytes())
	case Add:
		row.add(c.Family, c.Qualifier, c.TS, c.N)
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

// add folds n into a version.
func (r *ModelRow) add(family, qualifier string, ts, n int64) {
	if i, ok := r.find(family, qualifier); ok {
		for _, v := range r.Cols[i].Versions {
			if v.TS != ts {
				continue
			}
			switch old := number(v.Value); Families[family].Fold {
			case engine.Sum:
				n += old
			case engine.Min:
				n = min(n, old)
			case engine.Max:
				n = max(n, old)
			}
		}
	}
	r.set(family, qualifier, ts, state(n))
}

// prune removes columns without versions.
func (r *ModelRow) prune() {
	r.Cols = slices.DeleteFunc(r.Cols, func(c ModelColumn) bool { return len(c.Versions) == 0 })
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
	return t.visible(t.Rows[key], m.Now)
}

// visible is what the rules leave of a row; it has no columns if that is nothing.
func (t *ModelTable) visible(r *ModelRow, now int64) *ModelRow {
	out := &ModelRow{}
	if r == nil {
		return out
	}
	for _, c := range r.Cols {
		if n := t.Rules[c.Family].leaves(c.Versions, now); n > 0 {
			c.Versions = c.Versions[:n]
			out.Cols = append(out.Cols, c)
		}
	}
	return out
}

// leaves is how many of a column's versions, the newest, are not below the floor.
func (r Rule) leaves(vs []Version, now int64) int {
	floor, has := r.floor(stamps(vs), now)
	n := len(vs)
	for has && n > 0 && vs[n-1].TS < floor {
		n--
	}
	return n
}

func cellsOf(row *ModelRow) (cells []Cell) {
	for _, c := range row.Cols {
		for _, v := range c.Versions {
			cells = append(cells, Cell{Family: c.Family, Qualifier: c.Qualifier, TS: v.TS, Value: v.Value})
		}
	}
	return cells
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
		if cells := r.filter(k, m.Visible(table, k)); len(cells) > 0 {
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
		return x.Family == y.Family && x.Qualifier == y.Qualifier && x.TS == y.TS && x.Label == y.Label && bytes.Equal(x.Value, y.Value)
	})
}

// filter applies a read's filters to the visible row, in the order in which the read chains them.
func (r Read) filter(key string, row *ModelRow) (cells []Cell) {
	if r.Filter != nil {
		for _, c := range r.Filter.Apply(key, cellsOf(row)) {
			c.Cell.Label = c.Label
			cells = append(cells, c.Cell)
		}
		return cells
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
