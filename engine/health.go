package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// State says what a store can do at the moment.
type State uint8

const (
	StateOK       State = iota // all is well
	StateDegraded              // background work fails and is tried again, or a damaged file was set aside
	StateFailed                // a log or manifest write failed: no more writes through this handle
)

// String is "ok", "degraded" or "failed".
func (s State) String() string {
	return [...]string{"ok", "degraded", "failed"}[s]
}

// Health is the store's state with its cause.
type Health struct {
	State State
	Since time.Time // when the state began; zero for StateOK
	Cause error     // nil for StateOK
	Clock ClockReport
}

// health keeps the first fatal error, and the latest background error until background work succeeds again.
type health struct {
	log   *slog.Logger
	now   func() time.Time
	fatal atomic.Pointer[error]

	mu       sync.Mutex // guards what follows
	failedAt time.Time
	degraded error
	failures uint64 // of background jobs, ever
	since    time.Time
	aside    error // a file was set aside; ends with the handle
	asideAt  time.Time
}

func (h *health) failed() error {
	if p := h.fatal.Load(); p != nil {
		return *p
	}
	return nil
}

// fail makes the store refuse writes from now on. The first cause stays.
func (h *health) fail(what string, cause error) error {
	err := fmt.Errorf("%w: %s: %w", ErrFailed, what, cause)
	h.mu.Lock()
	defer h.mu.Unlock()
	if first := h.fatal.Load(); first != nil {
		return *first
	}
	h.fatal.Store(&err)
	h.failedAt = h.now()
	h.log.Error("store failed, writes are refused", "cause", err)
	return err
}

// background records the outcome of a background job; only changes are logged.
func (h *health) background(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.failures++
	}
	switch {
	case err != nil && h.degraded == nil:
		h.since = h.now()
		h.log.Warn("background work fails and will be tried again", "cause", err)
	case err == nil && h.degraded != nil:
		h.log.Info("background work succeeds again", "after", h.now().Sub(h.since))
	}
	h.degraded = err
}

func (h *health) backgroundFailures() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures
}

// failedSince is the latest background error if there were more than n, and background work has not succeeded since.
func (h *health) failedSince(n uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures == n {
		return nil
	}
	return h.degraded
}

func (h *health) setAside(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.aside == nil {
		h.aside, h.asideAt = err, h.now()
	}
	h.log.Error("damaged table file set aside: reads of its rows fail, compactions leave it alone", "cause", err)
}

func (h *health) report() Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.failed(); err != nil {
		return Health{State: StateFailed, Since: h.failedAt, Cause: err}
	}
	switch {
	case h.aside != nil:
		return Health{State: StateDegraded, Since: h.asideAt, Cause: errors.Join(h.aside, h.degraded)}
	case h.degraded != nil:
		return Health{State: StateDegraded, Since: h.since, Cause: h.degraded}
	}
	return Health{}
}

// Health tells whether the store is well, and if not since when and why.
func (db *DB) Health() Health {
	h := db.health.report()
	h.Clock = db.clock.report()
	return h
}

// fail records a failure that ends writing.
func (db *DB) fail(what string, cause error) error {
	err := db.health.fail(what, cause)
	db.jobs.wake()
	return err
}

// writable is nil while writes are accepted.
func (db *DB) writable() error {
	if db.opts.ReadOnly {
		return ErrReadOnly
	}
	return db.health.failed()
}

// lifecycle counts the calls at work, so that Close can wait for them. Calls may nest.
type lifecycle struct {
	closed atomic.Bool
	calls  atomic.Int64
	idle   chan struct{} // buffered; a token when calls fell to zero after closed
	stop   chan struct{} // closed with closed
	ended  chan struct{} // closed when Close has done its work
	err    error         // what Close returned; set before ended is closed
	// keepFiles is set when versions are let go of because the store closes, not because their files are dead.
	keepFiles atomic.Bool
}

// enter registers a call; Close waits for it. Balanced by leave.
func (db *DB) enter() error {
	db.life.calls.Add(1)
	if db.life.closed.Load() {
		db.leave()
		return ErrClosed
	}
	return nil
}

func (db *DB) leave() {
	if db.life.calls.Add(-1) == 0 && db.life.closed.Load() {
		select {
		case db.life.idle <- struct{}{}:
		default:
		}
	}
}

// drain waits for all calls; closed is set.
func (l *lifecycle) drain() {
	for l.calls.Load() > 0 {
		<-l.idle
	}
}

// backpressure delays a batch, before it holds anything, while flushing or compacting is behind: a little from the first
// sign on, more the further behind, and without end only at the limit, where some job is always running or can be picked.
func (db *DB) backpressure(ctx context.Context) error {
	if err := db.writable(); err != nil {
		return err
	}
	if err := db.log.Throttle(ctx); err != nil {
		return err
	}
	if db.jobs.pressure.Load() == 0 {
		return nil
	}
	return db.jobs.hold(ctx)
}
