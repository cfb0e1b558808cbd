package gc

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// String writes the rule in the form that Parse reads: "none", "versions(2)", "age(30m)", parts of a union joined by " | "
// and of an intersection by " & ", composites inside composites in parentheses. Composites of fewer than two parts are
// written as "union()" or "intersection(age(1h))".
func (r Rule) String() string { return string(r.text(nil, false)) }

func (r *Rule) text(p []byte, inside bool) []byte {
	switch r.op {
	case opVersions:
		return append(strconv.AppendInt(append(p, "versions("...), r.n, 10), ')')
	case opAge:
		return append(append(append(p, "age("...), ageText(r.n)...), ')')
	case opUnion, opIntersec:
		sep := " | "
		if r.op == opIntersec {
			sep = " & "
		}
		switch {
		case len(r.kids) < 2:
			p, inside = append(append(p, r.op.String()...), '('), true
		case inside:
			p = append(p, '(')
		}
		for i := range r.kids {
			if i > 0 {
				p = append(p, sep...)
			}
			p = r.kids[i].text(p, len(r.kids) > 1)
		}
		if inside {
			p = append(p, ')')
		}
		return p
	}
	return append(p, "none"...)
}

// ageText writes microseconds as a duration without idle zeros.
func ageText(us int64) string {
	if us > ageMax || us < 0 {
		return strconv.FormatInt(us, 10) + "us"
	}
	s := (time.Duration(us) * time.Microsecond).String()
	if t, ok := strings.CutSuffix(s, "m0s"); ok {
		s = t + "m"
	}
	if t, ok := strings.CutSuffix(s, "h0m"); ok {
		s = t + "h"
	}
	return s
}

// Parse reads a rule from text; see String. "&" binds more tightly than "|", blanks do not matter, and an age may also be
// whole days ("7d"). The rule is validated; errors match ErrRule and name the place.
func Parse(s string) (Rule, error) {
	p := parser{s: s}
	r := p.union(1)
	p.blanks()
	if p.err == nil && p.at < len(s) {
		p.fail("unexpected %q", s[p.at:min(len(s), p.at+10)])
	}
	if p.err != nil {
		return Rule{}, p.err
	}
	return r, r.Validate()
}

type parser struct {
	s   string
	at  int
	err error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s at byte %d of %.200q", ErrRule, fmt.Sprintf(format, args...), p.at, p.s)
	}
}

func (p *parser) blanks() {
	for p.at < len(p.s) && (p.s[p.at] == ' ' || p.s[p.at] == '\t') {
		p.at++
	}
}

func (p *parser) take(c byte) bool {
	p.blanks()
	if p.err == nil && p.at < len(p.s) && p.s[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) union(depth int) Rule {
	return p.list('|', opUnion, func() Rule { return p.list('&', opIntersec, func() Rule { return p.atom(depth) }) })
}

func (p *parser) list(sep byte, o op, part func() Rule) Rule {
	first := part()
	if !p.take(sep) {
		return first
	}
	kids := []Rule{first, part()}
	for p.take(sep) && len(kids) <= NodesMax {
		kids = append(kids, part())
	}
	return Rule{op: o, kids: kids}
}

func (p *parser) atom(depth int) Rule {
	// Text may hold idle parentheses, so it gets more room than the tree does.
	if depth > 4*DepthMax {
		p.fail("nested too deep")
	}
	if p.err != nil {
		return Rule{}
	}
	if p.take('(') {
		r := p.union(depth + 1)
		p.close()
		return r
	}
	p.blanks()
	start := p.at
	for p.at < len(p.s) && p.s[p.at] >= 'a' && p.s[p.at] <= 'z' {
		p.at++
	}
	switch word := p.s[start:p.at]; word {
	case "none":
		return Rule{}
	case "versions":
		n, err := strconv.Atoi(p.argument())
		if err != nil {
			p.fail("bad number of versions")
		}
		return MaxVersionsPolicy(n)
	case "age":
		arg := p.argument()
		us, err := parseAge(arg)
		if err != nil {
			p.fail("bad age %.40q", arg)
		}
		return Rule{op: opAge, n: us}
	case "union", "intersection":
		r := Rule{op: opUnion}
		if word == "intersection" {
			r.op = opIntersec
		}
		if !p.take('(') {
			p.fail("%s without parentheses", word)
		}
		if p.take(')') {
			return r
		}
		r.kids = append(r.kids, p.union(depth+1))
		p.close()
		return r
	default:
		p.at = start
		p.fail("want none, versions(n), age(d), union(...), intersection(...) or (")
		return Rule{}
	}
}

func (p *parser) close() {
	if !p.take(')') {
		p.fail("missing )")
	}
}

// argument reads "(text)" and returns text.
func (p *parser) argument() string {
	if !p.take('(') {
		p.fail("missing (")
		return ""
	}
	end := strings.IndexByte(p.s[p.at:], ')')
	if end < 0 {
		p.fail("missing )")
		return ""
	}
	arg := p.s[p.at : p.at+end]
	p.at += end + 1
	return strings.TrimSpace(arg)
}

func parseAge(s string) (int64, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 32)
		if err == nil && n > 106751 {
			err = strconv.ErrRange
		}
		return n * 24 * time.Hour.Microseconds(), err
	}
	d, err := time.ParseDuration(s)
	return MaxAgePolicy(d).n, err
}
