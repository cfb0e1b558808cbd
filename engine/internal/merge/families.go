package merge

import (
	"bytes"
	"sort"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/levels"
)

// Families is what a merge needs of a table's schema: which lives are alive and which rule each follows. Immutable.
type Families struct {
	list    []family // sorted by prefix
	highest uint64
	plain   bool // no rule and no dead life: every cell stays
	folds   bool // some family takes Adds
}

type family struct {
	prefix []byte // family 0x00 life
	rule   gc.Rule
	counts bool // rule looks at ranks
	ruled  bool
	fold   cell.Fold
	frozen bool // the rule holds as of asOf, whatever the time of the merge
	asOf   int64
}

// Frozen is a rule that holds for a family as of one time for good.
type Frozen struct {
	Rule gc.Rule
	AsOf int64
}

// NewFamilies takes the families of t with their rules.
func NewFamilies(t *levels.Table) *Families { return newFamilies(t, nil) }

// FrozenFamilies takes the families of t to be looked at through frozen rules of some lives alone: all others keep everything.
func FrozenFamilies(t *levels.Table, frozen map[uint64]Frozen) *Families {
	if frozen == nil {
		frozen = map[uint64]Frozen{}
	}
	return newFamilies(t, frozen)
}

func newFamilies(t *levels.Table, frozen map[uint64]Frozen) *Families {
	f := &Families{highest: t.HighestLife, plain: uint64(len(t.Families)) == t.HighestLife}
	for i := range t.Families {
		fam := &t.Families[i]
		e := family{prefix: cell.AppendFamilyLife(nil, fam.Name, fam.Life), rule: fam.Rule}
		if frozen != nil {
			z := frozen[fam.Life]
			e.rule, e.frozen, e.asOf = z.Rule, true, z.AsOf
		}
		e.fold = fam.Fold
		f.folds = f.folds || fam.Fold != cell.FoldNone
		e.ruled, e.counts = !e.rule.Equal(gc.NoPolicy()), e.rule.CountsVersions()
		if e.ruled {
			f.plain = false
		}
		f.list = append(f.list, e)
	}
	sort.Slice(f.list, func(i, j int) bool { return bytes.Compare(f.list[i].prefix, f.list[j].prefix) < 0 })
	return f
}

// Fold says how Adds to a column fold; FoldNone where its family takes none, or is there no more.
func (f *Families) Fold(col []byte) cell.Fold {
	if !f.folds {
		return cell.FoldNone
	}
	if fam, err := f.find(col); err == nil && fam != nil {
		return fam.fold
	}
	return cell.FoldNone
}

// find returns the family that col belongs to, or nil if its life is dead. A life that was never given is damage.
func (f *Families) find(col []byte) (*family, error) {
	i := sort.Search(len(f.list), func(i int) bool { return bytes.Compare(f.list[i].prefix, col) > 0 })
	if i > 0 && bytes.HasPrefix(col, f.list[i-1].prefix) {
		return &f.list[i-1], nil
	}
	_, life, _, err := cell.SplitColumn(col)
	if err != nil || life == 0 || life > f.highest {
		return nil, damage.New("cell", -1, "column %.40x belongs to a family that the table never had", col)
	}
	return nil, nil
}
