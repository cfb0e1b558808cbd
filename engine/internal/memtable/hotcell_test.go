package memtable

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// hotRow has cells that were written again and again, more often than a reader passes over one by one. It returns what is to be seen
// as of a sequence.
func hotRow(t testing.TB, tab *Table, writes int, seed uint64) (want func(seq uint64) string) {
	type version struct {
		seq   uint64
		value string
	}
	type place struct {
		col string
		ts  int64
	}
	all := map[place][]version{}
	places := []place{{"f\x00\x01a", 5}, {"f\x00\x01a", 0}, {"f\x00\x01b", 7}, {"f\x00\x01c", 7}, {"f\x00\x01c", 6}}
	r := rand.New(rand.NewPCG(seed, 9))
	for i := range writes {
		p := places[min(r.IntN(9), len(places)-1)]
		seq, v := uint64(i+1), fmt.Sprint(i)
		if err := tab.Set([]byte("hot"), []byte(p.col), p.ts, cell.KindSet, []byte(v), seq); err != nil {
			t.Fatal(err)
		}
		all[p] = append(all[p], version{seq, v})
	}
	return func(seq uint64) (s string) {
		for _, p := range places {
			newest := ""
			for _, v := range all[p] {
				if v.seq <= seq {
					newest = fmt.Sprintf("%q@%d=%s ", p.col, p.ts, v.value)
				}
			}
			s += newest
		}
		return s
	}
}

// Of a cell that was written thousands of times a reader sees the newest as of its sequence, however many came before or after.
func TestReadsOfACellWrittenAgainAndAgain(t *testing.T) {
	for seed := range uint64(6) {
		tab := New(Options{})
		writes := []int{30, 400, 5000}[seed%3]
		want := hotRow(t, tab, writes, seed)
		for i := range 100 {
			seq := uint64(1 + i*writes/100)
			if i == 99 {
				seq = math.MaxUint64
			}
			it := tab.NewIter(seq, cell.IterOptions{})
			got := ""
			if it.SeekExact([]byte("hot")) {
				for buf := make([]cell.Cell, 0, 1+i%3); ; {
					cells := it.Cells(buf)
					if len(cells) == 0 {
						break
					}
					for _, c := range cells {
						got += fmt.Sprintf("%q@%d=%s ", c.Col, c.TS, c.Value)
					}
				}
			}
			if got != want(seq) {
				t.Fatalf("%d writes, as of %d: %s, want %s", writes, seq, got, want(seq))
			}
			it.Close()
		}
		tab.Release()
	}
}

// The cost of a read of a row whose cells were written so many times.
func BenchmarkHotCell(b *testing.B) {
	for _, writes := range []int{1, 100, 10_000, 100_000} {
		b.Run(fmt.Sprint(writes), func(b *testing.B) {
			tab := New(Options{})
			defer tab.Release()
			hotRow(b, tab, writes, 1)
			buf := make([]cell.Cell, 0, 8)
			for b.Loop() {
				it := tab.NewIter(math.MaxUint64, cell.IterOptions{})
				it.SeekExact([]byte("hot"))
				for len(it.Cells(buf)) > 0 {
				}
				it.Close()
			}
		})
	}
}
