package work

import (
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/rowandb/rowan/bench/measure"
	"github.com/rowandb/rowan/bench/store"
)

// Run is one run of a workload on an engine, in a process of its own.
type Run struct {
	Engine  store.Engine
	Options store.Options
	Dir     string        // of the store: empty, or with the data that the workload names
	Scale   float64       // of the amount of work
	Steps   uint64        // of phases that end with their time otherwise, for tests; 0: they do that
	Whole   bool          // no phase ends before its work is done, for tests
	Profile string        // file for a profile of processor time of the phase that counts; "": none
	Rest    time.Duration // before the store is closed, for what an engine does when nobody asks it for anything
	Out     measure.Result
}

// Longest times of a phase. An engine that has not done its work by then is stopped and judged by what it has done.
const (
	readTime  = 4 * time.Second
	writeTime = 15 * time.Second
	longTime  = 30 * time.Second
	ycsbTime  = 6 * time.Second // long, because what is to be drained after it is little and rough
)

// amount scales a number of entries of so many bytes. Even at the smallest scale there is something to do.
func (r *Run) amount(full uint64, bytes int) uint64 {
	return max(uint64(float64(full)*r.Scale), min(full, 100, max(uint64(500_000/bytes), 8)))
}

// time scales the longest time of a phase.
func (r *Run) time(full time.Duration) time.Duration {
	return max(time.Duration(float64(full)*min(r.Scale, 1)), 50*time.Millisecond)
}

// step is one operation, or several that count n and have one latency.
type step func() (n int, err error)

// together has callers work at once until they have done ops steps in all or the time is over; 0 means no limit. start makes what
// a caller does. It returns how many steps each has done.
func together(rec *measure.Recorder, callers int, ops uint64, limit time.Duration, start func(c int) (step, error)) ([]uint64, error) {
	steps, done, errs := make([]step, callers), make([]uint64, callers), make([]error, callers)
	for c := range steps {
		var err error
		if steps[c], err = start(c); err != nil {
			return nil, err
		}
	}
	var all sync.WaitGroup
	rec.Begin()
	for c := range steps {
		share := ops / uint64(callers)
		if uint64(c) < ops%uint64(callers) {
			share++
		}
		all.Go(func() {
			me, next, i := rec.Caller(c), steps[c], uint64(0)
			for ops == 0 || i < share {
				n, err := next()
				if err != nil {
					errs[c] = err
					break
				}
				i++
				if since := me.Done(n); limit > 0 && since > limit {
					break
				}
			}
			done[c] = i
		})
	}
	all.Wait()
	return done, errors.Join(errs...)
}

// phase is the part of a run that counts.
type phase struct {
	callers int
	ops     uint64 // steps in all, 0: until the time is over
	limit   time.Duration
	start   func(c int) (step, error)
	per     float64 // operations that a step counts, 0: 1
	user    int64   // bytes of keys and values that a step writes
	settle  func() error
	stats   func() (store.Stats, error)
}

// measured runs a phase and fills in the figures. It returns how many steps each caller has done.
func (r *Run) measured(p phase) ([]uint64, error) {
	var before, after store.Stats
	var err error
	if p.stats != nil {
		if before, err = p.stats(); err != nil {
			return nil, err
		}
	}
	if r.Whole {
		p.limit = 0
	}
	if p.ops == 0 && r.Steps > 0 {
		p.ops = r.Steps
	}
	rec := measure.NewRecorder(p.callers)
	used, err := measure.Now()
	if err != nil {
		return nil, err
	}
	stop, err := profile(r.Profile)
	if err != nil {
		return nil, err
	}
	peak := measure.WatchPeak()
	began := time.Now()
	done, err := together(rec, p.callers, p.ops, p.limit, p.start)
	worked := time.Since(began)
	if err == nil && p.settle != nil {
		err = p.settle()
	}
	all := time.Since(began)
	rss := peak.Stop()
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	end, err := measure.Now()
	if err == nil && p.stats != nil {
		after, err = p.stats()
	}
	if err != nil {
		return nil, err
	}
	steps := uint64(0)
	for _, n := range done {
		steps += n
	}
	if p.per == 0 {
		p.per = 1
	}
	o := &r.Out
	u := end.Sub(used)
	o.Ops = float64(steps) * p.per
	o.Seconds, o.Drain = worked.Seconds(), (all - worked).Seconds()
	o.WorkRate = o.Ops / worked.Seconds()
	o.Rate = o.WorkRate
	if p.settle != nil {
		o.DrainRate = o.Ops / all.Seconds()
		o.Rate = min(o.WorkRate, o.DrainRate)
	}
	h := rec.Latencies()
	o.P50, o.P99, o.P999, o.Max = micros(h.Quantile(0.5)), micros(h.Quantile(0.99)), micros(h.Quantile(0.999)), micros(h.Max())
	o.Curve, o.Line, o.Stall = h.Curve(), rec.Line(worked), rec.Stall().Seconds()*1e3
	o.CPU = micros(u.CPU) / o.Ops
	o.RSS, o.Written, o.Faults = rss, u.Written, u.MajorFaults
	o.UserData, o.Tables = int64(steps)*p.user, -1
	if p.stats != nil && before.TableBytes >= 0 && after.TableBytes >= 0 {
		o.Tables = after.TableBytes - before.TableBytes
	}
	o.Stopped = p.ops > 0 && steps < p.ops
	return done, nil
}

// profile begins a profile of processor time and returns what ends it.
func profile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { pprof.StopCPUProfile(); return f.Close() }, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// check compares what was read with what must be there.
func (r *Run) check(got, want Sum) error {
	if got != want {
		return fmt.Errorf("%d entries with sum %016x were read, %d with sum %016x are right", got.N, got.H, want.N, want.H)
	}
	r.checked(got)
	return nil
}

func (r *Run) checked(s Sum) { r.Out.Entries, r.Out.Hash = s.N, fmt.Sprintf("%016x", s.H) }

// pairs opens the store of pairs, runs fn and closes it; the space it takes then is part of the result.
func (r *Run) pairs(fn func(s store.Store) error) error {
	if err := os.MkdirAll(r.Dir, 0o777); err != nil {
		return err
	}
	s, err := r.Engine.Open(r.Dir, r.Options)
	if err != nil {
		return err
	}
	if err := errors.Join(fn(s), r.rest(s.Settle), s.Close()); err != nil {
		return err
	}
	if r.Out.Disk == 0 {
		r.Out.Disk, err = measure.DiskBytes(r.Dir)
	}
	return err
}

// rest leaves a store alone for a while.
func (r *Run) rest(settle func() error) error {
	if r.Rest == 0 {
		return nil
	}
	time.Sleep(r.Rest)
	return settle()
}

// sessions makes callers of a store and closes them when they are done.
type sessions struct {
	s   store.Store
	all []store.Session
}

func (l *sessions) open() (store.Session, error) {
	s, err := l.s.Session()
	if err == nil {
		l.all = append(l.all, s)
	}
	return s, err
}

func (l *sessions) close() error {
	var errs []error
	for _, s := range l.all {
		errs = append(errs, s.Close())
	}
	l.all = nil
	return errors.Join(errs...)
}

// holds scans the whole store and compares it with what must be there.
func (r *Run) holds(s store.Store, want Sum) error {
	l := sessions{s: s}
	c, err := l.open()
	if err != nil {
		return err
	}
	var got Sum
	err = c.Scan(nil, int(want.N)+1, false, got.Add)
	return errors.Join(err, l.close(), r.check(got, want))
}
