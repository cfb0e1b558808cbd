package cell

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/internal/hexdoc"
)

func sampleRecord() []byte {
	var b RecordBuilder
	col := []byte("f\x00\x01q")
	b.Append(&Entry{Op: OpCell, Kind: KindSet, Tree: 1, Row: []byte("r"), Col: col, TS: 200, Value: []byte("hi")})
	b.Append(&Entry{Op: OpDelete, Tree: 1, Row: []byte("r"), Col: col, Hi: 9})
	b.Append(&Entry{Op: OpRange, Tree: 1, Row: []byte("s")})
	state := make([]byte, StateLen)
	PutState(state, -2)
	b.Append(&Entry{Op: OpCell, Kind: KindMerge, Tree: 1, Row: []byte("s"), Col: []byte("g\x00\x02q"), Value: state})
	return b.Record(Header{FirstSeq: 5, EngineTime: 1000})
}

// The hand-written sample of docs/formats/batch.md is what the code writes.
func TestDocSample(t *testing.T) {
	b, err := hexdoc.Sample("../docs/formats/batch.md", "batch")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, sampleRecord()) {
		t.Errorf("the code writes %x", sampleRecord())
	}
	r, err := ReadRecord(b)
	if err != nil || r.Header != (Header{FirstSeq: 5, EngineTime: 1000, Count: 4}) {
		t.Fatalf("%+v %v", r.Header, err)
	}
	n := 0
	for _, ok := r.Next(); ok; _, ok = r.Next() {
		n++
	}
	if n != 4 || r.Err() != nil {
		t.Fatal(n, r.Err())
	}
}

func TestDamagedRecords(t *testing.T) {
	b := sampleRecord()
	for i := range b {
		if all(b[:i]) == nil {
			t.Errorf("cut at %d of %d: no error", i, len(b))
		}
	}
	short := bytes.Replace(b, []byte{8, 0xff}, []byte{7, 0xff}, 1)
	if err := all(short[:len(short)-1]); !errors.Is(err, damage.Err) || !strings.Contains(err.Error(), "Add of 7 bytes") {
		t.Errorf("a short state: %v", err)
	}
	if err := all(append(b, 0)); !errors.Is(err, damage.Err) {
		t.Errorf("a byte too many: %v", err)
	}
}

func all(b []byte) error {
	r, err := ReadRecord(b)
	if err != nil {
		return err
	}
	for _, ok := r.Next(); ok; _, ok = r.Next() {
	}
	return r.Err()
}

func FuzzReadRecord(f *testing.F) {
	f.Add(sampleRecord())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ReadRecord(b)
		if err != nil {
			if !errors.Is(err, damage.Err) {
				t.Fatal(err)
			}
			return
		}
		h := r.Header
		var out RecordBuilder
		var entries []Entry
		for e, ok := r.Next(); ok; e, ok = r.Next() {
			out.Append(&e)
			entries = append(entries, e)
		}
		if r.Err() != nil {
			return
		}
		again, err := ReadRecord(out.Record(h))
		if err != nil || again.Header != h {
			t.Fatalf("%+v %v", again.Header, err)
		}
		for i := range entries {
			e, ok := again.Next()
			if !ok || !same(e, entries[i]) {
				t.Fatalf("entry %d: %+v became %+v", i, entries[i], e)
			}
		}
	})
}

func same(a, b Entry) bool {
	for _, p := range []*[]byte{&a.Row, &a.Col, &a.Value, &a.Range.From, &a.Range.To, &b.Row, &b.Col, &b.Value, &b.Range.From, &b.Range.To} {
		if len(*p) == 0 {
			*p = nil
		}
	}
	return reflect.DeepEqual(a, b)
}

func TestDeletesMergeUntilDisjoint(t *testing.T) {
	for _, c := range []struct{ add, want [][2]int64 }{
		{[][2]int64{{1, 2}, {5, 6}}, [][2]int64{{5, 6}, {1, 2}}},
		{[][2]int64{{1, 2}, {3, 4}}, [][2]int64{{1, 4}}},
		{[][2]int64{{3, 4}, {1, 2}}, [][2]int64{{1, 4}}},
		{[][2]int64{{1, 2}, {5, 6}, {2, 5}}, [][2]int64{{1, 6}}},
		{[][2]int64{{0, MaxTimestamp}, {5, 6}}, [][2]int64{{0, MaxTimestamp}}},
		{[][2]int64{{5, 6}, {0, 3}, {8, MaxTimestamp}}, [][2]int64{{8, MaxTimestamp}, {5, 6}, {0, 3}}},
		{[][2]int64{{MaxTimestamp, MaxTimestamp}, {0, 0}, {0, 0}}, [][2]int64{{MaxTimestamp, MaxTimestamp}, {0, 0}}},
	} {
		var ds []Delete
		for _, a := range c.add {
			ds = AddDelete(ds, nil, a[0], a[1])
		}
		var got [][2]int64
		for _, d := range ds {
			got = append(got, [2]int64{d.Lo, d.Hi})
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v gives %v, want %v", c.add, got, c.want)
		}
	}
}

func TestRangesMergeUntilDisjoint(t *testing.T) {
	r := func(from, to string) Range {
		x := Range{From: []byte(from)}
		if to != "" {
			x.To = []byte(to)
		}
		return x
	}
	for _, c := range []struct{ add, want []Range }{
		{[]Range{r("a", "b"), r("c", "d")}, []Range{r("a", "b"), r("c", "d")}},
		{[]Range{r("c", "d"), r("a", "b")}, []Range{r("a", "b"), r("c", "d")}},
		{[]Range{r("a", "b"), r("b", "c")}, []Range{r("a", "c")}},
		{[]Range{r("a", "b"), r("c", "d"), r("", "")}, []Range{r("", "")}},
		{[]Range{r("c", ""), r("a", "d")}, []Range{r("a", "")}},
		{[]Range{r("fam\x00", "fam\x01"), r("fam-1\x00", "fam-1\x01")}, []Range{r("fam\x00", "fam\x01"), r("fam-1\x00", "fam-1\x01")}},
	} {
		var rs []Range
		for _, a := range c.add {
			rs = AddRange(rs, a)
		}
		if !reflect.DeepEqual(rs, c.want) {
			t.Errorf("%q gives %q, want %q", c.add, rs, c.want)
		}
	}
}
