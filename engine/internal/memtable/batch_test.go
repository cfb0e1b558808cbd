package memtable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// checkBatches walks forward, by batches where the iterator gives some: rows, cells and what is refused must be what the plain
// walk gives, and the iterator must stand on the last row of each batch, for moves in both directions.
func (m *model) checkBatches(t testing.TB, tab *Table, seq uint64, r *rand.Rand) {
	t.Helper()
	it := tab.NewIter(seq, cell.IterOptions{})
	defer it.Close()
	want := m.visible(seq)
	var b cell.Batch
	n, many := 0, 0
	ok := it.First()
	for ok {
		if n == len(want) || string(it.Row()) != want[n] {
			t.Fatalf("row %d is %q", n, it.Row())
		}
		var stop []byte
		if r.IntN(3) == 0 {
			stop = []byte(want[min(n+r.IntN(100), len(want)-1)])
		}
		it.NextBatch(&b, stop)
		if len(b.Rows) == 0 {
			m.checkRow(t, it, seq, r)
			n++
			ok = it.Next()
			continue
		}
		if len(b.Rows) > 1 {
			many++
		}
		for _, row := range b.Rows {
			if n == len(want) || string(row.Key) != want[n] || stop != nil && bytes.Compare(row.Key, stop) >= 0 {
				t.Fatalf("row %d of a batch that ends below %q is %q", n, stop, row.Key)
			}
			var got rowView
			for _, c := range row.Cells {
				got.cells = append(got.cells, textCell(c))
			}
			if v, _ := m.view(want[n], seq); fmt.Sprint(got) != fmt.Sprint(v) {
				t.Fatalf("row %q as of %d:\ngot  %q\nwant %q", row.Key, seq, got, v)
			}
			n++
		}
		if string(it.Row()) != want[n-1] || len(it.Cells(make([]cell.Cell, 0, 1))) != 0 {
			t.Fatalf("after a batch that ends with %q the iterator is on %q or has cells", want[n-1], it.Row())
		}
		if r.IntN(4) == 0 { // there and back
			if back := it.Prev(); back != (n > 1) || back && string(it.Row()) != want[n-2] {
				t.Fatalf("before %q: %v", want[n-1], back)
			} else if back {
				it.Next()
			} else {
				it.First()
			}
		}
		ok = it.Next()
	}
	if n != len(want) {
		t.Fatalf("%d rows, want %d", n, len(want))
	}
	if len(want) > 1000 && many == 0 {
		t.Fatal("no batch had several rows")
	}
}

// A row of more cells than a batch should hold is left to Cells, and the rows before it are handed out.
func TestBatchLeavesLargeRowsAlone(t *testing.T) {
	tab, seq := New(Options{}), uint64(0)
	defer tab.Release()
	set := func(row string, i int) {
		seq++
		if err := tab.Set([]byte(row), fmt.Appendf(nil, "f\x00\x01%06d", i), 1, cell.KindSet, []byte("v"), seq); err != nil {
			t.Fatal(err)
		}
	}
	set("a", 0)
	for i := range batchMax + 1 {
		set("b", i)
	}
	for i := range batchMax {
		set("c", i)
	}
	it := tab.NewIter(seq, cell.IterOptions{})
	defer it.Close()
	var b cell.Batch
	it.First()
	if it.NextBatch(&b, nil); len(b.Rows) != 1 || string(it.Row()) != "a" {
		t.Fatalf("%d rows up to %q", len(b.Rows), it.Row())
	}
	it.Next()
	if it.NextBatch(&b, nil); len(b.Rows) != 0 || len(it.Cells(make([]cell.Cell, 0, 5000))) != batchMax+1 {
		t.Fatalf("%d rows of the large one", len(b.Rows))
	}
	it.Next()
	if it.NextBatch(&b, nil); len(b.Rows) != 1 || len(b.Rows[0].Cells) != batchMax {
		t.Fatalf("%d rows at %q", len(b.Rows), it.Row())
	}
}

