package engine

import (
	"fmt"
	"path"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/levels"
)

// A compaction asks newer files for holes. One that is damaged and cannot answer must not end the compaction, nor have the
// good inputs set aside: it counts as having a hole.
func TestDamagedNewerFileDoesNotStopCompaction(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2)})
	tree := func() *levels.Tree { return s.states.cur.Load().version.Trees[1] }
	for _, ts := range []Timestamp{1, 3} { // two files, of which a merge drops what is old
		for _, row := range []string{"a", "n", "z"} {
			s.must(tb.Apply(ctx, row, set("f", "q", ts, "v")))
			s.must(tb.Apply(ctx, row, set("f", "q", ts+1, "v")))
		}
		s.must(s.Flush(ctx))
	}
	older := tree().Files[0][0]
	s.must(tb.Apply(ctx, "n", mut(func(m *Mutation) { m.DeleteTimestampRange("f", "q", 4, 5) })))
	s.must(s.Flush(ctx))
	l0 := tree().Files[0]
	newer := l0[len(l0)-1]
	if newer == older || newer.Holes == 0 {
		t.Fatalf("the second flush has no hole: %+v", newer)
	}
	name := path.Join("/store", levels.TableName(newer.Num))
	flip(t, s.fs, name, int(newer.Size)-20)
	if err := tb.Compact(ctx, NewClosedRange("a", "b")); err != nil {
		t.Fatalf("compaction of the good file: %v", err)
	}
	if s.jobs.busy.Held(older.Num) {
		t.Fatal("a good file was set aside")
	}
	row, err := tb.ReadRow(ctx, "a")
	s.must(err)
	s.want(show(row), fmt.Sprintln("a f:q@4=v f:q@3=v"))
	flip(t, s.fs, name, int(newer.Size)-20)
}
