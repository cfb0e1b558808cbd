package engine

import (
	"math"
	"sync"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/levels"
)

// group is one locality group of a table as the running store sees it.
type group struct {
	tree     uint64
	families []cell.Range    // columns of its families
	standing levels.Standing // changes that some source of the tree may be behind; nil for most
	rows     []*levels.Change
	layers   []layer // changes of rules, oldest first
}

// layer is what all sources together that are behind a change of rules are seen through.
type layer struct {
	change   *levels.Change // one of those with the number
	families *merge.Families
}

func newTable(t *levels.Table) *rtable {
	r := &rtable{Table: t, families: merge.NewFamilies(t, nil), groups: make([]group, len(t.Groups)), gate: new(sync.RWMutex)}
	for i := range r.groups {
		g := &r.groups[i]
		g.tree, g.standing = t.Groups[i].Tree, t.Standing(t.Groups[i].Tree)
		for j := range t.Families {
			if f := &t.Families[j]; f.Group == uint64(i) {
				from := cell.AppendFamilyLife(nil, f.Name, f.Life)
				g.families = append(g.families, cell.Range{From: from, To: cell.PrefixEnd(from)})
			}
		}
		frozen := map[uint64]merge.Frozen{}
		for j, c := range g.standing {
			switch c.Kind {
			case levels.ChangeRows:
				g.rows = append(g.rows, c)
			case levels.ChangeRule:
				frozen[c.Life] = merge.Frozen{Rule: c.Rule, AsOf: c.Time}
				if j+1 < len(g.standing) && g.standing[j+1].Kind == levels.ChangeRule && g.standing[j+1].Num == c.Num {
					continue // one layer for all
				}
				g.layers = append(g.layers, layer{change: c, families: merge.FrozenFamilies(t, frozen)})
				frozen = map[uint64]merge.Frozen{}
			}
		}
	}
	return r
}

// treeOf is the tree that a family of the table is kept in.
func (t *rtable) treeOf(f *levels.Family) uint64 { return t.Groups[f.Group].Tree }

// group returns the group kept in a tree of the table.
func (t *rtable) group(tree uint64) *group {
	for i := range t.groups {
		if t.groups[i].tree == tree {
			return &t.groups[i]
		}
	}
	return nil
}

// has reports whether the group has a family with columns in r.
func (g *group) has(r cell.Range) bool {
	for _, f := range g.families {
		if (r.To == nil || string(f.From) < string(r.To)) && (f.To == nil || string(r.From) < string(f.To)) {
			return true
		}
	}
	return false
}

// standing are the changes of a tree that its sources may be behind.
func (st *state) standing(tree uint64) levels.Standing {
	if t := st.tableOf(tree); t != nil {
		return t.group(tree).standing
	}
	return nil
}

// oldestMem is the lowest sequence in any sealed memtable of a tree.
func (st *state) oldestMem(tree uint64) uint64 {
	if t := st.trees[tree]; t != nil && len(t.sealed) > 0 {
		return t.sealed[0].first
	}
	return levels.NoMem
}

// class is the number of the first layer that a file is behind, len(layers) for none. Files of a higher class are newer.
func (g *group) class(f *levels.File) int {
	for i := range g.layers {
		if g.layers[i].change.Behind(f) {
			return i
		}
	}
	return len(g.layers)
}

// classOfMem is class for a sealed memtable whose last sequence is last.
func (g *group) classOfMem(last uint64) int {
	for i := range g.layers {
		if last <= g.layers[i].change.Seq {
			return i
		}
	}
	return len(g.layers)
}

// hidden returns the rows that a file must not show.
func (g *group) hidden(f *levels.File) (rows []merge.Rows) {
	for _, c := range g.rows {
		if c.Behind(f) {
			rows = merge.AddRows(rows, merge.Rows{Lo: c.Lo, Hi: c.Hi})
		}
	}
	return rows
}

// hiddenMem is hidden for a sealed memtable whose last sequence is last.
func (g *group) hiddenMem(last uint64) (rows []merge.Rows) {
	for _, c := range g.rows {
		if last <= c.Seq {
			rows = merge.AddRows(rows, merge.Rows{Lo: c.Lo, Hi: c.Hi})
		}
	}
	return rows
}

// view hides rows of a source that are not to be seen.
func view(it cell.Iter, rows []merge.Rows) cell.Iter {
	if len(rows) == 0 {
		return it
	}
	return merge.NewMasked(it, rows)
}

// opener opens files of the group as they are to be seen.
func (g *group) opener(open merge.OpenFile) merge.OpenFile {
	if len(g.rows) == 0 {
		return open
	}
	return func(f *levels.File) (cell.Iter, error) {
		it, err := open(f)
		if err != nil {
			return nil, err
		}
		return view(it, g.hidden(f)), nil
	}
}

// noClass stands for the sources of all classes.
const noClass = math.MaxInt

// passage is how a merge takes its inputs through standing changes.
type passage struct {
	settled  uint64          // levels.File.Settled of the output
	layers   int             // layers that the inputs are seen through; for good, the output is not behind them
	families *merge.Families // rules that hold in the merge
}

// through is the passage of a merge whose output goes through the first n of the group's changes; all its inputs are behind the
// changes of rules among the others, and follow the old rules.
func (t *rtable) through(g *group, n int) passage {
	p := passage{settled: t.LastChange, layers: len(g.layers), families: t.families}
	if n == len(g.standing) {
		return p
	}
	p.settled = g.standing[n].Num - 1
	frozen := map[uint64]merge.Frozen{}
	for _, c := range g.standing[n:] {
		if c.Kind == levels.ChangeRule {
			frozen[c.Life] = merge.Frozen{Rule: c.Rule, AsOf: c.Time}
		}
	}
	p.layers = 0
	for p.layers < len(g.layers) && g.layers[p.layers].change.Num <= p.settled {
		p.layers++
	}
	if len(frozen) > 0 {
		p.families = merge.NewFamilies(t.Table, frozen)
	}
	return p
}

// throughMem is the passage of a flush of a memtable whose last sequence is last.
func (t *rtable) throughMem(g *group, last uint64) passage {
	for i, c := range g.standing {
		if c.Kind == levels.ChangeRule && last <= c.Seq {
			return t.through(g, i)
		}
	}
	return t.through(g, len(g.standing))
}

// fits reports whether a plan may run under the changes that stand.
func (db *DB) fits(st *state, tree *levels.Tree, plan *levels.Plan) bool {
	_, ok := st.standing(plan.Tree).Fit(tree, plan, st.oldestMem(plan.Tree))
	return ok
}
