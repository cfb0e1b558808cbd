package merge

import (
	"fmt"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/levels"
)

// modelRules are the rules that stand, one at a time.
var modelRules = []gc.Rule{
	gc.MaxVersionsPolicy(1),
	gc.MaxVersionsPolicy(2),
	age(1),
	gc.UnionPolicy(gc.MaxVersionsPolicy(2), age(2)),
	gc.IntersectionPolicy(gc.MaxVersionsPolicy(1), age(1)),
	gc.IntersectionPolicy(gc.MaxVersionsPolicy(2), age(1)),
	gc.UnionPolicy(gc.IntersectionPolicy(gc.MaxVersionsPolicy(1), age(1)), age(3)),
}

// modelChanges are rules between which a model changes, of every kind: tightening and not, provable or not.
var modelChanges = [][]gc.Rule{
	{gc.MaxVersionsPolicy(1), gc.MaxVersionsPolicy(2), gc.NoPolicy()},
	{age(1), age(3)},
	{gc.MaxVersionsPolicy(1), age(1)},
	{gc.IntersectionPolicy(gc.MaxVersionsPolicy(1), age(1)), gc.UnionPolicy(gc.MaxVersionsPolicy(2), age(2))},
}

// models returns all models; short ones are a little less deep.
func models(short bool) (out []*model) {
	add := func(m model, sizes ...[2]int) {
		for _, s := range sizes {
			c := m
			c.stamps, c.depth, c.clockTo = s[0], s[1], 5
			c.name += fmt.Sprintf(", %d timestamps", c.stamps)
			if short {
				c.depth -= 2
			}
			out = append(out, &c)
		}
	}
	for i, r := range modelRules {
		rules := []gc.Rule{r}
		add(model{name: "one rule, " + r.String(), rules: rules}, [2]int{2, 8}, [2]int{3, 7}, [2]int{4, 6})
		if i%2 == 0 {
			add(model{name: "one rule, in steps, " + r.String(), rules: rules, slow: true, lazy: true}, [2]int{2, 8})
		} else {
			add(model{name: "one rule, Adds, " + r.String(), rules: rules, adds: true}, [2]int{2, 8}, [2]int{3, 7})
		}
	}
	for _, rules := range modelChanges {
		for start := range 2 {
			rules := append(append([]gc.Rule{}, rules[start:]...), rules[:start]...)
			add(model{name: "changes from " + rules[0].String(), rules: rules}, [2]int{2, 8}, [2]int{3, 6})
			add(model{name: "changes, Adds, from " + rules[0].String(), rules: rules, adds: true}, [2]int{2, 7})
			add(model{name: "changes, in steps, from " + rules[0].String(), rules: rules, slow: true}, [2]int{2, 10 - len(rules)})
		}
	}
	return out
}

func TestWhatIsVisibleNeverDependsOnMerges(t *testing.T) {
	for _, m := range models(raceEnabled || testing.Short()) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			real := newReal(m)
			n := 0
			states, bad := m.explore(func(s *modelState) {
				if n++; n%101 == 0 {
					real.check(t, s)
				}
			})
			if bad != "" {
				t.Fatal(bad)
			}
			t.Logf("depth %d: %d states, %d checked with the merge itself", m.depth, states, n/101)
		})
	}
}

func TestEachRuleOfCollectionIsNeeded(t *testing.T) {
	for name, mut := range map[string]modelMutant{
		"no pin":                                   {noPin: true},
		"no wait for holes evaluated before":       {noWait: true},
		"newer sources are not asked":              {noQuestion: true},
		"rank off by one":                          {offByOne: true},
		"deletes forgotten above the oldest":       {forgetEarly: true},
		"rule change without sealing":              {noSeal: true},
		"merge of some sealed with newer sources":  {mixed: true},
		"intersection taken for a union":           {unionForIntersection: true},
		"Add applied twice":                        {addTwice: true},
		"delete of a source touches its own cells": {deleteTouchesOwn: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, m := range models(false) {
				inter := m.rules[0].Equal(gc.IntersectionPolicy(gc.MaxVersionsPolicy(1), age(1)))
				switch {
				case mut.unionForIntersection && (!inter || len(m.rules) > 1),
					mut.noWait && !m.lazy, mut.addTwice && !m.adds, (mut.noSeal || mut.mixed) && len(m.rules) == 1:
					continue // it would live here
				}
				m.mut = mut
				if _, bad := m.explore(nil); bad != "" {
					t.Logf("%s: %s", m.name, bad)
					return
				}
			}
			t.Fatal("no state differs without the rule")
		})
	}
}

// real runs the merge itself on states of a model.
type real struct {
	m        *model
	families map[[3]int]*Families
	col      []byte
}

