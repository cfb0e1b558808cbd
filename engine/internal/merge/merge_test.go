package merge

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/levels"
)

// imagined is a source in memory that obeys cell.Iter to the letter: bytes of the last Cells call are scribbled over by the next.
type imagined struct {
	rows []imaginedRow
	at   int
	cell int
	del  int
	lent []cell.Cell
}

type imaginedRow struct {
	key     string
	ranges  []cell.Range
	deletes []cell.Delete
	cells   []cell.Cell
}

func (s *imagined) stand(i int) bool {
	s.scribble()
	s.at, s.cell, s.del = i, 0, 0
	return i >= 0 && i < len(s.rows)
}

func (s *imagined) scribble() {
	for _, c := range s.lent {
		for i := range c.Value {
			c.Value[i] = '!'
		}
		for i := range c.Col {
			c.Col[i] = '!'
		}
	}
	s.lent = s.lent[:0]
}

func (s *imagined) find(row []byte) int {
	return sort.Search(len(s.rows), func(i int) bool { return s.rows[i].key >= string(row) })
}

func (s *imagined) First() bool                          { return s.stand(0) }
func (s *imagined) Last() bool                           { return s.stand(len(s.rows) - 1) }
func (s *imagined) SeekGE(row []byte) bool               { return s.stand(s.find(row)) }
func (s *imagined) SeekLT(row []byte) bool               { return s.stand(s.find(row) - 1) }
func (s *imagined) Next() bool                           { return s.stand(s.at + 1) }
func (s *imagined) Prev() bool                           { return s.stand(s.at - 1) }
func (s *imagined) Row() []byte                          { return []byte(s.rows[s.at].key) }
func (s *imagined) Ranges(dst []cell.Range) []cell.Range { return append(dst, s.rows[s.at].ranges...) }
func (s *imagined) Err() error                           { return nil }
func (s *imagined) Close() error                         { return nil }

func (s *imagined) SeekCell(col []byte, ts int64) {
	s.scribble()
	cs := s.rows[s.at].cells
	s.cell = sort.Search(len(cs), func(i int) bool { return cell.Compare(cs[i].Col, cs[i].TS, col, ts) >= 0 })
}

func (s *imagined) Cells(dst []cell.Cell) []cell.Cell {
	s.scribble()
	cs := s.rows[s.at].cells
	for n := 0; n < 3 && len(dst) < cap(dst) && s.cell < len(cs); n++ { // few at a time, so that every edge is met
		c := cs[s.cell]
		c.Col, c.Value = bytes.Clone(c.Col), bytes.Clone(c.Value)
		s.lent = append(s.lent, c)
		dst = append(dst, c)
		s.cell++
	}
	return dst
}

func (s *imagined) SeekDelete(col []byte) {
	ds := s.rows[s.at].deletes
	s.del = sort.Search(len(ds), func(i int) bool { return bytes.Compare(ds[i].Col, col) >= 0 })
}

func (s *imagined) Deletes(dst []cell.Delete) []cell.Delete {
	ds := s.rows[s.at].deletes
	for n := 0; n < 2 && len(dst) < cap(dst) && s.del < len(ds); n++ {
		dst = append(dst, ds[s.del])
		s.del++
	}
	return dst
}

var mergeTable = &levels.Table{ID: 1, Name: "t", HighestLife: 5, Groups: []levels.Group{{Tree: 1}}, Families: []levels.Family{
	{Name: "a", Life: 1}, {Name: "b", Life: 2, Rule: gc.MaxVersionsPolicy(2)},
	{Name: "d", Life: 4, Fold: levels.FoldSum}, {Name: "e", Life: 5, Fold: levels.FoldMax, Rule: gc.MaxVersionsPolicy(2)},
}}

// randomSource draws rows; family c has a dead life, 3, whose cells must never be seen.
func randomSource(rng *rand.Rand) []imaginedRow {
	var rows []imaginedRow
	for k := range 12 {
		if rng.IntN(3) == 0 {
			continue
		}
		r := imaginedRow{key: fmt.Sprintf("row%02d", k)}
		column := func() []byte {
			f := rng.IntN(5)
			return cell.AppendColumn(nil, []string{"a", "b", "c", "d", "e"}[f], uint64(f)+1, fmt.Sprint("q", rng.IntN(3)))
		}
		for range rng.IntN(12) {
			c := cell.Cell{Col: column(), TS: int64(rng.IntN(6)), Kind: cell.KindSet, Value: fmt.Appendf(nil, "%d", rng.Uint32())}
			if c.Col[0] >= 'd' {
				c.Kind, c.Value = cell.KindMerge, make([]byte, cell.StateLen)
				cell.PutState(c.Value, int64(rng.IntN(200)-100))
			}
			i, dup := slices.BinarySearchFunc(r.cells, c, func(a, b cell.Cell) int { return cell.Compare(a.Col, a.TS, b.Col, b.TS) })
			if !dup {
				r.cells = slices.Insert(r.cells, i, c)
			}
		}
		if rng.IntN(6) == 0 {
			r.ranges = append(r.ranges, cell.FamilyRange([]string{"a", "b", "d", "e"}[rng.IntN(4)]))
		}
		if rng.IntN(12) == 0 {
			r.ranges = []cell.Range{{}}
		}
		byCol := map[string][]cell.Delete{}
		for range rng.IntN(3) {
			col, lo := column(), int64(rng.IntN(6))
			byCol[string(col)] = cell.AddDelete(byCol[string(col)], col, lo, lo+int64(rng.IntN(3)))
		}
		for _, ds := range byCol {
			r.deletes = append(r.deletes, ds...)
		}
		slices.SortStableFunc(r.deletes, func(a, b cell.Delete) int { return bytes.Compare(a.Col, b.Col) })
		rows = append(rows, r)
	}
	return rows
}

