package main

import (
	"context"
	"time"

	"github.com/rowandb/rowan/engine"
)

type rowan struct {
	db *engine.DB
	t  *engine.Table
}

const family, qualifier = "f", "v"

func openRowan(dir string) (store, error) {
	db, err := engine.Open(dir, engine.Options{MemtableBytes: 64 << 20, CacheBytes: 512 << 20})
	if err != nil {
		return nil, err
	}
	t, err := db.CreateTable(context.Background(), "t", engine.TableSpec{Families: map[string]engine.FamilySpec{family: {}}})
	if err != nil {
		return nil, err
	}
	return &rowan{db, t}, nil
}

func (r *rowan) put(keys, values [][]byte, sync bool) error {
	b := engine.NewBatch()
	for i := range keys {
		m := engine.NewMutation()
		m.Set(family, qualifier, 0, values[i])
		b.Add(r.t, string(keys[i]), m)
	}
	if sync {
		return r.db.Apply(context.Background(), b)
	}
	return r.db.Apply(context.Background(), b, engine.NoSync)
}

func (r *rowan) get(key []byte, fn func([]byte)) (bool, error) {
	row, err := r.t.ReadRow(context.Background(), string(key))
	if err != nil || len(row.Cells) == 0 {
		return false, err
	}
	fn(row.Cells[0].Value)
	return true, nil
}

func (r *rowan) scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error {
	set := engine.AllRows()
	opts := []engine.ReadOption{engine.LimitRows(int64(n))}
	switch {
	case reverse && start != nil:
		set, opts = engine.InfiniteReverseRange(string(start)), append(opts, engine.ReverseScan())
	case reverse:
		opts = append(opts, engine.ReverseScan())
	case start != nil:
		set = engine.InfiniteRange(string(start))
	}
	return r.t.ReadCellsBorrowed(context.Background(), set, func(c *engine.BorrowedCell) bool { fn(c.Row, c.Value); return true }, opts...)
}

func (r *rowan) settle() error {
	if err := r.db.Flush(context.Background()); err != nil {
		return err
	}
	for r.db.Metrics().DebtBytes > 0 {
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (r *rowan) close() error { return r.db.Close() }
