package sstable

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// TestIteratorAgainstReference writes random tables with random options and compares every kind of move with a sorted slice.
func TestIteratorAgainstReference(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			full := randTable(r, randShape(r))
			b, _ := write(t, full, randOptions(r))
			rd := open(t, r, b)
			must(t, rd.Verify(context.Background(), nil))
			for range 3 {
				o := randIter(r, full)
				m := mover{t: t, r: r, it: rd.NewIter(o), full: full, tab: full.restrict(o), o: o, at: -1}
				m.run(150)
				must(t, m.it.Close())
				must(t, m.it.Close())
				if m.it.First() || m.it.Err() == nil {
					t.Fatal("a closed iterator moves")
				}
			}
		})
	}
}

func randIter(r *rand.Rand, tab refTable) cell.IterOptions {
	o := cell.IterOptions{KeysOnly: r.IntN(3) == 0, NoFill: r.IntN(2) == 0}
	col := func() []byte {
		row := tab[r.IntN(len(tab))]
		if len(row.cells) > 0 {
			return row.cells[r.IntN(len(row.cells))].Col
		}
		return []byte("fam\x00")
	}
	if r.IntN(3) == 0 {
		o.Columns = cell.Range{From: col()}
		if to := col(); bytes.Compare(o.Columns.From, to) < 0 {
			o.Columns.To = to
		}
	}
	if r.IntN(4) == 0 {
		i := r.IntN(len(tab))
		j := i + r.IntN(len(tab)-i)
		o.Bounds = &cell.Bounds{LoRow: tab[i].key, HiRow: tab[j].key}
		if r.IntN(2) == 0 {
			o.Bounds.LoCol = col()
		}
		if c := col(); r.IntN(2) == 0 && bytes.Compare(o.Bounds.LoCol, c) < 0 {
			o.Bounds.HiCol = c
		}
	}
	return o
}

// mover drives an iterator and the reference side by side.
type mover struct {
	t    *testing.T
	r    *rand.Rand
	it   *Iter
	full refTable
	tab  refTable
	o    cell.IterOptions
	at   int // row of the reference, -1: none
}

func (m *mover) run(steps int) {
	for range steps {
		ok := false
		switch n := m.r.IntN(10); {
		case n == 0:
			ok, m.at = m.it.First(), 0
		case n == 1:
			ok, m.at = m.it.Last(), len(m.tab)-1
		case n <= 3:
			k := m.key()
			ok, m.at = m.it.SeekGE(k), m.tab.search(k)
		case n <= 5:
			k := m.key()
			ok, m.at = m.it.SeekLT(k), m.tab.search(k)-1
		case m.at < 0 || m.at >= len(m.tab):
			continue
		case n <= 7:
			ok, m.at = m.it.Next(), m.at+1
		default:
			ok, m.at = m.it.Prev(), m.at-1
		}
		must(m.t, m.it.Err())
		want := m.at >= 0 && m.at < len(m.tab)
		if ok != want {
			m.t.Fatalf("move says %v, reference %v (row %d of %d)", ok, want, m.at, len(m.tab))
		}
		if !ok {
			m.at = -1
			continue
		}
		row := m.tab[m.at]
		if !bytes.Equal(m.it.Row(), row.key) {
			m.t.Fatalf("on row %q, want %q", m.it.Row(), row.key)
		}
		m.entries(row)
		if !bytes.Equal(m.it.Row(), row.key) {
			m.t.Fatalf("row became %q, want %q", m.it.Row(), row.key)
		}
	}
}

func (m *mover) key() []byte {
	k := bytes.Clone(m.full[m.r.IntN(len(m.full))].key)
	switch m.r.IntN(5) {
	case 0:
		k = append(k, 0)
	case 1:
		k = k[:len(k)-1]
	case 2:
		k[len(k)-1]++
	}
	return k
}

