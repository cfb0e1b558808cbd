package work

import (
	"errors"
	"time"

	"github.com/rowandb/rowan/bench/store"
)

// collection writes ever newer versions of the same columns under a rule that keeps the newest 3 of each, and none older than an
// hour, and ends when nothing else is on disk.
type collection struct {
	table
	versions uint64
}

// age is that of version v at the start of the run: the first are older than the hour, none is near it.
func (w collection) age(v uint64) time.Duration {
	return 2*time.Hour - time.Duration(v)*110*time.Minute/time.Duration(w.versions) - 2*time.Minute
}

// last is one more than the last version of row i: half of the rows are not written any more after a while.
func (w collection) last(i uint64) uint64 {
	if i%2 == 0 {
		return w.versions
	}
	return w.versions * 8 / 10
}

func (w collection) run(r *Run) error {
	w.n = r.amount(w.n, w.value)
	start := time.Now().Truncate(time.Second)
	const batch = 100
	col := uint64(0)
	stamp := func(v uint64) int64 { return start.Add(-w.age(v)).UnixMicro() }
	return r.rows(true, func(s store.Rows) error {
		session, err := s.Session()
		if err != nil {
			return err
		}
		b := &rowBatch{table: w.table}
		i, v := uint64(0), uint64(0)
		written := uint64(0)
		for v := range w.versions {
			for i := range w.n {
				if v < w.last(i) {
					written++
				}
			}
		}
		steps := (written + batch - 1) / batch
		_, err = r.measured(phase{callers: 1, ops: steps, per: float64(written) / float64(steps),
			user: batch * int64(w.cellBytes()), start: func(int) (step, error) {
				return func() (int, error) {
					b.cells = b.cells[:0]
					for len(b.cells) < batch && v < w.versions {
						if v < w.last(i) {
							c := b.next()
							rowKey(i, c.Row)
							c.Family, c.Qualifier = column(col)
							c.Micros = stamp(v)
							w.valueOf(i, col, v, c.Value)
						}
						if i++; i == w.n {
							i, v = 0, v+1
						}
					}
					return len(b.cells), session.Write(b.cells)
				}, nil
			}, settle: func() error { return errors.Join(s.Settle(), s.Collect()) }, stats: s.Stats})
		if err != nil {
			return err
		}
		if err := session.Close(); err != nil {
			return err
		}
		var want, got Sum
		c := w.cell()
		c.Family, c.Qualifier = column(col)
		for i := range w.n {
			rowKey(i, c.Row)
			for v := w.last(i); v > 0 && v+store.KeepVersions > w.last(i) && w.age(v-1) < time.Hour; v-- {
				c.Micros = stamp(v - 1)
				w.valueOf(i, col, v-1, c.Value)
				c.Micros -= start.UnixMicro() // sums are to be the same in every run
				want.addCell(*c)
			}
		}
		if session, err = s.Session(); err != nil {
			return err
		}
		err = session.ScanRows(func(c store.Cell) {
			c.Micros -= start.UnixMicro()
			got.addCell(c)
		})
		return errors.Join(err, session.Close(), r.check(got, want))
	})
}
