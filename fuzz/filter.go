package fuzz

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/bits"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rowandb/rowan/engine"
)

// Filter is a filter as data: it can be generated, written, read back, made into one of the engine's, and evaluated by
// definition, over lists of cells.
type Filter struct {
	Kind  string
	Kids  []*Filter // of chain, interleave and if; the branches of if may be nil
	Text  string    // pattern, family, label or mask
	Range KeyRange
	N, M  int64
	P     float64
}

// FilterCell is a cell in a filter, with its label.
type FilterCell struct {
	Cell
	Label string
	place int    // in the row
	path  string // which branches of interleaves it took, a byte each
}

// filterKinds are the kinds with what follows their names in the text form: f filters in parentheses, t a text, r a range,
// n a number, p a probability.
var filterKinds = map[string]string{
	"pass": "", "block": "", "sink": "", "strip": "", "chain": "f", "interleave": "f", "if": "f", "row": "t", "family": "t",
	"family-exact": "t", "column": "t", "column-exact": "tr", "columns": "tr", "times": "nn", "value": "t", "values": "r", "mask": "t",
	"latest": "n", "limit": "n", "offset": "n", "sample": "pn", "label": "t",
}

func (f *Filter) String() string {
	if f == nil {
		return "nothing"
	}
	s := f.Kind
	for i, a := range filterKinds[f.Kind] {
		switch a {
		case 'f':
			s += " ("
			for _, k := range f.Kids {
				s += " " + k.String()
			}
			s += " )"
		case 't':
			s += " " + strconv.Quote(f.Text)
		case 'r':
			s += " " + f.Range.String()
		case 'p':
			s += " " + strconv.FormatFloat(f.P, 'g', -1, 64)
		case 'n':
			n := f.N
			if i > 0 {
				n = f.M
			}
			s += fmt.Sprint(" ", n)
		}
	}
	return s
}

// ParseFilter reads what String writes.
func ParseFilter(text string) (*Filter, error) {
	p := parser{line: text}
	f := p.filter(0)
	if p.err == nil && p.peek() != "" {
		p.fail("unexpected %s", p.peek())
	}
	return f, p.err
}

func (p *parser) filter(depth int) *Filter {
	if p.word("nothing") {
		return nil
	}
	f := &Filter{Kind: p.next()}
	args, ok := filterKinds[f.Kind]
	if !ok || depth > 100 {
		p.fail("%q is no filter", f.Kind)
		return nil
	}
	for i, a := range args {
		switch a {
		case 'f':
			if !p.word("(") {
				p.fail("%s without (", f.Kind)
			}
			for p.err == nil && !p.word(")") {
				if p.peek() == "" {
					p.fail("%s without )", f.Kind)
					break
				}
				f.Kids = append(f.Kids, p.filter(depth+1))
			}
			if f.Kind == "if" && len(f.Kids) != 3 {
				p.fail("if of %d filters", len(f.Kids))
			}
		case 't':
			f.Text = p.text()
		case 'r':
			f.Range = p.keyRange()
		case 'p':
			var err error
			if f.P, err = strconv.ParseFloat(p.next(), 64); err != nil {
				p.fail("%w", err)
			}
		case 'n':
			if i == 0 {
				f.N = p.number()
			} else {
				f.M = p.number()
			}
		}
	}
	return f
}

// Engine makes f one of the engine's filters; nil stays nil. A kind that does not exist becomes one that every read refuses.
func (f *Filter) Engine() engine.Filter {
	if f == nil {
		return nil
	}
	var kids []engine.Filter
	for _, k := range f.Kids {
		kids = append(kids, k.Engine())
	}
	switch f.Kind {
	case "pass":
		return engine.PassAllFilter()
	case "block":
		return engine.BlockAllFilter()
	case "sink":
		return engine.SinkFilter()
	case "strip":
		return engine.StripValueFilter()
	case "chain":
		return engine.ChainFilters(kids...)
	case "interleave":
		return engine.InterleaveFilters(kids...)
	case "if":
		return engine.ConditionFilter(kids[0], kids[1], kids[2])
	case "row":
		return engine.RowKeyFilter(f.Text)
	case "family":
		return engine.FamilyFilter(f.Text)
	case "family-exact":
		return engine.FamilyExact(f.Text)
	case "column":
		return engine.ColumnFilter(f.Text)
	case "column-exact":
		return engine.ColumnExact(f.Text, f.Range.Start)
	case "columns":
		return engine.ColumnRangeFilter(f.Text, engine.QualifierRange(rowRange(f.Range)))
	case "times":
		return engine.TimestampRangeFilter(engine.Timestamp(f.N), engine.Timestamp(f.M))
	case "value":
		return engine.ValueFilter(f.Text)
	case "values":
		return engine.ValueRangeFilter(engine.ValueRange(rowRange(f.Range)))
	case "mask":
		return engine.ValueBitmaskFilter([]byte(f.Text))
	case "latest":
		return engine.LatestNFilter(int(f.N))
	case "limit":
		return engine.CellsPerRowLimitFilter(int(f.N))
	case "offset":
		return engine.CellsPerRowOffsetFilter(int(f.N))
	case "sample":
		return engine.RowSampleFilter(f.P, uint64(f.N))
	case "label":
		return engine.LabelFilter(f.Text)
	}
	return engine.ChainFilters() // of nothing: an error wherever it is used
}

