package engine

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// Applying a batch that the caller has prepared allocates nothing, whatever its shape, and neither does preparing it in the memory of the
// one before: a load needs one Batch and its Mutations, not one for each entry.
func TestApplyOfAPreparedBatchAllocatesNothing(t *testing.T) {
	for _, sh := range []struct {
		name        string
		rows, cells int
		ascending   bool
	}{
		{"one cell", 1, 1, false}, {"100 rows", 100, 1, false}, {"100 ascending rows", 100, 1, true}, {"rows of 20 cells", 5, 20, false},
	} {
		t.Run(sh.name, func(t *testing.T) {
			s := newStore(t, func(o *Options) { o.MemtableBytes, o.LogSegmentBytes = 64<<20, 1<<20 })
			tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1)})
			value := make([]byte, 100)
			var cols []string
			for c := range sh.cells {
				cols = append(cols, fmt.Sprintf("column%02d", c))
			}
			keys := make([]string, sh.rows*40)
			for i := range keys {
				n := uint64(i)
				if !sh.ascending {
					n *= 0x9e3779b97f4a7c15
				}
				keys[i] = string(binary.BigEndian.AppendUint64(nil, n))
			}
			b, muts, at := NewBatch(), make([]*Mutation, sh.rows), 0
			for i := range muts {
				muts[i] = NewMutation()
			}
			load := func() {
				b.Reset()
				for _, m := range muts {
					m.Reset()
					for _, col := range cols {
						m.Set("f", col, 1, value)
					}
					b.Add(tb, keys[at%len(keys)], m)
					at++
				}
				s.must(s.Apply(ctx, b, NoSync))
			}
			for range 50 {
				load()
			}
			least := 1e9 // of several: now and then the log makes a slot or takes memory
			for range 10 {
				least = min(least, testing.AllocsPerRun(5, load))
			}
			if least > 0 && !raceEnabled { // under the race detector pools forget
				t.Errorf("%v allocations", least)
			}
			if got := s.Metrics().Changes; got != uint64(110*sh.rows*sh.cells) {
				t.Errorf("%d changes", got)
			}
		})
	}
}
