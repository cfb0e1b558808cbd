package filter

import (
	"bytes"
	"math"

	"github.com/rowandb/rowan/cell"
)

// Cells is the cells of the row to be filtered, in order.
type Cells interface {
	// SeekCell goes to the first cell at or after (col, ts); it may go back.
	SeekCell(col []byte, ts int64)
	// Cells appends the next cells while dst has capacity; none means the end, or Err.
	Cells(dst []cell.Cell) []cell.Cell
	Err() error
}

// Output takes what passes.
type Output interface {
	// Put takes a cell, valid until it returns, and reports whether more are wanted. stripped: its value counts as empty. label
	// is empty for none.
	Put(c *cell.Cell, stripped bool, label string) (more bool)
	// Alive is asked now and then in long rows; an error ends the run with it.
	Alive() error
}

// aliveEvery is how many requests for cells go between two questions.
const aliveEvery = 64

// Start is where in the row the output begins, for those who have read a part before: at column Col, and there at TS if the
// cells before need not be counted.
type Start struct {
	Col []byte
	TS  int64
}

// mark is what has been done to a copy of a cell.
type mark struct {
	stripped bool
	label    string
}

// run is the state of an evaluation.
type run struct {
	out    Output
	row    []byte
	rowID  uint64
	pass   uint64 // passes over rows so far
	column uint64 // columns begun so far, over all passes
	col    []byte // current column, in the cells at hand or own; empty: none
	own    []byte
	dict   uint32
	code   uint16

	target int // condition to be answered; -1: none, cells go to the output
	inside bool
	hit    bool
	done   bool // the output wants no more

	mem  []cell.Cell
	high int // how much of mem was lent to those who fill it
	seek []byte
}

func (r *run) reset() {
	r.out, r.row, r.col, r.target = nil, nil, nil, -1
	clear(r.mem[:r.high]) // it points into blocks
	r.high = 0
}

// Sizes of the requests for cells, and how many useless ones are looked at before a seek is tried.
const (
	bufCells  = 64
	skipCells = 12 // fewer than a request after a seek
)

// First is how many cells of a row are likely to do; 0: as many as there are.
func (p *Program) First() int {
	switch {
	case p.Counts || p.Ranks && p.single:
		return 4
	case p.Ranks:
		return 16
	}
	return 0
}

// Run filters the row that m stands on. Nothing of it has been read, unless moved is set. It reports whether the output
// wants more.
func (p *Program) Run(m Cells, row []byte, start Start, out Output) (more bool, err error) {
	r := &p.run
	r.row, r.out, r.done = row, out, false
	r.rowID++
	for _, at := range p.rowOnly {
		if !p.rowTest(&p.nodes[at]) {
			return true, nil
		}
	}
	moved := false
	for i := range p.conds {
		if moved {
			m.SeekCell(nil, math.MaxInt64)
		}
		if p.verdict[i], err = p.ask(m, i); err != nil {
			return false, err
		}
		moved = true
	}
	if moved || start.Col != nil {
		ts := int64(math.MaxInt64)
		if start.Col != nil {
			ts = start.TS
		}
		m.SeekCell(start.Col, ts)
	}
	r.target, r.inside, r.hit = -1, false, false
	err = p.walk(m)
	return !r.done, err
}

// Matches reports whether a cell of the row that m stands on passes a program compiled as a predicate.
func (p *Program) Matches(m Cells, row []byte) (bool, error) {
	r := &p.run
	r.row, r.out = row, nil
	r.rowID++
	for _, at := range p.rowOnly {
		if !p.rowTest(&p.nodes[at]) {
			return false, nil
		}
	}
	for i := range p.conds {
		var err error
		if p.verdict[i], err = p.ask(m, i); err != nil {
			return false, err
		}
		m.SeekCell(nil, math.MaxInt64)
	}
	r.target, r.inside, r.hit = -1, false, false
	err := p.walk(m)
	return r.hit && err == nil, err
}

// ask answers condition i; those before have been answered.
func (p *Program) ask(m Cells, i int) (bool, error) {
	r := &p.run
	r.target, r.inside, r.hit = i, false, false
	err := p.walk(m)
	return r.hit, err
}

// walk passes over the row from where m is.
func (p *Program) walk(m Cells) error {
	r := &p.run
	r.pass++
	r.col = nil
	if r.mem == nil {
		r.mem = make([]cell.Cell, bufCells)
	}
	room := bufCells
	if n := p.First(); n > 0 {
		room = n
	}
	if p.root == toOutput {
		return p.pour(m)
	}
	var h hint
	skipped := 0
	for asked := 1; ; asked++ {
		if err := p.alive(asked); err != nil {
			return err
		}
		r.high = max(r.high, room)
		buf := m.Cells(r.mem[:0:room])
		if len(buf) == 0 {
			return m.Err()
		}
		for i := range buf {
			c := &buf[i]
			if !r.same(c) {
				r.column++
				if h.want == wantColumn || h.want == wantTime {
					h.want, skipped = wantNext, 0
				}
			}
			if h.want != wantNext {
				if h.skips(c) {
					skipped++
					continue
				}
				h.want, skipped = wantNext, 0
			}
			h = p.eval(p.root, c, mark{})
			if h.want == wantNone || r.hit || r.done || p.single && h.want == wantColumn {
				return nil
			}
		}
		room = min(bufCells, 4*room)
		r.own = append(r.own[:0], r.col...)
		r.col = r.own
		if h.want != wantNext && skipped >= skipCells {
			switch h.want {
			case wantTime:
				m.SeekCell(r.col, h.ts)
			case wantColumn:
				r.seek = append(append(r.seek[:0], r.col...), 0)
				m.SeekCell(r.seek, math.MaxInt64)
			default:
				m.SeekCell(h.from.From, math.MaxInt64)
			}
			h.want, skipped = wantNext, 0
			if n := p.First(); n > 0 {
				room = n // what follows may be skipped as well
			}
		}
	}
}

