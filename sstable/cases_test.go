package sstable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/bloom"
	"github.com/rowandb/rowan/cache"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/mapped"
	"github.com/rowandb/rowan/io/vfs"
)

func oneCell(col string, ts int64, v string) []cell.Cell {
	return []cell.Cell{{Col: []byte("f\x00\x01" + col), TS: ts, Value: []byte(v), Kind: cell.KindSet}}
}

// TestSeekLTInGaps: rows b and d, in one block and in two, sought before every neighbour.
func TestSeekLTInGaps(t *testing.T) {
	for _, size := range []int{0, 2000} {
		tab := refTable{
			{key: []byte("b"), cells: oneCell("q", 1, string(make([]byte, size)))},
			{key: []byte("d"), cells: oneCell("q", 1, string(make([]byte, size)))},
		}
		b, _ := write(t, tab, WriterOptions{ID: 1, BlockSize: 512})
		r, err := Open(&byteFile{b: b}, ReaderOptions{})
		must(t, err)
		if want := 1 + min(size, 1); r.lanes[laneCells].blocks != want {
			t.Fatalf("%d blocks, want %d", r.lanes[laneCells].blocks, want)
		}
		it := r.NewIter(cell.IterOptions{})
		for _, c := range []struct{ key, want string }{{"a", ""}, {"b", ""}, {"c", "b"}, {"d", "b"}, {"e", "d"}} {
			got := ""
			if it.SeekLT([]byte(c.key)) {
				got = string(it.Row())
			}
			if got != c.want || it.Err() != nil {
				t.Errorf("before %s: %q, want %q (%v)", c.key, got, c.want, it.Err())
			}
		}
		must(t, it.Close())
		must(t, r.Close())
	}
}

// TestOneColumnOfAWideRowTouchesFewBlocks: one among 10,000 columns is found with a handful of reads.
func TestOneColumnOfAWideRowTouchesFewBlocks(t *testing.T) {
	tab := refTable{{key: []byte("wide")}}
	for i := range 10_000 {
		tab[0].cells = append(tab[0].cells, oneCell(fmt.Sprintf("%06d", i), 5, fmt.Sprintf("%0100d", i))...)
	}
	b, p := write(t, tab, WriterOptions{ID: 1, Codec: block.CodecS2})
	if p.Rows != 1 || p.Cells != 10_000 {
		t.Fatalf("%+v", p)
	}
	f := &byteFile{b: b}
	r, err := Open(f, ReaderOptions{Mode: Positional})
	must(t, err)
	f.reads = 0
	it := r.NewIter(cell.IterOptions{})
	if !it.SeekGE([]byte("wide")) {
		t.Fatal("no row")
	}
	it.SeekCell([]byte("f\x00\x01007654"), math.MaxInt64)
	cs := it.Cells(make([]cell.Cell, 0, 1))
	if len(cs) != 1 || string(cs[0].Value) != fmt.Sprintf("%0100d", 7654) {
		t.Fatalf("%v %v", cs, it.Err())
	}
	if f.reads > 3 {
		t.Errorf("%d reads for one column", f.reads)
	}
	if it.Next() || it.Err() != nil {
		t.Error("there is a second row")
	}
	must(t, it.Close())
	must(t, r.Close())
}

