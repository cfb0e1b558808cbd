package merge_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// A Scan, with and without runs, has the rows and cells of an Iter over the same sources, in both directions.
func TestScanIsIter(t *testing.T) {
	runs := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		fs := vfs.NewMem()
		var files []func() cell.Iter
		for n := range 1 + r.IntN(4) {
			rd := file(t, r, fs, int(seed)*10+n+1, 20+r.IntN(200), r.IntN(2) == 0)
			files = append(files, func() cell.Iter { return rd.NewIter(cell.IterOptions{Pass: true}) })
		}
		sources := func() (out []cell.Iter) {
			for _, f := range files {
				out = append(out, f())
			}
			return out
		}
		rule := []gc.Rule{gc.NoPolicy(), gc.MaxVersionsPolicy(1), gc.MaxVersionsPolicy(2)}[r.IntN(3)]
		tab := &levels.Table{Name: "t", HighestLife: 2, Families: []levels.Family{
			{Name: "f", Life: 1, Rule: rule}, {Name: "g", Life: 2, Fold: cell.FoldSum}}}
		cfg := merge.Config{Families: merge.NewFamilies(tab), AsOf: 100}
		var s merge.Scan
		for _, back := range []bool{false, true} {
			m := merge.New(cfg, sources())
			s.Reset(cfg, sources())
			key := fmt.Appendf(nil, "row%03d", r.IntN(150))
			var a, b bool
			switch seek := r.IntN(2) == 0; {
			case back && seek:
				a, b = m.SeekLT(key), s.SeekLT(key)
			case back:
				a, b = m.Last(), s.Last()
			case seek:
				a, b = m.SeekGE(key), s.SeekGE(key)
			default:
				a, b = m.First(), s.First()
			}
			for a && b {
				if r.IntN(2) == 0 {
					if sp, _, from, to := s.Run(); sp != nil { // its rows are those of the Iter; the cells are what rules are asked about
						runs++
						for n := range to - from {
							row := from + n
							if back {
								row = to - 1 - n
							}
							if key := sp.Keys.AppendRow(nil, row); !bytes.Equal(key, m.Row()) {
								t.Fatalf("seed %d, back %v: a run has %q, want %q", seed, back, key, m.Row())
							}
							if n < to-from-1 {
								m.Next()
							}
						}
						a, b = m.Next(), s.Next()
						continue
					}
				}
				if !bytes.Equal(m.Row(), s.Row()) {
					t.Fatalf("seed %d, back %v: on %q, want %q", seed, back, s.Row(), m.Row())
				}
				if want, got := all(m.Cells), all(s.Cells); want != got {
					t.Fatalf("seed %d, row %q:\n%s\nwant\n%s", seed, s.Row(), got, want)
				}
				a, b = m.Next(), s.Next()
			}
			must(t, m.Err())
			must(t, s.Err())
			if a != b {
				t.Fatalf("seed %d, back %v: one has ended", seed, back)
			}
			must(t, m.Close())
			must(t, s.Close())
		}
	}
	if runs < 1000 {
		t.Fatalf("only %d runs", runs)
	}
}

// all shows all cells of a row.
func all(next func([]cell.Cell) []cell.Cell) string {
	var out []byte
	buf := make([]cell.Cell, 0, 40)
	for cells := next(buf); len(cells) > 0; cells = next(buf) {
		for _, c := range cells {
			out = fmt.Appendf(out, "%q@%d=%x\n", c.Col, c.TS, c.Value)
		}
	}
	return string(out)
}
