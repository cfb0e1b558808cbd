package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rowandb/rowan/engine/internal/executor"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/levels"
)

// Writers that wait because a table cannot be flushed go on when what is in their way is dropped.
func TestWritersGoOnWhenTheirTroubleIsDropped(t *testing.T) {
	for name, drop := range map[string]func(s *testStore) error{
		"table": func(s *testStore) error { return s.DropTable(ctx, "t") },
	} {
		t.Run(name, func(t *testing.T) {
			var faulty *faultfs.FS
			s := newStore(t, func(o *Options) {
				faulty = faultfs.New(o.FS, faultfs.Options{})
				o.FS, o.Background = faulty, new(executor.Goroutines)
			})
			tb, other := s.table("t", map[string]gc.Rule{"f": {}}), s.table("u", map[string]gc.Rule{"f": {}})
			faulty.SetRules(faultfs.FailIf(faultfs.Create, ".sst", errors.New("no room")))
			value := string(make([]byte, 1000))
			for i := 0; s.jobs.pressure.Load() < stopPressure; i++ {
				s.must(tb.Apply(ctx, fmt.Sprint(i), set("f", "", 1, value), NoSync))
			}
			wait, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- other.Apply(wait, "r", set("f", "", 1, "x"), NoSync) }()
			for s.Metrics().Stalls == 0 {
				time.Sleep(time.Millisecond)
			}
			s.must(drop(s))
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A compaction that meets files which are being dropped at that moment waits for that.
func TestCompactWaitsForFilesThatAreBeingDropped(t *testing.T) {
	s := newStore(t, func(o *Options) { o.Background = new(executor.Goroutines) })
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	for range 2 {
		s.must(tb.Apply(ctx, "r", set("f", "", 1, "x")))
		s.must(s.Flush(ctx))
	}
	st := s.states.pin()
	table := *st.tables["t"].Table
	table.Changes = []levels.Change{{Kind: levels.ChangeRows}}
	held := s.jobs.takeWhole(st.version, &table, &levels.Edit{})
	st.unref()
	if len(held) == 0 {
		t.Fatal("no file was held")
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Compact(ctx) }()
	select {
	case err := <-ended:
		t.Errorf("the compaction ended before: %v", err)
		return
	case <-time.After(50 * time.Millisecond):
	}
	s.jobs.unhold(held)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
