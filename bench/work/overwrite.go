package work

import (
	"github.com/rowandb/rowan/bench/store"
)

// overwrite writes keys that are there again and again, each by the one caller whose it is, and then looks at what is left. It is
// the steady state of an engine with compaction: bytes written by flushes and compactions for each byte of the user, processor
// time, memory and disk are what counts besides the rate.
type overwrite struct {
	shape
	callers int
	times   uint64 // on average
}

func (w overwrite) run(r *Run) error {
	w.n = r.amount(w.n, w.value) / uint64(w.callers) * uint64(w.callers)
	return r.pairs(func(s store.Store) error {
		if err := load(s, r.Engine, w.shape); err != nil {
			return err
		}
		l := sessions{s: s}
		done, err := r.measured(phase{
			callers: w.callers, ops: w.n * w.times, limit: r.time(longTime), user: w.pairBytes(),
			start: func(c int) (step, error) {
				session, err := l.open()
				b := newBlock(1, w.value)
				o := w.order(c)
				return func() (int, error) {
					i, g := o.next()
					Key(i, b.keys[0])
					Value(i, g, b.values[0])
					return 1, session.Put(b.keys, b.values, false)
				}, err
			},
			settle: s.Settle, stats: s.Stats,
		})
		if err != nil {
			return err
		}
		if err := l.close(); err != nil {
			return err
		}
		var want Sum
		last := make([]uint64, w.n)
		for c, n := range done {
			o := w.order(c)
			for range n {
				i, g := o.next()
				last[i] = g
			}
		}
		key, value := scratch(KeyBytes), scratch(w.value)
		for i, g := range last {
			Key(uint64(i), key)
			Value(uint64(i), g, value)
			want.Add(key, value)
		}
		return r.holds(s, want)
	})
}

// order is the sequence of one caller's writes: random ones of its keys, each time with the next value.
func (w overwrite) order(c int) *writeOrder {
	return &writeOrder{r: newRNG(uint64(c) + 99), c: uint64(c), step: uint64(w.callers), n: w.n / uint64(w.callers)}
}

type writeOrder struct {
	r             *rng
	c, step, n, g uint64
}

func (o *writeOrder) next() (i, g uint64) {
	o.g++
	return o.r.below(o.n)*o.step + o.c, o.g
}
