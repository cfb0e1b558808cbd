package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/levels"
)

// FamilyChange is one change of a table's families, made by AddFamily, SetGCRule or DropFamily.
type FamilyChange struct {
	kind familyChange
	name string
	spec FamilySpec
}

type familyChange uint8

const (
	noFamilyChange familyChange = iota
	addsFamily
	setsRule
	dropsFamily
)

// AddFamily creates a family. One that is created under the name of a dropped one begins empty. A group that the table does
// not have yet is created with it.
func AddFamily(name string, spec FamilySpec) FamilyChange {
	return FamilyChange{kind: addsFamily, name: name, spec: spec}
}

// SetGCRule gives a family another collection rule, which holds at once for what is written from then on. For what is there
// it holds at once too if the rules show that it never keeps what the old one collects. Otherwise the cells that the old rule
// has collected by then stay away for good, whether they are still on disk or not, and the new rule sees what is left; until
// all of it has been rewritten in the background, a further such change of the family is ErrRuleChangePending.
func SetGCRule(name string, rule gc.Rule) FamilyChange {
	return FamilyChange{kind: setsRule, name: name, spec: FamilySpec{GC: rule}}
}

// DropFamily removes a family with all its cells. Their space comes back as files are rewritten in the background.
func DropFamily(name string) FamilyChange { return FamilyChange{kind: dropsFamily, name: name} }

// ModifyFamilies makes changes of the table's families, in order and all at once, or none of them: each sees those before it.
// They are durable when it returns. A change has a place in the order of writes: what was written before is dropped or
// collected as it says, what comes after is not touched by it. ctx bounds waiting; batches of the table wait meanwhile.
func (t *Table) ModifyFamilies(ctx context.Context, changes ...FamilyChange) error {
	if len(changes) == 0 {
		return nil
	}
	if slices.ContainsFunc(changes, func(c FamilyChange) bool { return c.kind == addsFamily }) {
		if err := t.db.space.admit(); err != nil {
			return err
		}
	}
	return t.db.alter(ctx, t.name, alteration{
		make: func(a *altering) error {
			before := slices.Clone(a.table.Families)
			for i := range changes {
				if err := changes[i].make(a); err != nil {
					if len(changes) > 1 {
						err = fmt.Errorf("change %d of %d: %w", i+1, len(changes), err)
					}
					return err
				}
			}
			return a.settleRules(before)
		},
	})
}

func (c *FamilyChange) make(a *altering) error {
	if err := cell.CheckFamily(c.name); err != nil {
		return err
	}
	t := a.table
	at := slices.IndexFunc(t.Families, func(f levels.Family) bool { return f.Name == c.name })
	if c.kind == addsFamily {
		if at >= 0 {
			return fmt.Errorf("%w: %q", ErrFamilyExists, c.name)
		}
		if err := c.spec.check(c.name); err != nil {
			return err
		}
		addFamily(t, c.name, c.spec, &a.lastTree)
		return nil
	}
	if at < 0 {
		return fmt.Errorf("%w: %q", ErrNoFamily, c.name)
	}
	f := t.Families[at]
	switch c.kind {
	case dropsFamily:
		t.Families = slices.Delete(t.Families, at, at+1)
		t.Changes = slices.DeleteFunc(t.Changes, func(x levels.Change) bool { return x.Kind == levels.ChangeRule && x.Life == f.Life })
		a.change(levels.Change{Kind: levels.ChangeLife, Tree: t.Groups[f.Group].Tree, Life: f.Life})
		return nil
	case setsRule:
		if err := c.spec.GC.Validate(); err != nil {
			return fmt.Errorf("family %q: %w: %w", c.name, ErrRule, err)
		}
		t.Families[at].Rule = c.spec.GC
		return nil
	}
	return fmt.Errorf("%w: empty family change", ErrOption)
}

// settleRules decides what new rules mean for what is there: it goes on under the rule that the family had before, unless the new
// one is shown to be tighter. Rules that came and went inside one list were never in force.
func (a *altering) settleRules(before []levels.Family) error {
	for i := range a.table.Families {
		f := &a.table.Families[i]
		at := slices.IndexFunc(before, func(o levels.Family) bool { return o.Life == f.Life })
		if at < 0 || f.Rule.Tightens(before[at].Rule) {
			continue
		}
		if slices.ContainsFunc(a.table.Changes, func(c levels.Change) bool { return c.Kind == levels.ChangeRule && c.Life == f.Life }) {
			return fmt.Errorf("%w: family %q", ErrRuleChangePending, f.Name)
		}
		a.change(levels.Change{
			Kind: levels.ChangeRule, Tree: a.table.Groups[f.Group].Tree, Life: f.Life, Rule: before[at].Rule, Time: a.now,
		})
	}
	return nil
}

// addFamily adds a family to a table that is being built. lastTree is the highest id of a tree so far.
func addFamily(t *levels.Table, name string, spec FamilySpec, lastTree *uint64) {
	group := slices.IndexFunc(t.Groups, func(g levels.Group) bool { return g.Name == spec.Group })
	if group < 0 {
		group = len(t.Groups)
		*lastTree++
		t.Groups = append(t.Groups, levels.Group{Name: spec.Group, Tree: *lastTree})
	}
	t.HighestLife++
	f := levels.Family{Name: name, Life: t.HighestLife, Group: uint64(group), Rule: spec.GC, Fold: levels.Fold(spec.Aggregate)}
	at, _ := slices.BinarySearchFunc(t.Families, name, func(f levels.Family, name string) int {
		switch {
		case f.Name < name:
			return -1
		case f.Name > name:
			return 1
		}
		return 0
	})
	t.Families = slices.Insert(t.Families, at, f)
}

func (f FamilySpec) check(name string) error {
	if err := cell.CheckFamily(name); err != nil {
		return err
	}
	if err := f.GC.Validate(); err != nil {
		return fmt.Errorf("family %q: %w: %w", name, ErrRule, err)
	}
	if f.Aggregate > Max {
		return fmt.Errorf("%w: family %q: aggregate %d", ErrOption, name, uint8(f.Aggregate))
	}
	if f.Group != "" && cell.CheckFamily(f.Group) != nil {
		return fmt.Errorf("%w: family %q: a group's name must be like a family's, not %.80q", ErrOption, name, f.Group)
	}
	return nil
}
