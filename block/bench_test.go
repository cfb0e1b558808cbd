package block

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// halfRandom fills p so that it compresses to about half.
func halfRandom(r *rand.Rand, p []byte) {
	for i := range p {
		p[i] = 'x'
	}
	for i := 0; i < len(p)/2; i++ {
		p[i] = byte(r.Uint32())
	}
}

// benchRow is a row of the two shapes that are measured: kv has one column a row, wide has 20.
type benchRow struct {
	key   []byte
	cells []cell.Cell
}

func benchRows(wide bool, n int) []benchRow {
	r := rand.New(rand.NewPCG(1, 2))
	rows := make([]benchRow, n)
	for i := range rows {
		key := binary.BigEndian.AppendUint64(nil, uint64(i)*0x12345)
		key = binary.BigEndian.AppendUint64(key, r.Uint64())
		cols := 1
		size := 100
		if wide {
			cols, size = 20, 50
		}
		rows[i].key = key
		ts := int64(1_700_000_000_000_000 + r.Int64N(1e12))
		for c := range cols {
			v := make([]byte, size)
			halfRandom(r, v)
			rows[i].cells = append(rows[i].cells, cell.Cell{Col: fmt.Appendf(nil, "fam\x00\x01col%02d", c), TS: ts, Value: v, Kind: cell.KindSet})
		}
	}
	return rows
}

// fillBlock adds rows until the block is 32 KiB, and returns how many.
func fillBlock(b *Builder, rows []benchRow) int {
	b.Reset()
	for i := range rows {
		if b.Size() >= 32<<10 {
			return i
		}
		b.StartRow(rows[i].key, false)
		for j := range rows[i].cells {
			b.Add(&rows[i].cells[j])
		}
	}
	return len(rows)
}

var shapes = []struct {
	name string
	wide bool
}{{"kv", false}, {"wide", true}}

func BenchmarkBuild(b *testing.B) {
	for _, s := range shapes {
		for _, codec := range []Codec{CodecNone, CodecS2} {
			b.Run(s.name+"/"+codec.String(), func(b *testing.B) {
				rows := benchRows(s.wide, 400)
				var x Builder
				var keys, buf, kbuf []byte
				places := make([]uint32, 100)
				cells, stored := 0, 0
				for b.Loop() {
					fillBlock(&x, rows)
					stored = 0
					for i := range x.Chunks() {
						var out []byte
						out, _, buf = Compress(codec, buf, x.Chunk(i))
						stored += len(out)
					}
					keys = x.AppendKeys(keys[:0], places[:x.Chunks()])
					var out []byte
					out, _, kbuf = Compress(codec, kbuf, keys)
					stored += len(out)
					cells = x.Cells()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*cells), "ns/cell")
				b.ReportMetric(float64(stored)/float64(cells), "B/cell")
				b.ReportMetric(float64(len(keys))/float64(cells), "keyB/cell")
			})
		}
	}
}

func BenchmarkSeek(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			rows := benchRows(s.wide, 400)
			var x Builder
			n := fillBlock(&x, rows)
			p := x.AppendKeys(nil, make([]uint32, x.Chunks()))
			r := rand.New(rand.NewPCG(3, 3))
			order := r.Perm(n)
			out := make([]cell.Cell, 0, 1)
			vals := make([]byte, 64<<10)
			for i := 0; b.Loop(); i++ {
				row := &rows[order[i%n]]
				c := &row.cells[len(row.cells)/2]
				// What a point read of a raw block does: set up, find the row, find the cell, hand it out.
				var k Keys
				if err := k.View(p); err != nil {
					b.Fatal(err)
				}
				at, _ := k.SearchRow(row.key)
				from, to := k.RowCells(at)
				from = k.SearchCell(at, from, to, c.Col, c.TS)
				out = k.AppendCells(out[:0], at, from, from+1, vals, 0, 1)
				if out[0].TS != c.TS {
					b.Fatal("wrong cell")
				}
			}
		})
	}
}

