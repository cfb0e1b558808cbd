package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// Versions of one column in several files, with values larger than a block: none may get lost on the way down.
func TestVersionsOfLargeValuesOverSeveralFiles(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes, o.TableFileBytes = 1<<20, 1<<20 })
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2)})
	rng := rand.New(rand.NewPCG(3, 3))
	val := func(row, col, ts int) []byte {
		n := rng.IntN(2000)
		if rng.IntN(4) == 0 {
			n = rng.IntN(100_000)
		}
		return append(fmt.Appendf(nil, "%d/%d/%d ", row, col, ts), bytes.Repeat([]byte{byte(rng.Uint32())}, n)...)
	}
	want := map[string]string{}
	for ts := 1; ts <= 3; ts++ {
		for row := 0; row < 30; row++ {
			m := NewMutation()
			for col := 0; col < 12; col++ {
				v := val(row, col, ts)
				m.Set("f", fmt.Sprint("c", col), Timestamp(ts), v)
				want[fmt.Sprint(row, " c", col, " ", ts)] = string(v)
			}
			s.must(tb.Apply(ctx, fmt.Sprintf("row%02d", row), m))
		}
		s.must(s.Flush(ctx))
	}
	s.everywhere(func(where string) {
		for row := 0; row < 30; row++ {
			r, err := s.Table("t").ReadRow(ctx, fmt.Sprintf("row%02d", row))
			s.must(err)
			if len(r.Cells) != 24 {
				t.Fatalf("%s: row %d has %d cells", where, row, len(r.Cells))
			}
			for _, c := range r.Cells {
				if want[fmt.Sprint(row, " ", c.Qualifier, " ", c.Timestamp)] != string(c.Value) {
					t.Fatalf("%s: row %d %s@%d is wrong", where, row, c.Qualifier, c.Timestamp)
				}
			}
		}
	})
}
