package store

import (
	"context"
	"time"
	"unsafe"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/gc"
)

func init() {
	register(Engine{Name: "rowan", Version: func() string { return "this tree" }, Open: openRowan, OpenRows: openRowanRows})
}

// A pair is a row with one cell, in a family that keeps one version; all have the same timestamp.
const (
	pairFamily = "f"
	pairColumn = ""
)

var background = context.Background()

type rowan struct {
	db *engine.DB
	t  *engine.Table
}

func openRowan(dir string, b Options) (Store, error) {
	r, err := openRowanTable(dir, b, engine.TableSpec{Families: map[string]engine.FamilySpec{pairFamily: {GC: gc.MaxVersionsPolicy(1)}}})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func openRowanTable(dir string, b Options, spec engine.TableSpec) (*rowan, error) {
	db, err := engine.Open(dir, engine.Options{MemtableBytes: b.WriteBuffer, CacheBytes: b.Cache, Compactions: b.Jobs})
	if err != nil {
		return nil, err
	}
	spec.BloomBits = b.BloomBits
	names, err := db.Tables(background)
	t := db.Table("t")
	if err == nil && len(names) == 0 {
		t, err = db.CreateTable(background, "t", spec)
	}
	if err != nil {
		return nil, err
	}
	return &rowan{db, t}, nil
}

func (r *rowan) Settle() error {
	if err := r.db.Flush(background); err != nil {
		return err
	}
	for r.db.Metrics().DebtBytes > 0 {
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (r *rowan) Compact() error { return r.db.Compact(background) }

func (r *rowan) Stats() (Stats, error) {
	m := r.db.Metrics()
	return Stats{TableBytes: int64(m.TableBytesWritten), Debt: m.DebtBytes}, nil
}

func (r *rowan) Close() error { return r.db.Close() }

func (r *rowan) Session() (Session, error) { return &rowanSession{r: r, batch: engine.NewBatch()}, nil }

type rowanSession struct {
	r     *rowan
	batch *engine.Batch
	muts  []*engine.Mutation // reused
	keys  []byte
	row   engine.Row // of a read, reused
}

// mutation returns the i-th mutation of the session, empty.
func (s *rowanSession) mutation(i int) *engine.Mutation {
	if i == len(s.muts) {
		s.muts = append(s.muts, engine.NewMutation())
	}
	s.muts[i].Reset()
	return s.muts[i]
}

func (s *rowanSession) Put(keys, values [][]byte, sync bool) error {
	if len(keys) == 1 {
		m := s.mutation(0)
		m.Set(pairFamily, pairColumn, 0, values[0])
		if sync {
			return s.r.t.Apply(background, string(keys[0]), m)
		}
		return s.r.t.Apply(background, string(keys[0]), m, engine.NoSync)
	}
	s.batch.Reset()
	s.keys = s.keys[:0]
	for _, k := range keys {
		s.keys = append(s.keys, k...)
	}
	all, at := string(s.keys), 0 // one string for the keys of a batch
	for i, k := range keys {
		m := s.mutation(i)
		m.Set(pairFamily, pairColumn, 0, values[i])
		s.batch.Add(s.r.t, all[at:at+len(k)], m)
		at += len(k)
	}
	if sync {
		return s.r.db.Apply(background, s.batch)
	}
	return s.r.db.Apply(background, s.batch, engine.NoSync)
}

// lent is a string that is valid until its bytes change: the engine keeps no key of a read.
func lent(p []byte) string { return unsafe.String(unsafe.SliceData(p), len(p)) }

func (s *rowanSession) Get(key []byte, fn func([]byte)) (bool, error) {
	if err := s.r.t.ReadRowInto(background, &s.row, lent(key)); err != nil || len(s.row.Cells) == 0 {
		return false, err
	}
	fn(s.row.Cells[0].Value)
	return true, nil
}

func (s *rowanSession) Scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error {
	set := engine.AllRows()
	opts := []engine.ReadOption{engine.LimitRows(int64(n))}
	switch {
	case reverse && start != nil:
		set = engine.InfiniteReverseRange(string(start))
	case start != nil:
		set = engine.InfiniteRange(string(start))
	}
	if reverse {
		opts = append(opts, engine.ReverseScan())
	}
	return s.r.t.ReadCellsBorrowed(background, set, func(c *engine.BorrowedCell) bool { fn(c.Row, c.Value); return true }, opts...)
}

func (s *rowanSession) Close() error { return nil }
