package main

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

type pebbleStore struct{ db *pebble.DB }

func openPebble(dir string) (store, error) {
	cache := pebble.NewCache(512 << 20)
	defer cache.Unref()
	o := &pebble.Options{Cache: cache, MemTableSize: 64 << 20, Logger: quiet{}}
	o.Levels[0].FilterPolicy = bloom.FilterPolicy(10)
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, err
	}
	return &pebbleStore{db}, nil
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(f string, a ...any) {
	panic(f)
}

func (p *pebbleStore) put(keys, values [][]byte, sync bool) error {
	b := p.db.NewBatch()
	defer b.Close()
	for i := range keys {
		if err := b.Set(keys[i], values[i], nil); err != nil {
			return err
		}
	}
	if sync {
		return b.Commit(pebble.Sync)
	}
	return b.Commit(pebble.NoSync)
}

func (p *pebbleStore) get(key []byte, fn func([]byte)) (bool, error) {
	v, c, err := p.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fn(v)
	return true, c.Close()
}

func (p *pebbleStore) scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error {
	it, err := p.db.NewIter(nil)
	if err != nil {
		return err
	}
	ok := false
	switch {
	case reverse && start != nil:
		ok = it.SeekLT(append(append([]byte(nil), start...), 0))
	case reverse:
		ok = it.Last()
	case start != nil:
		ok = it.SeekGE(start)
	default:
		ok = it.First()
	}
	for ; ok && n > 0; n-- {
		fn(it.Key(), it.Value())
		if reverse {
			ok = it.Prev()
		} else {
			ok = it.Next()
		}
	}
	return errors.Join(it.Error(), it.Close())
}

func (p *pebbleStore) settle() error {
	if err := p.db.Flush(); err != nil {
		return err
	}
	for m := p.db.Metrics(); m.Compact.EstimatedDebt > 0 && m.Compact.NumInProgress > 0; m = p.db.Metrics() {
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (p *pebbleStore) close() error { return p.db.Close() }