// Apply evaluates f over the cells of a row, rule by rule, each over the whole list.
// A nil filter passes everything.
func (f *Filter) Apply(row string, cells []Cell) []FilterCell {
	var in []FilterCell
	for _, c := range cells {
		in = append(in, FilterCell{Cell: c})
	}
	for i := range in {
		in[i].place = i
	}
	if f == nil {
		return in
	}
	var sunk []FilterCell
	out := f.apply(row, in, &sunk)
	return merged(append(out, sunk...))
}

// apply returns what goes on to the enclosing filter. What goes to a sink is appended to sunk.
func (f *Filter) apply(row string, in []FilterCell, sunk *[]FilterCell) (out []FilterCell) {
	keep := func(ok func(i int, c *FilterCell) bool) {
		for i := range in {
			if c := in[i]; ok(i, &c) {
				out = append(out, c)
			}
		}
	}
	switch f.Kind {
	case "pass":
		return in
	case "block":
	case "sink":
		*sunk = append(*sunk, in...)
	case "chain":
		out = in
		for _, k := range f.Kids {
			out = k.apply(row, out, sunk)
		}
	case "interleave":
		for i, k := range f.Kids {
			mine := slices.Clone(in)
			for j := range mine {
				mine[j].path += string(rune(i))
			}
			out = append(out, k.apply(row, mine, sunk)...)
		}
		out = merged(out)
	case "if":
		branch := f.Kids[2]
		if len(f.Kids[0].apply(row, in, nil)) > 0 {
			branch = f.Kids[1]
		}
		if branch != nil {
			out = branch.apply(row, in, sunk)
		}
	case "row":
		keep(func(int, *FilterCell) bool { return matches(f.Text, row) })
	case "sample":
		keep(func(int, *FilterCell) bool { return sampled(row, f.P, uint64(f.N)) })
	case "family":
		keep(func(_ int, c *FilterCell) bool { return matches(f.Text, c.Family) })
	case "family-exact":
		keep(func(_ int, c *FilterCell) bool { return c.Family == f.Text })
	case "column":
		keep(func(_ int, c *FilterCell) bool { return matches(f.Text, c.Qualifier) })
	case "column-exact", "columns":
		keep(func(_ int, c *FilterCell) bool { return c.Family == f.Text && f.Range.Contains(c.Qualifier) })
	case "times":
		keep(func(_ int, c *FilterCell) bool { return c.TS >= f.N && (f.M == 0 || c.TS < f.M) })
	case "value":
		keep(func(_ int, c *FilterCell) bool { return matches(f.Text, string(c.Value)) })
	case "values":
		keep(func(_ int, c *FilterCell) bool { return f.Range.Contains(string(c.Value)) })
	case "mask":
		keep(func(_ int, c *FilterCell) bool {
			return len(c.Value) == len(f.Text) && !slices.ContainsFunc(indices(c.Value), func(i int) bool { return c.Value[i]&f.Text[i] != f.Text[i] })
		})
	case "latest":
		n := map[[2]string]int64{}
		keep(func(_ int, c *FilterCell) bool {
			col := [2]string{c.Family, c.Qualifier}
			n[col]++
			return n[col] <= f.N
		})
	case "limit":
		keep(func(i int, _ *FilterCell) bool { return int64(i) < f.N })
	case "offset":
		keep(func(i int, _ *FilterCell) bool { return int64(i) >= f.N })
	case "strip":
		keep(func(_ int, c *FilterCell) bool { c.Value = nil; return true })
	case "label":
		keep(func(_ int, c *FilterCell) bool { c.Label = f.Text; return true })
	}
	return out
}

func indices(b []byte) []int {
	out := make([]int, len(b))
	for i := range out {
		out[i] = i
	}
	return out
}

// merged brings cells in order: copies of one cell as the branches stand that they came through.
func merged(cells []FilterCell) []FilterCell {
	slices.SortStableFunc(cells, func(a, b FilterCell) int {
		if a.place != b.place {
			return a.place - b.place
		}
		return strings.Compare(a.path, b.path)
	})
	return cells
}

// matches is the definition of a pattern: each byte is the character of its number, all of the text must match.
func matches(pattern, text string) bool {
	if p, ok := patterns.Load(pattern); ok {
		return p.(*regexp.Regexp).MatchString(latin1(text))
	}
	p := regexp.MustCompile(`\A(?:` + strings.ReplaceAll(latin1(pattern), `\C`, `(?s:.)`) + `)\z`)
	patterns.Store(pattern, p)
	return p.MatchString(latin1(text))
}

// patterns keeps those that were compiled.
var patterns sync.Map

// literal is the one text that a pattern without operators matches.
func literal(pattern string) (string, bool) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil || re.Op != syntax.OpLiteral {
		return "", false
	}
	return string(re.Rune), true
}

func latin1(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

// sampled: FNV-1a over seed and key, mixed, is below p of all numbers.
func sampled(row string, p float64, seed uint64) bool {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, seed)
	h.Write([]byte(row))
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	hi, _ := bits.Mul64(x, 1<<63)
	return float64(hi)/(1<<63) < p
}
