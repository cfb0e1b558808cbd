package compact_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cache"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/compact"
	"github.com/rowandb/rowan/engine/internal/memtable"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/io/direct"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// shape is a set of table files to be merged.
type shape struct {
	name    string
	inputs  int
	rows    int // in all
	columns int // of a row
	value   int // bytes
}

var shapes = []shape{
	{"kv/inputs=2", 2, 400_000, 1, 100},
	{"kv/inputs=4", 4, 400_000, 1, 100},
	{"wide/inputs=4", 4, 50_000, 20, 50},
	{"wide-100/inputs=4", 4, 25_000, 20, 100},
}

var benchTable = &levels.Table{ID: 1, Name: "t", HighestLife: 2, Groups: []levels.Group{{Tree: 1}}, Families: []levels.Family{{Name: "f", Life: 1}, {Name: "g", Life: 2}}}

// build writes the inputs: each row is in one of them, at random.
func (s shape) build(b testing.TB, fs vfs.FS, codec block.Codec) (readers []*sstable.Reader, logical int64, cells int) {
	rng := rand.New(rand.NewPCG(1, 1))
	writers := make([]*sstable.Writer, s.inputs)
	sinks := make([]*direct.Writer, s.inputs)
	names := make([]string, s.inputs)
	bounds := make([]cell.Bounds, s.inputs)
	for i := range writers {
		names[i] = fmt.Sprintf("%s/in-%d", b.TempDir(), i)
		var err error
		if sinks[i], err = direct.Create(fs, names[i], direct.Options{}); err != nil {
			b.Fatal(err)
		}
		writers[i] = sstable.NewWriter(sinks[i], sstable.WriterOptions{ID: uint64(i) + 1, Codec: codec})
	}
	var cols [][]byte
	for c := range s.columns {
		fam, life := "f", uint64(1)
		if c >= (s.columns+1)/2 {
			fam, life = "g", 2
		}
		cols = append(cols, cell.AppendColumn(nil, fam, life, fmt.Sprintf("column%02d", c)))
	}
	val := make([]byte, s.value)
	cs := make([]cell.Cell, s.columns)
	for r := range s.rows {
		row := binary.BigEndian.AppendUint64([]byte("row-key-"), uint64(r)*7919)
		i := rng.IntN(s.inputs)
		for j := 0; j < len(val)/2; j += 8 { // half random, half repeat
			binary.LittleEndian.PutUint64(val[j:], rng.Uint64())
		}
		ts := 1_700_000_000_000_000 + rng.Int64N(3_600_000_000)
		for c := range cs {
			cs[c] = cell.Cell{Col: cols[c], TS: ts, Value: val, Kind: cell.KindSet}
			logical += int64(len(row) + len(cols[c]) + 8 + len(val))
			cells++
		}
		if bounds[i].LoRow == nil {
			bounds[i].LoRow = row
		}
		bounds[i].HiRow = row
		if err := writers[i].StartRow(row); err != nil {
			b.Fatal(err)
		}
		if err := writers[i].AddCells(cs); err != nil {
			b.Fatal(err)
		}
	}
	for i, w := range writers {
		if _, err := w.Finish(bounds[i], 1, 1); err != nil {
			b.Fatal(err)
		}
		if err := sinks[i].Finish(); err != nil {
			b.Fatal(err)
		}
		f, err := fs.Open(names[i], vfs.How{})
		if err != nil {
			b.Fatal(err)
		}
		r, err := sstable.Open(f, sstable.ReaderOptions{Name: names[i], Cache: cache.New(64 << 20)})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { r.Close() })
		readers = append(readers, r)
	}
	return readers, logical, cells
}

func joined(readers []*sstable.Reader) *merge.Iter {
	var src []cell.Iter
	for _, r := range readers {
		src = append(src, r.NewIter(cell.IterOptions{NoFill: true}))
	}
	return merge.New(merge.Config{Families: merge.NewFamilies(benchTable)}, src)
}

// jobInto writes what m yields into files of dir, counting them in num.
func jobInto(fs vfs.FS, dir string, num *uint64, m *merge.Iter) *compact.Job {
	return &compact.Job{
		Merge: m, FileBytes: 64 << 20, FirstSeq: 1, LastSeq: 1, Check: func() error { return nil },
		Older: func([]byte, cell.Range) bool { return false },
		Create: func() (*compact.Output, error) {
			*num++
			sink, err := direct.Create(fs, fmt.Sprintf("%s/%d", dir, *num), direct.Options{Expect: 64 << 20})
			return &compact.Output{Num: levels.Num(*num), ID: *num, Sink: sink, Opts: sstable.WriterOptions{ID: *num, Codec: block.CodecS2}}, err
		},
	}
}

