package engine

import (
	"fmt"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// A batch that deletes single versions of many columns takes a moment, not a time that grows with the square of their number
// while it holds its latch and keeps flushes waiting.
func TestManyDeletesOfSingleVersionsInOneBatch(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes = 64 << 20 })
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2)})
	m := NewMutation()
	deletes := 100_000 // took more than the time a test has
	if raceEnabled {
		deletes = 10_000
	}
	for i := range deletes {
		m.DeleteTimestampRange("f", fmt.Sprint("q", i), 5, 6)
	}
	s.must(tb.Apply(ctx, "r", m))
}
