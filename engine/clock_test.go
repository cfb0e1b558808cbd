package engine

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

// leapingStore has a monotonic clock beside the wall clock.
func leapingStore(t *testing.T) (s *testStore, elapse func(time.Duration)) {
	var mono time.Duration
	s = newStore(t, func(o *Options) { o.Monotonic = func() time.Duration { return mono } })
	return s, func(d time.Duration) { mono += d; s.now = s.now.Add(d) }
}

// Wall time that leaps more than an hour ahead of elapsed time is not followed until it is confirmed; a smaller step is.
func TestClockThatLeapsIsNotFollowed(t *testing.T) {
	s, elapse := leapingStore(t)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxAgePolicy(2 * time.Hour)})
	start := s.now
	at := Time(s.now)
	s.must(tb.Apply(ctx, "r", set("f", "q", at, "v")))
	elapse(time.Minute)
	s.now = s.now.Add(50 * time.Minute)
	if c := s.Health().Clock; c.Held || !c.Engine.Equal(s.now) {
		t.Fatalf("a step of 50 minutes: %+v", c)
	}
	s.now = s.now.Add(100 * time.Hour)
	c := s.Health().Clock
	if !c.Held || !c.Wall.Equal(s.now) || c.Engine.Sub(start) > time.Hour {
		t.Fatalf("a leap of 100 hours: %+v", c)
	}
	elapse(10 * time.Minute)
	if c := s.Health().Clock; c.Engine.Sub(start) != 61*time.Minute {
		t.Fatalf("time stands or runs off: %+v", c)
	}
	s.must(s.Compact(ctx))
	if got := s.scan(tb); !strings.Contains(got, "v") {
		t.Fatalf("collected by a clock that has leapt: %q", got)
	}
	s.must(s.ConfirmClock(ctx))
	if c := s.Health().Clock; c.Held || !c.Engine.Equal(s.now) {
		t.Fatalf("confirmed: %+v", c)
	}
	s.want(s.scan(tb), "")
}

// A clock that goes back and comes again is no leap.
func TestClockThatComesBackIsNoLeap(t *testing.T) {
	s, elapse := leapingStore(t)
	elapse(time.Second)
	before := s.Health().Clock.Engine
	right := s.now
	s.now = s.now.Add(-5 * time.Hour)
	if c := s.Health().Clock; c.Engine.Before(before) {
		t.Fatalf("time went back: %+v", c)
	}
	s.now = right.Add(time.Minute)
	if c := s.Health().Clock; c.Held || !c.Engine.Equal(s.now) {
		t.Fatalf("%+v", c)
	}
}

// A clock that is days ahead when the store is opened hides cells by age, and collects none before an hour has passed or the
// host has confirmed it.
func TestClockFarAheadAtOpenCollectsNothing(t *testing.T) {
	for _, confirm := range []bool{false, true} {
		s, elapse := leapingStore(t)
		tb := s.table("t", map[string]gc.Rule{"f": gc.MaxAgePolicy(time.Hour)})
		s.must(tb.Apply(ctx, "r", set("f", "q", Time(s.now), "first")))
		s.must(s.Flush(ctx))
		elapse(time.Minute)
		s.must(s.Close())
		elapse(48 * time.Hour)
		s.open()
		tb = s.Table("t")
		s.want(s.scan(tb), "")
		s.must(s.Compact(ctx))
		if got := s.scan(tb, Raw()); !strings.Contains(got, "first") {
			t.Fatalf("collected: %q", got)
		}
		if c := s.Health().Clock; !c.Held || !c.Engine.Equal(s.now) || c.Engine.Sub(c.Collect) < 47*time.Hour {
			t.Fatalf("%+v", c)
		}
		// Opening it again, with more records in the log, believes the clock no sooner.
		s.must(tb.Apply(ctx, "other", set("f", "q", Time(s.now), "v")))
		s.reopen()
		tb = s.Table("t")
		s.must(s.Compact(ctx))
		if got := s.scan(tb, Raw()); !strings.Contains(got, "first") {
			t.Fatalf("collected: %q", got)
		}
		if confirm {
			s.must(s.ConfirmClock(ctx))
		} else {
			elapse(time.Hour)
		}
		s.must(s.Compact(ctx))
		if got := s.scan(tb, Raw()); strings.Contains(got, "first") {
			t.Fatalf("not collected: %q", got)
		}
		if s.Health().Clock.Held {
			t.Fatal("still held")
		}
	}
}

