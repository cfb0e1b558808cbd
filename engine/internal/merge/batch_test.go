package merge_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/direct"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// file writes a source: rows of a few columns and versions, some with deletes.
func file(t *testing.T, r *rand.Rand, fs vfs.FS, num, rows int, deletes bool) *sstable.Reader {
	name := fmt.Sprint("file", num)
	sink, err := direct.Create(fs, name, direct.Options{})
	must(t, err)
	w := sstable.NewWriter(sink, sstable.WriterOptions{ID: uint64(num), BlockSize: 512 << r.IntN(5), Codec: block.Codec(r.IntN(2))})
	var lo, hi []byte
	prefix := []string{"", "a common beginning ", "p"}[r.IntN(3)]
	single := r.IntN(2) == 0 // most rows have one cell, and often the one that other files have
	for i := range rows {
		if r.IntN(3) == 0 {
			continue
		}
		key := fmt.Appendf(nil, "%srow%03d", prefix, i)
		if i%7 == 0 {
			key = append(key, "and more"...)
		}
		if lo == nil {
			lo = key
		}
		hi = key
		must(t, w.StartRow(key))
		var cs []cell.Cell
		n := 1 + r.IntN(4)
		if single && r.IntN(8) > 0 {
			n = 1
		}
		if r.IntN(40) == 0 {
			n = 200 // a row that is cut over blocks
		}
		for c := range n {
			col := cell.AppendColumn(nil, []string{"f", "g"}[c*2/n], uint64(c*2/n+1), fmt.Sprintf("%03d", c))
			first := int64(1 + r.IntN(5))
			if n == 1 && single {
				first = int64(1 + r.IntN(2))
			}
			for ts := first; ts > 0; ts -= int64(1 + r.IntN(2)) {
				x := cell.Cell{Col: col, TS: ts, Value: bytes.Repeat([]byte{byte(num)}, r.IntN(30)), Kind: cell.KindSet}
				if col[0] == 'g' {
					x.Kind, x.Value = cell.KindMerge, []byte{0, 0, 0, 0, byte(r.IntN(256)), 0, 0, byte(num)}
				}
				cs = append(cs, x)
			}
		}
		must(t, w.AddCells(cs))
		if deletes && r.IntN(10) == 0 {
			must(t, w.AddDeletes([]cell.Delete{{Col: cs[0].Col, Lo: 1, Hi: 2}}))
		}
		if deletes && r.IntN(10) == 0 {
			must(t, w.AddRanges([]cell.Range{{From: []byte("g"), To: []byte("h")}}))
		}
	}
	_, err = w.Finish(cell.Bounds{LoRow: lo, HiRow: hi}, 1, 1)
	must(t, err)
	must(t, sink.Finish())
	f, err := fs.Open(name, vfs.How{})
	must(t, err)
	rd, err := sstable.Open(f, sstable.ReaderOptions{Name: name})
	must(t, err)
	t.Cleanup(func() { rd.Close() })
	return rd
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// slow hides that a source hands out batches.
type slow struct{ cell.Iter }

// dump writes down what m yields. With batches it takes them where it can; rows counts those.
func dump(t *testing.T, r *rand.Rand, m *merge.Iter, batches bool) (out string, rows int) {
	t.Helper()
	var s bytes.Buffer
	put := func(key []byte, cs []cell.Cell) {
		for _, c := range cs {
			fmt.Fprintf(&s, "%q %q %d %x\n", key, c.Col, c.TS, c.Value)
		}
	}
	var b cell.Batch
	buf := make([]cell.Cell, 0, 7)
	for ok := m.First(); ok; ok = m.Next() {
		if batches && r.IntN(4) > 0 && m.Batch(&b) {
			for _, row := range b.Rows {
				put(row.Key, row.Cells)
			}
			rows += len(b.Rows)
			continue
		}
		key := bytes.Clone(m.Row())
		for _, w := range m.Ranges(nil) {
			fmt.Fprintf(&s, "%q [%q %q)\n", key, w.From, w.To)
		}
		for cs := m.Cells(buf); len(cs) > 0; cs = m.Cells(buf) {
			put(key, cs)
		}
		ds := m.Deletes(nil, nil)
		for d := ds.Next(nil); d != nil; d = ds.Next(d) {
			fmt.Fprintf(&s, "%q deleted %q %v\n", key, d[0].Col, d)
		}
	}
	must(t, m.Err())
	fmt.Fprintf(&s, "%d collected\n", m.Collected())
	must(t, m.Close())
	return s.String(), rows
}

// TestBatch: merges give the same whether their rows come one by one or in batches.
func TestBatch(t *testing.T) {
	rules := []gc.Rule{gc.NoPolicy(), gc.MaxVersionsPolicy(2)}
	total := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		fs := vfs.NewMem()
		var files []*sstable.Reader
		n := 1 + r.IntN(4)
		for i := range n {
			files = append(files, file(t, r, fs, i+1, 120, r.IntN(2) == 0))
		}
		families := merge.NewFamilies(&levels.Table{HighestLife: 2, Families: []levels.Family{
			{Name: "f", Life: 1, Rule: rules[r.IntN(2)]}, {Name: "g", Life: 2, Rule: rules[r.IntN(2)], Fold: cell.FoldSum},
		}})
		hide := r.IntN(2 * n)
		merged := func(row bool) *merge.Iter {
			var src []cell.Iter
			for i, f := range files {
				var it cell.Iter = f.NewIter(cell.IterOptions{NoFill: true})
				if row || i == hide {
					it = slow{it}
				}
				src = append(src, it)
			}
			return merge.New(merge.Config{Families: families}, src)
		}
		want, _ := dump(t, r, merged(true), false)
		got, rows := dump(t, r, merged(false), true)
		if total += rows; got != want {
			g, w := bytes.Split([]byte(got), []byte("\n")), bytes.Split([]byte(want), []byte("\n"))
			for i := range min(len(g), len(w)) {
				if !bytes.Equal(g[i], w[i]) {
					t.Fatalf("seed %d: line %d is\n%s\nwant\n%s", seed, i, g[i], w[i])
				}
			}
			t.Fatalf("seed %d: %d lines, want %d", seed, len(g), len(w))
		}
	}
	if total < 1000 {
		t.Fatalf("only %d rows in batches", total)
	}
}
