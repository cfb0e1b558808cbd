package sstable

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
)

// TestBatches copies files by rows and by batches in any mixture: the copy must be the same bytes.
func TestBatches(t *testing.T) {
	batched, rowwise := 0, 0
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 77))
		o := randOptions(r)
		tab := randTable(r, randShape(r))
		first, props := write(t, tab, o)
		var plain bytes.Buffer // the order of blocks depends on that of the calls
		x := NewWriter(&plain, o)
		for _, row := range tab {
			must(t, x.StartRow(row.key))
			must(t, x.AddRanges(row.ranges))
			must(t, x.AddDeletes(row.dels))
			must(t, x.AddCells(row.cells))
		}
		_, err := x.Finish(props.Bounds, 3, 9)
		must(t, err)
		p := plain.Bytes()
		rd := open(t, r, first)
		it := rd.NewIter(cell.IterOptions{NoFill: r.IntN(2) == 0})
		var out bytes.Buffer
		w := NewWriter(&out, o)
		var b cell.Batch
		buf := make([]cell.Cell, 0, 50)
		at := 0
		for ok := it.First(); ok; ok = it.Next() {
			var stop []byte
			if r.IntN(2) == 0 {
				stop = tab[min(len(tab)-1, at+r.IntN(10))].key
			}
			if b.Reset(); r.IntN(5) > 0 {
				it.NextBatch(&b, stop)
			}
			if len(b.Rows) == 0 {
				must(t, w.StartRow(it.Row()))
				must(t, w.AddRanges(it.Ranges(nil)))
				for ds := it.Deletes(make([]cell.Delete, 0, 9)); len(ds) > 0; ds = it.Deletes(ds[:0]) {
					must(t, w.AddDeletes(ds))
				}
				for cs := it.Cells(buf); len(cs) > 0; cs = it.Cells(buf) {
					must(t, w.AddCells(cs))
				}
				at++
				rowwise++
				continue
			}
			batched += len(b.Rows)
			for _, row := range b.Rows {
				want := tab[at]
				if !bytes.Equal(row.Key, want.key) || len(row.Cells) != len(want.cells) || len(want.ranges)+len(want.dels) > 0 {
					t.Fatalf("seed %d: row %q of %d cells in a batch, want %q of %d", seed, row.Key, len(row.Cells), want.key, len(want.cells))
				}
				if stop != nil && bytes.Compare(row.Key, stop) >= 0 {
					t.Fatalf("seed %d: row %q is not below %q", seed, row.Key, stop)
				}
				for i, c := range row.Cells {
					if x := want.cells[i]; !bytes.Equal(c.Col, x.Col) || c.TS != x.TS || !bytes.Equal(c.Value, x.Value) || c.Kind != x.Kind || c.Value == nil {
						t.Fatalf("seed %d: row %q: cell %d is %v, want %v", seed, row.Key, i, c, x)
					}
				}
				at++
			}
			must(t, w.AddRows(b.Rows))
			if last := tab[at-1].key; !bytes.Equal(it.Row(), last) || len(it.Cells(buf)) > 0 {
				t.Fatalf("seed %d: on row %q after a batch, want the end of %q", seed, it.Row(), last)
			}
			if r.IntN(8) == 0 && at > 1 && !(it.Prev() && it.Next() && bytes.Equal(it.Row(), tab[at-1].key)) {
				t.Fatalf("seed %d: back and forth after a batch leads to %q", seed, it.Row())
			}
		}
		must(t, it.Err())
		it.Close()
		_, err = w.Finish(props.Bounds, 3, 9)
		must(t, err)
		if at != len(tab) || !bytes.Equal(out.Bytes(), p) {
			t.Fatalf("seed %d: copy of %d rows has %d bytes, the original of %d %d", seed, at, out.Len(), len(tab), len(p))
		}
	}
	if batched < 1000 || rowwise < 1000 {
		t.Fatalf("%d rows in batches, %d alone", batched, rowwise)
	}
}

func TestBatchRefused(t *testing.T) {
	good := cell.Cell{Col: cell.AppendColumn(nil, "f", 1, "q"), TS: 5, Kind: cell.KindSet}
	old, neg := good, good
	old.TS, neg.TS = 4, -1
	row := func(key string, cs ...cell.Cell) cell.BatchRow { return cell.BatchRow{Key: []byte(key), Cells: cs} }
	for name, x := range map[string]struct {
		rows []cell.BatchRow
		want error
	}{
		"rows":     {[]cell.BatchRow{row("b", good), row("a", good)}, ErrOrder},
		"same row": {[]cell.BatchRow{row("b", good), row("b", good)}, ErrOrder},
		"before":   {[]cell.BatchRow{row("0", good)}, ErrOrder},
		"cells":    {[]cell.BatchRow{row("b", good), row("c", old, good)}, ErrOrder},
		"twice":    {[]cell.BatchRow{row("b", good, good)}, ErrOrder},
		"time":     {[]cell.BatchRow{row("b", good), row("c", neg)}, ErrEntry},
		"empty":    {[]cell.BatchRow{row("b", good), row("c"), row("d", good)}, ErrEntry},
		"column":   {[]cell.BatchRow{row("b", cell.Cell{Col: []byte("x"), Kind: cell.KindSet})}, ErrEntry},
		"no key":   {[]cell.BatchRow{row("", good)}, ErrOrder},
	} {
		w := NewWriter(new(bytes.Buffer), WriterOptions{ID: 1})
		must(t, w.AddRows([]cell.BatchRow{row("a", good, old)}))
		if err := w.AddRows(x.rows); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err := w.StartRow([]byte("z")); !errors.Is(err, x.want) {
			t.Errorf("%s: afterwards %v", name, err)
		}
	}
}

func TestBatchesAllocateNothing(t *testing.T) {
	tab := benchTable(true, 20_000)
	p, _ := write(t, tab, WriterOptions{ID: 1, Codec: block.CodecS2})
	rd, err := Open(&byteFile{b: p}, ReaderOptions{})
	must(t, err)
	defer rd.Close()
	it := rd.NewIter(cell.IterOptions{NoFill: true})
	defer it.Close()
	var b cell.Batch
	pass := func() {
		rows := 0
		for ok := it.First(); ok; ok = it.Next() {
			it.NextBatch(&b, nil)
			rows += len(b.Rows)
		}
		if rows != len(tab) {
			t.Fatalf("%d rows in batches, want %d (%v)", rows, len(tab), it.Err())
		}
	}
	pass()
	if n := testing.AllocsPerRun(2, pass); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
