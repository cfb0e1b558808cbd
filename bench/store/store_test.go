package store

import (
	"fmt"
	"slices"
	"testing"
)

// small is a budget with which every engine flushes and compacts even in a test.
var small = Options{WriteBuffer: 256 << 10, Cache: 8 << 20, BloomBits: 10, Jobs: 2}

// Every engine gives the same answers: gets of keys that are there and that are not, scans in both directions from keys that are
// there and that are not, before and after everything is overwritten, settled, compacted and opened again.
func TestEnginesAgreeOnPairs(t *testing.T) {
	var want []string
	for _, e := range Engines() {
		got, err := pairAnswers(e, t.TempDir())
		if err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
		if len(want) == 0 {
			want = got
		}
		if !slices.Equal(got, want) {
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Fatalf("%s, answer %d: %s, others %s", e.Name, i, got[i], want[i])
				}
			}
			t.Fatalf("%s gives %d answers, others %d", e.Name, len(got), len(want))
		}
	}
	if len(want) < 100 {
		t.Fatalf("only %d answers", len(want))
	}
}

func pairAnswers(e Engine, dir string) (out []string, err error) {
	const n = 3000
	for round := range 3 {
		s, err := e.Open(dir, small)
		if err != nil {
			return nil, err
		}
		c, err := s.Session()
		if err != nil {
			return nil, err
		}
		var keys, values [][]byte
		for i := range n {
			keys = append(keys, fmt.Appendf(nil, "key%06d", i*7919%n*2))
			values = append(values, fmt.Appendf(nil, "value %d of round %d, %0*d", i, round, i%200, i))
		}
		for i := 0; i < n; i += 50 {
			if err := c.Put(keys[i:i+50], values[i:i+50], i%1000 == 0); err != nil {
				return nil, err
			}
		}
		if round > 0 {
			if err := s.Settle(); err != nil {
				return nil, err
			}
		}
		if round == 2 {
			if err := s.Compact(); err != nil {
				return nil, err
			}
		}
		note := func(k, v []byte) { out = append(out, string(k)+"="+string(v)) }
		for i := -1; i < 2*n+2; i += 97 {
			key := fmt.Appendf(nil, "key%06d", max(i, 0))
			ok, err := c.Get(key, func(v []byte) { note(key, v) })
			if err != nil {
				return nil, err
			}
			out = append(out, fmt.Sprint(ok))
			for _, reverse := range []bool{false, true} {
				if err := c.Scan(key, 5, reverse, note); err != nil {
					return nil, err
				}
				out = append(out, "end")
			}
		}
		for _, reverse := range []bool{false, true} {
			if err := c.Scan(nil, n/2, reverse, note); err != nil {
				return nil, err
			}
		}
		if err := c.Close(); err != nil {
			return nil, err
		}
		if err := s.Close(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
