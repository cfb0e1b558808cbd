package fuzz

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Families are those of every table: each kind of rule, and names that are prefixes of each other.
var Families = map[string]Rule{
	"fam":   {},
	"fam-1": {Versions: 1},
	"fam.":  {Any: []Rule{{Versions: 2}, {Age: 3000}}},
	"v2":    {Versions: 2},
	"age":   {Age: 2000},
	"mix":   {All: []Rule{{Versions: 1}, {Age: 2000}}},
	"sum":   {Versions: 2},
	"top":   {Any: []Rule{{Versions: 3}, {Age: 3000}}},
}

// RulePool are the rules that families are changed to.
var RulePool = []Rule{
	{}, {Versions: 1}, {Versions: 2}, {Versions: 3}, {Age: 2000}, {Age: 4000}, {Any: []Rule{{Versions: 2}, {Age: 3000}}},
	{All: []Rule{{Versions: 1}, {Age: 2000}}}, {All: []Rule{{Versions: 2}, {Age: 1000}}},
}

// Folds are the aggregate ones among the Families.
var Folds = map[string]string{"sum": "sum", "top": "max"}

// groups are the locality groups of families, where there are several.
var groups = map[string]string{"fam.": "one", "sum": "one", "age": "two"}

var (
	familyNames = []string{"fam", "fam-1", "fam.", "v2", "age", "mix", "sum", "top"}
	plainNames  = familyNames[:6]
	qualifiers  = []string{"", "a", "ab", "a\x00", "b", "\xff\xff"}
)

// Start is the engine time at which every list begins, StepMicros what the clock gains with each operation: more than the
// stamps that one operation can take, so that the model knows them.
const (
	Start      = int64(1_000_000_000)
	StepMicros = 50
)

// Shape is what a generated list looks like.
type Shape struct {
	Tables, Rows int
	ValueMax     int  // bytes
	Wide         bool // some rows get many columns
	Hot          bool // few columns, most of them ruled, so that versions pile up and single ones get deleted
}

// Generate returns n operations drawn from seed.
func Generate(seed uint64, n int, s Shape) []Op {
	g := &generator{r: rand.New(rand.NewPCG(seed, 0x70e7)), s: s, now: Start, have: map[string]bool{}, recent: map[string][]Change{}}
	var ops []Op
	for i := range s.Tables {
		ops = append(ops, Op{Kind: OpCreate, Table: g.name(i)})
		g.have[g.name(i)] = true
		g.now += StepMicros
	}
	for len(ops) < n {
		g.now += StepMicros
		o := g.op()
		if o.Kind == OpTick {
			g.now += o.N
		}
		ops = append(ops, o)
	}
	return ops
}

type generator struct {
	r     *rand.Rand
	s     Shape
	now   int64
	have  map[string]bool
	snaps []int64
	last  int64

	recent map[string][]Change // what was set lately, by table and row: deletes of single versions should hit some
}

// grid is the distance of timestamps near the present, so that the same ones come up again.
const grid = 250

func (g *generator) name(i int) string { return fmt.Sprintf("t%d", i) }

func (g *generator) table() string {
	for {
		if t := g.name(g.r.IntN(g.s.Tables)); g.have[t] {
			return t
		}
	}
}

