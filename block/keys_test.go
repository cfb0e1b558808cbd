package block

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sort"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/cell"
)

// byGuide searches a row as a point read does.
func byGuide(g *Guide, k *Keys, key string) (row int, found bool) {
	for s := g.Begin(xxhash.Sum64String(key)); ; {
		from, to, ok := g.Next(&s)
		if !ok {
			return 0, false
		}
		k.Ask(from, to)
		for r := from; r < to; r++ {
			if g.IsRow(k, r, []byte(key)) {
				return r, true
			}
		}
	}
}

// entry is a cell with its row, for the reference.
type entry struct {
	row string
	c   cell.Cell
}

// build makes a keys section and its values from sorted entries.
func build(t testing.TB, b *Builder, es []entry, cut bool) (keys, vals []byte) {
	t.Helper()
	b.Reset()
	for i, e := range es {
		if i == 0 || es[i-1].row != e.row {
			b.StartRow([]byte(e.row), cut && i == 0)
		}
		if b.Add(&e.c) < 0 {
			t.Fatalf("entry %d refused", i)
		}
	}
	var places []uint32
	for i := 0; i < b.Chunks(); i++ {
		places = append(places, uint32(len(vals)))
		vals = append(vals, b.Chunk(i)...)
	}
	return b.AppendKeys(nil, places), vals
}

func randEntries(r *rand.Rand) []entry {
	set := map[string]entry{}
	rows, cols := 1+r.IntN(60), 1+r.IntN(300)
	spread := int64(1) << r.IntN(63)
	if spread <= 0 {
		spread = math.MaxInt64
	}
	base := r.Int64N(math.MaxInt64 - spread + 1)
	oneTS := r.IntN(3) == 0
	fixed := r.IntN(2) == 0
	kinds := 1 + r.IntN(2)
	maxVal := r.IntN(120)
	for n := 1 + r.IntN(800); n > 0; n-- {
		id := r.IntN(rows)
		row := fmt.Sprintf("common-prefix-%05d", id)
		col := fmt.Sprintf("fam\x00\x01%04d", r.IntN(cols))
		if !fixed {
			row += string(make([]byte, id%4))
			col += string(make([]byte, len(col)*7%5))[:r.IntN(2)]
		}
		ts := base + r.Int64N(spread)
		if oneTS {
			ts = base + int64(len(row)+id)%spread
		}
		v := make([]byte, maxVal)
		if !fixed {
			v = v[:r.IntN(maxVal+1)]
		}
		for i := range v {
			v[i] = byte(r.Uint32())
		}
		e := entry{row, cell.Cell{Col: []byte(col), TS: ts, Value: v, Kind: cell.Kind(1 + r.IntN(kinds))}}
		set[fmt.Sprint(row, "/", col, "/", ts)] = e
	}
	var es []entry
	for _, e := range set {
		es = append(es, e)
	}
	slices.SortFunc(es, func(a, b entry) int {
		if a.row != b.row {
			return bytes.Compare([]byte(a.row), []byte(b.row))
		}
		return cell.Compare(a.c.Col, a.c.TS, b.c.Col, b.c.TS)
	})
	return es
}

func TestKeysGiveBackWhatWasAdded(t *testing.T) {
	var b Builder
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 2))
		es := randEntries(r)
		cut := r.IntN(4) == 0
		p, vals := build(t, &b, es, cut)
		var k Keys
		if err := k.Parse(p); err != nil {
			t.Fatal(seed, err)
		}
		if k.Cells != len(es) || k.Cut != cut {
			t.Fatalf("%d cells, cut %v", k.Cells, k.Cut)
		}
		checkKeys(t, &k, es, vals)
		checkSearches(t, r, &k, es)
	}
}

