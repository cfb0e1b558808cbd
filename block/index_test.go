package block

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// sepLess orders separators: a missing column is below every column.
func sepLess(a, b Entry) bool {
	if c := bytes.Compare(a.Row, b.Row); c != 0 {
		return c < 0
	}
	if a.Col == nil || b.Col == nil {
		return a.Col == nil && b.Col != nil
	}
	return cell.Compare(a.Col, a.TS, b.Col, b.TS) < 0
}

func randIndex(r *rand.Rand, n int) []Entry {
	prefix := []string{"", "common/", "longer common prefix/"}[r.IntN(3)]
	alphabet := 1 + r.IntN(200)
	var es []Entry
	for len(es) < n {
		var row []byte
		row = append(row, prefix...)
		for i := 1 + r.IntN(14); i > 0; i-- {
			row = append(row, byte(r.IntN(alphabet)))
		}
		for k := 1 + r.IntN(1+r.IntN(4)); k > 0; k-- {
			lo := r.Int64N(1000)
			e := Entry{
				Off: r.Int64N(1 << 40), Len: 1 + r.Uint32N(1000), KeysLen: 1 + r.Uint32N(500), Parts: 1 + r.Uint32N(5), Rows: 1 + r.Uint32N(9),
				Cells: r.Uint64N(999), MinTS: lo, MaxTS: lo + r.Int64N(1000), Families: r.Uint64(), Row: row,
			}
			if r.IntN(3) == 0 {
				e.Col, e.TS = []byte(fmt.Sprintf("f\x00\x01%d", r.IntN(20))), r.Int64N(3)
				if r.IntN(20) == 0 {
					e.Col = []byte{} // a range lane's row delete
				}
			}
			es = append(es, e)
		}
	}
	slices.SortFunc(es, func(a, b Entry) int {
		switch {
		case sepLess(a, b):
			return -1
		case sepLess(b, a):
			return 1
		}
		return 0
	})
	return slices.CompactFunc(es, func(a, b Entry) bool { return !sepLess(a, b) && !sepLess(b, a) })
}

func TestIndexSearches(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 4))
		es := randIndex(r, 1+r.IntN(200))
		var b IndexBuilder
		parts := 0
		for _, e := range es {
			b.Add(e)
			parts += int(e.Parts)
		}
		x, err := ParseIndex(b.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if x.Len() != len(es) || x.Parts() != parts {
			t.Fatalf("%d entries, %d parts", x.Len(), x.Parts())
		}
		for i, e := range es {
			if got := x.At(i); !reflect.DeepEqual(got, e) {
				t.Fatalf("entry %d is %+v, want %+v", i, got, e)
			}
		}
		for range 300 {
			q := es[r.IntN(len(es))]
			row := bytes.Clone(q.Row)
			switch r.IntN(5) {
			case 0:
				row = row[:r.IntN(len(row)+1)]
			case 1:
				row = append(row, 0)
			case 2:
				row[len(row)-1]++
			}
			// (row, no column) is the start of row.
			want := -1
			for i, e := range es {
				if !sepLess(Entry{Row: row}, e) {
					want = i
				}
			}
			if got := x.SeekRow(row); got != want {
				t.Fatalf("seed %d: row %q: %d, want %d", seed, row, got, want)
			}
			at := Entry{Row: q.Row, Col: []byte(fmt.Sprintf("f\x00\x01%d", r.IntN(20))), TS: r.Int64N(4)}
			lo := r.IntN(len(es))
			want = lo
			for i := lo; i < len(es); i++ {
				if !sepLess(at, es[i]) {
					want = i
				}
			}
			if got := x.SeekCell(lo, at.Row, at.Col, at.TS); got != want {
				t.Fatalf("cell %q %q %d from %d: %d, want %d", at.Row, at.Col, at.TS, lo, got, want)
			}
		}
	}
}

func FuzzIndex(f *testing.F) {
	for seed := range uint64(3) {
		var b IndexBuilder
		for _, e := range randIndex(rand.New(rand.NewPCG(seed, 5)), 4) {
			b.Add(e)
		}
		f.Add(b.Append(nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		x, err := ParseIndex(p)
		if err != nil {
			return
		}
		var b IndexBuilder
		for i := range x.Len() {
			e := x.At(i)
			x.SeekRow(e.Row)
			x.SeekCell(0, e.Row, e.Col, e.TS)
			b.Add(e)
		}
		y, err := ParseIndex(b.Append(nil))
		if err != nil || y.Len() != x.Len() {
			t.Fatalf("%v", err)
		}
		for i := range x.Len() {
			if !reflect.DeepEqual(x.At(i), y.At(i)) {
				t.Fatalf("%+v %+v", x.At(i), y.At(i))
			}
		}
	})
}
