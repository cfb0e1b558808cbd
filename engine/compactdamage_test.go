package engine

import (
	"errors"
	"path"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/levels"
)

// A compaction that somebody asked for tells that it did not happen because of a damaged file.
func TestCompactTellsThatItsFileIsDamaged(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	for _, v := range []string{"old", "new"} {
		s.must(tb.Apply(ctx, "r", set("f", "q", 1, v)))
		s.must(s.Flush(ctx))
	}
	f := s.states.cur.Load().version.Trees[1].Files[0][0]
	name := path.Join("/store", levels.TableName(f.Num))
	flip(t, s.fs, name, int(f.Size)-20)
	for i := range 2 {
		if err := s.Compact(ctx); !errors.Is(err, ErrDamaged) {
			t.Fatalf("attempt %d: %v", i+1, err)
		}
	}
	flip(t, s.fs, name, int(f.Size)-20)
}

// A file that was set aside goes with the rows that it holds, and what it was in the way of goes on.
func TestDropOfRowsGetsRidOfADamagedFile(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	s.must(tb.Apply(ctx, "b", set("f", "q", 1, "v")))
	s.must(s.Flush(ctx))
	f := s.states.cur.Load().version.Trees[1].Files[0][0]
	flip(t, s.fs, path.Join("/store", levels.TableName(f.Num)), int(f.Size)-20)
	s.must(tb.Apply(ctx, "a", set("f", "q", 1, "v")))
	s.must(tb.Apply(ctx, "c", set("f", "q", 1, "v")))
	if err := s.Compact(ctx); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	s.must(tb.DropRowRange(ctx, NewRange("b", "c")))
	s.want(s.scan(tb), "a f:q@1=v\nc f:q@1=v\n")
	s.must(s.Compact(ctx))
	s.want(s.scan(tb), "a f:q@1=v\nc f:q@1=v\n")
	if m := s.Metrics(); m.StandingChanges != 0 {
		t.Errorf("%d changes stand", m.StandingChanges)
	}
}