func checkKeys(t *testing.T, k *Keys, es []entry, vals []byte) {
	t.Helper()
	n := 0
	all := append(vals, 1)
	many := k.AppendRows(nil, 0, 0, k.Cells, all, 0, 9)
	half := k.Cells / 2
	row, sum := 0, 0
	for r := range k.Rows {
		if from, _ := k.RowCells(r); from <= half {
			row = r
		}
		sum += len(k.Suffix(r))
	}
	if k.SuffixBytes(0, k.Rows) != sum {
		t.Fatalf("suffixes of %d bytes, want %d", k.SuffixBytes(0, k.Rows), sum)
	}
	upper := k.AppendRows(nil, row, half, k.Cells, all[k.ValueStart(half):], k.ValueStart(half), 9)
	for row := range k.Rows {
		from, to := k.RowCells(row)
		if from != n {
			t.Fatalf("row %d begins at %d, want %d", row, from, n)
		}
		cells := k.AppendCells(make([]cell.Cell, 0, to-from), row, from, to, append(vals, 1), 0, 9)
		for i, c := range cells {
			e := es[n]
			if string(k.AppendRow(nil, row)) != e.row || !bytes.Equal(c.Col, e.c.Col) || c.TS != e.c.TS || c.Kind != e.c.Kind || !bytes.Equal(c.Value, e.c.Value) {
				t.Fatalf("cell %d is %q %+v, want %+v", n, k.AppendRow(nil, row), c, e)
			}
			if m := many[n]; !reflect.DeepEqual(m, c) || n >= half && !reflect.DeepEqual(upper[n-half], c) {
				t.Fatalf("cell %d is %+v among many, %+v in its row", n, m, c)
			}
			if k.TS(from+i, row) != c.TS || k.Kind(n) != c.Kind || !bytes.Equal(k.Col(k.Code(n)), c.Col) || c.Dict != 9 || int(c.Code) != k.Code(n) {
				t.Fatalf("cell %d: single numbers differ", n)
			}
			if k.Chunks > 0 {
				c, lo, hi := k.Chunk(n)
				if n < lo || n >= hi || k.ChunkCell(c) != lo {
					t.Fatalf("cell %d in chunk %d of [%d, %d)", n, c, lo, hi)
				}
			}
			n++
		}
	}
	if n != len(es) {
		t.Fatalf("%d cells, want %d", n, len(es))
	}
}

func checkSearches(t *testing.T, r *rand.Rand, k *Keys, es []entry) {
	t.Helper()
	var rows []string
	for i, e := range es {
		if i == 0 || es[i-1].row != e.row {
			rows = append(rows, e.row)
		}
	}
	guide := NewGuide(k, xxhash.Sum64)
	if guide == nil && k.prefixN <= guidePrefix && k.Chunks <= guideChunks && k.Rows <= guideLarge/4*3 {
		t.Fatal("no guide")
	}
	var viewed Keys
	if guide != nil && (guide.View(&viewed, k.b[1:]) || !guide.View(&viewed, k.b) || !reflect.DeepEqual(viewed, *k)) {
		t.Fatal("what the guide shows differs")
	}
	for i := range k.Cells {
		if k.Chunks == 0 || guide == nil {
			break
		}
		c, from, to := k.Chunk(i)
		if c2, from2, to2 := guide.Chunk(i); c2 != c || from2 != from || to2 != to {
			t.Fatalf("cell %d: chunk %d [%d, %d) by guide, %d [%d, %d)", i, c2, from2, to2, c, from, to)
		}
	}
	for i := range k.Chunks {
		if guide == nil {
			break
		}
		_, from, to := k.Chunk(k.ChunkCell(i))
		if start, end := guide.Values(i); start != k.ValueStart(from) || end != k.ValueEnd(to-1) || guide.ChunkAt(i) != k.ChunkAt(i) {
			t.Fatalf("chunk %d: values [%d, %d) at %d by guide", i, start, end, guide.ChunkAt(i))
		}
	}
	for range 200 {
		key := rows[r.IntN(len(rows))]
		switch r.IntN(5) {
		case 0:
			key = key[:r.IntN(len(key)+1)]
		case 1:
			key += "\x00"
		case 2:
			key = key[:len(key)-1] + string([]byte{key[len(key)-1] + 1})
		}
		want := sort.SearchStrings(rows, key)
		got, eq := k.SearchRow([]byte(key))
		if got != want || eq != (want < len(rows) && rows[want] == key) {
			t.Fatalf("search %q: %d %v, want %d", key, got, eq, want)
		}
		if guide != nil {
			if got, found := byGuide(guide, &viewed, key); found != eq || found && got != want {
				t.Fatalf("search %q by guide: %d %v, want %d", key, got, found, want)
			}
		}
		i := r.IntN(len(es))
		col, ts := es[i].c.Col, es[i].c.TS+int64(r.IntN(3)-1)
		if r.IntN(4) == 0 {
			col = append(bytes.Clone(col), 0)
		}
		row, _ := k.SearchRow([]byte(es[i].row))
		from, to := k.RowCells(row)
		w := from
		for w < to && cell.Compare(es[w].c.Col, es[w].c.TS, col, ts) < 0 {
			w++
		}
		if got := k.SearchCell(row, from, to, col, ts); got != w {
			t.Fatalf("search cell %q %d: %d, want %d", col, ts, got, w)
		}
	}
}