// BenchmarkIterate reads a block row by row, as a scan does, and many rows at a time, as a merge does.
func BenchmarkIterate(b *testing.B) {
	for _, s := range shapes {
		rows := benchRows(s.wide, 400)
		var x Builder
		fillBlock(&x, rows)
		p := x.AppendKeys(nil, make([]uint32, x.Chunks()))
		vals := make([]byte, 64<<10)
		out := make([]cell.Cell, 0, 1024)
		var k Keys
		sum := int64(0)
		b.Run(s.name+"/rows", func(b *testing.B) {
			for b.Loop() {
				if err := k.View(p); err != nil {
					b.Fatal(err)
				}
				for row := range k.Rows {
					from, to := k.RowCells(row)
					cs := k.AppendCells(out, row, from, to, vals, 0, 1)
					for i := range cs {
						sum += cs[i].TS
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*k.Cells), "ns/cell")
		})
		b.Run(s.name+"/batch", func(b *testing.B) {
			if err := k.View(p); err != nil {
				b.Fatal(err)
			}
			benchBatches(b, &k)
		})
	}
}

// BenchmarkIterateOdd reads batches of blocks whose cells are not all of one length, or have a timestamp each.
func BenchmarkIterateOdd(b *testing.B) {
	for _, s := range []struct {
		name               string
		wide, lengths, own bool
	}{{"kv/lengths", false, true, false}, {"wide/lengths", true, true, false}, {"wide/timestamps", true, false, true}} {
		rows := benchRows(s.wide, 400)
		for i := range rows {
			for j := range rows[i].cells {
				c := &rows[i].cells[j]
				if s.lengths {
					c.Value = c.Value[:len(c.Value)-(i*7+j)%9]
				}
				if s.own {
					c.TS += int64(j)
				}
			}
		}
		var x Builder
		fillBlock(&x, rows)
		p := x.AppendKeys(nil, make([]uint32, x.Chunks()))
		var k Keys
		b.Run(s.name, func(b *testing.B) {
			if err := k.View(p); err != nil {
				b.Fatal(err)
			}
			benchBatches(b, &k)
		})
	}
}

// benchBatches reads a block in batches of 256 cells and the rest of the row, as package sstable does for merges.
func benchBatches(b *testing.B, k *Keys) {
	vals := make([]byte, 64<<10)
	out := make([]cell.Cell, 0, 1024)
	sum := int64(0)
	for b.Loop() {
		for row, from := 0, 0; from < k.Cells; {
			first, to := row, from
			for ; row < k.Rows && to-from < 256; row++ {
				_, to = k.RowCells(row)
			}
			cs := k.AppendRows(out, first, from, to, vals, 0, 1)
			from = to
			for i := range cs {
				sum += cs[i].TS
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*k.Cells), "ns/cell")
}

// BenchmarkFloor is what BenchmarkIterate cannot go below: cells are filled and summed as there, but nothing is read from a block, all
// have one column and one timestamp, and their values lie one behind the other.
func BenchmarkFloor(b *testing.B) {
	out := make([]cell.Cell, 260)
	col, vals := []byte("fam\x00\x01col00"), make([]byte, 50*len(out))
	sum := int64(0)
	for b.Loop() {
		v := vals
		for i := range out {
			c := &out[i]
			c.Col, c.Value = col, v[:50]
			v = v[50:]
			c.TS, c.Dict, c.Code, c.Kind = 5, 1, 0, cell.KindSet
		}
		for i := range out {
			sum += out[i].TS
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(out)), "ns/cell")
}

func BenchmarkParse(b *testing.B) {
	rows := benchRows(false, 400)
	var x Builder
	fillBlock(&x, rows)
	var places []uint32
	for i := range x.Chunks() {
		places = append(places, uint32(i))
	}
	p := x.AppendKeys(nil, places)
	var k Keys
	for b.Loop() {
		if err := k.Parse(p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIndexSeek(b *testing.B) {
	for _, n := range []int{2000, 32000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var x IndexBuilder
			keys := make([][]byte, n)
			for i := range n {
				keys[i] = fmt.Appendf(nil, "table/user%09d", i*37)
				x.Add(Entry{Len: 1, KeysLen: 1, Parts: 1, Rows: 1, Row: keys[i]})
			}
			y, err := ParseIndex(x.Append(nil))
			if err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				y.SeekRow(keys[i*7919%n])
			}
		})
	}
}
