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
