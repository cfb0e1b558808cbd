package filter

import (
	"bytes"
	"regexp/syntax"
	"slices"

	"github.com/rowandb/rowan/cell"
)

// Limits of what is looked for: beyond them a literal counts as the beginning of something unknown.
const (
	literalsMax     = 64
	literalBytesMax = 1 << 10
)

// literal is a string that what matches is (exact) or begins with.
type literal struct {
	b     []byte
	exact bool
}

// literals is a set of which every match has one. pure: it is no more than that, each exact one matches.
type literals struct {
	list []literal
	pure bool
}

func unknown() literals { return literals{list: []literal{{}}} }

func nothingThen() literals { return literals{list: []literal{{exact: true}}, pure: true} }

// recognize finds the literals of a pattern and whether they are all there is to it.
func (p *Pattern) recognize(tree *syntax.Regexp) {
	l := literalsOf(tree)
	var list []cell.Range
	for _, x := range l.list {
		if x.exact {
			list = append(list, one(x.b))
		} else {
			list = append(list, prefixed(x.b))
		}
	}
	p.In = union(list)
	if l.pure && l.exact() {
		p.form, p.lits = formOneOf, l.sorted()
		return
	}
	head, tail := tree, tree
	subs := []*syntax.Regexp{tree}
	if tree.Op == syntax.OpConcat {
		subs = tree.Sub
		tail = subs[len(subs)-1]
	}
	head = &syntax.Regexp{Op: syntax.OpConcat, Sub: subs[:len(subs)-1]}
	if tail = inner(tail); tail.Op != syntax.OpStar {
		return
	}
	form := formPrefix
	switch inner(tail.Sub[0]).Op {
	case syntax.OpAnyChar:
	case syntax.OpAnyCharNotNL:
		form = formPrefixNL
	default:
		return
	}
	if l := literalsOf(head); l.pure && l.exact() {
		p.form, p.lits = form, l.sorted()
	}
}

func inner(re *syntax.Regexp) *syntax.Regexp {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	return re
}

func (l literals) exact() bool {
	return !slices.ContainsFunc(l.list, func(x literal) bool { return !x.exact })
}

func (l literals) sorted() (out [][]byte) {
	for _, x := range l.list {
		out = append(out, x.b)
	}
	slices.SortFunc(out, bytes.Compare)
	return slices.CompactFunc(out, bytes.Equal)
}

func literalsOf(re *syntax.Regexp) literals {
	switch re.Op {
	case syntax.OpNoMatch:
		return literals{pure: true}
	case syntax.OpEmptyMatch:
		return nothingThen()
	case syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		l := nothingThen() // it takes no bytes, but may refuse
		l.pure = false
		return l
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return unknown()
		}
		b := make([]byte, 0, len(re.Rune))
		for _, r := range re.Rune {
			if r > 0xff {
				return literals{pure: true} // no byte is it
			}
			b = append(b, byte(r))
		}
		return literals{list: []literal{{b, true}}, pure: true}
	case syntax.OpCharClass:
		var list []literal
		for i := 0; i+1 < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= min(re.Rune[i+1], 0xff); r++ {
				if len(list) == literalsMax/2 {
					return unknown()
				}
				list = append(list, literal{[]byte{byte(r)}, true})
			}
		}
		return literals{list, true}
	case syntax.OpCapture:
		return literalsOf(re.Sub[0])
	case syntax.OpConcat:
		l := nothingThen()
		for i, k := range re.Sub {
			if l = l.then(literalsOf(k)); !l.exact() {
				if i+1 < len(re.Sub) {
					l = l.open()
				}
				break
			}
		}
		return l
	case syntax.OpAlternate:
		l := literals{pure: true}
		for _, k := range re.Sub {
			if l = l.or(literalsOf(k)); len(l.list) > literalsMax {
				return unknown()
			}
		}
		return l
	case syntax.OpQuest:
		return literalsOf(re.Sub[0]).or(nothingThen())
	case syntax.OpPlus:
		return literalsOf(re.Sub[0]).open()
	case syntax.OpRepeat:
		l := nothingThen()
		for i := range re.Min {
			if l = l.then(literalsOf(re.Sub[0])); !l.exact() {
				if i+1 < re.Min {
					l = l.open()
				}
				break
			}
		}
		if re.Max != re.Min {
			l = l.open()
		}
		return l
	}
	return unknown()
}

// open says that something unknown may follow.
func (l literals) open() literals {
	out := literals{}
	for _, x := range l.list {
		out.list = append(out.list, literal{x.b, false})
	}
	return out
}

func (l literals) or(o literals) literals {
	return literals{append(slices.Clone(l.list), o.list...), l.pure && o.pure}
}

// then is l, which is exact, followed by o.
func (l literals) then(o literals) literals {
	if len(l.list)*len(o.list) > literalsMax {
		return l.open()
	}
	out := literals{pure: l.pure && o.pure}
	for _, a := range l.list {
		for _, b := range o.list {
			if len(a.b)+len(b.b) > literalBytesMax {
				return l.open()
			}
			out.list = append(out.list, literal{append(slices.Clone(a.b), b.b...), b.exact})
		}
	}
	return out
}
