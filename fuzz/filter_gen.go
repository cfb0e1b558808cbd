package fuzz

import "math/rand/v2"

// FilterGen draws filters from what is in the rows that they will meet.
type FilterGen struct {
	R          *rand.Rand
	Families   []string
	Rows       func() string
	Qualifiers func() string
	Values     func() string
	Stamp      func() int64
	// Sinks allows sinks, which a predicate must not have.
	Sinks bool
}

// Filter draws a filter of about size rules.
func (g *FilterGen) Filter(size int) *Filter {
	f, _ := g.filter(size, g.Sinks, true)
	return f
}

// filter returns a filter and whether it has a label, which it may have if label is set.
func (g *FilterGen) filter(size int, sink, label bool) (*Filter, bool) {
	if size <= 1 {
		return g.leaf(sink, label)
	}
	switch g.R.IntN(10) {
	case 0, 1, 2, 3, 4:
		f := &Filter{Kind: "chain"}
		has := false
		for n := 2 + g.R.IntN(3); len(f.Kids) < n; {
			k, l := g.filter((size-1)/n, sink, label && !has)
			f.Kids, has = append(f.Kids, k), has || l
		}
		return f, has
	case 5, 6, 7:
		f := &Filter{Kind: "interleave"}
		has := false
		for n := 2 + g.R.IntN(2); len(f.Kids) < n; {
			k, l := g.filter((size-1)/n, sink, label)
			f.Kids, has = append(f.Kids, k), has || l
		}
		return f, has
	}
	p, _ := g.filter((size-1)/3, false, label)
	f := &Filter{Kind: "if", Kids: []*Filter{p, nil, nil}}
	has := false
	for i := 1; i < 3; i++ {
		if chance(g.R, 4) {
			continue
		}
		k, l := g.filter((size-1)/3, false, label)
		f.Kids[i], has = k, has || l
	}
	return f, has
}

func (g *FilterGen) leaf(sink, label bool) (*Filter, bool) {
	switch g.R.IntN(22) {
	case 0:
		return &Filter{Kind: "block"}, false
	case 1:
		return &Filter{Kind: "row", Text: g.pattern(g.Rows())}, false
	case 2:
		return &Filter{Kind: "sample", P: 0.05 + 0.9*g.R.Float64(), N: g.R.Int64N(100)}, false
	case 3, 4:
		f := g.family()
		p := []string{f, f + ".*", ".*", "[a-f].*", f + "|v.", "fam[.-]?1?", "no.*such"}
		return &Filter{Kind: "family", Text: p[g.R.IntN(len(p))]}, false
	case 5:
		return &Filter{Kind: "family-exact", Text: g.family()}, false
	case 6, 7:
		return &Filter{Kind: "column", Text: g.pattern(g.Qualifiers())}, false
	case 8:
		return &Filter{Kind: "column-exact", Text: g.family(), Range: KeyRange{Start: g.Qualifiers(), StartAt: 's'}}, false
	case 9, 10:
		return &Filter{Kind: "columns", Text: g.family(), Range: g.keyRange(g.Qualifiers)}, false
	case 11, 12:
		f := &Filter{Kind: "times", N: g.Stamp(), M: g.Stamp()}
		if f.N > f.M {
			f.N, f.M = f.M, f.N
		}
		if chance(g.R, 5) {
			f.M = 0
		}
		return f, false
	case 13:
		return &Filter{Kind: "value", Text: g.pattern(g.Values())}, false
	case 14:
		return &Filter{Kind: "values", Range: g.keyRange(g.Values)}, false
	case 15:
		v := []byte(g.Values())
		for i := range v {
			v[i] &= byte(g.R.Uint32())
		}
		return &Filter{Kind: "mask", Text: string(v)}, false
	case 16, 17:
		return &Filter{Kind: "latest", N: 1 + g.R.Int64N(3)}, false
	case 18:
		return &Filter{Kind: "limit", N: 1 + g.R.Int64N(10)}, false
	case 19:
		return &Filter{Kind: "offset", N: g.R.Int64N(8)}, false
	case 20:
		if label && chance(g.R, 2) {
			return &Filter{Kind: "label", Text: []string{"l", "label-2", "0"}[g.R.IntN(3)]}, true
		}
		return &Filter{Kind: "strip"}, false
	}
	if sink && chance(g.R, 2) {
		return &Filter{Kind: "sink"}, false
	}
	return &Filter{Kind: "pass"}, false
}

func (g *FilterGen) family() string { return g.Families[g.R.IntN(len(g.Families))] }

func (g *FilterGen) keyRange(key func() string) KeyRange {
	return (&generator{r: g.R}).keyRange(key)
}

// pattern makes a pattern of a text that may match it, in one of the shapes that people write.
func (g *FilterGen) pattern(s string) string {
	quote := func(s string) string {
		var b []byte
		for i := range len(s) {
			if c := s[i]; c < 0x80 && (c < '0' || c > '9' && c < 'A' || c > 'Z' && c < 'a' || c > 'z') && c != '\n' && c != 0 {
				b = append(b, '\\')
			}
			b = append(b, s[i])
		}
		return string(b)
	}
	cut := 0
	if len(s) > 0 {
		cut = g.R.IntN(len(s) + 1)
	}
	head, tail := quote(s[:cut]), quote(s[cut:])
	switch g.R.IntN(9) {
	case 0:
		return quote(s) + "|" + quote(g.Qualifiers()) + "|x"
	case 1:
		return head + ".*"
	case 2:
		return head + `\C*`
	case 3:
		return ".*" + tail
	case 4:
		return head + "(" + tail + ")?"
	case 5:
		return head + `\C{0,3}`
	case 6:
		return "(" + head + "|b)" + "[a-z\xff\\x00]*"
	case 7:
		return head + "." + ".*"
	}
	if s == "" {
		return "a?"
	}
	return quote(s)
}