// entries reads some of the row's entries in a random way.
func (m *mover) entries(row refRow) {
	if m.r.IntN(2) == 0 {
		checkRanges(m.t, m.it.Ranges(nil), row.ranges)
	}
	for m.r.IntN(3) > 0 {
		from := 0
		if m.r.IntN(2) == 0 && len(row.cells) > 0 {
			col, ts := m.place(row)
			m.it.SeekCell(col, ts)
			for from < len(row.cells) && cell.Compare(row.cells[from].Col, row.cells[from].TS, col, ts) < 0 {
				from++
			}
		} else {
			m.it.SeekCell(nil, math.MaxInt64)
		}
		m.cells(row.cells[from:])
	}
	if m.r.IntN(3) == 0 {
		from := 0
		if len(row.dels) > 0 && m.r.IntN(2) == 0 {
			col := row.dels[m.r.IntN(len(row.dels))].Col
			if m.r.IntN(2) == 0 {
				col = append(bytes.Clone(col), 0)
			}
			m.it.SeekDelete(col)
			for from < len(row.dels) && bytes.Compare(row.dels[from].Col, col) < 0 {
				from++
			}
		}
		m.deletes(row.dels[from:])
	}
	if m.r.IntN(4) == 0 {
		checkRanges(m.t, m.it.Ranges(nil), row.ranges)
	}
}

func (m *mover) place(row refRow) ([]byte, int64) {
	c := row.cells[m.r.IntN(len(row.cells))]
	switch m.r.IntN(4) {
	case 0:
		return append(bytes.Clone(c.Col), 0), c.TS
	case 1:
		return c.Col, c.TS - 1
	case 2:
		return c.Col, math.MaxInt64
	}
	return c.Col, c.TS
}

func (m *mover) cells(want []cell.Cell) {
	buf := make([]cell.Cell, 0, 1+m.r.IntN(40))
	stop := m.r.IntN(2) == 0
	codes := map[[2]int]string{}
	for n := 0; n < len(want); {
		got := m.it.Cells(buf[:0])
		if len(got) == 0 {
			m.t.Fatalf("%d cells, want %d (%v)", n, len(want), m.it.Err())
		}
		for _, g := range got {
			if n >= len(want) {
				m.t.Fatalf("too many cells: %q", g.Col)
			}
			w := want[n]
			if !bytes.Equal(g.Col, w.Col) || g.TS != w.TS || !bytes.Equal(g.Value, w.Value) || g.Kind != w.Kind {
				m.t.Fatalf("cell %d is %q %d %d B kind %d, want %q %d %d B kind %d", n, g.Col, g.TS, len(g.Value), g.Kind, w.Col, w.TS, len(w.Value), w.Kind)
			}
			if g.Value == nil != m.o.KeysOnly {
				m.t.Fatalf("value nil: %v", g.Value == nil)
			}
			id := [2]int{int(g.Dict), int(g.Code)}
			if c, ok := codes[id]; ok && c != string(g.Col) {
				m.t.Fatalf("code %v is %q and %q", id, c, g.Col)
			}
			codes[id] = string(g.Col)
			n++
		}
		if stop && m.r.IntN(3) == 0 {
			return
		}
	}
	if got := m.it.Cells(buf[:0]); len(got) != 0 {
		m.t.Fatalf("more cells: %q", got[0].Col)
	}
}

func (m *mover) deletes(want []cell.Delete) {
	buf := make([]cell.Delete, 0, 1+m.r.IntN(40))
	var all []cell.Delete // bytes stay valid over calls
	for len(all) < len(want) {
		got := m.it.Deletes(buf[:0])
		if len(got) == 0 {
			m.t.Fatalf("%d deletes, want %d (%v)", len(all), len(want), m.it.Err())
		}
		all = append(all, got...)
	}
	if got := m.it.Deletes(buf[:0]); len(got) != 0 {
		m.t.Fatalf("more deletes: %v", got)
	}
	for i, g := range all {
		if w := want[i]; !bytes.Equal(g.Col, w.Col) || g.Lo != w.Lo || g.Hi != w.Hi {
			m.t.Fatalf("delete %d is %q [%d,%d], want %q [%d,%d]", i, g.Col, g.Lo, g.Hi, w.Col, w.Lo, w.Hi)
		}
	}
}

func checkRanges(t *testing.T, got, want []cell.Range) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d ranges, want %d", len(got), len(want))
	}
	for i, g := range got {
		if w := want[i]; !bytes.Equal(g.From, w.From) || !bytes.Equal(g.To, w.To) || (g.To == nil) != (w.To == nil) {
			t.Fatalf("range %d is %q %q, want %q %q", i, g.From, g.To, w.From, w.To)
		}
	}
}
