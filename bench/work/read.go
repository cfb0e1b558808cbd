package work

import (
	"fmt"

	"github.com/rowandb/rowan/bench/store"
)

// reads gets random keys of a data set that is there, or keys that are not.
type reads struct {
	shape
	callers int
	missing bool
	cold    bool // no warming up
}

// beyond is added to the number of a key that is not there.
const beyond = 1 << 40

func (w reads) run(r *Run) error {
	w.n = r.amount(w.n, w.value)
	return r.pairs(func(s store.Store) error {
		l := sessions{s: s}
		if !w.cold {
			if err := w.warm(r, s); err != nil {
				return err
			}
		}
		sums := make([]callerSum, w.callers)
		done, err := r.measured(phase{
			callers: w.callers, limit: r.time(readTime),
			start: func(c int) (step, error) {
				session, err := l.open()
				random, key := newRNG(uint64(c)), scratch(KeyBytes)
				sum := &sums[c].Sum
				add := func(v []byte) { sum.Add(key, v) }
				return func() (int, error) {
					i := random.below(w.n)
					if w.missing {
						i += beyond
					}
					w.key(i, key)
					ok, err := session.Get(key, add)
					if err == nil && ok == w.missing {
						err = fmt.Errorf("key %x: found is %v", key, ok)
					}
					return 1, err
				}, err
			},
		})
		if err != nil {
			return err
		}
		if err := l.close(); err != nil {
			return err
		}
		var got, want Sum
		key, value := scratch(KeyBytes), scratch(w.value)
		for c, n := range done {
			random := newRNG(uint64(c))
			for range n {
				i := random.below(w.n)
				if w.missing {
					continue
				}
				w.key(i, key)
				Value(i, 0, value)
				want.Add(key, value)
			}
			got.N, got.H = got.N+sums[c].N, got.H+sums[c].H
		}
		return r.check(got, want)
	})
}

// callerSum is the sum of one of several callers, which must not share a cache line.
type callerSum struct {
	Sum
	_ [112]byte
}

// warm reads everything once in order, which checks the data set too, and then at random for a while.
func (w reads) warm(r *Run, s store.Store) error {
	if err := r.holds(s, w.sum(0, w.n, 1)); err != nil {
		return err
	}
	session, err := s.Session()
	if err != nil {
		return err
	}
	random, key := newRNG(1<<32), scratch(KeyBytes)
	var sum Sum
	add := func(v []byte) { sum.Add(key, v) }
	for range min(w.n/4, 300_000) {
		Key(random.below(w.n), key)
		if _, err := session.Get(key, add); err != nil {
			return err
		}
	}
	return session.Close()
}
