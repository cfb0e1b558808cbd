package engine

import (
	"time"

	"github.com/rowandb/rowan/levels"
)

// restAfter is for how long nothing has been written when a store rests: long beside the pauses of a writer that goes on, short
// beside the time for which it will then be read.
const restAfter = time.Second

// rest is how a store comes to merge what is not due while nobody writes, for the sake of those who read. jobs.mu guards it.
type rest struct {
	after time.Duration
	timer *time.Timer
	armed bool   // the timer runs
	seq   uint64 // the last sequence when the timer was started
	since uint64 // the last sequence when the store was found to rest; as long as it stays there, it rests
	rests bool
}

// watchForRest has it looked again whether anything was written in the meantime, if there is something that may then be merged. Without
// goroutines of its own a store does not look. Holds j.mu.
func (j *jobs) watchForRest(st *state) {
	r := &j.rest
	if r.armed || j.stopped || j.db.inline() || j.manual > 0 || j.resting() {
		return
	}
	if _, ok := j.pickWithin(st, max(j.db.space.room(j.claimed), 1), nil, true); !ok {
		return
	}
	r.armed, r.seq = true, j.db.visible()
	r.timer = time.AfterFunc(r.after, func() {
		if j.db.enter() == nil {
			j.look()
			j.db.leave()
		}
	})
}

// look finds out whether the store rests, and starts what is done then.
func (j *jobs) look() {
	j.mu.Lock()
	j.rest.armed = false
	if seq := j.db.visible(); seq == j.rest.seq {
		j.rest.rests, j.rest.since = true, seq
	}
	j.mu.Unlock()
	j.kick()
}

// resting reports whether nothing was written since the store was found to rest. Holds j.mu.
func (j *jobs) resting() bool {
	return j.rest.rests && j.db.visible() == j.rest.since
}

// pickAtRest is pick for a store that rests: one merge at a time, and only one that there is room for. Holds j.mu.
func (j *jobs) pickAtRest(st *state) (levels.Plan, bool) {
	if j.running > 0 || !j.resting() || j.db.space.low.Load() {
		return levels.Plan{}, false
	}
	return j.pickWithin(st, max(j.db.space.room(j.claimed), 1), nil, true)
}
