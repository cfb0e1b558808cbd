package block

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Runs end where a look at every row says, and strips hold what single cells do.
func TestRunsAndStrips(t *testing.T) {
	var b Builder
	lone := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		es := randEntries(r)
		if seed%3 == 0 { // one cell a row, one column
			kept := es[:0]
			for i, e := range es {
				if i == 0 || es[i-1].row != e.row {
					e.c.Col = []byte("f\x00\x01q")
					kept = append(kept, e)
				}
			}
			es = kept
		}
		raw, _ := build(t, &b, es, false)
		var k Keys
		if err := k.Parse(raw); err != nil {
			t.Fatal(err)
		}
		keys := make([][]byte, k.Rows)
		for i := range keys {
			keys[i] = k.AppendRow(nil, i)
		}
		probes := append([][]byte{nil, []byte("a"), []byte("common-prefix-"), []byte("z"), []byte("common-prefix-00007")}, keys...)
		for _, p := range probes {
			below := 0
			for i, key := range keys {
				c := bytes.Compare(key, p)
				if got := k.CompareRow(i, p); got != c {
					t.Fatalf("seed %d: row %q and %q compare as %d, want %d", seed, key, p, got, c)
				}
				if c < 0 {
					below++
				}
			}
			above := below
			if above < len(keys) && bytes.Equal(keys[above], p) {
				above++
			}
			for range 5 {
				if below > 0 {
					from := r.IntN(below)
					to := from + 1 + r.IntN(k.Rows-from)
					if got := k.RunBelow(from, to, p); got != min(below, to) {
						t.Fatalf("seed %d: rows [%d, %d) below %q end at %d, want %d", seed, from, to, p, got, min(below, to))
					}
				}
				if above < k.Rows {
					last := above + r.IntN(k.Rows-above)
					from := r.IntN(last + 1)
					if got := k.RunAbove(from, last, p); got != max(above, from) {
						t.Fatalf("seed %d: rows [%d, %d] above %q begin at %d, want %d", seed, from, last, p, got, max(above, from))
					}
				}
			}
		}
		var s Strip
		for row := range k.Rows {
			first, end := k.RowCells(row)
			for at := first; at < end; at += s.N {
				k.Take(&s, row, at, end)
				for i := range s.N {
					c := at + i
					if int(s.Codes[i]) != k.Code(c) || s.TS[i] != k.TS(c, row) || s.Ends[i] != k.ValueStart(c) || s.Ends[i+1] != k.ValueEnd(c) {
						t.Fatalf("seed %d: cell %d of the strip at %d differs", seed, i, at)
					}
				}
			}
		}
		if !k.Lone() {
			continue
		}
		lone++
		for _, room := range []int{0, 64} {
			prefix := append(make([]byte, 0, len(k.Prefix())+room), k.Prefix()...)
			for from := 0; from < k.Rows; from += s.N {
				k.TakeRows(&s, from, k.Rows)
				for i := range s.N {
					c := from + i
					if key := k.Key(prefix, &s, i); !bytes.Equal(key, keys[c]) {
						t.Fatalf("seed %d: row %d of a strip is %q, want %q", seed, c, key, keys[c])
					}
					if s.TS[i] != k.TS(c, c) || s.Ends[i] != k.ValueStart(c) || s.Ends[i+1] != k.ValueEnd(c) {
						t.Fatalf("seed %d: row %d of the strip at %d differs", seed, i, from)
					}
				}
			}
		}
	}
	if lone < 50 {
		t.Fatalf("only %d blocks of one cell a row", lone)
	}
}
