package engine

import (
	"math"
	"slices"
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
	r := &rtable{Table: t, families: merge.NewFamilies(t), groups: make([]group, len(t.Groups)), gate: new(sync.RWMutex)}
	for i := range t.Families {
		r.ages = r.ages || t.Families[i].Rule.LooksAtAge()
	}
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

// has reports whether the group has a family with columns that are wanted.
func (g *group) has(o *cell.IterOptions) bool {
	for _, f := range g.families {
		if o.Wanted == nil && meet(f, o.Columns) || slices.ContainsFunc(o.Wanted, func(w cell.Range) bool { return meet(f, w) }) {
			return true
		}
	}
	return false
}

func meet(a, b cell.Range) bool {
	return (b.To == nil || string(a.From) < string(b.To)) && (a.To == nil || string(b.From) < string(a.To))
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

// through tells how a merge takes its inputs through the first n of the group's changes: levels.File.Settled of the output, and
// how many layers the inputs are seen through, for good. Where the inputs stay behind a change of a rule the new rule applies
// all the same: both rules drop the oldest versions of a column, so one never changes what the other finds.
func (t *rtable) through(g *group, n int) (settled uint64, layers int) {
	if n == len(g.standing) {
		return t.LastChange, len(g.layers)
	}
	settled = g.standing[n].Num - 1
	for layers < len(g.layers) && g.layers[layers].change.Num <= settled {
		layers++
	}
	return settled, layers
}

// settledMem is levels.File.Settled of the flush of a memtable whose last sequence is last.
func (t *rtable) settledMem(g *group, last uint64) uint64 {
	n := 0
	for n < len(g.standing) && (g.standing[n].Kind != levels.ChangeRule || last > g.standing[n].Seq) {
		n++
	}
	settled, _ := t.through(g, n)
	return settled
}

// fits reports whether a plan may run under the changes that stand.
func (db *DB) fits(st *state, tree *levels.Tree, plan *levels.Plan) bool {
	_, ok := st.standing(plan.Tree).Fit(tree, plan, st.oldestMem(plan.Tree))
	return ok
}
