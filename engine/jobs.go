package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// jobs decides which flushes and compactions run, starts them on the executor, and slows writers when they fall behind.
type jobs struct {
	db *DB
	// pressure is 0 while writers run freely, up to 999 the further flushing and compacting are behind, and 1000 when writers
	// wait.
	pressure atomic.Int32
	owed     atomic.Int64 // nanoseconds of delay that small batches have run up

	mu       sync.Mutex // guards what follows; held for deciding only
	flushing map[uint64]bool
	running  int   // compactions
	claimed  int64 // bytes that they may still write
	dropping int   // drops of rows that hold files, see takeWhole
	busy     levels.Busy
	retryAt  time.Time     // after a failure nothing starts before
	retry    time.Duration // the pause that led there
	timer    *time.Timer
	rest     rest
	stopped  bool
	manual   int           // callers that wait to compact a range; others stand back
	changed  chan struct{} // closed and replaced when a job ends
	holding  int           // writers waiting at the limit
	heldAt   time.Time
}

const (
	stopPressure = 1000
	retryFirst   = 100 * time.Millisecond
	retryMax     = 10 * time.Second
)

func (j *jobs) init(db *DB) {
	j.db = db
	j.rest.after = restAfter
	j.flushing = map[uint64]bool{}
	j.changed = make(chan struct{})
}

func (db *DB) pickOptions(st *state, tree uint64) levels.PickOptions {
	return levels.PickOptions{
		Hungry:  db.space.low.Load(),
		L0Files: db.opts.L0Files, LevelBytes: db.opts.LevelBytes, FileBytes: db.opts.TableFileBytes,
		Changes: st.standing(tree), OldestMem: st.oldestMem(tree),
	}
}

// measure sets the pressure from a state: the worst tree counts.
func (j *jobs) measure(st *state) {
	slow := slowdownL0Factor * j.db.opts.L0Files
	stop := stopL0Factor * j.db.opts.L0Files
	worst := 0
	for id, t := range st.trees {
		if tree := st.version.Trees[id]; tree != nil {
			if n := len(tree.Sub); n >= stop {
				worst = stopPressure
			} else if n > slow {
				worst = max(worst, (n-slow)*stopPressure/(stop-slow))
			}
		}
		switch n := len(t.sealed); {
		case n > sealedMemtableMax:
			worst = stopPressure
		case n == sealedMemtableMax:
			// The last memtable before the limit: the fuller it is the slower its writers. Not 0, so that they look again.
			fill := t.active.size.Load() * stopPressure / j.db.opts.MemtableBytes
			worst = max(worst, int(min(max(fill, 1), stopPressure-1)))
		}
	}
	j.pressure.Store(int32(worst))
}

