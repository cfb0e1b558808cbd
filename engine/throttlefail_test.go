package engine

import (
	"errors"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
)

// A batch that meets the failure of the log before the store has been told of it is refused as the failed store refuses it.
func TestBatchThatMeetsTheLogsFailureFirst(t *testing.T) {
	s, faulty := faultyStore(t)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	s.must(tb.Apply(ctx, "r", set("f", "q", 1, "x")))
	faulty.SetRules(faultfs.FailIf(faultfs.Write, "slot-", syscall.EIO))
	// The log's failure is told to the store through its health, which is held.
	s.health.mu.Lock()
	var wg sync.WaitGroup
	wg.Go(func() { _ = tb.Apply(ctx, "r", set("f", "q", 2, "x")) })
	for s.log.Err() == nil {
	}
	met := make(chan error, 1)
	wg.Go(func() { met <- tb.Apply(ctx, "r", set("f", "q", 3, "x")) })
	for i := 0; i < 1000 && len(met) == 0; i++ {
		runtime.Gosched() // the batch is in time to meet it
	}
	s.health.mu.Unlock()
	if err := <-met; !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Errorf("the batch gave %v", err)
	}
	wg.Wait()
	_ = s.Close()
	s.heal(faulty)
}