func TestBuilderRefusesDisorder(t *testing.T) {
	c := func(col string, ts int64) *cell.Cell { return &cell.Cell{Col: []byte(col), TS: ts, Kind: 1} }
	for _, bad := range [][2]*cell.Cell{
		{c("b", 1), c("a", 1)}, {c("b", 1), c("b", 1)}, {c("b", 1), c("b", 2)}, {c("ab", 1), c("a", 9)},
	} {
		// The second time around the pair of columns is known to the builder's guess.
		var b Builder
		b.Reset()
		b.StartRow([]byte("r"), false)
		if b.Add(bad[0]) < 0 || b.Add(bad[1]) >= 0 {
			t.Errorf("%q %d after %q %d was accepted", bad[1].Col, bad[1].TS, bad[0].Col, bad[0].TS)
		}
	}
	var b Builder
	b.Reset()
	b.StartRow([]byte("r"), false)
	b.Add(c("a", 1))
	b.Add(c("b", 1))
	b.StartRow([]byte("s"), false)
	b.Add(c("b", 1))
	if b.Add(c("a", 1)) >= 0 {
		t.Error("a falling column was accepted in the second row")
	}
}

// TestKeysSample decodes the hand-written sample of docs/formats/block.md.
func TestKeysSample(t *testing.T) {
	p := sample(t, "keys")
	var k Keys
	if err := k.Parse(p); err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{"row1", cell.Cell{Col: []byte("f\x00\x01a"), TS: 1000, Value: []byte("x"), Kind: 1}},
		{"row1", cell.Cell{Col: []byte("f\x00\x01b"), TS: 1000, Value: []byte("yz"), Kind: 1}},
		{"row2", cell.Cell{Col: []byte("f\x00\x01a"), TS: 1001, Value: []byte(""), Kind: 1}},
	}
	checkKeys(t, &k, want, []byte("xyz"))
	var b Builder
	again, _ := build(t, &b, want, false)
	if !bytes.Equal(again, p) {
		t.Errorf("built\n%x, sample\n%x", again, p)
	}
	head, stored, err := Open(sample(t, "envelope"), Seed(0x0102030405060708, 64), PartValues)
	if err != nil || head.Codec != CodecNone || string(stored) != "xyz" {
		t.Errorf("envelope: %+v %q %v", head, stored, err)
	}
}