// hold delays a writer according to the pressure.
func (j *jobs) hold(ctx context.Context) error {
	began := time.Time{}
	for {
		j.remeasure()
		p := j.pressure.Load()
		if p < stopPressure {
			if began.IsZero() {
				return j.delay(ctx, int64(p))
			}
			j.release(began)
			return nil
		}
		if began.IsZero() {
			began = j.db.opts.Clock()
			j.db.stats.stalls.Add(1)
			j.mu.Lock()
			if j.holding++; j.holding == 1 {
				j.heldAt = began
				j.db.logger.Warn("writers wait for flushes and compactions", "state", j.db.behind())
			}
			j.mu.Unlock()
		}
		j.mu.Lock()
		changed := j.changed
		j.mu.Unlock()
		stuck := j.kick()
		if j.db.exec.Help() {
			continue
		}
		err := j.db.writable()
		if j.db.life.closed.Load() {
			err = ErrClosed
		}
		if err == nil && j.pressure.Load() >= stopPressure {
			if cause, starved := j.db.space.err(); starved || stuck {
				err = cause // what would make room waits for space itself
			}
			if needed := j.db.space.waiting(); err == nil && stuck && needed > 0 {
				err = fmt.Errorf("%w: compactions wait for %d bytes", ErrDiskFull, needed)
			}
		}
		if err == nil && stuck && j.pressure.Load() >= stopPressure {
			err = fmt.Errorf("writers are at the limit and no job can be started: %w", errors.Join(errStuck, j.db.Health().Cause))
		}
		if err == nil {
			if j.pressure.Load() < stopPressure {
				continue
			}
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		j.release(began)
		return err
	}
}

// remeasure follows the memtables as they fill; called by writers while there is pressure.
func (j *jobs) remeasure() {
	st := j.db.states.pin()
	defer st.unref()
	j.measure(st)
}

var errStuck = errors.New("background work is stuck")

func (j *jobs) release(began time.Time) {
	j.db.stats.stallNanos.Add(uint64(max(j.db.opts.Clock().Sub(began), 0)))
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holding--; j.holding == 0 {
		j.db.logger.Info("writers go on", "after", j.db.opts.Clock().Sub(j.heldAt))
	}
}

// idle reports whether nothing runs and nothing is waiting to be tried again by itself, which without goroutines nothing does.
// Holds j.mu.
func (j *jobs) idle() bool {
	return j.running == 0 && j.dropping == 0 && len(j.flushing) == 0 && (j.retryAt.IsZero() || j.db.inline())
}

// delay makes a writer pay for its part of the pressure: up to a millisecond a batch, paid when it adds up to one.
func (j *jobs) delay(ctx context.Context, p int64) error {
	owed := j.owed.Add(p * p) // nanoseconds
	if owed < int64(time.Millisecond) || j.db.exec.Help() {
		return nil
	}
	j.owed.Add(-owed)
	t := time.NewTimer(time.Duration(min(owed, int64(20*time.Millisecond))))
	defer t.Stop()
	j.db.stats.slowNanos.Add(uint64(owed))
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kick starts every job that can start. idle says that none could and that none runs: both as of one moment, because a job
// that has ended lets the next ones start only a little later.
func (j *jobs) kick() (idle bool) {
	if j.db.opts.ReadOnly {
		return false
	}
	j.mu.Lock()
	// Pinned under mu: a job gives its files back under mu after its edit is installed, so what is not busy here is current.
	st := j.db.states.pin()
	defer st.unref()
	defer j.mu.Unlock()
	j.measure(st)
	if j.stopped || j.db.health.failed() != nil {
		return false
	}
	if !j.retryAt.IsZero() {
		if j.db.opts.Clock().Before(j.retryAt) {
			return j.idle()
		}
		j.retryAt = time.Time{}
	}
	for _, id := range slices.Sorted(maps.Keys(st.trees)) { // in order, so that tests repeat
		t := st.trees[id]
		if len(t.sealed) > 0 && !j.flushing[id] && len(j.flushing) <= j.db.opts.Compactions {
			j.startFlush(id)
		}
	}
	for j.running < j.db.opts.Compactions && (j.manual == 0 || j.pressure.Load() >= stopPressure) {
		plan, ok := j.pick(st)
		if !ok {
			plan, ok = j.pickAtRest(st)
		}
		if !ok {
			break
		}
		j.startCompaction(plan, nil)
	}
	if j.running == 0 && len(j.flushing) == 0 && j.dropping == 0 && !j.db.anySealed() {
		j.db.health.background(nil) // what failed is not wanted any more
	}
	idle = j.idle()
	if idle {
		j.watchForRest(st)
	}
	return idle
}

func (j *jobs) startFlush(tree uint64) {
	j.flushing[tree] = true
	j.db.exec.Go(func() {
		err := j.db.flushOne(tree)
		j.mu.Lock()
		delete(j.flushing, tree)
		j.mu.Unlock()
		j.ended(err)
	})
}

// pick asks every tree for its most urgent compaction. Trees take turns by their debt: the deepest L0 first.
func (j *jobs) pick(st *state) (levels.Plan, bool) {
	best, found := j.pickWithin(st, 0, nil, false)
	if !found || best.Move {
		if !found {
			j.db.space.wants(0)
		}
		return best, found
	}
	room := j.db.space.room(j.claimed)
	if best.Bytes() <= room {
		j.db.space.wants(0)
		return best, true
	}
	least := best.Bytes()
	best, found = j.pickWithin(st, max(room, 1), func(n int64) { least = min(least, n) }, false)
	if found || j.running > 0 {
		return best, found
	}
	if j.db.space.low.Load() {
		// Nothing fits as it is. What is merged now has deletes, so that less comes out than goes in; that it fails for want of
		// space after all does no harm.
		if best, found = j.pickWithin(st, 2*max(room, 1), nil, false); found {
			j.db.space.wants(least)
			return best, true
		}
	}
	j.db.space.wants(least)
	return best, false
}

// pickWithin is pick among the plans whose inputs have at most most bytes; 0 means any. tooBig is told the sizes of others.
func (j *jobs) pickWithin(st *state, most int64, tooBig func(int64), rest bool) (levels.Plan, bool) {
	var best levels.Plan
	found, depth := false, -1
	for id, t := range st.version.Trees {
		if d := len(t.Sub); !found || d > depth || d == depth && id < best.Tree {
			o := j.db.pickOptions(st, id)
			o.MaxBytes, o.TooBig, o.Rest = most, tooBig, rest
			if plan, ok := levels.Pick(t, o, &j.busy); ok {
				best, found, depth = plan, true, d
			}
		}
	}
	return best, found
}

// startCompaction runs a plan; done, if given, learns how it ended. Holds j.mu.
func (j *jobs) startCompaction(plan levels.Plan, done func(error)) {
	j.busy.Add(&plan)
	j.running++
	claim := int64(0)
	if !plan.Move {
		claim = plan.Bytes()
	}
	j.claimed += claim
	j.db.exec.Go(func() {
		err := j.db.compact(&plan, done != nil)
		j.mu.Lock()
		j.running--
		j.claimed -= claim
		j.busy.Remove(&plan)
		j.mu.Unlock()
		damaged := errors.Is(err, ErrDamaged)
		if damaged {
			st := j.db.states.pin()
			for _, num := range damagedInputs(&plan, err) {
				j.db.setAside(st.version, num, err)
			}
			st.unref()
		}
		if done != nil {
			done(err)
		}
		if damaged {
			err = nil // told by Health for good; not tried again
		}
		j.ended(err)
	})
}

// damagedInputs is the input that a damage error names; all of them if it names none.
func damagedInputs(plan *levels.Plan, err error) []levels.Num {
	var d *damage.Error
	if errors.As(err, &d) {
		if num, ok := levels.ParseTableName(path.Base(d.File)); ok && plan.Has(num) {
			return []levels.Num{num}
		}
	}
	var all []levels.Num
	for _, in := range plan.Inputs {
		all = append(all, in.File.Num)
	}
	return all
}

// ended records how a job ended, wakes who waits for it and starts what can start now.
func (j *jobs) ended(err error) {
	if err != nil && (errors.Is(err, ErrClosed) || errors.Is(err, errTreeGone) || errors.Is(err, errOutrun) || errors.Is(err, ErrFailed)) {
		err = nil
	} else if vfs.NoSpace(err) {
		j.db.health.outOfSpace(err)
		j.db.space.full(err)
	} else if err != nil || !j.retryPending() {
		j.db.health.background(err)
		if err == nil {
			j.db.space.fed()
		}
	}
	j.mu.Lock()
	if err != nil {
		j.retry = min(max(2*j.retry, retryFirst), retryMax)
		j.retryAt = j.db.opts.Clock().Add(j.retry)
		if j.timer != nil {
			j.timer.Stop()
		}
		if !j.stopped && !j.db.inline() {
			j.timer = time.AfterFunc(j.retry, func() {
				if j.db.enter() == nil {
					j.kick()
					j.wake()
					j.db.leave()
				}
			})
		}
	} else {
		j.retry = 0
	}
	j.mu.Unlock()
	j.kick()
	j.wake()
}

// retryPending reports whether some job failed and waits to be tried again: then the success of another says nothing.
func (j *jobs) retryPending() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.retryAt.IsZero()
}

// retryNow ends the pause after a failure, because somebody asks for the work. It returns the number of failures so far.
func (j *jobs) retryNow() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.retryAt = time.Time{}
	return j.db.health.backgroundFailures()
}

func (j *jobs) wake() {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.changed)
	j.changed = make(chan struct{})
}

// wait returns when ready does, which is asked again whenever a job ends.
func (j *jobs) wait(ctx context.Context, ready func() (bool, error)) error {
	for {
		j.mu.Lock()
		changed := j.changed
		j.mu.Unlock()
		if ok, err := ready(); ok || err != nil {
			return err
		}
		j.kick()
		if j.db.exec.Help() {
			continue
		}
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-j.db.life.stop:
			return ErrClosed
		}
	}
}

// stop lets no new job start and tells running ones to end.
func (j *jobs) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
	if j.timer != nil {
		j.timer.Stop()
	}
	if j.rest.timer != nil {
		j.rest.timer.Stop()
	}
}

// check ends a running job when the store closes or has failed.
func (j *jobs) check() error {
	if j.db.life.closed.Load() {
		return ErrClosed
	}
	return j.db.health.failed()
}
