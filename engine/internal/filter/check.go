package filter

import (
	"fmt"
	"math"
	"slices"

	"github.com/rowandb/rowan/cell"
)

// facts is what analysis finds out about a part of a filter.
type facts struct {
	cols     Ranges // columns that it may pass or must look at
	rows     Ranges // rows of which it may pass something
	min, max int64  // timestamps, the same as cols
	counts   bool   // it counts cells over the whole row
	ranks    bool   // it counts versions
	sink     bool
	labels   bool
	rowTest  bool
	copies   int64 // of one cell that may come out at most
	work     int64 // looks that one cell may take at most
}

// part is what a compiled filter keeps of one Spec; a filter's parts stand in the order of its text.
type part struct {
	pat  *Pattern
	cols Ranges
	size int // parts of it and its kids
	id   int // of a condition: its number in the order of evaluation
}

// compiler turns a Spec into nodes.
type compiler struct {
	t     Table
	p     *Program
	depth int
	inIf  string // the part of a condition that is being looked at
	conds int
	pats  map[string]*Pattern // of large filters
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

func tooMuch() error { return invalid("it may look at one cell more than %d times", WorkMax) }

// check validates s and gathers its facts. Errors name the place.
func (c *compiler) check(s *Spec) (f facts, err error) {
	if s == nil {
		return f, invalid("nil")
	}
	if c.depth++; c.depth > DepthMax {
		return f, invalid("nested more than %d deep", DepthMax)
	}
	me := len(c.p.parts)
	if me >= WorkMax {
		return f, tooMuch()
	}
	c.p.parts = append(c.p.parts, part{})
	f, err = c.rule(s, me)
	c.depth--
	if err == nil && f.work > WorkMax {
		err = tooMuch()
	}
	x := &c.p.parts[me]
	x.cols, x.size = f.cols, len(c.p.parts)-me
	return f, err
}

// rule is check for the rule s itself, which is part me.
func (c *compiler) rule(s *Spec, me int) (f facts, err error) {
	f = facts{cols: everything, rows: everything, max: math.MaxInt64, copies: 1, work: 1}
	if s.Err != nil {
		return f, fmt.Errorf("%s: %w: %w", opNames[s.Op], ErrInvalid, s.Err)
	}
	switch s.Op {
	case Pass, StripValue:
	case Block:
		f.cols, f.rows = nil, nil
	case Chain, Interleave:
		err = c.checkList(s, &f)
		return f, err
	case Condition:
		err = c.checkCondition(s, &f, me)
		return f, err
	case Sink:
		f.sink = true
		if c.inIf != "" {
			return f, invalid("sink inside the %s of a condition", c.inIf)
		}
	case RowPattern:
		if s.Text == "" {
			return f, invalid("row key pattern is empty, and no row key is")
		}
		x, err := c.pattern(s, me)
		if err != nil {
			return f, err
		}
		f.rows, f.rowTest = x.In, true
	case RowSample:
		if !(s.P > 0 && s.P < 1) {
			return f, invalid("row sample with probability %v, which must be between 0 and 1", s.P)
		}
		f.rowTest = true
	case FamilyPattern:
		err = c.checkFamily(s, &f, me)
		return f, err
	case FamilyExact:
		prefix, err := c.t.FamilyPrefix(s.Text)
		if err != nil {
			return f, err
		}
		f.cols = Ranges{prefixed(prefix)}
	case QualifierPattern:
		x, err := c.pattern(s, me)
		if err != nil {
			return f, err
		}
		if x.In.All() {
			break
		}
		var list []cell.Range
		for i := range c.t.FamilyCount() {
			_, prefix := c.t.FamilyAt(i)
			list = appendQualifiers(list, prefix, x.In)
		}
		f.cols = union(list)
	case Columns:
		prefix, err := c.t.FamilyPrefix(s.Text)
		if err != nil {
			return f, err
		}
		f.cols = nil
		if !s.Empty {
			f.cols = appendQualifiers(nil, prefix, Ranges{{From: s.From, To: s.To}})
		}
	case Times:
		f.min, f.max = s.Lo, s.Hi
	case ValuePattern:
		if _, err := c.pattern(s, me); err != nil {
			return f, err
		}
	case Values:
		if s.Empty {
			f.cols = nil
		}
	case ValueMask:
	case LatestN:
		if s.N < 1 {
			return f, invalid("%d versions per column, the least is 1", s.N)
		}
		f.ranks = true
	case RowLimit:
		if s.N < 1 {
			return f, invalid("%d cells per row, the least is 1", s.N)
		}
		f.counts = true
	case RowOffset:
		if s.N < 0 {
			return f, invalid("offset of %d cells per row", s.N)
		}
		f.counts = true
	case Label:
		if !goodLabel(s.Text) {
			return f, invalid("label %.40q, which must be 1..15 bytes of [-a-z0-9]", s.Text)
		}
		f.labels = true
	default:
		return f, invalid("rule %d", s.Op)
	}
	return f, nil
}

func goodLabel(l string) bool {
	for i := range len(l) {
		if b := l[i]; b != '-' && (b < 'a' || b > 'z') && (b < '0' || b > '9') {
			return false
		}
	}
	return len(l) >= 1 && len(l) <= 15
}

func appendQualifiers(dst []cell.Range, prefix []byte, in Ranges) []cell.Range {
	for _, r := range in {
		both := make([]byte, 0, 2*len(prefix)+len(r.From)+len(r.To)) // one piece of memory: a filter is compiled for each read
		both = append(append(both, prefix...), r.From...)
		n := len(both)
		x := cell.Range{From: both[:n:n]}
		if r.To != nil {
			both = append(append(both, prefix...), r.To...)
			x.To = both[n:]
		} else {
			x.To = cell.PrefixEnd(prefix)
		}
		dst = append(dst, x)
	}
	return dst
}

func (c *compiler) pattern(s *Spec, me int) (*Pattern, error) {
	x := c.pats[s.Text]
	if x == nil {
		var err error
		if x, err = CompilePattern(s.Text); err != nil {
			return nil, invalid("%s: %w", opNames[s.Op], err)
		}
		if me >= manyParts { // a filter may be part of another many times
			if c.pats == nil {
				c.pats = map[string]*Pattern{}
			}
			c.pats[s.Text] = x
		}
	}
	c.p.parts[me].pat = x
	return x, nil
}

// manyParts is the number of parts from which on equal patterns are compiled once.
const manyParts = 16

func (c *compiler) checkFamily(s *Spec, f *facts, me int) error {
	for i := range len(s.Text) {
		if s.Text[i] == ':' {
			return invalid("family pattern %.80q has a colon, which no family has", s.Text)
		}
	}
	x, err := c.pattern(s, me)
	if err != nil {
		return err
	}
	if x.Literal {
		if _, err := c.t.FamilyPrefix(s.Text); err != nil && x.match([]byte(s.Text), &c.p.scratch) {
			return fmt.Errorf("%s: %w", opNames[s.Op], err)
		}
	}
	var list []cell.Range
	for i := range c.t.FamilyCount() {
		if name, prefix := c.t.FamilyAt(i); x.match([]byte(name), &c.p.scratch) {
			list = append(list, prefixed(prefix))
		}
	}
	f.cols = union(list)
	return nil
}

func (c *compiler) checkList(s *Spec, f *facts) error {
	if s.Op == Interleave {
		f.cols, f.rows, f.min, f.max, f.copies = nil, nil, math.MaxInt64, 0, 0
	}
	var cols, rows []cell.Range // of an interleave
	labelled := 0
	for i, kid := range s.Kids {
		k, err := c.check(kid)
		if err != nil {
			return fmt.Errorf("%s: filter %d of %d: %w", opNames[s.Op], i+1, len(s.Kids), err)
		}
		if k.labels && s.Op == Chain {
			if labelled++; labelled > 1 {
				return fmt.Errorf("chain: filter %d of %d: %w: a second label; a chain may have one", i+1, len(s.Kids), ErrInvalid)
			}
		}
		if s.Op == Chain {
			f.narrow(&k)
			f.work, f.copies = f.work+f.copies*k.work, f.copies*k.copies
		} else {
			cols, rows = append(cols, k.cols...), append(rows, k.rows...)
			f.min, f.max = min(f.min, k.min), max(f.max, k.max)
			f.work, f.copies = f.work+k.work, f.copies+k.copies
		}
		f.join(&k)
		if f.work > WorkMax || f.copies > WorkMax { // before the numbers overflow
			return tooMuch()
		}
	}
	if s.Op == Interleave {
		f.cols, f.rows = union(cols), union(rows)
	}
	if len(s.Kids) < 2 {
		return invalid("%s of %d filters, the least is 2", opNames[s.Op], len(s.Kids))
	}
	return nil
}

// join notes what holds for a whole that has k as a part.
func (f *facts) join(k *facts) {
	f.counts, f.ranks, f.sink = f.counts || k.counts, f.ranks || k.ranks, f.sink || k.sink
	f.labels, f.rowTest = f.labels || k.labels, f.rowTest || k.rowTest
}

// narrow restricts f, the facts of the filters before k in a chain, by those of k. What comes before k must see what it counts.
func (f *facts) narrow(k *facts) {
	if f.sink {
		return
	}
	f.rows = f.rows.Intersect(k.rows)
	if f.counts {
		return
	}
	f.cols = f.cols.Intersect(k.cols)
	f.min = max(f.min, k.min)
	if !f.ranks { // older versions do not change the ranks of newer ones
		f.max = min(f.max, k.max)
	}
}

// widen makes f hold for what k looks at too.
func (f *facts) widen(k *facts) {
	f.cols = union(append(slices.Clone(f.cols), k.cols...))
	f.min, f.max = min(f.min, k.min), max(f.max, k.max)
}

var parts = [...]string{"predicate", "true branch", "false branch"}

func (c *compiler) checkCondition(s *Spec, f *facts, me int) error {
	outer := c.inIf
	defer func() { c.inIf = outer }()
	f.cols, f.rows, f.min, f.max = nil, nil, math.MaxInt64, 0
	f.counts = true // what the predicate looks at must not be left out for the sake of filters behind the condition
	for i, kid := range s.Kids {
		if i == 1 {
			c.p.parts[me].id = c.conds // those of the predicate are answered before, those of the branches after
			c.conds++
		}
		if i > 0 && kid == nil {
			continue
		}
		if outer == "" {
			c.inIf = parts[i]
		}
		k, err := c.check(kid)
		if err != nil {
			return fmt.Errorf("condition: %s: %w", parts[i], err)
		}
		f.widen(&k)
		f.work += k.work
		if i > 0 {
			f.rows = union(append(slices.Clone(f.rows), k.rows...))
			f.copies = max(f.copies, k.copies)
		} else {
			k.labels = false // its cells are not seen
		}
		f.join(&k)
	}
	return nil
}
