package sstable

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/bloom"
	"github.com/rowandb/rowan/cache"
	"github.com/rowandb/rowan/cell"
)

// benchTable makes rows of 16 B keys: one column of 100 B values, or 20 columns of 50 B, half random.
func benchTable(wide bool, cells int) refTable {
	r := rand.New(rand.NewPCG(1, 2))
	cols, size := 1, 100
	if wide {
		cols, size = 20, 50
	}
	names := make([][]byte, cols)
	for c := range names {
		names[c] = cell.AppendColumn(nil, "fam", 1, fmt.Sprintf("col%02d", c))
	}
	tab := make(refTable, cells/cols)
	for i := range tab {
		key := binary.BigEndian.AppendUint64(nil, uint64(i)*0x12345)
		tab[i].key = binary.BigEndian.AppendUint64(key, r.Uint64())
		ts := int64(1_700_000_000_000_000 + r.Int64N(1e12))
		vals := make([]byte, cols*size)
		for c := range cols {
			v := vals[c*size : (c+1)*size]
			for j := range v {
				v[j] = 'x'
			}
			for j := range v[:size/2] {
				v[j] = byte(r.Uint32())
			}
			tab[i].cells = append(tab[i].cells, cell.Cell{Col: names[c], TS: ts, Value: v, Kind: cell.KindSet})
		}
	}
	return tab
}

func logical(t refTable) (n int64, cells int) {
	for _, r := range t {
		for _, c := range r.cells {
			n += int64(len(r.key) + len(c.Col) + 8 + len(c.Value))
			cells++
		}
	}
	return n, cells
}

var benchShapes = []struct {
	name string
	wide bool
}{{"kv", false}, {"wide", true}}

func BenchmarkWrite(b *testing.B) {
	for _, s := range benchShapes {
		for _, codec := range []block.Codec{block.CodecNone, block.CodecS2} {
			b.Run(s.name+"/"+codec.String(), func(b *testing.B) {
				tab := benchTable(s.wide, 200_000)
				bytes, cells := logical(tab)
				b.SetBytes(bytes)
				cpu := cpuTime()
				for b.Loop() {
					w := NewWriter(io.Discard, WriterOptions{ID: 1, Codec: codec})
					for i := range tab {
						if w.StartRow(tab[i].key) != nil || w.AddCells(tab[i].cells) != nil {
							b.Fatal("refused")
						}
					}
					if _, err := w.Finish(cell.Bounds{LoRow: tab[0].key, HiRow: tab[len(tab)-1].key}, 1, 2); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*cells), "ns/cell")
				b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N*cells), "cpu-ns/cell")
			})
		}
	}
}

// benchReader writes tab and opens it.
func benchReader(b *testing.B, tab refTable, codec block.Codec, mode ReadMode, c *cache.Cache) *Reader {
	p, _ := write(b, tab, WriterOptions{ID: 1, Codec: codec, ColumnFilter: true})
	r, err := Open(&byteFile{b: p}, ReaderOptions{Mode: mode, Cache: c})
	must(b, err)
	b.Cleanup(func() { r.Close() })
	return r
}

func BenchmarkIterate(b *testing.B) {
	for _, s := range benchShapes {
		for _, codec := range []block.Codec{block.CodecNone, block.CodecS2} {
			for _, mode := range []ReadMode{Mapped, Positional} {
				b.Run(fmt.Sprintf("%s/%v/%v", s.name, codec, mode), func(b *testing.B) {
					tab := benchTable(s.wide, 100_000)
					bytes, cells := logical(tab)
					r := benchReader(b, tab, codec, mode, nil)
					b.SetBytes(bytes)
					buf := make([]cell.Cell, 0, 64)
					cpu := cpuTime()
					for b.Loop() {
						it := r.NewIter(cell.IterOptions{NoFill: true})
						n := 0
						for ok := it.First(); ok; ok = it.Next() {
							_ = it.Row()
							for cs := it.Cells(buf); len(cs) > 0; cs = it.Cells(buf) {
								n += len(cs)
							}
						}
						if n != cells || it.Err() != nil {
							b.Fatal(n, it.Err())
						}
						it.Close()
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*cells), "ns/cell")
					b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N*cells), "cpu-ns/cell")
				})
			}
		}
	}
}

// BenchmarkGet is a point read: filter, index, block, cell.
func BenchmarkGet(b *testing.B) {
	for _, s := range benchShapes {
		for _, codec := range []block.Codec{block.CodecNone, block.CodecS2} {
			for _, mode := range []ReadMode{Mapped, Positional} {
				b.Run(fmt.Sprintf("%s/%v/%v", s.name, codec, mode), func(b *testing.B) {
					tab := benchTable(s.wide, 100_000)
					r := benchReader(b, tab, codec, mode, cache.New(256<<20))
					buf := make([]cell.Cell, 0, 1)
					order := rand.New(rand.NewPCG(1, 1)).Perm(len(tab))
					col := tab[0].cells[len(tab[0].cells)/2].Col
					get := func(row []byte) {
						if !r.MayContainRow(bloom.HashRow(row)) {
							b.Fatal("filter")
						}
						it := r.NewIter(cell.IterOptions{})
						if !it.SeekGE(row) {
							b.Fatal("no row")
						}
						it.SeekCell(col, cell.MaxTimestamp)
						if len(it.Cells(buf)) != 1 {
							b.Fatal("no cell")
						}
						it.Close()
					}
					for i := range tab {
						get(tab[i].key)
					}
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						get(tab[order[i%len(order)]].key)
					}
				})
			}
		}
	}
}

// BenchmarkCopy is the writer and the iterator together, as a merge of one input: read, decode, encode, compress.
func BenchmarkCopy(b *testing.B) {
	for _, s := range benchShapes {
		b.Run(s.name, func(b *testing.B) {
			tab := benchTable(s.wide, 200_000)
			bytes, cells := logical(tab)
			r := benchReader(b, tab, block.CodecS2, Positional, nil)
			b.SetBytes(bytes)
			buf := make([]cell.Cell, 0, 256)
			cpu := cpuTime()
			for b.Loop() {
				w := NewWriter(io.Discard, WriterOptions{ID: 1, Codec: block.CodecS2})
				it := r.NewIter(cell.IterOptions{NoFill: true})
				for ok := it.First(); ok; ok = it.Next() {
					if err := w.StartRow(it.Row()); err != nil {
						b.Fatal(err)
					}
					for cs := it.Cells(buf); len(cs) > 0; cs = it.Cells(buf) {
						if err := w.AddCells(cs); err != nil {
							b.Fatal(err)
						}
					}
				}
				if _, err := w.Finish(r.Properties().Bounds, 1, 2); err != nil || it.Err() != nil {
					b.Fatal(err, it.Err())
				}
				it.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*cells), "ns/cell")
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N*cells), "cpu-ns/cell")
		})
	}
}
