package fuzz

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/rowandb/rowan/engine"
)

// Families are those that a table may have, and has when it is created: each kind of rule, names that are prefixes of each
// other, counters, and each kind of aggregate.
var Families = map[string]Family{
	"fam":   {},
	"fam-1": {Rule: Rule{Versions: 1}},
	"fam.":  {Rule: Rule{Any: []Rule{{Versions: 2}, {Age: 3000}}}, Group: "b"},
	"v2":    {Rule: Rule{Versions: 2}, Group: "c"},
	"age":   {Rule: Rule{Age: 2000}, Group: "b"},
	"mix":   {Rule: Rule{All: []Rule{{Versions: 1}, {Age: 2000}}}},
	"ctr":   {Rule: Rule{Versions: 2}},
	"sum":   {Fold: engine.Sum},
	"max":   {Rule: Rule{Versions: 2}, Fold: engine.Max, Group: "b"},
	"min":   {Rule: Rule{Age: 3000}, Fold: engine.Min},
}

var (
	familyNames = []string{"fam", "fam-1", "fam.", "v2", "age", "mix", "ctr", "sum", "max", "min"}
	qualifiers  = []string{"", "a", "ab", "a\x00", "b", "\xff\xff"}
)

// rulesOf are the rules of a new table.
func rulesOf() map[string]Rule {
	out := map[string]Rule{}
	for name, f := range Families {
		out[name] = f.Rule
	}
	return out
}

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
	g := &generator{
		r: rand.New(rand.NewPCG(seed, 0x70e7)), s: s, now: Start, have: map[string]bool{}, recent: map[string][]Change{},
		gone: map[string]map[string]bool{},
	}
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

	gone   map[string]map[string]bool // families that a table has lost
	recent map[string][]Change        // what was set lately, by table and row: deletes of single versions should hit some
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
	switch p := g.r.IntN(1060); {
	case p >= 1056:
		return Op{Kind: OpBack, N: int64(1+g.r.IntN(60)) * StepMicros}
	case p >= 1036:
		o := Op{Kind: OpPages, Table: g.table(), Read: g.read(), N: int64(1 + g.r.IntN(30))}
		o.Read.Rows, o.Read.Limit = g.rows(), 0
		return o
	case p >= 1030:
		o := Op{Kind: OpDropRows, Table: g.table(), Read: Read{Rows: KeySet{g.keyRange(g.row)}}}
		if chance(g.r, 15) {
			o.Read.Rows[0] = KeyRange{}
		}
		return o
	case p >= 1000:
		return g.alter()
	case p < 520:
		return Op{Kind: OpApply, Items: g.items(), NoSync: !chance(g.r, 8)}
	case p < 530:
		return Op{Kind: OpRefused, Items: g.refused(), NoSync: true}
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
			delete(g.gone, t)
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
	if f == "age" || f == "mix" || f == "fam." && chance(g.r, 50) {
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
		if chance(g.r, 18) {
			items = append(items, g.special(it))
			continue
		}
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
			it.Changes = append(it.Changes, c)
		}
		items = append(items, it)
	}
	return items
}