func (p *Program) alive(asked int) error {
	if asked%aliveEvery != 0 || p.run.out == nil {
		return nil
	}
	return p.run.out.Alive()
}

// pour sends all cells to the output.
func (p *Program) pour(m Cells) error {
	r := &p.run
	r.high = len(r.mem)
	for asked := 1; ; asked++ {
		if err := p.alive(asked); err != nil {
			return err
		}
		buf := m.Cells(r.mem[:0])
		if len(buf) == 0 {
			return m.Err()
		}
		for i := range buf {
			if r.done = !r.out.Put(&buf[i], false, ""); r.done {
				return nil
			}
		}
	}
}

// same reports whether c is of the current column, and makes its column that.
func (r *run) same(c *cell.Cell) bool {
	if c.Dict != 0 && c.Dict == r.dict && c.Code == r.code && len(r.col) > 0 {
		return true
	}
	r.dict, r.code = c.Dict, c.Code
	if bytes.Equal(r.col, c.Col) {
		return true
	}
	r.col = c.Col
	return false
}

// eval sends a cell into the node at and reports which cells that node and those behind it have a use for next.
func (p *Program) eval(at int32, c *cell.Cell, m mark) (h hint) {
	r := &p.run
	counted := false // a node before counts all cells of the row, so that none may be left out
	ranked := false  // a node before counts versions
	for at >= 0 {
		n := &p.nodes[at]
		if r.target >= 0 && !r.inside && n.reach&condBit(r.target) == 0 {
			break // it does not lead to what is asked
		}
		own, ok := hint{}, true
		switch n.op {
		case FamilyPattern, FamilyExact, Columns, QualifierPattern:
			if own, ok = n.columns(c, r.column, &p.scratch); ok {
				at = n.next
				continue
			}
		case Times:
			if c.TS < n.lo {
				own.want, ok = wantColumn, false
			} else if c.TS > n.hi {
				if ok = false; p.SeekTimes {
					own = hint{want: wantTime, ts: n.hi}
				}
			}
		case LatestN:
			if n.since != r.column {
				n.since, n.count = r.column, 0
			}
			n.count++
			ok = n.count <= n.n
			if n.count >= n.n {
				own.want = wantColumn
			}
		case RowLimit:
			if n.since != r.pass {
				n.since, n.count = r.pass, 0
			}
			n.count++
			ok = n.count <= n.n
			if n.count >= n.n {
				own.want = wantNone
			}
		case RowOffset:
			if n.since != r.pass {
				n.since, n.count = r.pass, 0
			}
			if n.count < n.n {
				n.count++
				ok = false
			}
		case RowPattern, RowSample:
			if ok = p.rowTest(n); !ok {
				own.want = wantNone
			}
		case ValuePattern, Values, ValueMask:
			v := c.Value
			if m.stripped {
				v = nil
			}
			ok = n.value(v, &p.scratch)
		case StripValue:
			m.stripped = true
		case Label:
			m.label = n.text
		case Interleave:
			own.want = wantNone
			for _, k := range n.kids {
				own = earlier(own, p.eval(k, c, m))
				if r.hit || r.done {
					return own
				}
			}
			ok = false
		case Condition:
			switch {
			case r.target < 0 || n.id < r.target:
				at = n.kids[2]
				if p.verdict[n.id] {
					at = n.kids[1]
				}
				continue
			case n.id == r.target:
				r.inside = true
				own = p.eval(n.kids[0], c, m)
				r.inside = false
			default: // the target can only be in its predicate
				own = p.eval(n.kids[0], c, m)
			}
			ok = false
		}
		if ranked && own.want == wantTime {
			own.want = wantNext
		}
		if !counted || own.want == wantNone { // at the row's end it matters no more what was counted
			h = later(h, own)
		}
		if !ok {
			return h
		}
		counted = counted || n.op == RowLimit || n.op == RowOffset
		ranked = ranked || n.op == LatestN
		at = n.next
	}
	switch {
	case r.target >= 0 && !r.inside, at == toNothing:
		h.want = wantNone
	case at == toHit:
		r.hit = true
	case at == toOutput && r.target < 0:
		r.done = !r.out.Put(c, m.stripped, m.label)
	}
	return h
}
