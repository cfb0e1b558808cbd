package work

import (
	"fmt"
	"slices"

	"github.com/rowandb/rowan/bench/store"
)

// scans reads a number of pairs from random keys on.
type scans struct {
	shape
	pairs   int
	reverse bool
}

func (w scans) run(r *Run) error {
	w.n = r.amount(w.n, w.value)
	return r.pairs(func(s store.Store) error {
		if err := r.holds(s, w.sum(0, w.n, 1)); err != nil { // warms up too
			return err
		}
		session, err := s.Session()
		if err != nil {
			return err
		}
		random, key := newRNG(7), scratch(KeyBytes)
		var got Sum
		add := got.Add
		done, err := r.measured(phase{callers: 1, limit: r.time(readTime), start: func(int) (step, error) {
			return func() (int, error) {
				w.key(random.below(w.n), key)
				return 1, session.Scan(key, w.pairs, w.reverse, add)
			}, nil
		}})
		if err != nil {
			return err
		}
		if err := session.Close(); err != nil {
			return err
		}
		return r.check(got, w.want(done[0]))
	})
}

// want computes what a number of scans must have read.
func (w scans) want(n uint64) Sum {
	order := sorted(w.n)
	before := make([]uint64, w.n+1) // sums of the pairs before
	key, value := scratch(KeyBytes), scratch(w.value)
	for at, i := range order {
		var s Sum
		Key(i, key)
		Value(i, 0, value)
		s.Add(key, value)
		before[at+1] = before[at] + s.H
		order[at] = mix(i)
	}
	var want Sum
	random := newRNG(7)
	for range n {
		at, _ := slices.BinarySearch(order, mix(random.below(w.n)))
		from, to := at, min(at+w.pairs, len(order))
		if w.reverse {
			from, to = max(at+1-w.pairs, 0), at+1
		}
		want.N += uint64(to - from)
		want.H += before[to] - before[from]
	}
	return want
}

// fullScan reads everything in order, as often as there is time.
type fullScan struct{ shape }

func (w fullScan) run(r *Run) error {
	w.n = r.amount(w.n, w.value)
	want := w.sum(0, w.n, 1)
	return r.pairs(func(s store.Store) error {
		if err := r.holds(s, want); err != nil {
			return err
		}
		session, err := s.Session()
		if err != nil {
			return err
		}
		var got Sum
		add := got.Add
		done, err := r.measured(phase{callers: 1, limit: r.time(readTime), per: float64(w.n), start: func(int) (step, error) {
			return func() (int, error) {
				before := got.N
				err := session.Scan(nil, int(w.n)+1, false, add)
				if err == nil && got.N-before != w.n {
					err = fmt.Errorf("a scan has read %d pairs of %d", got.N-before, w.n)
				}
				return int(w.n), err
			}, nil
		}})
		if err != nil {
			return err
		}
		want.N, want.H = want.N*done[0], want.H*done[0]
		return r.check(got, want)
	})
}
