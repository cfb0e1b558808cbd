package merge

import (
	"errors"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
)

func states(n ...int64) (out [][]byte) {
	for _, n := range n {
		p := make([]byte, cell.StateLen)
		cell.PutState(p, n)
		out = append(out, p)
	}
	return out
}

var steadyRow = []byte("r")

// steady is a source of one row that hands out the same memory again and again.
type steady struct {
	cell.Iter
	cells []cell.Cell
	at    int
}

func (s *steady) First() bool                             { s.at = 0; return true }
func (s *steady) Row() []byte                             { return steadyRow }
func (s *steady) Ranges(dst []cell.Range) []cell.Range    { return dst }
func (s *steady) Deletes(dst []cell.Delete) []cell.Delete { return dst }
func (s *steady) Err() error                              { return nil }
func (s *steady) Cells(dst []cell.Cell) []cell.Cell {
	for ; s.at < len(s.cells) && len(dst) < cap(dst); s.at++ {
		dst = append(dst, s.cells[s.at])
	}
	return dst
}

// A delete in a source spares the source's own Adds and ends the fold for everything older.
func TestDeleteEndsTheFoldBelowItsSource(t *testing.T) {
	col := cell.AppendColumn(nil, "d", 4, "q")
	v := states(1, 10, 100)
	src := func(i int, del bool) cell.Iter {
		r := imaginedRow{key: "r", cells: []cell.Cell{{Col: col, TS: 5, Kind: cell.KindMerge, Value: v[i]}}}
		if del {
			r.deletes = []cell.Delete{{Col: col, Lo: 5, Hi: 5}}
		}
		return &imagined{rows: []imaginedRow{r}}
	}
	for at, want := range map[int]int64{-1: 111, 0: 1, 1: 11, 2: 111} {
		m := New(Config{Families: NewFamilies(mergeTable)}, []cell.Iter{src(0, at == 0), src(1, at == 1), src(2, at == 2)})
		m.First()
		cs := m.Cells(make([]cell.Cell, 0, 4))
		if len(cs) != 1 {
			t.Fatalf("delete in source %d: %v", at, cs)
		}
		if n, _ := cell.State(cs[0].Value); n != want || cs[0].Kind != cell.KindMerge {
			t.Errorf("delete in source %d: %d, want %d", at, n, want)
		}
	}
}

func TestStateOfAWrongSizeIsDamage(t *testing.T) {
	col := cell.AppendColumn(nil, "d", 4, "q")
	src := func(v []byte) cell.Iter {
		return &imagined{rows: []imaginedRow{{key: "r", cells: []cell.Cell{{Col: col, TS: 5, Kind: cell.KindMerge, Value: v}}}}}
	}
	m := New(Config{Families: NewFamilies(mergeTable)}, []cell.Iter{src(states(1)[0]), src([]byte("seven b"))})
	m.First()
	m.Cells(make([]cell.Cell, 0, 4))
	if err := m.Err(); !errors.Is(err, damage.Err) {
		t.Fatalf("error %v", err)
	}
}

func TestFoldingAllocatesNothing(t *testing.T) {
	var src []cell.Iter
	for range 4 {
		s := &steady{}
		for q := range 50 {
			s.cells = append(s.cells, cell.Cell{Col: cell.AppendColumn(nil, "d", 4, string(rune('0'+q))), TS: 5, Kind: cell.KindMerge, Value: states(3)[0]})
		}
		src = append(src, s)
	}
	m := New(Config{Families: NewFamilies(mergeTable)}, src)
	buf := make([]cell.Cell, 0, 64)
	n := testing.AllocsPerRun(100, func() {
		m.First()
		for buf = m.Cells(buf[:0]); len(buf) > 0; buf = m.Cells(buf[:0]) {
			if v, _ := cell.State(buf[0].Value); v != 12 {
				t.Fatalf("state %d", v)
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for a row of 200 states", n)
	}
}
