package memtable

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/rowandb/rowan/cell"
)

var q = []byte("f\x00\x01q")

func TestLimitsAreErrors(t *testing.T) {
	tab := New(Options{})
	defer tab.Release()
	row := []byte("r")
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"empty row":       {tab.Set(nil, q, 1, cell.KindSet, nil, 1), cell.ErrRowKey},
		"long row":        {tab.Set(make([]byte, cell.RowKeyMax+1), q, 1, cell.KindSet, nil, 1), cell.ErrRowKey},
		"empty column":    {tab.Set(row, nil, 1, cell.KindSet, nil, 1), cell.ErrColumnKey},
		"long column":     {tab.Set(row, make([]byte, cell.ColumnMax+1), 1, cell.KindSet, nil, 1), cell.ErrColumnKey},
		"negative time":   {tab.Set(row, q, -1, cell.KindSet, nil, 1), cell.ErrTimestamp},
		"long value":      {tab.Set(row, q, 1, cell.KindSet, make([]byte, cell.ValueMax+1), 1), cell.ErrValue},
		"empty delete":    {tab.Delete(row, cell.Delete{Col: q, Lo: 2, Hi: 1}, 1), cell.ErrTimestamp},
		"long range":      {tab.DeleteRange(row, cell.Range{To: make([]byte, cell.ColumnMax+1)}, 1), cell.ErrColumnKey},
		"delete, no name": {tab.Delete(row, cell.Delete{Hi: 1}, 1), cell.ErrColumnKey},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if s := tab.Stats(); s.Rows+s.Cells+s.Deletes+s.Ranges != 0 || tab.Bytes() != 0 {
		t.Errorf("refused changes left %+v, %d bytes", s, tab.Bytes())
	}
}

func TestEmptyAndReleasedTables(t *testing.T) {
	tab := New(Options{})
	check := func() {
		t.Helper()
		it := tab.NewIter(math.MaxUint64, cell.IterOptions{})
		if it.First() || it.Last() || it.SeekGE(q) || it.SeekLT(q) || it.SeekExact(q) || it.Next() || it.Prev() || it.Row() != nil {
			t.Fatal("a row in an empty table")
		}
		it.SeekCell(q, 1)
		it.SeekDelete(q)
		if len(it.Cells(make([]cell.Cell, 0, 1)))+len(it.Deletes(make([]cell.Delete, 0, 1)))+len(it.Ranges(nil)) > 0 {
			t.Fatal("entries in an empty table")
		}
		for range 2 {
			if it.Close() != nil || it.Err() != nil || it.First() {
				t.Fatal("closed iterator")
			}
		}
		if tab.Holes(q, q) {
			t.Fatal("hole in an empty table")
		}
	}
	check()
	if err := tab.Set([]byte("r"), q, 1, cell.KindSet, nil, 1); err != nil {
		t.Fatal(err)
	}
	if tab.Bytes() < 64<<10 || tab.Used() == 0 || tab.Used() > tab.Bytes() {
		t.Fatalf("holds %d, used %d", tab.Bytes(), tab.Used())
	}
	if err := tab.Release(); err != nil {
		t.Fatal(err)
	}
	if err := tab.Set([]byte("r"), q, 1, cell.KindSet, nil, 2); !errors.Is(err, ErrReleased) {
		t.Fatal(err)
	}
	if tab.Bytes() != 0 {
		t.Fatalf("%d bytes after release", tab.Bytes())
	}
	check()
}

func TestLargeKeysAndValues(t *testing.T) {
	tab := New(Options{})
	defer tab.Release()
	sizes := []int{0, 1, 4 << 10, 60 << 10, 100 << 10, 511 << 10, 512 << 10, 4<<20 - 1, 4 << 20, 9 << 20}
	value := func(n int) []byte { return bytes.Repeat([]byte{byte(n>>10) + 1}, n) }
	longRow := bytes.Repeat([]byte("r"), cell.RowKeyMax)
	for i, n := range sizes {
		row := longRow[:len(longRow)-i*3]
		if err := tab.Set(row, q, int64(n), cell.KindSet, value(n), uint64(i+1)); err != nil {
			t.Fatal(err)
		}
		if err := tab.Set([]byte("shared"), bytes.Repeat([]byte("c"), cell.ColumnMax-i), int64(n), cell.KindSet, value(n), uint64(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	it := tab.NewIter(math.MaxUint64, cell.IterOptions{})
	defer it.Close()
	for i, n := range sizes {
		if !it.SeekExact(longRow[:len(longRow)-i*3]) {
			t.Fatalf("row %d is not there", i)
		}
		if cs := it.Cells(make([]cell.Cell, 0, 2)); len(cs) != 1 || !bytes.Equal(cs[0].Value, value(n)) {
			t.Fatalf("value of %d bytes", n)
		}
	}
	if !it.SeekExact([]byte("shared")) || len(it.Cells(make([]cell.Cell, 0, 20))) != len(sizes) {
		t.Fatal("shared row")
	}
}

func TestChunksComeBackFromThePool(t *testing.T) {
	pool := NewPool(1 << 20)
	fill := func() {
		tab := New(Options{Pool: pool})
		for i := range 3000 {
			if err := tab.Set(fmt.Appendf(nil, "%d", i), q, 1, cell.KindSet, make([]byte, 200), uint64(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tab.Release(); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	idle := pool.Idle()
	if idle == 0 || idle > 1<<20 {
		t.Fatalf("%d bytes idle", idle)
	}
	fill()
	if pool.Idle() != idle {
		t.Fatalf("%d bytes idle, then %d", idle, pool.Idle())
	}
	if err := pool.Close(); err != nil || pool.Idle() != 0 {
		t.Fatal(err, pool.Idle())
	}
	fill()
	if pool.Idle() != 0 {
		t.Fatal("a closed pool keeps memory")
	}
}

func TestNoAllocationPerCell(t *testing.T) {
	if !offHeap {
		return // the arena itself is Go memory in this build
	}
	tab := New(Options{})
	defer tab.Release()
	rows := make([][]byte, 5000)
	for i := range rows {
		rows[i] = fmt.Appendf(nil, "row%07d", i*7919%5000)
	}
	seq := uint64(0)
	value := make([]byte, 50)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, row := range rows {
		for range 4 {
			seq++
			if err := tab.Set(row, q, int64(seq), cell.KindSet, value, seq); err != nil {
				t.Fatal(err)
			}
		}
		seq++
		if err := tab.Delete(row, cell.Delete{Col: q, Hi: 3}, seq); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > 200 {
		t.Errorf("%d objects for %d changes", n, seq)
	}
	var it Iter
	defer it.Close()
	cells, dels := make([]cell.Cell, 0, 16), make([]cell.Delete, 0, 4)
	n := testing.AllocsPerRun(10, func() {
		it.Init(tab, seq, cell.IterOptions{})
		for ok := it.First(); ok; ok = it.Next() {
			cells, dels = it.Cells(cells[:0]), it.Deletes(dels[:0])
		}
		it.SeekExact(rows[9])
		it.SeekCell(q, 5)
		cells = it.Cells(cells[:0])
	})
	if n != 0 {
		t.Errorf("%v allocations per walk", n)
	}
}
