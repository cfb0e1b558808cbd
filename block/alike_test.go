package block

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// Rows like the one before are placed as a whole, and the block is the one that they give cell by cell: with rows that differ from
// the one before in a column, a kind, a timestamp, a version or the place of a value, with values that are empty or fill chunks,
// and with blocks that are full in the middle of a row.
func TestRowsLikeTheOneBefore(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	alike, refused := 0, 0
	for round := range 3000 {
		cols := make([][]byte, 4+rng.IntN(8))
		for i := range cols {
			cols[i] = fmt.Appendf(nil, "f\x00\x01%02d", i)
		}
		vals := make([]byte, 64<<10)
		for i := range vals {
			vals[i] = byte(rng.Uint32())
		}
		at := 0
		odd := func(n int) bool { return rng.IntN(n) == 0 }
		often := 1 + rng.IntN(60) // one row in so many has something odd
		size := rng.IntN(300)
		var rows []cell.BatchRow
		var like []bool // rows that can be placed as a whole, if the one before is one too
		for r := range 1 + rng.IntN(30) {
			ts := int64(1 + rng.IntN(3))
			var cs []cell.Cell
			regular := true
			for i, col := range cols {
				n := size
				if odd(often * len(cols)) {
					n = rng.IntN(600)
				}
				if at+n > len(vals) {
					at, regular = 0, false
				}
				c := cell.Cell{Col: col, TS: ts, Value: vals[at : at+n], Dict: 7, Code: uint16(i), Kind: cell.KindSet}
				at += n
				if odd(often * len(cols)) {
					regular = false
					switch rng.IntN(7) {
					case 0:
						c.TS = int64(rng.IntN(4))
					case 1:
						c.Kind = cell.KindMerge
					case 2:
						at++ // a gap
					case 3:
						c.Dict = 8
					case 4:
						continue // no such column
					case 5:
						cs = append(cs, c) // the same cell twice, which is refused
					case 6:
						c.Value = bytes.Clone(c.Value)
					}
				}
				cs = append(cs, c)
			}
			if len(cs) > 0 {
				rows = append(rows, cell.BatchRow{Key: fmt.Appendf(nil, "row%03d", r), Cells: cs})
				like = append(like, regular)
			}
		}
		limit := 200 + rng.IntN(20<<10)
		overflow := limit + limit/4
		var whole, single Builder
		whole.Reset()
		single.Reset()
		n, cells, ok := whole.AddRows(rows, limit, overflow)
		for i := 1; i < n-1; i++ {
			if like[i-1] && like[i] {
				alike++
			}
		}
		// Cell by cell, stopping where AddRows stopped.
		for i := range n {
			cs := rows[i].Cells
			if i == n-1 {
				cs = cs[:cells]
			}
			single.StartRow(rows[i].Key, false)
			for j := range cs {
				if single.Add(&cs[j]) < 0 {
					t.Fatalf("round %d: row %d, cell %d was taken, and is refused alone", round, i, j)
				}
			}
		}
		if !ok {
			refused++
			if n == 0 || single.Add(&rows[n-1].Cells[cells]) >= 0 {
				t.Fatalf("round %d: row %d, cell %d was refused, and is taken alone", round, n-1, cells)
			}
			continue
		}
		a, b := whole.AppendKeys(nil, make([]uint32, whole.Chunks())), single.AppendKeys(nil, make([]uint32, single.Chunks()))
		if !bytes.Equal(a, b) || whole.Chunks() != single.Chunks() || whole.Size() != single.Size() || whole.Same() != single.Same() {
			t.Fatalf("round %d: another block", round)
		}
		for i := range whole.Chunks() {
			if !bytes.Equal(whole.Chunk(i), single.Chunk(i)) {
				t.Fatalf("round %d: chunk %d differs", round, i)
			}
		}
		// It ended where it may: full, or with all rows.
		if n < len(rows) && whole.Size() < limit && !whole.Full() {
			t.Fatalf("round %d: %d of %d rows in %d bytes of %d", round, n, len(rows), whole.Size(), limit)
		}
		if full := len(rows[n-1].Cells) > cells; full && whole.Size() < overflow {
			t.Fatalf("round %d: a row was cut at %d bytes of %d", round, whole.Size(), overflow)
		}
	}
	if alike < 10_000 || refused < 100 {
		t.Errorf("%d rows were like the one before, %d blocks refused a cell", alike, refused)
	}
}

// A row that has a column twice at one timestamp is refused, also behind one that has two versions there.
func TestSameCellTwiceBehindTwoVersions(t *testing.T) {
	row := func(key string, stamps ...int64) cell.BatchRow {
		vals := make([]byte, 4*len(stamps))
		r := cell.BatchRow{Key: []byte(key)}
		for i, ts := range stamps {
			code := uint16(max(i-1, 0)) // the first column twice
			c := cell.Cell{Col: fmt.Appendf(nil, "f\x00\x01%02d", code), TS: ts, Value: vals[4*i : 4*i+4], Dict: 7, Code: code, Kind: cell.KindSet}
			r.Cells = append(r.Cells, c)
		}
		return r
	}
	var b Builder
	b.Reset()
	n, cells, ok := b.AddRows([]cell.BatchRow{row("a", 9, 8, 9, 9), row("b", 9, 9, 9, 9)}, 1<<20, 1<<20)
	if ok || n != 2 || cells != 1 {
		t.Fatalf("%d rows, %d cells of the last, %v", n, cells, ok)
	}
}
