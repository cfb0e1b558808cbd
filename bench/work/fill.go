package work

import (
	"github.com/rowandb/rowan/bench/store"
)

// fill writes new pairs into an empty store: callers take turns, so that each writes pairs c, c+callers, and so on.
type fill struct {
	shape
	callers, batch int
	sync           bool
	long           bool // has more time than others
}

func (f fill) run(r *Run) error {
	f.n = r.amount(f.n, f.value)
	r.Options.Sync = f.sync
	limit := writeTime
	if f.long {
		limit = longTime
	}
	return r.pairs(func(s store.Store) error {
		l := sessions{s: s}
		batches := f.n / uint64(f.batch)
		done, err := r.measured(phase{
			callers: f.callers, ops: batches, limit: r.time(limit), per: float64(f.batch), user: int64(f.batch) * f.pairBytes(),
			start: func(c int) (step, error) {
				session, err := l.open()
				b := newBlock(f.batch, f.value)
				at := uint64(c)
				return func() (int, error) {
					for k := range b.keys {
						i := at*uint64(f.batch) + uint64(k)
						f.key(i, b.keys[k])
						Value(i, 0, b.values[k])
					}
					at += uint64(f.callers)
					return f.batch, session.Put(b.keys, b.values, f.sync)
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
		for c, n := range done {
			for j := range n {
				from := (uint64(c) + j*uint64(f.callers)) * uint64(f.batch)
				s := f.sum(from, from+uint64(f.batch), 1)
				want.N, want.H = want.N+s.N, want.H+s.H
			}
		}
		return r.holds(s, want)
	})
}