// naive is what a merge must give, worked out cell by cell.
func naive(sources [][]imaginedRow) string {
	var b bytes.Buffer
	for k := range 12 {
		key := fmt.Sprintf("row%02d", k)
		present := false
		cells := map[string]cell.Cell{}
		for i := len(sources) - 1; i >= 0; i-- { // oldest first
			for _, r := range sources[i] {
				if r.key != key {
					continue
				}
				present = true
				for id, c := range cells {
					gone := slices.ContainsFunc(r.ranges, func(w cell.Range) bool { return w.Contains(c.Col) }) ||
						slices.ContainsFunc(r.deletes, func(d cell.Delete) bool { return bytes.Equal(d.Col, c.Col) && d.Covers(c.TS) })
					if gone {
						delete(cells, id)
					}
				}
				for _, c := range r.cells {
					id := fmt.Sprintf("%s@%d", c.Col, c.TS)
					if old, ok := cells[id]; ok && c.Kind == cell.KindMerge {
						c.Value = join(c, old)
					}
					cells[id] = c
				}
			}
		}
		if !present {
			continue
		}
		var list []cell.Cell
		for _, c := range cells {
			list = append(list, c)
		}
		slices.SortFunc(list, func(a, b cell.Cell) int { return cell.Compare(a.Col, a.TS, b.Col, b.TS) })
		fmt.Fprintf(&b, "%s:", key)
		rank := 0
		for i, c := range list {
			if rank++; i == 0 || !bytes.Equal(list[i-1].Col, c.Col) {
				rank = 0
			}
			if c.Col[0] == 'c' || (c.Col[0] == 'b' || c.Col[0] == 'e') && rank >= 2 {
				continue
			}
			fmt.Fprintf(&b, " %q@%d=%s", c.Col, c.TS, valueText(c))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func join(c, old cell.Cell) []byte {
	n, _ := cell.State(c.Value)
	o, _ := cell.State(old.Value)
	if c.Col[0] == 'd' {
		n += o
	} else {
		n = max(n, o)
	}
	p := make([]byte, cell.StateLen)
	cell.PutState(p, n)
	return p
}

func valueText(c cell.Cell) string {
	if n, ok := cell.State(c.Value); ok && c.Kind == cell.KindMerge {
		return fmt.Sprint(n)
	}
	return string(c.Value)
}

func text(m *Iter, room int) string {
	var b bytes.Buffer
	buf := make([]cell.Cell, 0, room)
	fmt.Fprintf(&b, "%s:", m.Row())
	for buf = m.Cells(buf[:0]); len(buf) > 0; buf = m.Cells(buf[:0]) {
		for _, c := range buf {
			fmt.Fprintf(&b, " %q@%d=%s", c.Col, c.TS, valueText(c))
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// Random sources, joined in both directions and cut at every row, give what a cell-by-cell reckoning gives.
func TestMergeAgreesWithACellByCellReckoning(t *testing.T) {
	families := NewFamilies(mergeTable)
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var raw [][]imaginedRow
		var src []cell.Iter
		for range 1 + rng.IntN(5) {
			raw = append(raw, randomSource(rng))
			src = append(src, &imagined{rows: raw[len(raw)-1]})
		}
		want := naive(raw)
		lines := slices.Collect(bytesLines(want))
		m := New(Config{Families: families}, src)
		room := 1 + rng.IntN(5)
		got := ""
		for ok := m.First(); ok; ok = m.Next() {
			got += text(m, room)
		}
		if got != want || m.Err() != nil {
			t.Fatalf("seed %d, forward: got\n%swant\n%s%v", seed, got, want, m.Err())
		}
		got = ""
		for ok := m.Last(); ok; ok = m.Next() {
			got = text(m, room) + got
		}
		if got != want {
			t.Fatalf("seed %d, backward: got\n%swant\n%s", seed, got, want)
		}
		for i, line := range lines {
			key := []byte(line[:5])
			if !m.SeekGE(key) || text(m, room) != line {
				t.Fatalf("seed %d: seek to %s", seed, key)
			}
			if ok := m.SeekLT(key); ok != (i > 0) || ok && text(m, room) != lines[i-1] {
				t.Fatalf("seed %d: seek before %s", seed, key)
			}
		}
	}
}

func bytesLines(s string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, l := range bytes.SplitAfter([]byte(s), []byte("\n")) {
			if len(l) > 0 && !yield(string(l)) {
				return
			}
		}
	}
}

// A cell of a life that was never given is damage, not garbage.
func TestUnknownLifeIsDamage(t *testing.T) {
	rows := []imaginedRow{{key: "r", cells: []cell.Cell{{Col: cell.AppendColumn(nil, "a", 9, "q"), TS: 1, Kind: cell.KindSet}}}}
	m := New(Config{Families: NewFamilies(mergeTable)}, []cell.Iter{&imagined{rows: rows}})
	if m.First(); len(m.Cells(make([]cell.Cell, 0, 4))) != 0 || m.Err() == nil {
		t.Fatalf("no error: %v", m.Err())
	}
}