// A writer refuses keys that do not ascend, always (facebook/rocksdb #8248: files written wrongly were found by a stricter version).
func TestWriterRefusesWhatIsOutOfOrder(t *testing.T) {
	bounds := cell.Bounds{LoRow: []byte("a"), HiRow: []byte("z")}
	for name, f := range map[string]func(w *Writer) error{
		"row falls":   func(w *Writer) error { w.StartRow([]byte("b")); return w.StartRow([]byte("a")) },
		"row repeats": func(w *Writer) error { w.StartRow([]byte("b")); return w.StartRow([]byte("b")) },
		"no row":      func(w *Writer) error { return w.AddCells(oneCell("a", 1, "")) },
		"column falls": func(w *Writer) error {
			w.StartRow([]byte("b"))
			w.AddCells(oneCell("b", 1, ""))
			return w.AddCells(oneCell("a", 1, ""))
		},
		"cell repeats": func(w *Writer) error {
			w.StartRow([]byte("b"))
			w.AddCells(oneCell("b", 1, ""))
			return w.AddCells(oneCell("b", 1, ""))
		},
		"version rises": func(w *Writer) error {
			w.StartRow([]byte("b"))
			w.AddCells(oneCell("b", 1, ""))
			return w.AddCells(oneCell("b", 2, ""))
		},
		"version rises over a cut": func(w *Writer) error {
			w.StartRow([]byte("b"))
			w.AddCells(oneCell("b", 1, string(make([]byte, 5000))))
			return w.AddCells(oneCell("b", 2, ""))
		},
		"ranges overlap": func(w *Writer) error {
			w.StartRow([]byte("b"))
			return w.AddRanges([]cell.Range{{From: []byte("a"), To: []byte("d")}, {From: []byte("b"), To: []byte("e")}})
		},
		"range after an open one": func(w *Writer) error {
			w.StartRow([]byte("b"))
			return w.AddRanges([]cell.Range{{From: []byte("a")}, {From: []byte("b"), To: []byte("e")}})
		},
		"deletes overlap": func(w *Writer) error {
			w.StartRow([]byte("b"))
			return w.AddDeletes([]cell.Delete{{Col: []byte("f\x00\x01"), Lo: 5, Hi: 9}, {Col: []byte("f\x00\x01"), Lo: 1, Hi: 5}})
		},
		"row below the bounds": func(w *Writer) error {
			w.StartRow([]byte("A"))
			w.AddCells(oneCell("b", 1, ""))
			_, err := w.Finish(bounds, 1, 1)
			return err
		},
	} {
		var buf bytes.Buffer
		w := NewWriter(&buf, WriterOptions{ID: 1, BlockSize: 512})
		if err := f(w); !errors.Is(err, ErrOrder) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := w.Finish(bounds, 1, 1); !errors.Is(err, ErrOrder) {
			t.Errorf("%s: finished with %v", name, err)
		}
	}
	for name, f := range map[string]func(w *Writer) error{
		"empty row":       func(w *Writer) error { return w.StartRow(nil) },
		"negative time":   func(w *Writer) error { return w.AddCells(oneCell("a", -1, "")) },
		"kind 0":          func(w *Writer) error { return w.AddCells([]cell.Cell{{Col: []byte("f\x00\x01")}}) },
		"no column":       func(w *Writer) error { return w.AddCells([]cell.Cell{{Kind: cell.KindSet}}) },
		"no family":       func(w *Writer) error { return w.AddCells([]cell.Cell{{Col: []byte("f"), Kind: cell.KindSet}}) },
		"empty range":     func(w *Writer) error { return w.AddRanges([]cell.Range{{From: []byte("b"), To: []byte("b")}}) },
		"backward delete": func(w *Writer) error { return w.AddDeletes([]cell.Delete{{Col: []byte("b"), Lo: 2, Hi: 1}}) },
	} {
		w := NewWriter(io.Discard, WriterOptions{ID: 1})
		must(t, w.StartRow([]byte("r")))
		if err := f(w); !errors.Is(err, ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// failing takes n bytes and then fails.
type failing struct{ n int }

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.n {
		return f.n, io.ErrShortWrite
	}
	f.n -= len(p)
	return len(p), nil
}

func TestWriterReportsEveryFailedWrite(t *testing.T) {
	tab := randTable(rand.New(rand.NewPCG(5, 5)), shape{rows: 20, colsMax: 3, versionsMax: 1, valueMax: 40, tsSpread: 1000, deletes: 0.3})
	o := WriterOptions{ID: 1, BlockSize: 512, ColumnFilter: true}
	b, _ := write(t, tab, o)
	for n := 0; n < len(b); n += len(b) / 50 {
		w := NewWriter(&failing{n}, o)
		for _, r := range tab {
			_ = w.StartRow(r.key)
			_ = w.AddCells(r.cells)
			_ = w.AddRanges(r.ranges)
			_ = w.AddDeletes(r.dels)
		}
		if _, err := w.Finish(cell.Bounds{LoRow: tab[0].key, HiRow: tab[len(tab)-1].key}, 1, 2); !errors.Is(err, io.ErrShortWrite) {
			t.Fatalf("failure at byte %d: %v", n, err)
		}
	}
}

func TestEmptyFile(t *testing.T) {
	b, p := write(t, nil, WriterOptions{ID: 9})
	r, err := Open(&byteFile{b: b}, ReaderOptions{ID: 9})
	must(t, err)
	must(t, r.Verify(context.Background(), nil))
	it := r.NewIter(cell.IterOptions{})
	if it.First() || it.Last() || it.SeekGE([]byte("a")) || it.SeekLT([]byte("z")) || it.Next() || it.Err() != nil || p.Cells != 0 || r.MayContainRow(1) {
		t.Error("an empty file holds something")
	}
	must(t, it.Close())
	must(t, r.Close())
}

// TestLargeValues: values around the size of chunks and blocks, and one of several MiB, in every mode.
func TestLargeValues(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var tab refTable
	for i, n := range []int{0, 1, 8191, 8192, 8193, 32767, 32768, 40000, 70000, 600 << 10, 3, 0, 300000} {
		v := make([]byte, n)
		for j := 0; j < n; j += 1 + i%3 {
			v[j] = byte(r.Uint32())
		}
		tab = append(tab, refRow{key: fmt.Appendf(nil, "row%02d", i), cells: []cell.Cell{
			{Col: []byte("f\x00\x01a"), TS: 2, Value: v, Kind: cell.KindSet}, {Col: []byte("f\x00\x01b"), TS: 1, Value: []byte("small"), Kind: cell.KindSet},
		}})
	}
	for codec := range block.Codec(3) {
		b, _ := write(t, tab, WriterOptions{ID: 1, Codec: codec})
		for mode := range ReadMode(3) {
			for _, c := range []*cache.Cache{nil, cache.New(1 << 20)} {
				rd, err := Open(&byteFile{b: b, direct: mode == Direct}, ReaderOptions{Mode: mode, Cache: c})
				must(t, err)
				must(t, rd.Verify(context.Background(), nil))
				it := rd.NewIter(cell.IterOptions{})
				m := mover{t: t, r: r, it: it, tab: tab}
				for ok, i := it.First(), 0; ok; ok, i = it.Next(), i+1 {
					m.cells(tab[i].cells)
				}
				must(t, it.Err())
				must(t, it.Close())
				must(t, rd.Close())
				if c != nil {
					c.Close()
				}
			}
		}
	}
}

// TestFiltersExcuse: filters know every row with any entry, and few others.
func TestFiltersExcuse(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	tab := randTable(r, shape{rows: 2000, colsMax: 2, versionsMax: 1, valueMax: 5, tsSpread: 10, deletes: 0.3})
	b, p := write(t, tab, WriterOptions{ID: 1, ColumnFilter: true})
	c := cache.New(1 << 20)
	rd, err := Open(&byteFile{b: b}, ReaderOptions{Cache: c})
	must(t, err)
	for _, row := range tab {
		h := bloom.HashRow(row.key)
		if !rd.MayContainRow(h) {
			t.Fatalf("row %q is missing", row.key)
		}
		for _, c := range row.cells {
			if !rd.MayContainColumn(bloom.HashColumn(h, c.Col)) {
				t.Fatalf("row %q column %q is missing", row.key, c.Col)
			}
		}
	}
	false1 := 0
	for i := range 10_000 {
		if rd.MayContainRow(bloom.HashRow(fmt.Appendf(nil, "absent%d", i))) {
			false1++
		}
	}
	if false1 > 200 {
		t.Errorf("%d of 10000 absent rows pass", false1)
	}
	if s := c.Stats(); s.Charged < int64(p.Rows) {
		t.Errorf("filters are not charged: %+v", s)
	}
	must(t, rd.Close())
	c.Close()
}

// TestReadsAllocateNothing: row moves, seeks and cells do not allocate, whatever the mode, once buffers have grown.
func TestReadsAllocateNothing(t *testing.T) {
	for _, wide := range []bool{false, true} {
		tab := benchTable(wide, 5000)
		for _, codec := range []block.Codec{block.CodecNone, block.CodecS2} {
			b, _ := write(t, tab, WriterOptions{ID: 1, Codec: codec})
			for mode := range ReadMode(3) {
				for _, fill := range []bool{false, true} {
					c := cache.New(16 << 20)
					rd, err := Open(&byteFile{b: b, direct: mode == Direct}, ReaderOptions{Mode: mode, Cache: c})
					must(t, err)
					it := rd.NewIter(cell.IterOptions{NoFill: !fill})
					buf := make([]cell.Cell, 0, 32)
					pass := func() {
						for ok := it.First(); ok; ok = it.Next() {
							it.Cells(buf)
						}
						for i := 0; i < len(tab); i += 50 {
							it.SeekGE(tab[i].key)
							it.SeekCell(tab[i].cells[0].Col, math.MaxInt64)
							it.Cells(buf[:0:1])
						}
					}
					pass()
					if n := testing.AllocsPerRun(2, pass); n > 0 {
						t.Errorf("wide %v, %v, %v, fill %v: %v allocations", wide, codec, mode, fill, n)
					}
					must(t, it.Close())
					must(t, rd.Close())
					c.Close()
				}
			}
		}
	}
}

func TestWritesAllocateLittle(t *testing.T) {
	tab := benchTable(true, 40_000)
	n := testing.AllocsPerRun(2, func() {
		w := NewWriter(io.Discard, WriterOptions{ID: 1, Codec: block.CodecS2})
		for i := range tab {
			_ = w.StartRow(tab[i].key)
			_ = w.AddCells(tab[i].cells)
		}
		if _, err := w.Finish(cell.Bounds{LoRow: tab[0].key, HiRow: tab[len(tab)-1].key}, 1, 2); err != nil {
			t.Fatal(err)
		}
	})
	if n > 400 {
		t.Errorf("%v allocations for 40,000 cells", n)
	}
}

// TestConcurrentReaders: iterators of many goroutines share a reader and a small cache, while it ages and is closed.
func TestConcurrentReaders(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	tab := randTable(r, shape{rows: 300, colsMax: 5, versionsMax: 2, valueMax: 100, tsSpread: 1000, deletes: 0.2, wide: 200})
	b, _ := write(t, tab, WriterOptions{ID: 1, BlockSize: 1024, Codec: block.CodecS2, fanout: 4})
	for mode := range ReadMode(3) {
		c := cache.New(100 << 10)
		rd, err := Open(&byteFile{b: b, direct: mode == Direct, shared: true}, ReaderOptions{Mode: mode, Cache: c})
		must(t, err)
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				r := rand.New(rand.NewPCG(uint64(g), 8))
				for range 3 {
					o := cell.IterOptions{NoFill: r.IntN(2) == 0}
					m := mover{t: t, r: r, it: rd.NewIter(o), full: tab, tab: tab, o: o, at: -1}
					if errors.Is(m.it.Err(), ErrClosed) {
						return
					}
					m.run(40)
					rd.MayContainRow(r.Uint64())
					rd.Age()
					if err := m.it.Close(); err != nil {
						t.Error(err)
					}
				}
				if g == 2 {
					if err := rd.Close(); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		wg.Wait()
		must(t, rd.Close())
		if it := rd.NewIter(cell.IterOptions{}); it.First() || !errors.Is(it.Err(), ErrClosed) {
			t.Error("an iterator of a closed reader works")
		}
		if s := c.Stats(); s.Used != 0 {
			t.Errorf("%+v", s)
		}
		c.Close()
	}
}

// TestTruncatedWhileMapped: a file that loses its end under the map gives a damage error under the guard, also for compressed
// parts and while the collector runs.
func TestTruncatedWhileMapped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs a mapping whose file can shrink")
	}
	dir := t.TempDir()
	tab := benchTable(false, 20_000)
	for _, codec := range []block.Codec{block.CodecNone, block.CodecS2} {
		b, _ := write(t, tab, WriterOptions{ID: 1, Codec: codec})
		name := filepath.Join(dir, codec.String())
		must(t, os.WriteFile(name, b, 0o600))
		f, err := vfs.OS().Open(name, vfs.How{})
		must(t, err)
		rd, err := Open(f, ReaderOptions{Mode: Mapped})
		must(t, err)
		if rd.Mode() != Mapped {
			t.Fatalf("mode %v", rd.Mode())
		}
		it := rd.NewIter(cell.IterOptions{})
		scan := func() (n int, err error) {
			defer mapped.Leave(mapped.Enter(), &err)
			buf := make([]cell.Cell, 0, 8)
			for ok := it.First(); ok; ok = it.Next() {
				for _, c := range it.Cells(buf) {
					n += len(c.Value) - int(c.Value[0])*0
				}
			}
			return n, it.Err()
		}
		if _, err := scan(); err != nil {
			t.Fatal(err)
		}
		must(t, os.Truncate(name, int64(len(b)/2&^4095)))
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		}()
		for range 20 {
			if _, err := scan(); !errors.Is(err, damage.Err) {
				t.Fatalf("%v: %v", codec, err)
			}
		}
		close(stop)
		<-done
		must(t, it.Close())
		must(t, rd.Close())
	}
}

