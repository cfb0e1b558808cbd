package merge

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/levels"
)

// counted counts the cells that a source hands out.
type counted struct {
	*imagined
	n *int
}

func (c counted) Cells(dst []cell.Cell) []cell.Cell {
	from := len(dst)
	dst = c.imagined.Cells(dst)
	*c.n += len(dst) - from
	return dst
}

// A column with thousands of versions that its rule drops is not read version by version, in one source or in several; what a read
// shows is what one shows that reads them all.
func TestReadsPassOverWhatRulesDrop(t *testing.T) {
	families := NewFamilies(&levels.Table{ID: 1, Name: "t", Families: []levels.Family{
		{Name: "few", Life: 1, Rule: gc.MaxVersionsPolicy(2)}, {Name: "young", Life: 1, Rule: gc.MaxAgePolicy(9000)}, {Name: "all", Life: 1},
	}})
	column := func(family, q string) []byte { return cell.AppendColumn(nil, family, 1, q) }
	const versions = 5000
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		sources := 1 + int(seed)%4
		rows := make([]imaginedRow, sources)
		for i := range rows {
			rows[i].key = "row"
		}
		put := func(family, q string, n int) {
			for v := n; v > 0; v-- {
				s := &rows[rng.IntN(sources)]
				s.cells = append(s.cells, cell.Cell{Col: column(family, q), TS: int64(v), Value: fmt.Appendf(nil, "%d", v), Kind: cell.KindSet})
			}
		}
		put("all", "a", 3)
		for i := range 4 {
			put("few", fmt.Sprint(i), []int{1, versions, 40, versions}[(i+int(seed))%4])
		}
		put("young", "a", versions)
		if sources > 1 {
			rows[0].deletes = []cell.Delete{{Col: column("few", "1"), Lo: 1, Hi: 3}}
		}
		read := func(pass bool) (shown string, handed int) {
			var src []cell.Iter
			for i := range rows {
				src = append(src, counted{&imagined{rows: rows[i : i+1]}, &handed})
			}
			m := New(Config{Families: families, AsOf: versions + 8, Pass: pass}, src)
			if !m.First() {
				t.Fatal("no row")
			}
			return text(m, 1+int(seed)%7), handed
		}
		want, all := read(false)
		got, few := read(true)
		if got != want {
			t.Fatalf("seed %d: got\n%swant\n%s", seed, got, want)
		}
		if all < 3*versions/2 || few > 600*sources {
			t.Errorf("seed %d: %d cells were read of %d sources, %d without passing over", seed, few, sources, all)
		}
	}
}
