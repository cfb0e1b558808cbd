package store

import (
	"bytes"
	"errors"
	"expvar"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

func init() {
	register(Engine{Name: "badger", Peer: true, Version: func() string { return moduleVersion("github.com/dgraph-io/badger/v4") },
		Open: openBadger, OpenRows: openBadgerRows})
}

type badgerStore struct{ db *badger.DB }

func badgerOptions(dir string, o Options) badger.Options {
	return badger.DefaultOptions(dir).WithLogger(nil).WithSyncWrites(o.Sync).WithDetectConflicts(false).
		WithMemTableSize(max(o.WriteBuffer, 8<<20)).WithBlockCacheSize(o.Cache).WithNumCompactors(max(o.Jobs, 2)).
		WithCompression(options.Snappy).WithBloomFalsePositive(0.01). // what 10 bits give
		WithValueThreshold(min(1<<20, o.WriteBuffer/16))              // its default, unless the buffer is that of a test
}

func openBadger(dir string, o Options) (Store, error) {
	db, err := badger.Open(badgerOptions(dir, o))
	if err != nil {
		return nil, err
	}
	return &badgerStore{db}, nil
}

// Settle waits for compactions. What is in memory stays there: there is no call to flush it.
func (b *badgerStore) Settle() error {
	for calm := 0; calm < 20; calm++ {
		for _, l := range b.db.Levels() {
			if l.Level == 0 && l.NumTables >= 5 || l.Level > 0 && l.Score >= 1 {
				calm = 0
			}
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (b *badgerStore) Compact() error { return b.db.Flatten(2) }

func (b *badgerStore) Stats() (Stats, error) {
	n := expvarSum("badger_write_bytes_l0") + expvarSum("badger_write_bytes_compaction")
	return Stats{TableBytes: n, Debt: -1}, nil
}

// expvarSum adds up the numbers of a variable of the process.
func expvarSum(name string) (sum int64) {
	switch v := expvar.Get(name).(type) {
	case *expvar.Int:
		return v.Value()
	case *expvar.Map:
		v.Do(func(kv expvar.KeyValue) {
			if n, ok := kv.Value.(*expvar.Int); ok {
				sum += n.Value()
			}
		})
	}
	return sum
}

func (b *badgerStore) Close() error { return b.db.Close() }

func (b *badgerStore) Session() (Session, error) { return &badgerSession{db: b.db}, nil }

type badgerSession struct{ db *badger.DB }

// Put writes durably if the store was opened so: Badger decides that at open.
func (s *badgerSession) Put(keys, values [][]byte, sync bool) error {
	if sync && !s.db.Opts().SyncWrites {
		if err := s.Put(keys, values, false); err != nil {
			return err
		}
		return s.db.Sync()
	}
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	for i := range keys {
		if err := txn.Set(keys[i], values[i]); err != nil {
			return err
		}
	}
	return txn.Commit()
}

func (s *badgerSession) Get(key []byte, fn func([]byte)) (bool, error) {
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, item.Value(func(v []byte) error { fn(v); return nil })
}

func (s *badgerSession) Scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error {
	// Values are in the tables, not in a log of their own: there is nothing to prefetch.
	return s.iterate(badger.IteratorOptions{Reverse: reverse}, start, nil, n, fn)
}

func (s *badgerSession) iterate(o badger.IteratorOptions, start, end []byte, n int, fn func(key, value []byte)) error {
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	it := txn.NewIterator(o)
	defer it.Close()
	for it.Seek(start); it.Valid(); n-- {
		item := it.Item()
		key := item.Key()
		if end != nil && bytes.Compare(key, end) >= 0 {
			break
		}
		if err := item.Value(func(v []byte) error { fn(key, v); return nil }); err != nil {
			return err
		}
		if n == 1 {
			break
		}
		it.Next()
	}
	return nil
}

// Within implements rowPairs. The prefix lets Badger leave out tables.
func (s *badgerSession) Within(start, end []byte, n int, fn func(key, value []byte)) error {
	return s.iterate(badger.IteratorOptions{Prefix: start[:RowBytes]}, start, end, n, fn)
}

func (s *badgerSession) Close() error { return nil }