func TestVerifyHonoursContextAndTellsProgress(t *testing.T) {
	tab := benchTable(false, 2000)
	b, p := write(t, tab, WriterOptions{ID: 1})
	rd, err := Open(&byteFile{b: b}, ReaderOptions{})
	must(t, err)
	var last, total int64
	must(t, rd.Verify(context.Background(), func(d, n int64) { last, total = d, n }))
	if last != total || uint64(total) != p.StoredBytes {
		t.Errorf("progress ended at %d of %d", last, total)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := rd.Verify(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	must(t, rd.Close())
	if err := rd.Verify(context.Background(), nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		var h Histogram
		var sum uint64
		spread := int64(1) << r.IntN(63)
		base := r.Int64N(math.MaxInt64 - max(spread, 1))
		all := map[int64]uint64{}
		for range 100 {
			ts, n := base+r.Int64N(max(spread, 1)), r.Uint64N(1000)
			h.Add(ts, n)
			sum += n
			all[ts] += n
		}
		var got uint64
		for _, n := range h.Counts {
			got += n
		}
		if got != sum || h.Older(0) != 0 || h.Older(math.MaxInt64) < sum-h.Counts[histBuckets-1] {
			t.Fatalf("histogram of %d bytes holds %d", sum, got)
		}
		at := base + spread/2
		var older uint64
		for ts, n := range all {
			if ts < at {
				older += n
			}
		}
		var widest uint64
		for _, n := range h.Counts {
			widest = max(widest, n)
		}
		if d := int64(h.Older(at)) - int64(older); d > int64(widest) || -d > int64(widest) {
			t.Fatalf("estimate off by %d, largest bucket %d", d, widest)
		}
	}
}

func TestPropertiesCount(t *testing.T) {
	col := []byte("f\x00\x01q")
	var cs []cell.Cell
	for v := range 10 {
		cs = append(cs, cell.Cell{Col: col, TS: int64(100 - v), Value: []byte("12345"), Kind: cell.KindSet})
	}
	cs = append(cs, oneCell("r", 7, "")...)
	g := cell.Cell{Col: []byte("g\x00\x05"), TS: 3, Value: []byte("a state!"), Kind: cell.KindMerge}
	_, p := write(t, refTable{{key: []byte("row"), cells: append(cs, g)}}, WriterOptions{ID: 1, BlockSize: 512})
	f := p.Families[0]
	if p.Cells != 12 || p.MinTS != 3 || p.MaxTS != 100 || len(p.Families) != 2 || f.Name != "f" || f.Life != 1 || f.Cells != 11 || f.MinTS != 7 || f.MaxTS != 100 {
		t.Errorf("%+v", p)
	}
	if f.Beyond != [4]uint64{9, 8, 6, 2} {
		t.Errorf("beyond ranks 1, 2, 4, 8: %v", f.Beyond)
	}
	if want := uint64(10*(3+4+8+5) + 3 + 4 + 8); f.Bytes != want || p.LogicalBytes != want+3+3+8+8 {
		t.Errorf("%d and %d logical bytes", f.Bytes, p.LogicalBytes)
	}
	if p.Families[1].Name != "g" || p.Families[1].Life != 5 {
		t.Errorf("%+v", p.Families[1])
	}
}

func TestAddOfAWrongSizeIsDamage(t *testing.T) {
	c := cell.Cell{Col: []byte("g\x00\x01"), TS: 3, Value: []byte("seven b"), Kind: cell.KindMerge}
	f, _ := write(t, refTable{{key: []byte("row"), cells: []cell.Cell{c}}}, WriterOptions{ID: 1})
	if err := openAndVerify(f, Mapped); !errors.Is(err, damage.Err) || !strings.Contains(err.Error(), "an Add of 7 bytes") {
		t.Errorf("error %v", err)
	}
}

func TestWriterSizeEstimatesTheFile(t *testing.T) {
	for _, codec := range []block.Codec{block.CodecNone, block.CodecS2} {
		tab := benchTable(false, 20_000)
		w := NewWriter(io.Discard, WriterOptions{ID: 1, Codec: codec})
		for i := range tab {
			must(t, w.StartRow(tab[i].key))
			must(t, w.AddCells(tab[i].cells))
		}
		guess := w.Size()
		if w.Rows() != 20_000 || w.Cells() != 20_000 || w.Ranges()+w.Deletes() != 0 || w.Empty() {
			t.Error("counters are wrong")
		}
		_, err := w.Finish(cell.Bounds{LoRow: tab[0].key, HiRow: tab[len(tab)-1].key}, 1, 2)
		must(t, err)
		if d := float64(guess)/float64(w.off) - 1; d > 0.05 || d < -0.05 {
			t.Errorf("%v: estimated %d, the file has %d", codec, guess, w.off)
		}
	}
}

// TestIteratorsLeaveNothingBehind: a thousand rounds of open, read, close hold no more than the first.
func TestIteratorsLeaveNothingBehind(t *testing.T) {
	tab := benchTable(false, 3000)
	b, _ := write(t, tab, WriterOptions{ID: 1, Codec: block.CodecS2})
	c := cache.New(64 << 10)
	f := &byteFile{b: b}
	rd, err := Open(f, ReaderOptions{Cache: c})
	must(t, err)
	idle := c.Stats()
	for i := range 1000 {
		it := rd.NewIter(cell.IterOptions{})
		ok := it.SeekGE(tab[i].key)
		for range 10 {
			it.Cells(make([]cell.Cell, 0, 1))
			ok = ok && it.Next()
		}
		if !ok {
			t.Fatal(it.Err())
		}
		must(t, it.Close())
	}
	if n := rd.refs.Load(); n != 1 {
		t.Errorf("%d holds on the reader", n)
	}
	if s := c.Stats(); s.Used > s.Capacity || s.Charged != idle.Charged || s.Hits == 0 || s.Misses == 0 {
		t.Errorf("%+v, idle %+v", s, idle)
	}
	must(t, rd.Close())
	if !f.closed || c.Stats().Used != 0 {
		t.Errorf("file closed: %v, %+v", f.closed, c.Stats())
	}
	c.Close()
}
