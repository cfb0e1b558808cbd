package store

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

func init() {
	register(Engine{Name: "goleveldb", Peer: true, Version: func() string { return moduleVersion("github.com/syndtr/goleveldb") },
		Open: openGoleveldb, OpenRows: openGoleveldbRows})
}

type goleveldbStore struct{ db *leveldb.DB }

func openGoleveldb(dir string, o Options) (Store, error) {
	db, err := leveldb.OpenFile(dir, &opt.Options{
		WriteBuffer:            int(o.WriteBuffer),
		BlockCacheCapacity:     int(o.Cache),
		Filter:                 filter.NewBloomFilter(o.BloomBits),
		Compression:            opt.SnappyCompression,
		OpenFilesCacheCapacity: 8192, // all tables, so that none is opened again and again
		DisableSeeksCompaction: true, // as LevelDB's successors do: reads should not cause writes
	})
	if err != nil {
		return nil, err
	}
	return &goleveldbStore{db}, nil
}

func openGoleveldbRows(dir string, o Options, _ bool) (Rows, error) {
	s, err := openGoleveldb(dir, o)
	if err != nil {
		return nil, err
	}
	return &naturalRows{Store: s}, nil
}

// Settle waits for compactions. What is in memory stays there: there is no call to flush it.
func (l *goleveldbStore) Settle() error {
	var last, now leveldb.DBStats
	for calm := 0; calm < 20; calm++ {
		if err := l.db.Stats(&now); err != nil {
			return err
		}
		pending := len(now.LevelTablesCounts) > 0 && now.LevelTablesCounts[0] >= opt.DefaultCompactionL0Trigger
		for level, size := range now.LevelSizes {
			pending = pending || level > 0 && float64(size) >= float64(opt.DefaultCompactionTotalSize)*math.Pow(10, float64(level))
		}
		if pending || !slices.Equal(now.LevelWrite, last.LevelWrite) || now.MemComp != last.MemComp {
			calm = 0
		}
		last = now
		last.LevelWrite = slices.Clone(now.LevelWrite)
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (l *goleveldbStore) Compact() error { return l.db.CompactRange(util.Range{}) }

func (l *goleveldbStore) Stats() (Stats, error) {
	var s leveldb.DBStats
	if err := l.db.Stats(&s); err != nil {
		return Stats{}, err
	}
	return Stats{TableBytes: s.LevelWrite.Sum(), Debt: -1}, nil
}

func (l *goleveldbStore) Close() error { return l.db.Close() }

func (l *goleveldbStore) Session() (Session, error) {
	return &goleveldbSession{db: l.db, batch: new(leveldb.Batch)}, nil
}

type goleveldbSession struct {
	db    *leveldb.DB
	batch *leveldb.Batch
}

func (s *goleveldbSession) Put(keys, values [][]byte, sync bool) error {
	w := &opt.WriteOptions{Sync: sync}
	if len(keys) == 1 {
		return s.db.Put(keys[0], values[0], w)
	}
	s.batch.Reset()
	for i := range keys {
		s.batch.Put(keys[i], values[i])
	}
	return s.db.Write(s.batch, w)
}

func (s *goleveldbSession) Get(key []byte, fn func([]byte)) (bool, error) {
	v, err := s.db.Get(key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fn(v)
	return true, nil
}

func (s *goleveldbSession) Scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error {
	it := s.db.NewIterator(nil, nil)
	defer it.Release()
	ok := false
	switch {
	case start != nil:
		ok = it.Seek(start)
		if reverse && !ok {
			ok = it.Last()
		} else if reverse && string(it.Key()) > string(start) {
			ok = it.Prev()
		}
	case reverse:
		ok = it.Last()
	default:
		ok = it.First()
	}
	for ; ok; n-- {
		fn(it.Key(), it.Value())
		if n == 1 {
			break
		}
		if reverse {
			ok = it.Prev()
		} else {
			ok = it.Next()
		}
	}
	return it.Error()
}

// Within implements rowPairs.
func (s *goleveldbSession) Within(start, end []byte, n int, fn func(key, value []byte)) error {
	it := s.db.NewIterator(&util.Range{Start: start, Limit: end}, nil)
	defer it.Release()
	for ok := it.First(); ok; n-- {
		fn(it.Key(), it.Value())
		if n == 1 {
			break
		}
		ok = it.Next()
	}
	return it.Error()
}

// Delete implements deleter.
func (s *goleveldbSession) Delete(keys [][]byte) error {
	s.batch.Reset()
	for _, k := range keys {
		s.batch.Delete(k)
	}
	return s.db.Write(s.batch, nil)
}

func (s *goleveldbSession) Close() error { return nil }
