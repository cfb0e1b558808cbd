package store

import (
	"encoding/binary"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// badgerRows is the store of the collection workload: Badger's own versions are the timestamps of cells, its NumVersionsToKeep and
// the time to live of entries the rule. Without a rule rows are pairs, as with the others.
type badgerRows struct {
	badgerStore
	dir string
	o   badger.Options
}

func openBadgerRows(dir string, o Options, collect bool) (Rows, error) {
	if !collect {
		s, err := openBadger(dir, o)
		if err != nil {
			return nil, err
		}
		return &naturalRows{Store: s}, nil
	}
	own := badgerOptions(dir, o).WithNumVersionsToKeep(KeepVersions)
	db, err := badger.OpenManaged(own)
	if err != nil {
		return nil, err
	}
	return &badgerRows{badgerStore{db}, dir, own}, nil
}

// Collect writes what is in memory to tables, which takes closing, and compacts.
func (b *badgerRows) Collect() error {
	if err := b.db.Close(); err != nil {
		return err
	}
	db, err := badger.OpenManaged(b.o)
	if err != nil {
		return err
	}
	b.db = db
	db.SetDiscardTs(uint64(time.Now().UnixMicro()))
	return db.Flatten(2)
}

func (b *badgerRows) Session() (RowSession, error) { return &badgerRowSession{b: b}, nil }

type badgerRowSession struct {
	b    *badgerRows
	cell Cell
}

// key is a natural key without its timestamp, with the bytes that decodeCell wants there.
func badgerKey(c *Cell) []byte {
	return appendColumn(make([]byte, 0, columnBytes), c.Row, c.Family, c.Qualifier)
}

func (s *badgerRowSession) Write(cells []Cell) error {
	batch := s.b.db.NewManagedWriteBatch()
	defer batch.Cancel()
	for i := range cells {
		c := &cells[i]
		e := badger.NewEntry(badgerKey(c), append([]byte(nil), c.Value...)) // it keeps both until it has flushed
		e.ExpiresAt = uint64((c.Micros + KeepMicros) / 1e6)
		if err := batch.SetEntryAt(e, uint64(c.Micros)); err != nil {
			return err
		}
	}
	return batch.Flush()
}

func (s *badgerRowSession) each(prefix []byte, fn func(Cell) bool) error {
	txn := s.b.db.NewTransactionAt(^uint64(0), false)
	defer txn.Discard()
	it := txn.NewIterator(badger.IteratorOptions{AllVersions: true, Prefix: prefix})
	defer it.Close()
	rule := keeper{oldest: time.Now().UnixMicro() - KeepMicros}
	var key [columnBytes + 8]byte
	for it.Seek(prefix); it.Valid(); it.Next() {
		item := it.Item()
		copy(key[:], item.Key())
		binary.BigEndian.PutUint64(key[columnBytes:], ^item.Version())
		if err := decodeCell(key[:], &s.cell); err != nil {
			return err
		}
		if !rule.keeps(key[:columnBytes], s.cell.Micros) {
			continue
		}
		more := false
		if err := item.Value(func(v []byte) error {
			s.cell.Value = v
			more = fn(s.cell)
			return nil
		}); err != nil {
			return err
		}
		if !more {
			break
		}
	}
	return nil
}

func (s *badgerRowSession) ReadRow(row []byte, fn func(Cell)) error {
	return s.each(row, func(c Cell) bool { fn(c); return true })
}

func (s *badgerRowSession) Newest(row []byte, family, qualifier string, fn func([]byte)) (ok bool, err error) {
	c := Cell{Row: row, Family: family, Qualifier: qualifier}
	err = s.each(badgerKey(&c), func(c Cell) bool { ok = true; fn(c.Value); return false })
	return ok, err
}

func (s *badgerRowSession) ScanRows(fn func(Cell)) error {
	return s.each(nil, func(c Cell) bool { fn(c); return true })
}

func (s *badgerRowSession) Close() error { return nil }
