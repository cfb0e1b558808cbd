package engine

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

// Times far away do not turn into others.
func TestTimesFarAway(t *testing.T) {
	late, early := time.Unix(1<<60, 0), time.Unix(-1<<60, 0)
	if Time(late) != math.MaxInt64 || Time(early) != math.MinInt64 || Time(time.Unix(5, 7000)) != 5_000_007 {
		t.Errorf("timestamps %d, %d", Time(late), Time(early))
	}
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxAgePolicy(time.Hour)})
	s.must(tb.Apply(ctx, "r", set("f", "q", Time(s.now), "x")))
	s.want(s.scan(tb, AsOf(late)), "")
	if _, err := tb.ReadRow(ctx, "r", AsOf(early)); !errors.Is(err, ErrAsOf) {
		t.Errorf("read as of long ago: %v", err)
	}
	now := s.Health().Clock.Engine
	if _, err := s.LowerClock(ctx, late); err != nil || s.Health().Clock.Engine.Before(now) {
		t.Errorf("lowered to %v, %v", s.Health().Clock.Engine, err)
	}
	s.want(s.scan(tb), "r f:q@1000000000=x\n")
}
