package store

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// rowComparer orders keys as bytes and lets filters work on rows: the part before the split.
var rowComparer = func() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "rowan.bench.rows"
	c.Split = func(key []byte) int { return min(len(key), RowBytes) }
	return &c
}()

func openPebbleRows(dir string, b Options, _ bool) (Rows, error) {
	o := pebbleOptions(b)
	o.Comparer = rowComparer
	db, err := openPebbleDB(dir, b, o)
	if err != nil {
		return nil, err
	}
	return &naturalRows{Store: &pebbleStore{db}}, nil // it has no compaction filter: explicit deletes
}

// Within implements rowPairs.
func (s *pebbleSession) Within(start, end []byte, n int, fn func(key, value []byte)) error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	for ok := it.SeekPrefixGE(start); ok && bytes.Compare(it.Key(), end) < 0; n-- {
		v, err := it.ValueAndErr()
		if err != nil {
			return errors.Join(err, it.Close())
		}
		fn(it.Key(), v)
		if n == 1 {
			break
		}
		ok = it.Next()
	}
	return errors.Join(it.Error(), it.Close())
}

// Delete implements deleter.
func (s *pebbleSession) Delete(keys [][]byte) error {
	b := s.db.NewBatch()
	for _, k := range keys {
		if err := b.Delete(k, nil); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	return errors.Join(b.Commit(pebble.NoSync), b.Close())
}
