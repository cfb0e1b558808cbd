package engine

import (
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

// When nobody writes any more, what was flushed is merged though it is not due; while somebody writes it is not. What is read stays
// the same.
func TestStoreAtRestMerges(t *testing.T) {
	s := newStore(t, func(o *Options) { o.Background, o.MemtableBytes, o.LogSegmentBytes = nil, 16<<20, 8<<20 })
	s.jobs.mu.Lock()
	s.jobs.rest.after = time.Hour // the test looks itself
	s.jobs.mu.Unlock()
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2), "g": gc.NoPolicy()})
	for seed := range uint64(2) {
		s.fillForParts(tb, seed)
		s.must(s.Flush(ctx))
	}
	before, files := s.scan(tb), func() int { return s.Metrics().Levels[0].Files }
	armed := func() bool {
		s.jobs.mu.Lock()
		defer s.jobs.mu.Unlock()
		return s.jobs.rest.armed
	}
	waitUntil(t, "the watch for rest", armed)
	if files() < 2 {
		t.Fatalf("%d files in L0", files())
	}

	s.must(tb.Apply(ctx, "row00001", set("g", "late", 1, "x")))
	s.jobs.look()
	if !armed() || files() < 2 || s.Metrics().Compactions > 0 {
		t.Fatalf("it was written to and counts as at rest: watched %v, %d files, %d merges", armed(), files(), s.Metrics().Compactions)
	}
	late := NewMutation()
	late.DeleteCellsInColumn("g", "late")
	s.must(tb.Apply(ctx, "row00001", late))
	s.jobs.mu.Lock()
	s.jobs.rest.timer.Stop()
	s.jobs.rest.seq = s.visible()
	s.jobs.mu.Unlock()
	s.jobs.look()
	waitUntil(t, "the merge", func() bool { return files() == 0 })
	if got := s.scan(tb); got != before {
		t.Fatal("the merge at rest has changed what is read")
	}
	if armed() {
		t.Error("nothing is left to merge, and it is watched for")
	}
}

// waitUntil waits for background work.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%s does not come", what)
		}
	}
}
