package memtable

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// addAll applies states to one cell, with a delete of everything before the state number cut.
func addAll(t *testing.T, fold cell.Fold, states []int64, cut int) *Table {
	t.Helper()
	tab := New(Options{})
	for i, n := range states {
		seq := uint64(2*i + 2)
		if i == cut {
			if err := tab.DeleteRange([]byte("r"), cell.Range{}, seq-1); err != nil {
				t.Fatal(err)
			}
		}
		if err := tab.Add([]byte("r"), []byte("f\x00\x01q"), 7, fold, n, seq); err != nil {
			t.Fatal(err)
		}
	}
	return tab
}

func stateAsOf(t *testing.T, tab *Table, seq uint64) (int64, bool) {
	t.Helper()
	it := tab.NewIter(seq, cell.IterOptions{})
	defer it.Close()
	if !it.SeekGE([]byte("r")) {
		return 0, false
	}
	cells := it.Cells(make([]cell.Cell, 0, 4))
	if len(cells) == 0 {
		return 0, false
	}
	if len(cells) > 1 || cells[0].Kind != cell.KindMerge {
		t.Fatalf("cells %v", cells)
	}
	return cell.State(cells[0].Value)
}

// As of every sequence the fold is that of the Adds up to it and since the last delete.
func TestAddsFoldAsOfEverySequence(t *testing.T) {
	states := []int64{5, -3, math.MaxInt64, 4, 9, -11, 2}
	for _, fold := range []cell.Fold{cell.FoldSum, cell.FoldMin, cell.FoldMax} {
		for _, cut := range []int{-1, 0, 3, 6} {
			tab := addAll(t, fold, states, cut)
			for i := range states {
				from := 0
				if cut >= 0 && i >= cut {
					from = cut
				}
				want := states[from]
				for _, n := range states[from+1 : i+1] {
					want = fold.Join(n, want)
				}
				if got, ok := stateAsOf(t, tab, uint64(2*i+2)); !ok || got != want {
					t.Errorf("fold %d, deleted before %d, as of Add %d: %d, want %d", fold, cut, i, got, want)
				}
			}
			if err := tab.Release(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A narrow delete resets only the timestamps it covers.
func TestAddStartsAnewBehindANarrowDelete(t *testing.T) {
	for _, c := range []struct {
		lo, hi, want int64
	}{{0, 6, 12}, {8, 9, 12}, {7, 7, 2}, {0, math.MaxInt64, 2}} {
		tab := addAll(t, cell.FoldSum, []int64{4, 6}, -1)
		if err := tab.Delete([]byte("r"), cell.Delete{Col: []byte("f\x00\x01q"), Lo: c.lo, Hi: c.hi}, 90); err != nil {
			t.Fatal(err)
		}
		if err := tab.Add([]byte("r"), []byte("f\x00\x01q"), 7, cell.FoldSum, 2, 91); err != nil {
			t.Fatal(err)
		}
		if got, _ := stateAsOf(t, tab, 91); got != c.want {
			t.Errorf("delete of %d..%d: %d, want %d", c.lo, c.hi, got, c.want)
		}
		if err := tab.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	tab := New(Options{})
	defer tab.Release()
	row, col, seq := []byte("r"), []byte("f\x00\x01q"), uint64(0)
	if n := testing.AllocsPerRun(2000, func() {
		seq++
		if err := tab.Add(row, col, 7, cell.FoldSum, 1, seq); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations an Add", n)
	}
	if got, _ := stateAsOf(t, tab, seq); got != int64(seq) {
		t.Errorf("sum %d of %d ones", got, seq)
	}
}

// Newest agrees with the model, for rows and columns that are there and for some that are not.
func TestNewestAgreesWithModel(t *testing.T) {
	for i, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 8))
			tab, m := New(Options{}), &model{}
			defer tab.Release()
			var it Iter
			defer it.Close()
			seen := map[Deleted]int{}
			for seq := uint64(1); seq <= 1500; seq++ {
				row, col := s.row(r.IntN(s.rows)), s.col(r)
				m.apply(t, tab, row, s.change(r, seq))
				if seq%3 > 0 {
					continue
				}
				c, ok, deleted := tab.Newest(&it, []byte(row), cell.Range{From: col, To: append(bytes.Clone(col), 0)})
				got := ""
				if ok {
					got = textCell(c)
				}
				seen[deleted]++
				v, _ := m.view(row, seq)
				want := ""
				prefix := fmt.Sprintf("%q@", col)
				if n := slices.IndexFunc(v.cells, func(s string) bool { return bytes.HasPrefix([]byte(s), []byte(prefix)) }); n >= 0 {
					want = v.cells[n]
				}
				if got != want || deleted != m.deleted(row, col) {
					t.Fatalf("%q %q after change %d: %s, deletes %d; want %s, deletes %d", row, col, seq, got, deleted, want, m.deleted(row, col))
				}
			}
			if s.rows < 10 && s.cols < 10 && (seen[DeletedSome] == 0 || seen[DeletedAll] == 0 || seen[DeletedNone] == 0) {
				t.Errorf("not all was seen: %v", seen)
			}
		})
	}
}

// deleted is how much of a column in older sources a row's changes delete. Ranges of timestamps that together are all count as
// some: nobody merges them for a reader.
func (m *model) deleted(row string, col []byte) (d Deleted) {
	highest := int64(-1)
	for _, c := range m.rows[row] {
		switch {
		case c.kind == kindRangeUp && bytes.Compare(c.col, col) <= 0, c.kind == kindRange && bytes.Compare(c.col, col) <= 0 && bytes.Compare(col, c.val) < 0:
			return DeletedAll
		case c.kind == kindDelete && bytes.Equal(c.col, col) && c.ts >= highest:
			highest, d = c.ts, DeletedSome // the last one with the highest end
			if c.ts == math.MaxInt64 && loOf(c) == 0 {
				d = DeletedAll
			}
		}
	}
	return d
}