// AsOf hides by age as of another time, for as long as nothing was collected as of a later one.
func TestAsOf(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxAgePolicy(10 * time.Second), "g": gc.MaxVersionsPolicy(2)})
	start := s.now
	s.must(tb.Apply(ctx, "r", mut(func(m *Mutation) {
		m.Set("f", "q", Time(start), []byte("old"))
		m.Set("f", "q", Time(start.Add(8*time.Second)), []byte("new"))
		m.Set("g", "q", 1, []byte("x"))
	})))
	all := s.scan(tb)
	s.now = start.Add(12 * time.Second)
	if got := s.scan(tb); strings.Contains(got, "old") || !strings.Contains(got, "new") {
		t.Fatal(got)
	}
	s.want(s.scan(tb, AsOf(start.Add(9*time.Second))), all)
	if got := s.scan(tb, AsOf(time.UnixMicro(math.MaxInt64))); strings.Contains(got, "f:q") || !strings.Contains(got, "=x") {
		t.Fatalf("far in the future: %q", got)
	}
	refused := func(at time.Time, opts ...ReadOption) {
		t.Helper()
		_, err := tb.ReadRow(ctx, "r", append(opts, AsOf(at))...)
		if !errors.Is(err, ErrAsOf) {
			t.Fatalf("as of %v: %v", at, err)
		}
	}
	refused(time.UnixMicro(-1))
	snap, err := s.Snapshot()
	s.must(err)
	defer snap.Close()
	s.must(s.Compact(ctx))
	collected := s.now
	refused(start.Add(9 * time.Second))
	refused(collected.Add(-time.Microsecond))
	s.want(s.scan(tb, AsOf(start.Add(9*time.Second)), AtSnapshot(snap)), all)
	s.want(s.scan(tb, AsOf(collected)), s.scan(tb))
	// A merge that removes nothing takes nothing away.
	s.now = s.now.Add(time.Second)
	s.must(tb.Apply(ctx, "r2", set("f", "q", Time(s.now), "z")))
	s.must(s.Compact(ctx))
	s.want(s.scan(tb, AsOf(collected)), s.scan(tb))
	s.must(snap.Close())
	s.reopen()
	tb = s.Table("t")
	refused(collected.Add(-time.Microsecond))
	s.want(s.scan(tb, AsOf(collected)), s.scan(tb))
	// A rule that keeps more speaks of what is there as of the time it came.
	s.now = s.now.Add(time.Second)
	s.must(tb.Apply(ctx, "r3", set("g", "q", 1, "z")))
	s.must(tb.ModifyFamilies(ctx, SetGCRule("g", gc.MaxVersionsPolicy(3))))
	refused(s.now.Add(-time.Microsecond))
	s.want(s.scan(tb, AsOf(s.now)), s.scan(tb))
}

// Time that ran ahead with a wrong clock is set back by a call that names whose cells show again, for good; never behind what
// was collected.
func TestLowerClock(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxAgePolicy(time.Hour), "g": gc.MaxVersionsPolicy(1), "h": gc.IntersectionPolicy(gc.MaxVersionsPolicy(1), gc.MaxAgePolicy(time.Hour))})
	right := s.now
	s.must(tb.Apply(ctx, "r", set("f", "q", Time(right), "v")))
	s.now = right.Add(300 * time.Hour)
	s.want(s.scan(tb), "")
	s.must(tb.Apply(ctx, "r", set("g", "q", 1, "v"))) // the log knows the wrong time too
	s.now = right.Add(time.Minute)
	s.want(s.scan(tb), "r g:q@1=v\n")
	shows, err := s.LowerClock(ctx, s.now)
	s.must(err)
	if len(shows) != 2 || shows[0] != "t/f" || shows[1] != "t/h" {
		t.Errorf("%q", shows)
	}
	want := "r f:q@1000000000=v g:q@1=v\n"
	s.want(s.scan(tb), want)
	s.must(tb.Apply(ctx, "r", set("g", "q", 1, "v")))
	for range 2 {
		s.reopen()
		tb = s.Table("t")
		s.want(s.scan(tb), want)
	}
	if c := s.Health().Clock; !c.Engine.Equal(s.now) {
		t.Errorf("%+v", c)
	}
	if shows, err := s.LowerClock(ctx, s.now.Add(time.Hour)); err != nil || shows != nil {
		t.Errorf("to a later time: %q, %v", shows, err)
	}
	s.now = right.Add(2 * time.Hour)
	s.must(s.Compact(ctx))
	collected := s.now
	s.now = s.now.Add(300 * time.Hour)
	s.scan(tb)
	if _, err := s.LowerClock(ctx, collected.Add(-time.Second)); !errors.Is(err, ErrAsOf) {
		t.Error(err)
	}
	s.now = collected
	_, err = s.LowerClock(ctx, collected)
	s.must(err)
	s.want(s.scan(tb), "r g:q@1=v\n")
}
