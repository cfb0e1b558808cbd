package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
)

func init() {
	register(Engine{Name: "pebble", Peer: true, Version: func() string { return moduleVersion("github.com/cockroachdb/pebble/v2") },
		Open: openPebble, OpenRows: openPebbleRows})
}

type pebbleStore struct{ db *pebble.DB }

func openPebble(dir string, b Options) (Store, error) {
	db, err := openPebbleDB(dir, b, pebbleOptions(b))
	if err != nil {
		return nil, err
	}
	return &pebbleStore{db}, nil
}

func pebbleOptions(b Options) *pebble.Options {
	o := &pebble.Options{
		Logger:                      pebbleLog{},
		MemTableSize:                uint64(b.WriteBuffer),
		MemTableStopWritesThreshold: 4,
		FormatMajorVersion:          pebble.FormatNewest,
		L0CompactionThreshold:       2, // the settings of the benchmark of Pebble's own repository and of CockroachDB
		L0StopWritesThreshold:       1000,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                16384,
		CompactionConcurrencyRange:  func() (int, int) { return 1, b.Jobs },
	}
	o.FlushSplitBytes = 2 << 20
	for i := range o.Levels {
		l := &o.Levels[i]
		l.BlockSize, l.IndexBlockSize = 32<<10, 256<<10
		l.FilterPolicy = bloom.FilterPolicy(b.BloomBits)
		l.Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	}
	return o
}

func openPebbleDB(dir string, b Options, o *pebble.Options) (*pebble.DB, error) {
	cache := pebble.NewCache(b.Cache)
	defer cache.Unref()
	o.Cache = cache
	return pebble.Open(dir, o)
}

// pebbleLog keeps Pebble's log off the terminal.
type pebbleLog struct{}

func (pebbleLog) Infof(string, ...any)           {}
func (pebbleLog) Errorf(string, ...any)          {}
func (pebbleLog) Fatalf(format string, a ...any) { panic(fmt.Sprintf("pebble: "+format, a...)) }

func (p *pebbleStore) Settle() error { return settlePebble(p.db) }

func settlePebble(db *pebble.DB) error {
	if err := db.Flush(); err != nil {
		return err
	}
	// Its estimate of debt does not go to zero in a store at rest: at rest is when nothing has run for a while.
	for idle := 0; idle < 20; idle++ {
		if m := db.Metrics(); m.Compact.NumInProgress > 0 || m.Flush.NumInProgress > 0 {
			idle = 0
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (p *pebbleStore) Compact() error { return compactPebble(p.db) }

func compactPebble(db *pebble.DB) error {
	return db.Compact(background, []byte{0}, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, true)
}

func (p *pebbleStore) Stats() (Stats, error) { return pebbleStats(p.db), nil }

func pebbleStats(db *pebble.DB) Stats {
	m := db.Metrics()
	var written uint64
	for _, l := range m.Levels {
		written += l.TableBytesFlushed + l.TableBytesCompacted + l.BlobBytesFlushed + l.BlobBytesCompacted
	}
	return Stats{TableBytes: int64(written), Debt: int64(m.Compact.EstimatedDebt)}
}

func (p *pebbleStore) Close() error { return p.db.Close() }

func (p *pebbleStore) Session() (Session, error) { return &pebbleSession{db: p.db}, nil }

type pebbleSession struct {
	db   *pebble.DB
	from []byte
}

func (s *pebbleSession) Put(keys, values [][]byte, sync bool) error {
	o := pebble.NoSync
	if sync {
		o = pebble.Sync
	}
	if len(keys) == 1 {
		return s.db.Set(keys[0], values[0], o)
	}
	b := s.db.NewBatchWithSize(len(keys) * (len(keys[0]) + len(values[0]) + 8))
	for i := range keys {
		op := b.SetDeferred(len(keys[i]), len(values[i]))
		copy(op.Key, keys[i])
		copy(op.Value, values[i])
		if err := op.Finish(); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	return errors.Join(b.Commit(o), b.Close())
}

func (s *pebbleSession) Get(key []byte, fn func([]byte)) (bool, error) {
	v, c, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fn(v)
	return true, c.Close()
}

func (s *pebbleSession) Scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	ok := false
	switch {
	case reverse && start != nil:
		s.from = append(append(s.from[:0], start...), 0)
		ok = it.SeekLT(s.from)
	case reverse:
		ok = it.Last()
	case start != nil:
		ok = it.SeekGE(start)
	default:
		ok = it.First()
	}
	for ; ok; n-- {
		v, err := it.ValueAndErr()
		if err != nil {
			return errors.Join(err, it.Close())
		}
		fn(it.Key(), v)
		if n == 1 {
			break
		}
		if reverse {
			ok = it.Prev()
		} else {
			ok = it.Next()
		}
	}
	return errors.Join(it.Error(), it.Close())
}

func (s *pebbleSession) Close() error { return nil }
