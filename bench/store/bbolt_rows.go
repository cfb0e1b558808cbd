package store

import (
	"bytes"

	bolt "go.etcd.io/bbolt"
)

func openBboltRows(dir string, o Options, _ bool) (Rows, error) {
	b, err := openBboltStore(dir, o)
	if err != nil {
		return nil, err
	}
	return &naturalRows{Store: b}, nil
}

// Within implements rowPairs.
func (s *bboltSession) Within(start, end []byte, n int, fn func(key, value []byte)) error {
	tx, err := s.db.Begin(false)
	if err != nil {
		return err
	}
	c := tx.Bucket(bucket).Cursor()
	for k, v := c.Seek(start); k != nil && bytes.Compare(k, end) < 0; n-- {
		fn(k, v)
		if n == 1 {
			break
		}
		k, v = c.Next()
	}
	return tx.Rollback()
}

// Delete implements deleter.
func (s *bboltSession) Delete(keys [][]byte) error {
	return s.update(nil, false, func(bk *bolt.Bucket) error {
		for _, k := range keys {
			if err := bk.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
}
