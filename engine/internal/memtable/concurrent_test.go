package memtable

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// Writers fill disjoint and shared rows while readers walk, seek and step back. What was published before a reader began
// must all be there, in order, and nothing above its sequence.
func TestReadersSeeAllThatWasPublished(t *testing.T) {
	perWriter := 6000
	if !offHeap {
		perWriter = 2000
	}
	for _, prefix := range []string{"", "a/prefix/that/all/rows/have/"} {
		tab := New(Options{})
		const writers = 3
		var done [writers]atomic.Int64 // rows 0..done-1 of each writer are in
		var stop atomic.Bool
		var wg, rd sync.WaitGroup
		name := func(w, i int) []byte {
			x := uint32(i*writers+w) * 2654435761
			return fmt.Appendf(nil, "%s%08x-%d", prefix, x, w)
		}
		for w := range writers {
			wg.Go(func() {
				for i := range perWriter {
					seq := uint64(i*writers + w + 1)
					if err := tab.Set(name(w, i), []byte("f\x00\x01q"), int64(i), cell.KindSet, name(w, i), seq); err != nil {
						t.Error(err)
						return
					}
					done[w].Store(int64(i + 1))
				}
			})
		}
		for reader := range 3 {
			rd.Go(func() {
				r := rand.New(rand.NewPCG(uint64(reader), 1))
				for !stop.Load() {
					w := r.IntN(writers)
					n := int(done[w].Load())
					if n == 0 {
						continue
					}
					i := r.IntN(n)
					it := tab.NewIter(math.MaxUint64, cell.IterOptions{})
					k := name(w, i)
					if !it.SeekExact(k) {
						t.Errorf("row %q of %d is not found", k, n)
						return
					}
					if cs := it.Cells(make([]cell.Cell, 0, 2)); len(cs) != 1 || !bytes.Equal(cs[0].Value, k) {
						t.Errorf("row %q has %v", k, cs)
						return
					}
					prev := bytes.Clone(it.Row())
					for step := 0; step < 100 && it.Next(); step++ {
						if bytes.Compare(prev, it.Row()) >= 0 {
							t.Errorf("row %q after %q", it.Row(), prev)
							return
						}
						prev = append(prev[:0], it.Row()...)
					}
					if !it.SeekLT(append(k, 0)) || !bytes.Equal(it.Row(), k) {
						t.Errorf("row before %q+0 is %q", k, it.Row())
						return
					}
					it.Close()
					if r.IntN(50) == 0 {
						it := tab.NewIter(math.MaxUint64, cell.IterOptions{})
						var floor [writers]int
						for w := range writers {
							floor[w] = int(done[w].Load())
						}
						var got [writers]int
						back := r.IntN(2) == 0
						ok := it.First()
						if back {
							ok = it.Last()
						}
						for ok {
							got[it.Row()[len(it.Row())-1]-'0']++
							if back {
								ok = it.Prev()
							} else {
								ok = it.Next()
							}
						}
						for w := range writers {
							if got[w] < floor[w] {
								t.Errorf("walk saw %d rows of writer %d, %d were published (backwards %v)", got[w], w, floor[w], back)
								return
							}
						}
						it.Close()
					}
				}
			})
		}
		wg.Wait()
		stop.Store(true)
		rd.Wait()
		s := tab.Stats()
		if s.Rows != int64(writers*perWriter) || s.Cells != s.Rows || s.LastSeq != uint64(writers*perWriter) {
			t.Fatalf("stats %+v", s)
		}
		if err := tab.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// Several writers change the same few rows, which grow from one entry to trees; a latch per row gives sequences in order, as
// the engine does. Readers of an old sequence must see the same for ever.
func TestSharedRowsGrowUnderReaders(t *testing.T) {
	tab := New(Options{})
	defer tab.Release()
	const rows = 3
	var latch [rows]sync.Mutex
	var seqs [rows]uint64
	var published [rows]atomic.Uint64
	total := 900
	var wg, rd sync.WaitGroup
	var stop atomic.Bool
	for w := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 3))
			for range total {
				i := r.IntN(rows)
				row := fmt.Appendf(nil, "row%d", i)
				latch[i].Lock()
				seqs[i]++
				seq := seqs[i]
				var err error
				col := fmt.Appendf(nil, "f\x00\x01%d", r.IntN(150))
				switch r.IntN(10) {
				case 0:
					err = tab.Delete(row, cell.Delete{Col: col, Lo: 0, Hi: math.MaxInt64}, seq)
				case 1:
					if r.IntN(20) == 0 {
						err = tab.DeleteRange(row, cell.Range{}, seq)
					} else {
						err = tab.Delete(row, cell.Delete{Col: col, Lo: 2, Hi: 3}, seq)
					}
				default:
					err = tab.Set(row, col, int64(r.IntN(4)), cell.KindSet, fmt.Appendf(nil, "%d", seq), seq)
				}
				published[i].Store(seq)
				latch[i].Unlock()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for reader := range 2 {
		rd.Go(func() {
			r := rand.New(rand.NewPCG(uint64(reader), 4))
			for !stop.Load() {
				i := r.IntN(rows)
				seq := published[i].Load()
				if seq == 0 {
					continue
				}
				seq = 1 + r.Uint64N(seq)
				row := fmt.Appendf(nil, "row%d", i)
				first := ""
				for range 3 {
					it := tab.NewIter(seq, cell.IterOptions{})
					if !it.SeekExact(row) {
						t.Errorf("%q is not there as of %d", row, seq)
						return
					}
					got := fmt.Sprint(readRow(it, r))
					it.Close()
					if first == "" {
						first = got
					}
					if got != first {
						t.Errorf("%q as of %d changed:\n%s\n%s", row, seq, first, got)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	stop.Store(true)
	rd.Wait()
}

// Two writers may create the same row at once: one row must come of it, with both cells.
func TestOneRowOfTwoCreators(t *testing.T) {
	tab := New(Options{})
	defer tab.Release()
	for round := range 300 {
		row := fmt.Appendf(nil, "row%d", round)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				if err := tab.Set(row, fmt.Appendf(nil, "f\x00\x01%d", w), 1, cell.KindSet, nil, 1); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		it := tab.NewIter(1, cell.IterOptions{})
		if !it.SeekExact(row) {
			t.Fatalf("%q is not there", row)
		}
		if cs := it.Cells(make([]cell.Cell, 0, 9)); len(cs) != 4 {
			t.Fatalf("%q has %d cells", row, len(cs))
		}
		it.Close()
	}
	if s := tab.Stats(); s.Rows != 300 || s.Cells != 1200 {
		t.Fatalf("%+v", s)
	}
}