// BenchmarkMergeEncode joins the inputs and encodes the result, without a codec and without files.
func BenchmarkMergeEncode(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			readers, _, cells := s.build(b, vfs.OS(), block.CodecNone)
			buf := make([]cell.Cell, 0, 256)
			var many cell.Batch
			cpu := cpuTime()
			for b.Loop() {
				m := joined(readers)
				w := sstable.NewWriter(io.Discard, sstable.WriterOptions{ID: 9, Codec: block.CodecNone})
				n := 0
				for ok := m.First(); ok; ok = m.Next() {
					if m.Batch(&many) {
						if err := w.AddRows(many.Rows); err != nil {
							b.Fatal(err)
						}
						for i := range many.Rows {
							n += len(many.Rows[i].Cells)
						}
						continue
					}
					if err := w.StartRow(m.Row()); err != nil {
						b.Fatal(err)
					}
					for buf = m.Cells(buf[:0]); len(buf) > 0; buf = m.Cells(buf[:0]) {
						if err := w.AddCells(buf); err != nil {
							b.Fatal(err)
						}
						n += len(buf)
					}
				}
				if err := m.Err(); err != nil || n != cells {
					b.Fatal(n, err)
				}
				if _, err := w.Finish(cell.Bounds{LoRow: []byte("a"), HiRow: []byte("z")}, 1, 1); err != nil {
					b.Fatal(err)
				}
				m.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(cells), "ns/cell")
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/float64(cells), "cpu-ns/cell")
		})
	}
}

// BenchmarkPipeline is a whole compaction: read, check, decode, merge, encode, compress, filter, write direct, sync.
func BenchmarkPipeline(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			fs := vfs.OS()
			readers, logical, cells := s.build(b, fs, block.CodecS2)
			dir := b.TempDir()
			num := uint64(0)
			spent := time.Duration(0)
			for b.Loop() {
				cpu := cpuTime()
				m := joined(readers)
				job := jobInto(fs, dir, &num, m)
				res, err := job.Run()
				if err != nil || res.Cells != uint64(cells) {
					b.Fatal(res.Cells, err)
				}
				m.Close()
				b.StopTimer()
				spent += cpuTime() - cpu
				for i := range num {
					_ = fs.Remove(fmt.Sprintf("%s/%d", dir, i+1))
				}
				num = 0
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(cells), "ns/cell")
			b.ReportMetric(float64(spent)/float64(b.N)/float64(cells), "cpu-ns/cell")
			b.ReportMetric(float64(logical)*float64(b.N)/b.Elapsed().Seconds()/1e6, "MB/s")
		})
	}
}

// BenchmarkFlush writes a memtable to files.
func BenchmarkFlush(b *testing.B) {
	const n = 400_000
	fs := vfs.OS()
	tab := memtable.New(memtable.Options{})
	b.Cleanup(func() { tab.Release() })
	rng := rand.New(rand.NewPCG(1, 1))
	col, val := cell.AppendColumn(nil, "f", 1, "v"), make([]byte, 100)
	for i := range n {
		for j := 0; j < len(val)/2; j += 8 { // half random, half repeat
			binary.LittleEndian.PutUint64(val[j:], rng.Uint64())
		}
		row := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, rng.Uint64()), 1)
		if err := tab.Set(row, col, 1, cell.KindSet, val, uint64(i+1)); err != nil {
			b.Fatal(err)
		}
	}
	dir := b.TempDir()
	num := uint64(0)
	spent := time.Duration(0)
	for b.Loop() {
		cpu := cpuTime()
		m := merge.New(merge.Config{Families: merge.NewFamilies(benchTable)}, []cell.Iter{tab.NewIter(n, cell.IterOptions{})})
		job := jobInto(fs, dir, &num, m)
		res, err := job.Run()
		if err != nil || res.Cells != n {
			b.Fatal(res.Cells, err)
		}
		m.Close()
		b.StopTimer()
		spent += cpuTime() - cpu
		for i := range num {
			_ = fs.Remove(fmt.Sprintf("%s/%d", dir, i+1))
		}
		num = 0
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/cell")
	b.ReportMetric(float64(spent)/float64(b.N)/n, "cpu-ns/cell")
}