func (g *generator) change() (c Change) {
	c = Change{Family: g.family(), Qualifier: g.qualifier()}
	defer func() {
		switch {
		case c.Kind == Set && c.Family == "ctr" && chance(g.r, 90):
			c.Value.Len = 8
		case c.Kind == Set && Families[c.Family].Fold != engine.NoAggregate:
			c.Kind, c.Value, c.N = Add, Value{}, int64(g.r.IntN(2000)-1000)
			if chance(g.r, 5) {
				c.N = math.MaxInt64 - c.N&1
			}
			c.TS = max(c.TS, 0)
		}
	}()
	switch p := g.r.IntN(100); {
	case p < 76:
		c.Kind, c.TS, c.Value = Set, g.stamp(c.Family), g.value()
		if chance(g.r, 8) {
			c.TS = ServerTime
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
	for i := range items {
		items[i] = Item{Table: items[i].Table, Row: items[i].Row, Changes: []Change{g.change()}} // nothing else refuses it
	}
	bad := Item{Table: g.table(), Row: g.row(), Changes: []Change{{Kind: Set, Family: "none"}}}
	switch g.r.IntN(5) {
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

// special is an item that looks before it writes.
func (g *generator) special(it Item) Item {
	switch p := g.r.IntN(10); {
	case p < 4:
		it.Kind = ItemModify
		for range 1 + g.r.IntN(3) {
			m := Modify{Family: "ctr", Qualifier: g.qualifier(), Increment: true, N: int64(g.r.IntN(100))}
			if chance(g.r, 40) {
				m = Modify{Family: g.family(), Qualifier: m.Qualifier, Value: Value{Len: g.r.IntN(20), Fill: uint32(g.r.IntN(1000))}}
				for Families[m.Family].Fold != engine.NoAggregate && !chance(g.r, 3) {
					m.Family = g.family()
				}
			}
			it.Rules = append(it.Rules, m)
		}
		return it
	case p < 5:
		it.Kind, it.Want = ItemRequire, chance(g.r, 50)
		if !chance(g.r, 30) {
			it.Filter = g.filter(false)
		}
		return it
	}
	it.Kind = ItemIf
	if !chance(g.r, 20) {
		it.Filter = g.filter(false)
	}
	for range 1 + g.r.IntN(3) {
		it.Changes = append(it.Changes, g.change())
	}
	for range g.r.IntN(3) {
		it.Else = append(it.Else, g.change())
	}
	return it
}

func (g *generator) filter(sinks bool) *Filter {
	f := &FilterGen{
		R: g.r, Families: familyNames, Rows: g.row, Qualifiers: g.qualifier, Sinks: sinks,
		Values: func() string { return string(Value{Len: g.r.IntN(4), Fill: uint32(g.r.IntN(1000))}.Bytes()) },
		Stamp:  func() int64 { return g.stamp(g.family()) },
	}
	return f.Filter(1 + g.r.IntN(8))
}

// alter changes families: some are dropped, those that are gone come back sooner, rules change often.
func (g *generator) alter() Op {
	o := Op{Kind: OpAlter, Table: g.table()}
	gone := g.gone[o.Table]
	if gone == nil {
		gone = map[string]bool{}
		g.gone[o.Table] = gone
	}
	for _, f := range familyNames {
		if gone[f] && chance(g.r, 60) {
			o.Alters = append(o.Alters, Alter{Kind: AddFamily, Family: f, Rule: g.r.IntN(len(Rules))})
			delete(gone, f)
		}
	}
	for range 1 + g.r.IntN(2) {
		a := Alter{Kind: SetRule, Family: familyNames[g.r.IntN(len(familyNames))], Rule: g.r.IntN(len(Rules))}
		switch {
		case gone[a.Family] || chance(g.r, 2):
			a.Kind = AddFamily
			delete(gone, a.Family)
		case chance(g.r, 8):
			a.Kind, a.Rule = DropFamily, 0
			gone[a.Family] = true
		}
		o.Alters = append(o.Alters, a)
	}
	return o
}

func (g *generator) read() (r Read) {
	if len(g.snaps) > 0 && chance(g.r, 25) {
		r.Snapshot = g.snaps[g.r.IntN(len(g.snaps))]
	}
	if chance(g.r, 30) {
		r.Limit = 1 + g.r.IntN(5)
	}
	r.Reverse = chance(g.r, 40)
	if r.Snapshot == 0 && chance(g.r, 10) {
		if r.AsOf = g.now + int64(g.r.IntN(8000)) - 1000; chance(g.r, 20) {
			r.AsOf = g.now - int64(g.r.IntN(8000))
		}
	}
	if chance(g.r, 25) {
		r.Filter = g.filter(true)
		return r
	}
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
