package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/internal/stripe"
	"github.com/rowandb/rowan/io/vfs"
)

// State says what a store can do at the moment. A store is in the highest of these that applies.
type State uint8

const (
	StateOK       State = iota // all is well
	StateDegraded              // background work fails and is tried again, or waits for space, or table files are set aside
	StateReadOnly              // the disk is full: what adds data is refused with ErrDiskFull; ends by itself when there is room
	StateFailed                // a log or manifest write failed: no more writes through this handle; ErrFailed
)

// String is "ok", "degraded", "read-only" or "failed".
func (s State) String() string {
	return [...]string{"ok", "degraded", "read-only", "failed"}[s]
}

// Health is the store's state with its cause.
type Health struct {
	State  State
	Since  time.Time // when the state began; zero for StateOK
	Cause  error     // nil for StateOK
	Advice string    // what ends the state, for people; empty for StateOK
	// SetAside are the table files that are damaged or missing, by table and rows. See SetAsideFile.
	SetAside []SetAsideFile
	// SpaceNeeded is the free space, in bytes, that the smallest compaction waits for; 0 if none waits.
	SpaceNeeded int64
	Clock       ClockReport
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
	case err != nil && (h.degraded == nil || vfs.NoSpace(h.degraded)):
		h.since = h.now()
		h.log.Warn("background work fails and will be tried again", "cause", err)
	case err == nil && h.degraded != nil && !vfs.NoSpace(h.degraded):
		h.log.Info("background work succeeds again", "after", h.now().Sub(h.since))
	}
	h.degraded = err
}

// outOfSpace records a background job that failed for want of space; space tells about it.
func (h *health) outOfSpace(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures++
	if h.degraded == nil {
		h.since = h.now()
	}
	h.degraded = err
}

func (h *health) backgroundFailures() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures
}

// unsettled is the error of background work that has failed and not succeeded since, want of space aside.
func (h *health) unsettled() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.degraded == nil || vfs.NoSpace(h.degraded) {
		return nil
	}
	return fmt.Errorf("background work failed: %w", h.degraded)
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

// What ends a state, for people.
const (
	adviceFailed   = "reopen the store; everything that was acknowledged is kept. If opening fails, look at the disk, then at btdump repair"
	adviceFull     = "free space on the volume, or delete data: deletes and drops are accepted; writing goes on by itself when there is room"
	adviceAside    = "restore the named files from a checkpoint, or make a new store of what is left with btdump repair; dropping their rows or their table ends it too"
	adviceRetry    = "look at the cause; the work is tried again by itself"
	adviceNeedsGap = "free as much space on the volume as SpaceNeeded says, or delete data"
)

// Health tells whether the store is well, and if not since when, why, and what ends it.
func (db *DB) Health() Health {
	h := Health{Clock: db.clock.report(), SetAside: db.aside.list(), SpaceNeeded: db.space.waiting()}
	full, _ := db.space.err()
	x := &db.health
	x.mu.Lock()
	defer x.mu.Unlock()
	failed := x.failed()
	since, aside := db.aside.cause()
	switch {
	case failed != nil:
		h.State, h.Since, h.Cause, h.Advice = StateFailed, x.failedAt, failed, adviceFailed
	case full != nil:
		h.State, h.Since, h.Cause, h.Advice = StateReadOnly, db.space.sinceWhen(), full, adviceFull
	case aside != nil:
		h.State, h.Since, h.Cause, h.Advice = StateDegraded, since, errors.Join(aside, x.degraded), adviceAside
	case x.degraded != nil:
		h.State, h.Since, h.Cause, h.Advice = StateDegraded, x.since, x.degraded, adviceRetry
	case h.SpaceNeeded > 0:
		h.State, h.Since, h.Advice = StateDegraded, db.space.neededSince(), adviceNeedsGap
		h.Cause = fmt.Errorf("compactions wait for %d bytes of free space", h.SpaceNeeded)
	}
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
	calls  stripe.Counter
	idle   chan struct{} // buffered; a token when a call has ended after closed
	stop   chan struct{} // closed with closed
	ended  chan struct{} // closed when Close has done its work
	err    error         // what Close returned; set before ended is closed
	// keepFiles is set when versions are let go of because the store closes, not because their files are dead.
	keepFiles atomic.Bool
}

// enter registers a call; Close waits for it. Balanced by leave.
func (db *DB) enter() error { return db.enterAt(0) }

func (db *DB) leave() { db.leaveAt(0) }

// enterAt and leaveAt are enter and leave for those who come often and have a slot of their own.
func (db *DB) enterAt(slot stripe.Slot) error {
	db.life.calls.Add(slot, 1)
	if db.life.closed.Load() {
		db.leaveAt(slot)
		return ErrClosed
	}
	return nil
}

func (db *DB) leaveAt(slot stripe.Slot) {
	if db.life.calls.Add(slot, -1); db.life.closed.Load() {
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
		if failed := db.log.Err(); failed != nil { // the log tells of its failure before the store knows of it
			return db.fail("write the log", failed)
		}
		return err
	}
	if db.jobs.pressure.Load() == 0 {
		return nil
	}
	return db.jobs.hold(ctx)
}
