package work

import (
	"fmt"

	"github.com/rowandb/rowan/bench/store"
)

// rowReads reads random rows whole, or the newest version of one column of each.
type rowReads struct {
	table
	callers int
	newest  bool
}

func (w rowReads) run(r *Run) error {
	w.n = r.amount(w.n, w.value) / loadBatch * loadBatch
	return r.rows(false, func(s store.Rows) error {
		if err := r.holdsRows(s, w.sum(w.n)); err != nil { // warms up too
			return err
		}
		var sessions []store.RowSession
		sums := make([]callerSum, w.callers)
		done, err := r.measured(phase{callers: w.callers, limit: r.time(readTime), start: func(c int) (step, error) {
			session, err := s.Session()
			sessions = append(sessions, session)
			random, row, sum := newRNG(uint64(c)), scratch(store.RowBytes), &sums[c].Sum
			add, addValue := sum.addCell, func(v []byte) { sum.Add(row, v) }
			return func() (int, error) {
				rowKey(random.below(w.n), row)
				if !w.newest {
					return 1, session.ReadRow(row, add)
				}
				f, q := column(random.below(columns))
				ok, err := session.Newest(row, f, q, addValue)
				if err == nil && !ok {
					err = fmt.Errorf("row %s has no %s:%s", row, f, q)
				}
				return 1, err
			}, err
		}})
		if err != nil {
			return err
		}
		for _, s := range sessions {
			if err := s.Close(); err != nil {
				return err
			}
		}
		var got, want Sum
		c := w.cell()
		for id, n := range done {
			random := newRNG(uint64(id))
			for range n {
				i := random.below(w.n)
				if w.newest {
					col := random.below(columns)
					rowKey(i, c.Row)
					w.valueOf(i, col, versions(i, col), c.Value)
					want.Add(c.Row, c.Value)
					continue
				}
				x := w.rowSum(i, c)
				want.N, want.H = want.N+x.N, want.H+x.H
			}
			got.N, got.H = got.N+sums[id].N, got.H+sums[id].H
		}
		return r.check(got, want)
	})
}

// rowScan reads all cells of all rows in order, as often as there is time.
type rowScan struct{ table }

func (w rowScan) run(r *Run) error {
	w.n = r.amount(w.n, w.value) / loadBatch * loadBatch
	want := w.sum(w.n)
	return r.rows(false, func(s store.Rows) error {
		if err := r.holdsRows(s, want); err != nil {
			return err
		}
		session, err := s.Session()
		if err != nil {
			return err
		}
		var got Sum
		done, err := r.measured(phase{callers: 1, limit: r.time(readTime), per: float64(want.N), start: func(int) (step, error) {
			return func() (int, error) { return int(want.N), session.ScanRows(got.addCell) }, nil
		}})
		if err != nil {
			return err
		}
		if err := session.Close(); err != nil {
			return err
		}
		return r.check(got, Sum{want.N * done[0], want.H * done[0]})
	})
}
