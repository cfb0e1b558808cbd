package main

import (
	"errors"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
)

type goleveldbStore struct{ db *leveldb.DB }

func openGoleveldb(dir string) (store, error) {
	db, err := leveldb.OpenFile(dir, &opt.Options{WriteBuffer: 64 << 20, BlockCacheCapacity: 512 << 20, Filter: filter.NewBloomFilter(10)})
	return &goleveldbStore{db}, err
}

func (l *goleveldbStore) put(keys, values [][]byte, sync bool) error {
	b := new(leveldb.Batch)
	for i := range keys {
		b.Put(keys[i], values[i])
	}
	return l.db.Write(b, &opt.WriteOptions{Sync: sync})
}

func (l *goleveldbStore) get(key []byte, fn func([]byte)) (bool, error) {
	v, err := l.db.Get(key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fn(v)
	return true, nil
}

func (l *goleveldbStore) scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error {
	it := l.db.NewIterator(nil, nil)
	defer it.Release()
	ok := false
	switch {
	case start != nil:
		ok = it.Seek(start)
		if reverse && (!ok || string(it.Key()) > string(start)) {
			if !ok {
				ok = it.Last()
			} else {
				ok = it.Prev()
			}
		}
	case reverse:
		ok = it.Last()
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
	return it.Error()
}

func (l *goleveldbStore) settle() error { return nil }
func (l *goleveldbStore) close() error  { return l.db.Close() }
