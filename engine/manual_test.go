package engine

import (
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

// Background compactions stand back while somebody compacts a range; what became due meanwhile begins when that is done, also
// if nobody writes any more.
func TestCompactionsGoOnAfterAManualOne(t *testing.T) {
	x := new(hookedExecutor)
	s := newStore(t, func(o *Options) { o.Background = x })
	a, b := s.table("a", map[string]gc.Rule{"f": {}}), s.table("b", map[string]gc.Rule{"f": {}})
	for range 2 {
		s.must(a.Apply(ctx, "r", set("f", "q", 1, "v")))
		s.must(s.Flush(ctx))
	}
	x.help = func() {
		x.help = nil
		for range defaultL0 {
			s.must(b.Apply(ctx, "r", set("f", "q", 1, "v")))
			s.must(s.Flush(ctx))
		}
	}
	s.must(a.Compact(ctx, AllRows()))
	sublevels := func() int {
		st := s.states.pin()
		defer st.unref()
		return len(st.version.Trees[st.tables["b"].Groups[0].Tree].Sub)
	}
	for began := time.Now(); sublevels() >= defaultL0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 2*time.Second {
			t.Fatal("the compaction that is due does not begin")
		}
	}
}
