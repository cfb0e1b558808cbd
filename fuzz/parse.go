package fuzz

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Parse reads what Format writes. Empty lines and lines that begin with # do not count.
func Parse(text string) ([]Op, error) {
	var ops []Op
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		p := parser{line: line}
		o := p.op()
		if p.err == nil && p.peek() != "" {
			p.fail("unexpected %s", p.peek())
		}
		if p.err != nil {
			return nil, fmt.Errorf("line %d: %w: %s", i+1, p.err, line)
		}
		ops = append(ops, o)
	}
	return ops, nil
}

type parser struct {
	line string
	err  error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// peek is the next token as it stands, "" at the end.
func (p *parser) peek() string {
	p.line = strings.TrimLeft(p.line, " ")
	if strings.HasPrefix(p.line, `"`) {
		if q, err := strconv.QuotedPrefix(p.line); err == nil {
			return q
		}
	}
	word, _, _ := strings.Cut(p.line, " ")
	return word
}

func (p *parser) next() string {
	w := p.peek()
	p.line = p.line[len(w):]
	return w
}

// word takes the next token if it is w.
func (p *parser) word(w string) bool {
	if p.err != nil || p.peek() != w {
		return false
	}
	p.next()
	return true
}

func (p *parser) text() string {
	w := p.next()
	s, err := strconv.Unquote(w)
	if err != nil {
		p.fail("%q is no quoted string", w)
	}
	return s
}

func (p *parser) number() int64 {
	w := p.next()
	n, err := strconv.ParseInt(w, 10, 64)
	if err != nil {
		p.fail("%q is no number", w)
	}
	return n
}

func (p *parser) op() (o Op) {
	name := p.next()
	k := slices.Index(opNames[:], name)
	if k < 0 {
		p.fail("unknown operation %q", name)
		return o
	}
	o.Kind = OpKind(k)
	switch o.Kind {
	case OpApply, OpRefused:
		o.NoSync = p.word("nosync")
		for p.err == nil && p.peek() != "" {
			o.Items = append(o.Items, p.item())
			p.word(";")
		}
	case OpGet:
		o.Table, o.Read.Row = p.text(), p.text()
		p.options(&o.Read)
	case OpAlter:
		o.Table = p.text()
		for p.err == nil && p.peek() != "" {
			a := Alter{Anew: p.word("anew")}
			if !a.Anew && !p.word("rule") {
				p.fail("%q is neither rule nor anew", p.peek())
			}
			a.Family, a.Rule = p.text(), int(p.number())
			if a.Rule < 0 || a.Rule >= len(RulePool) {
				p.fail("there is no rule %d", a.Rule)
			}
			o.Alter = append(o.Alter, a)
		}
	case OpScan, OpStream, OpCompact, OpDropRows:
		o.Table = p.text()
		p.options(&o.Read)
	case OpTick, OpSnapshot, OpForget, OpKill, OpKillIn, OpWork:
		o.N = p.number()
	case OpCreate, OpDrop:
		o.Table = p.text()
	}
	return o
}

func (p *parser) item() Item {
	it := Item{Table: p.text(), Row: p.text()}
	more := func() bool { return p.err == nil && p.peek() != "" && p.peek() != ";" && p.peek() != "else" }
	switch {
	case p.word("if"):
		it.Kind, it.Filter = ItemIf, p.condition()
		if !p.word("then") {
			p.fail("if without then")
		}
	case p.word("need"):
		it.Kind, it.Want = ItemNeed, p.word("true")
		if !it.Want && !p.word("false") {
			p.fail("need of neither true nor false")
		}
		it.Filter = p.condition()
		return it
	case p.word("modify"):
		it.Kind = ItemModify
		for more() {
			m := Modify{Increment: p.word("incr")}
			if !m.Increment && !p.word("append") {
				p.fail("%q is neither incr nor append", p.peek())
			}
			if m.Family, m.Qualifier = p.text(), p.text(); m.Increment {
				m.Delta = p.number()
			} else {
				m.Append = p.value()
			}
			it.Modify = append(it.Modify, m)
		}
		return it
	}
	for more() {
		it.Changes = append(it.Changes, p.change())
	}
	if it.Kind == ItemIf && p.word("else") {
		for more() {
			it.Else = append(it.Else, p.change())
		}
	}
	return it
}

func (p *parser) condition() *Filter {
	if p.word("any") {
		return nil
	}
	return p.filter(0)
}

func (p *parser) value() (v Value) {
	w := p.next()
	if n, err := fmt.Sscanf(w, "%dx%d", &v.Len, &v.Fill); n != 2 || err != nil {
		p.fail("%q is no value", w)
	}
	return v
}

func (p *parser) change() (c Change) {
	name := p.next()
	k := slices.Index(changeNames[:], name)
	if k < 0 {
		p.fail("unknown change %q", name)
		return c
	}
	c.Kind = ChangeKind(k)
	if c.Kind != DeleteRow {
		c.Family = p.text()
	}
	if c.Kind != DeleteRow && c.Kind != DeleteFamily {
		c.Qualifier = p.text()
	}
	switch c.Kind {
	case Set:
		c.TS, c.Value = p.number(), p.value()
	case Add:
		c.TS, c.N = p.number(), p.number()
	case DeleteTimes:
		c.TS, c.End = p.number(), p.number()
	}
	return c
}

func (p *parser) keyRange() (r KeyRange) {
	switch w := p.next(); w {
	case "p", "s":
		r.StartAt, r.Start = w[0], p.text()
		return r
	case "[", "(":
		r.StartAt, r.Start = w[0], p.text()
	case "-":
	default:
		p.fail("%q begins no range", w)
	}
	if p.word("-") {
		return r
	}
	r.End = p.text()
	if w := p.next(); w == "]" || w == ")" {
		r.EndAt = w[0]
	} else {
		p.fail("%q ends no range", w)
	}
	return r
}

func (p *parser) options(r *Read) {
	for p.err == nil && p.peek() != "" {
		switch w := p.next(); w {
		case "rows":
			r.Rows = append(r.Rows, p.keyRange())
		case "snapshot":
			r.Snapshot = p.number()
		case "limit":
			r.Limit = int(p.number())
		case "reverse":
			r.Reverse = true
		case "family":
			r.Family = p.text()
		case "column":
			r.Column, r.Qualifiers = true, p.keyRange()
		case "times":
			r.Times, r.From, r.To = true, p.number(), p.number()
		case "latest":
			r.Latest = int(p.number())
		case "latestlast":
			r.LatestLast = true
		case "filter":
			r.Filter = p.filter(0)
		case "asof":
			r.AsOf = p.number()
		default:
			p.fail("unknown option %q", w)
		}
	}
}
