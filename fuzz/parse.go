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
	case OpScan, OpStream, OpCompact, OpDropRows, OpPages:
		o.Table = p.text()
		if o.Kind == OpPages {
			o.N = p.number()
		}
		p.options(&o.Read)
	case OpTick, OpSnapshot, OpForget, OpKill, OpKillIn, OpWork, OpBack:
		o.N = p.number()
	case OpCreate, OpDrop:
		o.Table = p.text()
	case OpAlter:
		o.Table = p.text()
		for p.err == nil && p.peek() != "" {
			o.Alters = append(o.Alters, p.alter())
		}
	}
	return o
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
		case "asof":
			r.AsOf = p.number()
		case "filter":
			r.Filter = p.filter(0)
		default:
			p.fail("unknown option %q", w)
		}
	}
}