func (g *generator) op() Op {
	switch p := g.r.IntN(1000); {
	case p < 520:
		return Op{Kind: OpApply, Items: g.items(), NoSync: !chance(g.r, 8)}
	case p < 528:
		return Op{Kind: OpRefused, Items: g.refused(), NoSync: true}
	case p < 534:
		o := Op{Kind: OpAlter, Table: g.table()}
		for range 1 + g.r.IntN(2)*g.r.IntN(2) {
			o.Alter = append(o.Alter, Alter{Family: g.family(), Rule: g.r.IntN(len(RulePool)), Anew: chance(g.r, 20)})
		}
		return o
	case p < 537:
		return Op{Kind: OpDropRows, Table: g.table(), Read: Read{Rows: KeySet{g.keyRange(g.row)}}}
	case p < 690:
		o := Op{Kind: OpGet, Table: g.table(), Read: g.read()}
		o.Read.Row, o.Read.Limit, o.Read.Reverse = g.row(), 0, false
		return o
	case p < 780:
		o := Op{Kind: OpScan, Table: g.table(), Read: g.read()}
		o.Read.Rows = g.rows()
		return o
	case p < 820:
		o := Op{Kind: OpStream, Table: g.table(), Read: g.read()}
		o.Read.Rows = g.rows()
		return o
	case p < 880:
		// One job at a time most often: what belongs together drifts apart then.
		return Op{Kind: OpWork, N: int64(min(g.r.IntN(4), 1))}
	case p < 930:
		if chance(g.r, 25) {
			return Op{Kind: OpTick, N: 2500} // what was young is old
		}
		return Op{Kind: OpTick, N: int64(g.r.IntN(10)) * StepMicros}
	case p < 945:
		return Op{Kind: OpFlush}
	case p < 952:
		o := Op{Kind: OpCompact, Table: g.table()}
		if chance(g.r, 70) {
			o.Read.Rows = KeySet{g.keyRange(g.row)}
		} else {
			o.Read.Rows = KeySet{{}}
		}
		return o
	case p < 957:
		return Op{Kind: OpSync}
	case p < 971:
		if len(g.snaps) > 3 {
			break
		}
		g.last++
		g.snaps = append(g.snaps, g.last)
		return Op{Kind: OpSnapshot, N: g.last}
	case p < 985:
		if len(g.snaps) == 0 {
			break
		}
		i := g.r.IntN(len(g.snaps))
		n := g.snaps[i]
		g.snaps = append(g.snaps[:i], g.snaps[i+1:]...)
		return Op{Kind: OpForget, N: n}
	case p < 988:
		if t := g.table(); len(g.have) > 1 {
			delete(g.have, t)
			return Op{Kind: OpDrop, Table: t}
		}
	case p < 991:
		if t := g.name(g.r.IntN(g.s.Tables)); !g.have[t] {
			g.have[t] = true
			return Op{Kind: OpCreate, Table: t}
		}
	case p < 994:
		g.snaps = nil
		return Op{Kind: OpReopen}
	case p < 996:
		return Op{Kind: OpKillIn, N: 1 + g.r.Int64N(25)}
	case p < 999:
		g.snaps = nil
		return Op{Kind: OpKill, N: g.r.Int64N(1 << 30)}
	default:
		g.snaps = nil
		return Op{Kind: OpRawCheck}
	}
	return Op{Kind: OpWork, N: 1}
}

func (g *generator) row() string {
	i := g.r.IntN(g.s.Rows)
	switch i % 8 {
	case 1:
		return fmt.Sprintf("r%03d\x00", i-1) // right behind another row
	case 2:
		return fmt.Sprintf("r%03d\xff\xff\xff\xff\xff\xff\xff\xff\xff", i-2)
	case 3:
		return fmt.Sprintf("a/long/prefix/that/many/rows/share/%d", i)
	}
	return fmt.Sprintf("r%03d", i)
}

func (g *generator) family() string {
	if g.s.Hot {
		return familyNames[1+g.r.IntN(len(familyNames)-1)]
	}
	return familyNames[g.r.IntN(len(familyNames))]
}

func (g *generator) qualifier() string {
	if g.s.Wide && chance(g.r, 50) {
		return fmt.Sprintf("w%02d", g.r.IntN(60))
	}
	if g.s.Hot {
		return qualifiers[g.r.IntN(2)]
	}
	return qualifiers[g.r.IntN(len(qualifiers))]
}

func (g *generator) stamp(f string) int64 {
	if f == "age" || f == "mix" || (f == "fam." || f == "top") && chance(g.r, 50) {
		return (g.now/grid - int64(g.r.IntN(16))) * grid
	}
	switch g.r.IntN(30) {
	case 0:
		return 0
	case 1:
		return math.MaxInt64
	}
	return int64(g.r.IntN(12))
}

func (g *generator) value() Value {
	n := g.r.IntN(g.s.ValueMax/8 + 1)
	if chance(g.r, 15) {
		n = g.r.IntN(g.s.ValueMax + 1)
	}
	return Value{Len: n, Fill: uint32(g.r.IntN(1000))}
}