func FuzzKeys(f *testing.F) {
	var b Builder
	for seed := range uint64(4) {
		p, _ := build(f, &b, randEntries(rand.New(rand.NewPCG(seed, 3)))[:1], seed == 1)
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var k Keys
		if k.Parse(p) != nil {
			return
		}
		var es []entry
		vals := 0
		if k.Cells > 0 {
			vals = k.ValueEnd(k.Cells - 1)
		}
		if vals > 1<<20 {
			return
		}
		all := make([]byte, vals, vals+1)
		for row := range k.Rows {
			from, to := k.RowCells(row)
			name := k.AppendRow(nil, row)
			k.SearchRow(name)
			for _, c := range k.AppendCells(make([]cell.Cell, 0, to-from), row, from, to, all, 0, 1) {
				k.SearchCell(row, from, to, c.Col, c.TS)
				es = append(es, entry{string(name), c})
			}
		}
		for i := range k.Cells {
			if k.Chunks > 0 {
				k.Chunk(i)
			}
		}
		k.AppendRows(nil, 0, 0, k.Cells, all, 0, 1)
		// What is in order must survive a second encoding.
		for i := 1; i < len(es); i++ {
			a, b := es[i-1], es[i]
			if a.row > b.row || a.row == b.row && cell.Compare(a.c.Col, a.c.TS, b.c.Col, b.c.TS) >= 0 {
				return
			}
		}
		var b Builder
		p2, vals2 := build(t, &b, es, k.Cut)
		if err := k.Parse(p2); err != nil {
			t.Fatal(err)
		}
		checkKeys(t, &k, es, vals2)
	})
}

func TestEnvelope(t *testing.T) {
	raw := bytes.Repeat([]byte("compressible "), 100)
	for _, c := range []Codec{CodecNone, CodecS2, CodecZstd} {
		p := Seal([]byte("dirty"), 77, PartIndex, c, raw)[5:]
		got, err := OpenDecoded(p, 77, PartIndex)
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%v: %v", c, err)
		}
		if h, _ := ReadHead(p, PartIndex); h.Codec != c {
			t.Fatalf("stored with %v", h.Codec)
		}
		for i := range p {
			q := bytes.Clone(p)
			q[i] ^= 0x10
			if _, err := OpenDecoded(q, 77, PartIndex); err == nil {
				t.Fatalf("%v: byte %d", c, i)
			}
		}
		for n := range p {
			if _, err := OpenDecoded(p[:n], 77, PartIndex); err == nil {
				t.Fatalf("%v: cut to %d", c, n)
			}
		}
		if _, err := OpenDecoded(p, 78, PartIndex); err == nil {
			t.Fatal("foreign seed")
		}
		if _, err := OpenDecoded(p, 77, PartKeys); err == nil {
			t.Fatal("foreign part")
		}
	}
	noise := make([]byte, 4096)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	if h, _ := ReadHead(Seal(nil, 1, PartValues, CodecZstd, noise), PartValues); h.Codec != CodecNone {
		t.Error("noise is stored compressed")
	}
}

func FuzzEnvelope(f *testing.F) {
	for _, c := range []Codec{CodecNone, CodecS2, CodecZstd} {
		f.Add(Seal(nil, 5, PartValues, c, bytes.Repeat([]byte("ab"), 200)))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) < HeadLen {
			return
		}
		// Put the checksum right, to reach the decoders; bound the raw size, to bound what they may allocate.
		p = bytes.Clone(p)
		binary.LittleEndian.PutUint32(p[8:], binary.LittleEndian.Uint32(p[8:])%(1<<20))
		binary.LittleEndian.PutUint64(p, Checksum(5, p[8:HeadLen], p[HeadLen:]))
		raw, err := OpenDecoded(p, 5, PartValues)
		if err != nil {
			return
		}
		again, err := OpenDecoded(Seal(nil, 6, PartValues, CodecS2, raw), 6, PartValues)
		if err != nil || !bytes.Equal(again, raw) {
			t.Fatal(err)
		}
	})
}

