// Package executor runs background work: on goroutines in a service, in the caller and in a fixed order in tests.
package executor

import "sync"

// Executor runs functions. Safe for concurrent use.
type Executor interface {
	// Go runs fn later. It never runs fn before it returns.
	Go(fn func())
	// Help runs queued functions in the calling goroutine until none is left, where this executor works that way, and
	// reports whether it ran any. A caller that is about to wait for background work calls it first; it holds no lock.
	Help() bool
	// Wait returns when everything started has ended. Nothing may be started meanwhile.
	Wait()
}

// Goroutines runs every function on a goroutine of its own.
type Goroutines struct{ wg sync.WaitGroup }

// Go starts fn.
func (g *Goroutines) Go(fn func()) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		fn()
	}()
}

// Help does nothing: the work runs by itself.
func (g *Goroutines) Help() bool { return false }

// Wait waits for all functions.
func (g *Goroutines) Wait() { g.wg.Wait() }

// Inline queues functions and runs them in the goroutine that calls Help or Wait, in the order of their Go. With one
// caller everything happens in a fixed order.
type Inline struct {
	mu      sync.Mutex
	queue   []func()
	running bool
}

// Inline says so to a store, which then starts no goroutine of its own.
func (x *Inline) Inline() bool { return true }

// Go queues fn.
func (x *Inline) Go(fn func()) {
	x.mu.Lock()
	x.queue = append(x.queue, fn)
	x.mu.Unlock()
}

// Help runs the queue dry. Called from inside a queued function it does nothing.
func (x *Inline) Help() bool {
	ran := false
	for {
		x.mu.Lock()
		if x.running || len(x.queue) == 0 {
			x.mu.Unlock()
			return ran
		}
		fn := x.queue[0]
		x.queue = x.queue[1:]
		x.running = true
		x.mu.Unlock()
		fn()
		x.mu.Lock()
		x.running = false
		x.mu.Unlock()
		ran = true
	}
}

// Wait runs the queue dry.
func (x *Inline) Wait() { x.Help() }
