package filter

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/rowandb/rowan/cell"
)

// Where a cell goes that a node passes, other than to a node.
const (
	toOutput  int32 = -1
	toHit     int32 = -2 // the end of a predicate
	toNothing int32 = -3
)

// node is one step of a program. Cells that it passes go to next.
type node struct {
	op     Op
	next   int32
	kids   []int32 // of an interleave; of a condition: predicate, then, else
	reach  uint64  // conditions that lie behind it: bit i for number i, bit 63 for all from 63 on
	id     int     // number of the condition
	n      int64
	lo, hi int64
	cols   Ranges
	pat    *Pattern
	text   string
	from   []byte
	to     []byte
	seed   uint64
	below  uint64 // row samples: a row is kept when its hash is below

	count int64     // cells counted since
	since uint64    // this pass or column
	ok    bool      // verdict on the current row or column
	memo  *verdicts // of patterns
}

// Program is a compiled filter with the state of its evaluation. It is used by one goroutine, and may be compiled anew: its
// memory is reused.
type Program struct {
	parts   []part
	nodes   []node
	root    int32
	rowOnly []int32 // row tests that all output has passed
	conds   int
	single  bool   // Cols is one column
	verdict []bool // by condition
	scratch scratch

	// Cols is the set of columns that the program looks at, Rows the rows of which it may pass something. If either is empty
	// nothing passes. MinTS and MaxTS bound the timestamps that it looks at; MaxTS counts only where no collection rule
	// counts newer versions.
	Cols, Rows   Ranges
	MinTS, MaxTS int64
	// Values says that values are looked at or passed on. Counts says that cells are counted over the whole row or that the row
	// is looked at beforehand, so that what passes depends on all cells before; Ranks that versions are counted in columns.
	Values, Counts, Ranks bool

	// SeekTimes allows to pass over newer versions by seeks inside a column: no collection rule counts them. The user sets it
	// after Compile.
	SeekTimes bool

	run run
}

// Options say how a filter is used.
type Options struct {
	// Predicate: it is only asked whether a cell passes. There may be no sink then.
	Predicate bool
	// Clipped promises that the cells come from an iterator whose columns are restricted to the hull of Cols.
	Clipped bool
}

// Compile makes p the program of s. After an error p passes nothing and must be compiled anew.
func (p *Program) Compile(s *Spec, t Table, o Options) error {
	p.reset()
	c := compiler{t: t, p: p}
	if o.Predicate {
		c.inIf = parts[0]
	}
	f, err := c.check(s)
	if err != nil {
		return err
	}
	p.conds = c.conds
	p.verdict = append(p.verdict[:0], make([]bool, c.conds)...)
	p.Cols, p.Rows, p.MinTS, p.MaxTS = f.cols, f.rows, f.min, f.max
	p.Counts, p.Ranks = f.counts || c.conds > 0, f.ranks
	need, stripped := values(s, false)
	p.Values = need || !stripped && !o.Predicate
	end := toOutput
	if o.Predicate {
		end = toHit
	}
	b := builder{p: p}
	if o.Clipped && len(p.Cols) > 0 {
		b.hull, b.clipped = p.Cols.Hull(), true
	}
	p.root = b.build(s, 0, end)
	if len(p.Cols) == 1 {
		r := &p.Cols[0]
		p.single = len(r.To) == len(r.From)+1 && r.To[len(r.From)] == 0 && bytes.HasPrefix(r.To, r.From)
	}
	p.findRowOnly(s)
	return nil
}

// Copy makes p the program that from is, which has not been used and will not be: it may be copied by several goroutines at once.
func (p *Program) Copy(from *Program) {
	p.reset()
	p.nodes = append(p.nodes, from.nodes...)
	for i := range p.nodes {
		if n := &p.nodes[i]; n.memo != nil {
			n.memo = new(verdicts)
		}
	}
	p.rowOnly = append(p.rowOnly, from.rowOnly...)
	p.verdict = append(p.verdict, from.verdict...)
	p.root, p.conds, p.single = from.root, from.conds, from.single
	p.Cols, p.Rows, p.MinTS, p.MaxTS = from.Cols, from.Rows, from.MinTS, from.MaxTS
	p.Values, p.Counts, p.Ranks = from.Values, from.Counts, from.Ranks
}

// Forget drops what the program points to but for its own memory.
func (p *Program) Forget() { p.reset() }

// keepParts bounds the memory that is kept for the next filter.
const keepParts = 1024

func (p *Program) reset() {
	clear(p.parts)
	clear(p.nodes)
	if cap(p.parts) > keepParts {
		p.parts, p.nodes, p.verdict = nil, nil, nil
	}
	p.parts, p.nodes, p.rowOnly, p.verdict = p.parts[:0], p.nodes[:0], p.rowOnly[:0], p.verdict[:0]
	p.root, p.conds, p.single = toNothing, 0, false
	p.Cols, p.Rows, p.MinTS, p.MaxTS = nil, nil, 0, math.MaxInt64
	p.Values, p.Counts, p.Ranks, p.SeekTimes = false, false, false, false
	p.run.reset()
}

