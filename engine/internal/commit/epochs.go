package commit

import "sync"

// Epochs let a merge that is about to drop versions by rank wait for the batches with holes that looked at the store
// before it fixed its time. A hole is a delete that spares something older than what it removes; a batch with one enters
// before it evaluates and leaves when it is visible. Batches that enter after Raise see a later engine time than the merge,
// so what they pin covers all that the merge drops.
type Epochs struct {
	mu    sync.Mutex
	now   uint64
	in    map[uint64]int // batches inside, by the epoch in which they entered
	empty *sync.Cond
}

// Enter returns the epoch to leave.
func (e *Epochs) Enter() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.in == nil {
		e.in = map[uint64]int{}
	}
	e.in[e.now]++
	return e.now
}

// Leave ends a stay.
func (e *Epochs) Leave(epoch uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.in[epoch]--; e.in[epoch] == 0 {
		delete(e.in, epoch)
		if e.empty != nil {
			e.empty.Broadcast()
		}
	}
}

// Raise begins a new epoch and waits until nobody is inside an older one.
func (e *Epochs) Raise() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.empty == nil {
		e.empty = sync.NewCond(&e.mu)
	}
	e.now++
	mine := e.now
	for {
		older := false
		for epoch := range e.in {
			older = older || epoch < mine
		}
		if !older {
			return
		}
		e.empty.Wait()
	}
}