// A guide finds each row of a block with as many as it takes, and none else, also where rows have the same hash; a block with more has no
// guide.
func TestGuidesOfFullBlocks(t *testing.T) {
	hashes := map[string]func([]byte) uint64{
		"good":     xxhash.Sum64,
		"constant": func([]byte) uint64 { return math.MaxUint64 },
		"poor":     func(row []byte) uint64 { return xxhash.Sum64(row) & 0xff00000000000003 },
	}
	for _, n := range []int{1, 2, guideSmall / 4 * 3, guideSmall/4*3 + 1, guideMiddle / 4 * 3, guideMiddle/4*3 + 1, 510, 511, 512, 1000, guideLarge / 4 * 3, guideLarge/4*3 + 1} {
		var es []entry
		for i := range n {
			es = append(es, entry{fmt.Sprintf("row%06d", 2*i), cell.Cell{Col: []byte("f\x00\x01"), TS: 1, Kind: 1}})
		}
		raw, _ := build(t, &Builder{}, es, false)
		var k Keys
		if err := k.Parse(raw); err != nil {
			t.Fatal(err)
		}
		for name, hash := range hashes {
			g := NewGuide(&k, hash)
			if n > guideLarge/4*3 {
				if g != nil {
					t.Errorf("%d rows: a guide", n)
				}
				continue
			}
			find := func(key string) (at int) {
				at = -1
				g.Prefetch(hash([]byte(key)), n)
				for s := g.Begin(hash([]byte(key))); ; {
					from, to, ok := g.Next(&s)
					if !ok {
						return at
					}
					for r := from; r < to; r++ {
						if g.IsRow(&k, r, []byte(key)) {
							at = r
						}
					}
				}
			}
			for i := range n {
				if name != "good" && i%37 > 0 {
					continue
				}
				if got := find(fmt.Sprintf("row%06d", 2*i)); got != i {
					t.Fatalf("%d rows, %s hash: row %d is found at %d", n, name, i, got)
				}
				if got := find(fmt.Sprintf("row%06d", 2*i+1)); got != -1 {
					t.Fatalf("%d rows, %s hash: a row that is not there is found at %d", n, name, got)
				}
			}
			if g.Bytes() != GuideBytes(&k) || g.Bytes() > 1208+4*n {
				t.Errorf("%d rows: %d bytes", n, g.Bytes())
			}
		}
	}
}

// Rows of equal length are searched in larger steps. Many here share their first eight bytes behind the prefix.
func TestSearchAmongRowsOfEqualLength(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for round := range 200 {
		set := map[string]bool{}
		n, heads, tail := 1+r.IntN(400), 1+r.IntN(60), r.IntN(6)
		for range n {
			var k [14]byte
			binary.BigEndian.PutUint64(k[:], uint64(r.IntN(heads))*0x0404040404040404)
			for i := range tail {
				k[8+i] = byte(r.IntN(3))
			}
			set["p"+string(k[:8+tail])] = true
		}
		var rows []string
		for k := range set {
			rows = append(rows, k)
		}
		slices.Sort(rows)
		es := make([]entry, len(rows))
		for i, row := range rows {
			es[i] = entry{row, cell.Cell{Col: []byte("f\x00\x01"), TS: 1, Kind: 1}}
		}
		raw, _ := build(t, &Builder{}, es, false)
		var k Keys
		if err := k.Parse(raw); err != nil {
			t.Fatal(err)
		}
		guide := NewGuide(&k, xxhash.Sum64)
		for i, row := range rows {
			for _, key := range []string{row, row + "\x00", row[:len(row)-1], row[:r.IntN(len(row))], row[:len(row)-1] + string([]byte{row[len(row)-1] + 1})} {
				want, found := slices.BinarySearch(rows, key)
				if got, eq := byGuide(guide, &k, key); eq != found || found && got != want {
					t.Fatalf("round %d: search %q by guide: %d %v, want %d %v", round, key, got, eq, want, found)
				}
				if got, eq := k.SearchRow([]byte(key)); got != want || eq != found {
					t.Fatalf("round %d: search %q near row %d of %d: %d %v, want %d %v", round, key, i, len(rows), got, eq, want, found)
				}
			}
		}
	}
}
