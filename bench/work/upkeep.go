package work

import (
	"errors"
	"fmt"

	"github.com/rowandb/rowan/bench/measure"
	"github.com/rowandb/rowan/bench/store"
)

// compactAll compacts a loaded store whole, after one pair in touchEvery was written again: an engine that has merged its data at rest
// would have nothing to do otherwise. Its rate is in pairs.
type compactAll struct{ shape }

const touchEvery = 400

func (w compactAll) touch(s store.Store) error {
	c, err := s.Session()
	if err != nil {
		return err
	}
	b := newBlock(1, w.value)
	for i := uint64(0); i < w.n; i += touchEvery {
		Key(i, b.keys[0])
		Value(i, 0, b.values[0])
		if err := c.Put(b.keys, b.values, false); err != nil {
			return err
		}
	}
	return c.Close()
}

func (w compactAll) run(r *Run) error {
	w.n = r.amount(w.n, w.value)
	return r.pairs(func(s store.Store) error {
		if err := w.touch(s); err != nil {
			return err
		}
		_, err := r.measured(phase{callers: 1, ops: 1, per: float64(w.n), start: func(int) (step, error) {
			return func() (int, error) { return 1, s.Compact() }, nil
		}, stats: s.Stats})
		if err != nil {
			return err
		}
		return r.holds(s, w.sum(0, w.n, 1))
	})
}

// reopen opens a store whose process was killed when its log was full. Its rate is in pairs that
// the log holds, until the first answer.
type reopen struct{ shape }

// batch of the writes before the crash.
const crashBatch = 100

func (w reopen) crash(r *Run) error {
	w.n = r.amount(w.n, w.value) / crashBatch * crashBatch
	s, err := r.Engine.Open(r.Dir, r.Options)
	if err != nil {
		return err
	}
	c, err := s.Session()
	if err != nil {
		return err
	}
	b := newBlock(crashBatch, w.value)
	for i := uint64(0); i < w.n; i += crashBatch {
		for k := range b.keys {
			Key(i+uint64(k), b.keys[k])
			Value(i+uint64(k), 0, b.values[k])
		}
		if err := c.Put(b.keys, b.values, i+crashBatch >= w.n); err != nil {
			return err
		}
	}
	return nil // and without closing anything the process is killed
}

func (w reopen) run(r *Run) error {
	w.n = r.amount(w.n, w.value) / crashBatch * crashBatch
	var s store.Store
	_, err := r.measured(phase{callers: 1, ops: 1, per: float64(w.n), start: func(int) (step, error) {
		return func() (n int, err error) {
			if s, err = r.Engine.Open(r.Dir, r.Options); err != nil {
				return 0, err
			}
			c, err := s.Session()
			if err != nil {
				return 0, err
			}
			key := make([]byte, KeyBytes)
			Key(w.n-1, key)
			ok, err := c.Get(key, func([]byte) {})
			if err == nil && !ok {
				err = fmt.Errorf("key %x, which was durable, is not there", key)
			}
			if err == nil {
				err = c.Close()
			}
			return 1, err
		}, nil
	}})
	if err != nil {
		return err
	}
	if err := errors.Join(r.holds(s, w.sum(0, w.n, 1)), s.Close()); err != nil {
		return err
	}
	r.Out.Disk, err = measure.DiskBytes(r.Dir)
	return err
}
