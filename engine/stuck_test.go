package engine

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rowandb/rowan/engine/internal/executor"
	"github.com/rowandb/rowan/gc"
)

// hookedExecutor calls help when a writer is about to wait.
type hookedExecutor struct {
	executor.Goroutines
	help func()
}

func (x *hookedExecutor) Help() bool {
	if x.help != nil {
		x.help()
	}
	return false
}

// A writer at the limit that looks just when a job has ended, and the next one has not started yet, must wait for that one and
// not take the store for stuck.
func TestWriterAtTheLimitWaitsForTheNextJob(t *testing.T) {
	x := new(hookedExecutor)
	s := newStore(t, func(o *Options) { o.Background = x })
	tb := s.table("t", map[string]gc.Rule{"f": gc.NoPolicy()})
	tree := s.states.cur.Load().tables["t"].Groups[0].Tree
	j := &s.jobs
	j.mu.Lock()
	j.flushing[tree] = true // a flush that takes its time
	j.mu.Unlock()
	value := string(make([]byte, 1000))
	for i := 0; j.pressure.Load() < stopPressure; i++ {
		s.must(tb.Apply(ctx, fmt.Sprintf("r%06d", i), set("f", "q", 1, value)))
	}
	var once sync.Once
	var ended sync.WaitGroup
	ended.Add(1)
	x.help = func() {
		once.Do(func() {
			j.mu.Lock()
			delete(j.flushing, tree)
			j.mu.Unlock()
			go func() {
				defer ended.Done()
				time.Sleep(10 * time.Millisecond)
				j.ended(nil)
			}()
		})
	}
	s.must(tb.Apply(ctx, "r", set("f", "q", 1, "v")))
	ended.Wait()
}
