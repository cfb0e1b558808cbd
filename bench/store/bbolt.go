package store

import (
	"path/filepath"
	"sync"

	bolt "go.etcd.io/bbolt"
)

func init() {
	register(Engine{Name: "bbolt", Peer: true, Sorted: true, Version: func() string { return moduleVersion("go.etcd.io/bbolt") },
		Open: openBbolt, OpenRows: openBboltRows})
}

// bboltStore is a file with one bucket. It has no log: a batch that need not be durable is committed without a sync, as the
// documentation of DB.NoSync allows for bulk loads.
type bboltStore struct {
	db   *bolt.DB
	last []byte // highest key so far
	mu   sync.Mutex
}

var bucket = []byte("b")

func openBbolt(dir string, b Options) (Store, error) {
	s, err := openBboltStore(dir, b)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openBboltStore(dir string, _ Options) (*bboltStore, error) {
	// The free list as a map: much faster with many pages. It is kept on disk, since without it an open reads the whole file.
	db, err := bolt.Open(filepath.Join(dir, "db"), 0o600, &bolt.Options{FreelistType: bolt.FreelistMapType, InitialMmapSize: 8 << 30})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucketIfNotExists(bucket); return err })
	return &bboltStore{db: db}, err
}

func (b *bboltStore) Settle() error         { return b.db.Sync() }
func (b *bboltStore) Compact() error        { return nil } // it has nothing to compact in place
func (b *bboltStore) Stats() (Stats, error) { return Stats{TableBytes: -1, Debt: 0}, nil }
func (b *bboltStore) Close() error          { return b.db.Close() }

func (b *bboltStore) Session() (Session, error) { return &bboltSession{b}, nil }

type bboltSession struct{ *bboltStore }

func (s *bboltSession) Close() error { return nil }

// fill sets the fill percent of a batch: pages that only grow at the end may be filled, others need room.
func (b *bboltStore) fill(bk *bolt.Bucket, first []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if string(first) > string(b.last) {
		bk.FillPercent = 0.95
		b.last = append(b.last[:0], first...)
	}
}

func (b *bboltStore) update(keys [][]byte, sync bool, fn func(bk *bolt.Bucket) error) error {
	one := func(tx *bolt.Tx) error {
		b.db.NoSync = !sync // no other commit runs: this transaction has the lock of writers
		bk := tx.Bucket(bucket)
		if len(keys) > 0 {
			b.fill(bk, keys[0])
		}
		return fn(bk)
	}
	if sync && len(keys) == 1 {
		return b.db.Batch(one) // lets several callers share a sync
	}
	return b.db.Update(one)
}

func (s *bboltSession) Put(keys, values [][]byte, sync bool) error {
	return s.update(keys, sync, func(bk *bolt.Bucket) error {
		for i := range keys {
			if err := bk.Put(keys[i], values[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *bboltSession) Get(key []byte, fn func([]byte)) (ok bool, err error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return false, err
	}
	if v := tx.Bucket(bucket).Get(key); v != nil {
		ok = true
		fn(v)
	}
	return ok, tx.Rollback()
}

func (s *bboltSession) Scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error {
	tx, err := s.db.Begin(false)
	if err != nil {
		return err
	}
	c := tx.Bucket(bucket).Cursor()
	var k, v []byte
	switch {
	case start != nil:
		k, v = c.Seek(start)
		if reverse && k == nil {
			k, v = c.Last()
		} else if reverse && string(k) > string(start) {
			k, v = c.Prev()
		}
	case reverse:
		k, v = c.Last()
	default:
		k, v = c.First()
	}
	for ; k != nil; n-- {
		fn(k, v)
		if n == 1 {
			break
		}
		if reverse {
			k, v = c.Prev()
		} else {
			k, v = c.Next()
		}
	}
	return tx.Rollback()
}