// Empty reports that nothing passes, whatever the cells.
func (p *Program) Empty() bool { return len(p.Cols) == 0 || len(p.Rows) == 0 || p.MinTS > p.MaxTS }

// values reports whether s looks at values that have not been stripped, and whether those that it passes have been.
func values(s *Spec, stripped bool) (need, strippedAfter bool) {
	switch s.Op {
	case StripValue, Block:
		return false, true
	case Sink:
		return !stripped, true
	case ValuePattern, Values, ValueMask:
		return !stripped, stripped
	case Chain:
		for _, k := range s.Kids {
			var n bool
			n, stripped = values(k, stripped)
			need = need || n
		}
		return need, stripped
	case Interleave, Condition:
		strippedAfter = true
		for i, k := range s.Kids {
			if k == nil {
				continue
			}
			n, after := values(k, stripped)
			need = need || n
			if s.Op == Interleave || i > 0 {
				strippedAfter = strippedAfter && after
			}
		}
		return need, strippedAfter
	}
	return false, stripped
}

// builder makes the nodes, from the end of the filter to its beginning: each knows where its cells go on.
type builder struct {
	p       *Program
	hull    cell.Range
	clipped bool
}

// build returns where cells enter s, whose part is number at, when those that it passes go to next.
func (b *builder) build(s *Spec, at int, next int32) int32 {
	x := &b.p.parts[at]
	n := node{op: s.Op, next: next, id: x.id, n: s.N, lo: s.Lo, hi: s.Hi, cols: x.cols, pat: x.pat, text: s.Text}
	switch s.Op {
	case Pass:
		return next
	case Block:
		return toNothing
	case Sink:
		return toOutput
	case Chain:
		return b.chain(s.Kids, at+1, next)
	case FamilyPattern, FamilyExact, Columns:
		switch {
		case len(x.cols) == 0:
			return toNothing
		case b.clipped && x.cols.covers(b.hull):
			return next // the iterator sees to it
		}
	case QualifierPattern:
		if len(x.cols) == 0 {
			return toNothing
		}
		n.memo = new(verdicts)
	case Values:
		if s.Empty {
			return toNothing
		}
		n.from, n.to = s.From, s.To
	case ValueMask:
		n.from = s.From
	case RowSample:
		n.seed, n.below = s.Seed, uint64(s.P*(1<<63)*2)
	case Interleave, Condition:
		n.kids = make([]int32, len(s.Kids))
		at++
		for i, k := range s.Kids {
			if k == nil {
				n.kids[i] = toNothing
				continue
			}
			to := next
			if s.Op == Condition && i == 0 {
				to = toHit
			}
			n.kids[i] = b.build(k, at, to)
			at += b.p.parts[at].size
		}
		if s.Op == Condition {
			n.reach = condBit(n.id)
		}
		for _, k := range n.kids {
			n.reach |= b.reach(k)
		}
	}
	n.reach |= b.reach(next)
	b.p.nodes = append(b.p.nodes, n)
	return int32(len(b.p.nodes) - 1)
}

func (b *builder) chain(kids []*Spec, at int, next int32) int32 {
	if len(kids) > 1 {
		next = b.chain(kids[1:], at+b.p.parts[at].size, next)
	}
	return b.build(kids[0], at, next)
}

func (b *builder) reach(at int32) uint64 {
	if at < 0 {
		return 0
	}
	return b.p.nodes[at].reach
}

func condBit(id int) uint64 { return 1 << min(uint(id), 63) }

// findRowOnly notes the row tests at the filter's head, which can refuse a row before anything of it is read.
func (p *Program) findRowOnly(s *Spec) {
	test := func(op Op) bool { return op == RowPattern || op == RowSample }
	if s.Op != Chain && !test(s.Op) {
		return
	}
	for at := p.root; at >= 0 && p.nodes[at].op != Interleave && p.nodes[at].op != Condition; at = p.nodes[at].next {
		if test(p.nodes[at].op) {
			p.rowOnly = append(p.rowOnly, at)
		}
	}
}

// SampleHash is what decides whether a row is in a sample: a row is kept by probability p if it is below p times 2^64. It is
// FNV-1a over the seed, 8 bytes little-endian, and the row key, with the finalizer of splitmix64.
func SampleHash(row []byte, seed uint64) uint64 {
	h := uint64(14695981039346656037)
	var s [8]byte
	binary.LittleEndian.PutUint64(s[:], seed)
	for _, c := range s {
		h = (h ^ uint64(c)) * 1099511628211
	}
	for _, c := range row {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}