func (g *generator) items() (items []Item) {
	for range 1 + g.r.IntN(3)*g.r.IntN(2) {
		it := Item{Table: g.table(), Row: g.row()}
		if len(items) > 0 && chance(g.r, 30) {
			it.Table, it.Row = items[0].Table, items[0].Row // sees what was just done
		}
		switch p := g.r.IntN(100); {
		case p < 10:
			it.Kind, it.Filter = ItemIf, g.condition()
			it.Changes, it.Else = g.changes(it), g.changes(it)
			if n := g.r.IntN(6); n == 0 {
				it.Else = nil
			} else if n == 1 {
				it.Changes = nil
			}
		case p < 22:
			it.Kind = ItemModify
			for range 1 + g.r.IntN(3)*g.r.IntN(2) {
				it.Modify = append(it.Modify, g.modify())
			}
		case p < 24:
			it.Kind, it.Filter, it.Want = ItemNeed, g.condition(), chance(g.r, 60)
		default:
			it.Changes = g.changes(it)
		}
		items = append(items, it)
	}
	return items
}

func (g *generator) changes(it Item) (changes []Change) {
	for range 1 + g.r.IntN(5)*g.r.IntN(2) {
		c := g.change()
		key := it.Table + "\x00" + it.Row
		if old := g.recent[key]; c.Kind == DeleteTimes && len(old) > 0 && chance(g.r, 75) {
			o := old[g.r.IntN(len(old))]
			c.Family, c.Qualifier, c.TS, c.End = o.Family, o.Qualifier, o.TS, o.TS+1
		}
		if (c.Kind == Set || c.Kind == Add) && c.TS > 0 && c.TS < math.MaxInt64 {
			g.recent[key] = append(g.recent[key][max(0, len(g.recent[key])-12):], c)
		}
		changes = append(changes, c)
	}
	return changes
}

// modify draws a rule of a read-modify-write. Counters have a qualifier of their own, most of them.
func (g *generator) modify() Modify {
	m := Modify{Family: plainNames[g.r.IntN(len(plainNames))], Qualifier: "n", Increment: chance(g.r, 60), Delta: int64(g.r.IntN(2000) - 1000)}
	if !m.Increment || chance(g.r, 5) {
		m.Qualifier = g.qualifier()
	}
	if !m.Increment {
		m.Append, m.Delta = Value{Len: g.r.IntN(12), Fill: uint32(g.r.IntN(1000))}, 0
	} else if chance(g.r, 3) {
		m.Delta = math.MaxInt64
	}
	return m
}

// condition draws what a write may depend on; nil is any cell.
func (g *generator) condition() *Filter {
	switch g.r.IntN(5) {
	case 0:
		return nil
	case 1, 2: // is this column there?
		return &Filter{Kind: "column-exact", Text: g.family(), Range: KeyRange{Start: g.qualifier(), StartAt: 's'}}
	}
	return g.filter(false)
}

func (g *generator) filter(sinks bool) *Filter {
	gen := &FilterGen{R: g.r, Families: familyNames, Rows: g.row, Qualifiers: g.qualifier, Sinks: sinks,
		Values: func() string { v := g.value(); v.Len = min(v.Len, 3); return string(v.Bytes()) },
		Stamp:  func() int64 { return g.stamp(g.family()) }}
	return gen.Filter(1 + g.r.IntN(6))
}

func (g *generator) change() Change {
	c := Change{Family: g.family(), Qualifier: g.qualifier()}
	switch p := g.r.IntN(100); {
	case p < 76:
		c.TS = g.stamp(c.Family)
		if Folds[c.Family] != "" {
			c.Kind, c.N = Add, int64(g.r.IntN(200)-100)
			break
		}
		c.Kind, c.Value = Set, g.value()
		if chance(g.r, 8) {
			c.TS = ServerTime
		}
		if chance(g.r, 3) {
			if c.Qualifier, c.Value.Len = "n", 8; chance(g.r, 40) {
				c.TS = g.now + 1_000_000 // a counter from the future is replaced
			}
		}
	case p < 81:
		c.Kind = DeleteColumn
	case p < 94:
		c.Kind, c.TS = DeleteTimes, g.stamp(c.Family)
		switch c.End = c.TS + 1; { // most often one version
		case c.TS == math.MaxInt64:
			c.End = 0
		case chance(g.r, 40):
			if c.End = c.TS + int64(g.r.IntN(6)); c.End == c.TS || c.End < 0 {
				c.End = 0
			}
		}
	case p < 97:
		c = Change{Kind: DeleteFamily, Family: c.Family}
	default:
		c = Change{Kind: DeleteRow}
	}
	return c
}

