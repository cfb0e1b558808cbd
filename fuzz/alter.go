package fuzz

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rowandb/rowan/engine"
)

// Alter is one change of a table's families. Rule is a number in Rules.
type Alter struct {
	Kind   AlterKind
	Family string
	Rule   int
}

// AlterKind says what an Alter does.
type AlterKind uint8

// The changes of families.
const (
	AddFamily AlterKind = iota
	DropFamily
	SetRule
)

// Family is a family that a table may have: how its cells fold, its rule at first, and its locality group where a set uses
// groups.
type Family struct {
	Rule  Rule
	Fold  engine.Aggregate
	Group string
}

// Rules are what families may follow.
var Rules = []Rule{
	{},
	{Versions: 1},
	{Versions: 2},
	{Versions: 3},
	{Age: 2000},
	{Age: 5000},
	{Any: []Rule{{Versions: 2}, {Age: 3000}}},
	{All: []Rule{{Versions: 1}, {Age: 2000}}},
	{All: []Rule{{Any: []Rule{{Versions: 1}, {Age: 4000}}}, {Versions: 2}}},
}

var alterNames = []string{"add", "drop", "rule"}

func (a Alter) String() string {
	s := fmt.Sprintf("%s %q", alterNames[a.Kind], a.Family)
	if a.Kind != DropFamily {
		s += fmt.Sprint(" ", a.Rule)
	}
	return s
}

func (p *parser) alter() Alter {
	w := p.next()
	k := slices.Index(alterNames, w)
	if k < 0 {
		p.fail("%q changes no family", w)
		return Alter{}
	}
	a := Alter{Kind: AlterKind(k), Family: p.text()}
	if a.Kind != DropFamily {
		if a.Rule = int(p.number()); a.Rule < 0 || a.Rule >= len(Rules) {
			p.fail("rule %d of %d", a.Rule, len(Rules))
		}
	}
	return a
}

func (a Alter) engine(grouped bool) engine.FamilyChange {
	switch a.Kind {
	case AddFamily:
		return engine.AddFamily(a.Family, spec(a.Family, Rules[a.Rule], grouped))
	case DropFamily:
		return engine.DropFamily(a.Family)
	}
	return engine.SetGCRule(a.Family, Rules[a.Rule].Policy())
}

func spec(family string, rule Rule, grouped bool) engine.FamilySpec {
	f := Families[family]
	s := engine.FamilySpec{GC: rule.Policy(), Aggregate: f.Fold}
	if grouped {
		s.Group = f.Group
	}
	return s
}

// Alter changes the families of a table, or nothing if one of the changes is impossible; then it returns what a store says.
//
// A new rule finds what the old one leaves at that moment: what was below its floor is gone for good. Rules in between, which
// nobody ever saw, collect nothing.
func (m *Model) Alter(table string, alters []Alter) error {
	t := m.Tables[table]
	rules, rows := maps.Clone(t.Rules), t.Rows
	edit := func(family string, fn func(c *ModelColumn)) {
		out := make(map[string]*ModelRow, len(rows))
		for k, r := range rows {
			r = r.clone()
			for i := range r.Cols {
				if r.Cols[i].Family == family {
					fn(&r.Cols[i])
				}
			}
			if r.prune(); len(r.Cols) > 0 {
				out[k] = r
			}
		}
		rows = out
	}
	before := map[string]Rule{} // of families whose rule changes
	for _, a := range alters {
		old, have := rules[a.Family]
		switch {
		case a.Kind == AddFamily && have:
			return engine.ErrFamilyExists
		case a.Kind != AddFamily && !have:
			return engine.ErrNoFamily
		}
		switch a.Kind {
		case AddFamily:
			rules[a.Family] = Rules[a.Rule]
		case DropFamily:
			delete(rules, a.Family)
			delete(before, a.Family)
			edit(a.Family, func(c *ModelColumn) { c.Versions = nil })
		case SetRule:
			if _, twice := before[a.Family]; !twice {
				before[a.Family] = old
			}
			rules[a.Family] = Rules[a.Rule]
		}
	}
	for f, old := range before {
		edit(f, func(c *ModelColumn) { c.Versions = c.Versions[:old.leaves(c.Versions, m.Now)] })
	}
	t.Rules, t.Rows = rules, rows
	return nil
}

// DropRows removes the rows of a range.
func (m *Model) DropRows(table string, r KeyRange) {
	t := m.Tables[table]
	for k := range t.Rows {
		if r.Contains(k) {
			delete(t.Rows, k)
		}
	}
}