func newReal(m *model) *real {
	return &real{m: m, families: map[[3]int]*Families{}, col: cell.AppendColumn(nil, "f", 1, "q")}
}

const notFrozen, frozenAlone = -1, -2

// of returns the families under a rule as of the merge's time, or under rule old as of a time of its own: with the other
// families, or alone.
func (r *real) of(rule, old, at int) *Families {
	k := [3]int{rule, old, at}
	if f := r.families[k]; f != nil {
		return f
	}
	f := levels.Family{Name: "f", Life: 1, Rule: r.m.rules[max(rule, 0)]}
	if r.m.adds {
		f.Fold = cell.FoldSum
	}
	t := &levels.Table{ID: 1, Name: "t", HighestLife: 1, Groups: []levels.Group{{Tree: 1}}, Families: []levels.Family{f}}
	frozen := map[uint64]Frozen{}
	if old >= 0 {
		frozen[1] = Frozen{Rule: r.m.rules[old], AsOf: int64(at)}
	}
	if rule == frozenAlone || old >= 0 {
		r.families[k] = FrozenFamilies(t, frozen)
	} else {
		r.families[k] = NewFamilies(t)
	}
	return r.families[k]
}

func (r *real) source(s modelSource) cell.Iter {
	row := imaginedRow{key: "r"}
	for ts := 7; ts >= 0; ts-- {
		if s.cells>>ts&1 != 0 {
			c := cell.Cell{Col: r.col, TS: int64(ts), Kind: cell.KindSet, Value: []byte{bitsOf(s.vals, ts)}}
			if r.m.adds {
				c.Kind, c.Value = cell.KindMerge, states(int64(bitsOf(s.vals, ts)))[0]
			}
			row.cells = append(row.cells, c)
		}
		if s.dels>>ts&1 != 0 {
			row.deletes = cell.AddDelete(row.deletes, r.col, int64(ts), int64(ts))
		}
	}
	return &imagined{rows: []imaginedRow{row}}
}

// merge joins sources i..j. What is sealed comes through the old rule first, if nested.
func (r *real) merge(s *modelState, i, j int, nested bool, cfg Config) (out modelSource) {
	var src, behind []cell.Iter
	for k := i; k <= j; k++ {
		if in := r.source(s.src[k]); s.src[k].behind && nested {
			behind = append(behind, in)
		} else {
			src = append(src, in)
		}
	}
	if len(behind) > 0 {
		src = append(src, NewNested(New(Config{Families: r.of(frozenAlone, int(s.old), int(s.oldTime))}, behind)))
	}
	m := New(cfg, src)
	defer m.Close()
	if !m.First() {
		return out
	}
	buf := make([]cell.Cell, 0, 3)
	for buf = m.Cells(buf); len(buf) > 0; buf = m.Cells(buf[:0]) {
		for _, c := range buf {
			v := c.Value[len(c.Value)-1]
			out.put(int(c.TS), v)
		}
	}
	d := m.Deletes(nil, nil)
	for ds := d.Next(nil); ds != nil; ds = d.Next(ds) {
		for _, x := range ds {
			for ts := x.Lo; ts <= min(x.Hi, 7); ts++ {
				out.dels |= 1 << ts
			}
		}
	}
	return out
}

func (r *real) check(t *testing.T, s *modelState) {
	cfg := Config{Families: r.of(int(s.rule), notFrozen, 0), AsOf: int64(s.clock)}
	got := r.merge(s, 0, int(s.n)-1, s.standing, cfg)
	got.dels = 0
	if want := r.m.visible(s); got != want {
		t.Fatalf("%+v: the merge shows %+v, the model %+v", *s, got, want)
	}
	for i := 1; i < int(s.n); i++ {
		for j := i; j < int(s.n); j++ {
			want, ok := r.m.merged(s, i, j, s.clock)
			if !ok {
				continue
			}
			cfg := cfg
			through := !want.behind // out of the seal, if any of the inputs is in it
			if !through {
				cfg.Families = r.of(int(s.rule), int(s.old), int(s.oldTime))
			}
			hole := false
			for k := range i {
				hole = hole || s.src[k].hole()
			}
			cfg.MayRank = func(_, _ []byte) (bool, error) { return !hole, nil }
			got := r.merge(s, i, j, through && s.standing, cfg)
			if got.behind = want.behind; j == int(s.n)-1 {
				got.dels = 0 // forgetting deletes is not the merge's own business
			}
			if got != want {
				t.Fatalf("%+v: the merge of %d..%d gives %+v, the model %+v", *s, i, j, got, want)
			}
		}
	}
}
