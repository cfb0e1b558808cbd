package sstable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cache"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/io/vfs"
)

// byteFile is a file over a byte slice. It counts reads and can refuse to map; direct makes it demand alignment.
type byteFile struct {
	b      []byte
	noMap  bool
	direct bool
	shared bool // by goroutines: reads are not counted
	reads  int
	closed bool
}

func (f *byteFile) ReadAt(p []byte, off int64) (int, error) {
	if !f.shared {
		f.reads++
	}
	if f.direct && (off%4096 != 0 || len(p)%4096 != 0) {
		return 0, fmt.Errorf("unaligned read of %d at %d", len(p), off)
	}
	if off >= int64(len(f.b)) {
		return 0, io.EOF
	}
	n := copy(p, f.b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *byteFile) WriteAt([]byte, int64) (int, error) { panic("read-only") }
func (f *byteFile) Close() error                       { f.closed = true; return nil }
func (f *byteFile) Sync() error                        { return nil }
func (f *byteFile) Size() (int64, error)               { return int64(len(f.b)), nil }
func (f *byteFile) Truncate(int64) error               { panic("read-only") }
func (f *byteFile) Preallocate(int64) error            { return nil }
func (f *byteFile) Align() int                         { return 4096 }
func (f *byteFile) Name() string                       { return "000001.tbl" }
func (f *byteFile) Map(n int64) (vfs.Mapping, error) {
	if f.noMap {
		return nil, vfs.ErrMap
	}
	return byteMap(f.b[:n]), nil
}

type byteMap []byte

func (m byteMap) Bytes() []byte               { return m }
func (m byteMap) Populate(off, n int64) error { return nil }
func (m byteMap) Close() error                { return nil }

// refRow is a row of the reference.
type refRow struct {
	key    []byte
	ranges []cell.Range
	dels   []cell.Delete
	cells  []cell.Cell
}

// refTable is what a file should hold.
type refTable []refRow

// search returns the first row >= key.
func (t refTable) search(key []byte) int {
	return sort.Search(len(t), func(i int) bool { return bytes.Compare(t[i].key, key) >= 0 })
}

// restrict returns what an iterator with options o yields. Rows without entries stay.
func (t refTable) restrict(o cell.IterOptions) refTable {
	var out refTable
	for _, r := range t {
		cols := o.Columns
		ok := true
		if o.Bounds != nil {
			var b cell.Range
			if b, ok = o.Bounds.Columns(r.key); !ok {
				continue
			}
			cols, ok = cols.Clip(b.From, b.To)
		}
		n := refRow{key: r.key}
		for _, x := range r.ranges {
			if y, some := x.Clip(cols.From, cols.To); some && ok {
				n.ranges = append(n.ranges, y)
			}
		}
		for _, x := range r.dels {
			if ok && cols.Contains(x.Col) {
				n.dels = append(n.dels, x)
			}
		}
		for _, x := range r.cells {
			if ok && cols.Contains(x.Col) {
				if o.KeysOnly {
					x.Value = nil
				}
				n.cells = append(n.cells, x)
			}
		}
		out = append(out, n)
	}
	return out
}

func write(t testing.TB, tab refTable, o WriterOptions) ([]byte, Properties) {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf, o)
	for _, r := range tab {
		must(t, w.StartRow(r.key))
		// Any mixture of the kinds, in several calls.
		must(t, w.AddCells(r.cells[:len(r.cells)/3]))
		must(t, w.AddRanges(r.ranges[:len(r.ranges)/2]))
		must(t, w.AddDeletes(r.dels[:len(r.dels)/2]))
		must(t, w.AddCells(r.cells[len(r.cells)/3:]))
		must(t, w.AddRanges(r.ranges[len(r.ranges)/2:]))
		must(t, w.AddDeletes(r.dels[len(r.dels)/2:]))
	}
	b := cell.Bounds{LoRow: []byte("a"), HiRow: []byte("z")}
	if len(tab) > 0 {
		b = cell.Bounds{LoRow: tab[0].key, HiRow: tab[len(tab)-1].key}
	}
	p, err := w.Finish(b, 3, 9)
	must(t, err)
	return buf.Bytes(), p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shape says what randTable makes.
type shape struct {
	rows, colsMax, versionsMax, valueMax int
	deletes                              float64
	wide                                 int // every so many rows, a row of this many columns
	tsSpread                             int64
	fixed                                bool // fixed-size rows, columns, values
	rowTS                                bool // one timestamp per row
	kinds                                bool
}

func randShape(r *rand.Rand) shape {
	s := shape{rows: 1 + r.IntN(200), colsMax: 1 + r.IntN(12), versionsMax: 1 + r.IntN(4), valueMax: r.IntN(200), tsSpread: 1 << r.IntN(62)}
	if r.IntN(2) == 0 {
		s.deletes = r.Float64() / 2
	}
	if r.IntN(3) == 0 {
		s.wide = 50 + r.IntN(1500)
	}
	s.fixed, s.rowTS, s.kinds = r.IntN(3) == 0, r.IntN(3) == 0, r.IntN(4) == 0
	return s
}

func randTable(r *rand.Rand, s shape) refTable {
	keys := map[string]bool{}
	for len(keys) < s.rows {
		k := fmt.Sprintf("row%06d", r.IntN(1e6))
		if !s.fixed {
			switch r.IntN(8) {
			case 0:
				k += string([]byte{0})
			case 1:
				k += string([]byte{0xff, byte(r.IntN(256)), 0})
			case 2:
				k = k[:3+r.IntN(6)]
			case 3:
				k = string([]byte{byte(r.IntN(256))}) + k
			}
		}
		keys[k] = true
	}
	var names []string
	for k := range keys {
		names = append(names, k)
	}
	slices.Sort(names)
	families := []string{"f", "fam", "fam-1", "z.z"}
	var tab refTable
	for n, k := range names {
		row := refRow{key: []byte(k)}
		cols := 1 + r.IntN(s.colsMax)
		if s.wide > 0 && n%50 == 7 {
			cols = s.wide
		}
		base := r.Int64N(s.tsSpread)
		seen := map[string]bool{}
		for i := 0; i < cols; i++ {
			q := fmt.Sprintf("q%04d", r.IntN(4*cols))
			if !s.fixed && r.IntN(6) == 0 {
				q = ""
			}
			seen[string(cell.AppendColumn(nil, families[r.IntN(len(families))], uint64(1+r.IntN(2)), q))] = true
		}
		for _, c := range sortedKeys(seen) {
			versions := 1 + r.IntN(s.versionsMax)
			ts := map[int64]bool{}
			for v := 0; v < versions; v++ {
				if s.rowTS {
					ts[base] = true
				} else {
					ts[r.Int64N(s.tsSpread)] = true
				}
			}
			var order []int64
			for v := range ts {
				order = append(order, v)
			}
			slices.SortFunc(order, func(a, b int64) int { return int(b/2 - a/2 + (b&1 - a&1)) })
			slices.Sort(order)
			slices.Reverse(order)
			for _, v := range order {
				c := cell.Cell{Col: []byte(c), TS: v, Kind: cell.KindSet, Value: randValue(r, s)}
				if s.kinds && r.IntN(5) == 0 {
					c.Kind, c.Value = cell.KindMerge, binary.BigEndian.AppendUint64(nil, r.Uint64())
				}
				row.cells = append(row.cells, c)
			}
		}
		if r.Float64() < s.deletes {
			if r.IntN(2) == 0 {
				row.cells = nil
			}
			row.ranges, row.dels = randDeletes(r, families)
			if len(row.ranges)+len(row.dels)+len(row.cells) == 0 {
				row.ranges = []cell.Range{{From: []byte{}}}
			}
		}
		tab = append(tab, row)
	}
	return tab
}

func sortedKeys(m map[string]bool) []string {
	var s []string
	for k := range m {
		s = append(s, k)
	}
	slices.Sort(s)
	return s
}

func randValue(r *rand.Rand, s shape) []byte {
	n := s.valueMax
	if !s.fixed {
		n = r.IntN(s.valueMax + 1)
		if r.IntN(200) == 0 {
			n = 20000
		}
	}
	v := make([]byte, n)
	for i := range v {
		v[i] = byte(r.IntN(4)) // compressible
	}
	if r.IntN(2) == 0 {
		for i := range v {
			v[i] = byte(r.Uint32())
		}
	}
	return v
}

func randDeletes(r *rand.Rand, families []string) (rs []cell.Range, ds []cell.Delete) {
	switch r.IntN(4) {
	case 0:
		rs = []cell.Range{{From: []byte{}}}
	case 1:
		for _, f := range families {
			if r.IntN(2) == 0 {
				rs = append(rs, cell.FamilyRange(f))
			}
		}
	}
	cols := map[string]bool{}
	n := r.IntN(6)
	if r.IntN(10) == 0 {
		n = 300
	}
	for i := 0; i < n; i++ {
		cols[string(cell.AppendColumn(nil, families[r.IntN(4)], 1, fmt.Sprintf("q%04d", r.IntN(1000))))] = true
	}
	for _, c := range sortedKeys(cols) {
		var one []cell.Delete
		for i := 1 + r.IntN(3); i > 0; i-- {
			lo := int64(r.IntN(1000))
			if r.IntN(3) > 0 {
				lo = 0
			}
			hi := lo + int64(r.IntN(50))
			if r.IntN(4) == 0 {
				hi = math.MaxInt64
			}
			one = cell.AddDelete(one, []byte(c), lo, hi)
		}
		ds = append(ds, one...)
	}
	return rs, ds
}

func randOptions(r *rand.Rand) WriterOptions {
	return WriterOptions{
		ID: r.Uint64() | 1, Tree: 4, TreeName: "t/default", Level: r.IntN(7), Epoch: 77, Rules: "f: max_versions=2",
		BlockSize: []int{512, 1024, 4096, 32 << 10}[r.IntN(4)], Codec: block.Codec(r.IntN(3)),
		BloomBits: []int{0, 5, 16, -1}[r.IntN(4)], ColumnFilter: r.IntN(2) == 0,
		fanout: []int{0, 1, 3, 16}[r.IntN(4)],
	}
}

// open opens b in a random way. The cache, if any, is returned too.
func open(t testing.TB, r *rand.Rand, b []byte) *Reader {
	t.Helper()
	f := &byteFile{b: b, noMap: r.IntN(4) == 0}
	o := ReaderOptions{Mode: ReadMode(r.IntN(3))}
	f.direct = o.Mode == Direct
	if r.IntN(3) > 0 {
		o.Cache = cache.New(int64(1<<14) << r.IntN(10))
	}
	rd, err := Open(f, o)
	must(t, err)
	t.Cleanup(func() {
		must(t, rd.Close())
		if !f.closed {
			t.Error("file is still open")
		}
		if o.Cache != nil {
			if s := o.Cache.Stats(); s.Used != 0 || s.Charged != 0 || s.Entries != 0 {
				t.Errorf("cache holds %+v after close", s)
			}
			o.Cache.Close()
		}
	})
	return rd
}