// A batch costs no allocation once its memory has grown.
func TestBatchAllocatesNothing(t *testing.T) {
	tab := New(Options{})
	defer tab.Release()
	for i := range 5000 {
		if err := tab.Set(fmt.Appendf(nil, "%06d", i), []byte("f\x00\x01q"), 1, cell.KindSet, []byte("v"), uint64(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	it := tab.NewIter(5000, cell.IterOptions{})
	defer it.Close()
	var b cell.Batch
	walk := func() {
		n := 0
		for ok := it.First(); ok; ok = it.Next() {
			it.NextBatch(&b, nil)
			n += len(b.Rows)
		}
		if n != 5000 {
			t.Fatal(n)
		}
	}
	if walk(); testing.AllocsPerRun(5, walk) != 0 {
		t.Fatal("batches allocate")
	}
}

// Rows that ascend at the table's end may come many at a time, by several writers and mixed with others: the table is the same as if
// they had come one by one.
func TestAppendAgreesWithSet(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	rounds := 40
	if raceEnabled { // one goroutine, so that the detector has nothing to find
		rounds = 13
	}
	for round := range rounds {
		tab, m, seq := New(Options{}), &model{}, uint64(1)
		next := 0
		appended := 0
		for range 300 {
			items := make([]Item, 1+r.IntN(40))
			for i := range items {
				next += r.IntN(3) // 0: the same row again, which ends the run
				items[i] = Item{Row: fmt.Appendf(nil, "%0*d", 1+round%12, next), Col: []byte("f\x00\x01q"), Value: []byte{byte(i)}, TS: int64(r.IntN(3))}
				if r.IntN(200) == 0 {
					items[i].Row = fmt.Appendf(nil, "%0*d", 1+round%12, r.IntN(next+1)) // not at the end
				}
			}
			w := tab.Begin()
			for len(items) > 0 {
				h := tab.Ahead(items[0].Row, Hint{}, nil)
				n, err := w.Append(h, items, cell.KindSet, seq)
				if err == nil && n == 0 {
					n, err = 1, w.Set(h, items[0].Row, items[0].Col, items[0].TS, cell.KindSet, items[0].Value, seq)
				} else {
					appended += n
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, it := range items[:n] {
					m.add(string(it.Row), change{seq: seq, ts: it.TS, col: it.Col, val: it.Value, kind: cell.KindSet})
					seq++
				}
				items = items[n:]
			}
			w.End()
		}
		if appended < 1000 && round%12 > 3 {
			t.Fatal("few were appended:", appended)
		}
		m.checkAll(t, tab, seq, r)
		m.checkBatches(t, tab, seq, r)
		m.checkAll(t, tab, seq/2, r)
		m.checkStats(t, tab)
		if err := tab.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// Further cells of a row that a Writer has just been at come to the same as if each had looked for it.
func TestSetMoreAgreesWithSet(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	tab, m, seq := New(Options{}), &model{}, uint64(0)
	defer tab.Release()
	for range 800 {
		w := tab.Begin()
		row := fmt.Appendf(nil, "row%02d", r.IntN(40))
		for i := range 1 + r.IntN(12) {
			seq++
			c := change{seq: seq, ts: int64(r.IntN(4)), col: colOf(r.IntN(20)), val: []byte{byte(seq)}, kind: cell.KindSet}
			var err error
			if i == 0 {
				err = w.Set(Hint{}, row, c.col, c.ts, c.kind, c.val, seq)
			} else {
				err = w.SetMore(c.col, c.ts, c.kind, c.val, seq)
			}
			if err != nil {
				t.Fatal(err)
			}
			m.add(string(row), c)
		}
		w.End()
	}
	m.checkAll(t, tab, seq, r)
	m.checkAll(t, tab, seq/2, r)
	m.checkStats(t, tab)
}