// refused is a batch whose last change is not allowed.
func (g *generator) refused() []Item {
	items := g.items()
	bad := Item{Table: g.table(), Row: g.row(), Changes: []Change{{Kind: Set, Family: "none"}}}
	switch g.r.IntN(11) {
	case 5:
		bad.Changes[0] = Change{Kind: Set, Family: "sum"}
	case 6:
		bad.Changes[0] = Change{Kind: Add, Family: "fam"}
	case 7:
		bad.Changes[0] = Change{Kind: Add, Family: "sum", TS: ServerTime}
	case 8:
		bad = Item{Kind: ItemModify, Table: bad.Table, Row: bad.Row}
	case 9:
		bad = Item{Kind: ItemIf, Table: bad.Table, Row: bad.Row}
	case 10:
		bad = Item{Kind: ItemNeed, Table: bad.Table, Row: bad.Row, Filter: &Filter{Kind: "sink"}}
	case 0:
		bad.Row = ""
	case 1:
		bad.Changes[0] = Change{Kind: Set, Family: "fam", TS: -2}
	case 2:
		bad.Changes[0] = Change{Kind: DeleteTimes, Family: "fam", TS: 5, End: 5}
	case 3:
		bad.Table = "missing"
	}
	return append(items, bad)
}

func (g *generator) read() (r Read) {
	if len(g.snaps) > 0 && chance(g.r, 25) {
		r.Snapshot = g.snaps[g.r.IntN(len(g.snaps))]
	}
	if chance(g.r, 30) {
		r.Limit = 1 + g.r.IntN(5)
	}
	r.Reverse = chance(g.r, 40)
	if chance(g.r, 40) {
		r.Family = g.family()
		if chance(g.r, 60) {
			r.Column, r.Qualifiers = true, g.keyRange(g.qualifier)
			if r.Qualifiers.StartAt == 'p' {
				r.Qualifiers = KeyRange{Start: r.Qualifiers.Start, StartAt: 's'}
			}
		}
	}
	if chance(g.r, 25) {
		f := g.family()
		if r.Times, r.From, r.To = true, g.stamp(f), g.stamp(f); r.From > r.To {
			r.From, r.To = r.To, r.From
		}
	}
	if chance(g.r, 25) {
		r.Latest, r.LatestLast = 1+g.r.IntN(3), chance(g.r, 50)
	}
	if chance(g.r, 4) {
		r.AsOf = g.now + int64(g.r.IntN(6000)-3000)
	}
	if chance(g.r, 20) {
		r = Read{AsOf: r.AsOf, Snapshot: r.Snapshot, Limit: r.Limit, Reverse: r.Reverse, Filter: g.filter(true)}
	}
	return r
}

func (g *generator) rows() KeySet {
	if chance(g.r, 25) {
		return KeySet{{}}
	}
	var s KeySet
	for range 1 + g.r.IntN(3)*g.r.IntN(2) {
		s = append(s, g.keyRange(g.row))
	}
	return s
}

func (g *generator) keyRange(key func() string) (r KeyRange) {
	switch g.r.IntN(6) {
	case 0:
		return KeyRange{Start: key(), StartAt: 's'}
	case 1:
		k := key()
		return KeyRange{Start: k[:g.r.IntN(len(k)+1)], StartAt: 'p'}
	}
	r.Start, r.End = key(), key()
	if r.Start > r.End {
		r.Start, r.End = r.End, r.Start
	}
	r.StartAt, r.EndAt = "[("[g.r.IntN(2)], "])"[g.r.IntN(2)]
	if chance(g.r, 10) {
		r.Start, r.StartAt = "", 0
	}
	if chance(g.r, 10) {
		r.End, r.EndAt = "", 0
	}
	return r
}
