// Package fuzz holds the oracle: a model of the store in plain maps, lists of operations with a text form, a generator, a
// runner that compares a store with the model after every step, and a shrinker of failing lists.
//
//	go test ./fuzz -run Oracle -seed 17 -set mapped        run one seed
//	go test ./fuzz -run Replay -file failing.txt         run a list from a file
package fuzz

import (
	"bytes"
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

// Apply applies a batch whose changes are all valid.
func (m *Model) Apply(items []Item) {
	for _, it := range items {
		t := m.Tables[it.Table]
		row := t.Rows[it.Row].clone()
		for _, c := range it.Changes {
			m.change(t, row, c)
		}
		row.Cols = slices.DeleteFunc(row.Cols, func(c ModelColumn) bool { return len(c.Versions) == 0 })
		if len(row.Cols) == 0 {
			delete(t.Rows, it.Row)
		} else {
			t.Rows[it.Row] = row
		}
	}
}

func (m *Model) change(t *ModelTable, row *ModelRow, c Change) {
	switch c.Kind {
	case Set:
		ts := c.TS
		if ts == ServerTime {
			ts = m.Now
		}
		row.set(c.Family, c.Qualifier, ts, c.Value.Bytes())
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
		if cells := r.filter(m.Visible(table, k)); len(cells) > 0 {
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
}

func (a Row) equal(b Row) bool {
	return a.Key == b.Key && slices.EqualFunc(a.Cells, b.Cells, func(x, y Cell) bool {
		return x.Family == y.Family && x.Qualifier == y.Qualifier && x.TS == y.TS && bytes.Equal(x.Value, y.Value)
	})
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
			cells = append(cells, Cell{c.Family, c.Qualifier, v.TS, v.Value})
		}
	}
	return cells
}
