package sstable

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cache"
	"github.com/rowandb/rowan/cell"
)

// Spans and single rows in any mixture show the rows of the file, forward and backward, and a span ends before its stop.
func TestSpans(t *testing.T) {
	inSpans, alone := 0, 0
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 78))
		tab := randTable(r, randShape(r))
		file, _ := write(t, tab, randOptions(r))
		var c *cache.Cache
		if seed%2 == 0 {
			c = cache.New(1 << 20)
		}
		rd, err := Open(&byteFile{b: file}, ReaderOptions{Cache: c, Mode: ReadMode(seed % 2)})
		must(t, err)
		for _, back := range []bool{false, true, false, true} { // cold and warm
			it := rd.NewIter(cell.IterOptions{Pass: true})
			at, step, move, ok := 0, 1, it.Next, false
			if back {
				at, step, move = len(tab)-1, -1, it.Prev
				ok = it.Last()
			} else {
				ok = it.First()
			}
			var sp block.Span
			var cells []cell.Cell
			for ; ok; ok = move() {
				var stop []byte
				if r.IntN(3) == 0 {
					stop = tab[min(max(at+step*r.IntN(10), 0), len(tab)-1)].key
				}
				if r.IntN(5) == 0 || !it.Span(&sp, stop, back) {
					must(t, it.Err())
					if !bytes.Equal(it.Row(), tab[at].key) {
						t.Fatalf("seed %d, back %v: on %q, want %q", seed, back, it.Row(), tab[at].key)
					}
					at += step
					alone++
					continue
				}
				rows := sp.To - sp.From
				inSpans += rows
				for n := range rows {
					row := sp.From + n
					if back {
						row = sp.To - 1 - n
					}
					want := tab[at]
					key := sp.Keys.AppendRow(nil, row)
					if cells, ok = sp.AppendRow(cells[:0], row); !ok {
						t.Fatal(it.Err())
					}
					if !bytes.Equal(key, want.key) || len(cells) != len(want.cells) || len(want.ranges)+len(want.dels) > 0 {
						t.Fatalf("seed %d, back %v: %q with %d cells in a span, want %q with %d", seed, back, key, len(cells), want.key, len(want.cells))
					}
					if x := bytes.Compare(key, stop); stop != nil && (x >= 0 && !back || x < 0 && back) {
						t.Fatalf("seed %d, back %v: %q lies beyond %q", seed, back, key, stop)
					}
					for i, c := range cells {
						if x := want.cells[i]; !bytes.Equal(c.Col, x.Col) || c.TS != x.TS || !bytes.Equal(c.Value, x.Value) || c.Kind != x.Kind {
							t.Fatalf("seed %d, back %v, row %q: cell %d is %v, want %v", seed, back, key, i, c, x)
						}
					}
					if r.IntN(3) == 0 && sp.Chunk.To > 0 {
						first, _ := sp.Keys.RowCells(row)
						sp.Values.Ahead(first, first)
					}
					at += step
				}
				if last := tab[at-step].key; !bytes.Equal(it.Row(), last) {
					t.Fatalf("seed %d, back %v: on %q after a span, want %q", seed, back, it.Row(), last)
				}
			}
			must(t, it.Err())
			must(t, it.Close())
			if at != len(tab) && at != -1 {
				t.Fatalf("seed %d, back %v: ended at row %d of %d", seed, back, at, len(tab))
			}
		}
		must(t, rd.Close())
	}
	if inSpans < 1000 || alone < 1000 {
		t.Fatalf("%d rows in spans, %d alone", inSpans, alone)
	}
}
