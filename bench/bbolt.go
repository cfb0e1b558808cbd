package main

import (
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

type bboltStore struct{ db *bolt.DB }

var bucket = []byte("b")

func openBbolt(dir string) (store, error) {
	db, err := bolt.Open(filepath.Join(dir, "db"), 0o600, nil)
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucketIfNotExists(bucket); return err })
	return &bboltStore{db}, err
}

func (b *bboltStore) put(keys, values [][]byte, sync bool) error {
	b.db.NoSync = !sync
	return b.db.Update(func(tx *bolt.Tx) error {
		bk := tx.Bucket(bucket)
		for i := range keys {
			if err := bk.Put(keys[i], values[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bboltStore) get(key []byte, fn func([]byte)) (ok bool, err error) {
	err = b.db.View(func(tx *bolt.Tx) error {
		if v := tx.Bucket(bucket).Get(key); v != nil {
			ok = true
			fn(v)
		}
		return nil
	})
	return ok, err
}

func (b *bboltStore) scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error {
	return b.db.View(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		var k, v []byte
		switch {
		case start != nil:
			k, v = c.Seek(start)
			if reverse && (k == nil || string(k) > string(start)) {
				if k == nil {
					k, v = c.Last()
				} else {
					k, v = c.Prev()
				}
			}
		case reverse:
			k, v = c.Last()
		default:
			k, v = c.First()
		}
		for ; k != nil && n > 0; n-- {
			fn(k, v)
			if reverse {
				k, v = c.Prev()
			} else {
				k, v = c.Next()
			}
		}
		return nil
	})
}

func (b *bboltStore) settle() error { return b.db.Sync() }
func (b *bboltStore) close() error  { return b.db.Close() }
