package engine

import (
	"fmt"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// A memtable is as large after a replay as it was before, also one of a table that never comes first in its batches.
func TestReplayKnowsTheSizeOfEveryMemtable(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes = 1 << 20 })
	a, b := s.table("a", map[string]gc.Rule{"f": {}}), s.table("b", map[string]gc.Rule{"f": {}})
	for i := range 50 {
		batch := NewBatch()
		batch.Add(a, fmt.Sprint("r", i), set("f", "q", 1, "v"))
		batch.Add(b, fmt.Sprint("r", i), set("f", "q", 1, "v"))
		s.must(s.Apply(ctx, batch))
	}
	sizes := func() string {
		st := s.states.pin()
		defer st.unref()
		return fmt.Sprint(st.trees[1].active.size.Load(), st.trees[2].active.size.Load())
	}
	before := sizes()
	s.reopen()
	s.want(sizes(), before)
}
