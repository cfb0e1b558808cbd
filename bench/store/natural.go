package store

import (
	"errors"
	"fmt"
	"time"
)

// naturalRows makes a store of rows of one of pairs: a pair for each cell.
type naturalRows struct {
	Store
	collect func() error // nil: by looking at every cell and deleting what the rule drops
}

// rowPairs is what a session needs on top for that.
type rowPairs interface {
	Session
	// Within calls fn for up to n pairs with start <= key < end, ascending; start and end are keys of one row or parts of such.
	Within(start, end []byte, n int, fn func(key, value []byte)) error
}

// deleter is a session that can delete, for engines that collect by explicit deletes.
type deleter interface {
	Delete(keys [][]byte) error
}

const everything = 1 << 40

func (r *naturalRows) Session() (RowSession, error) {
	s, err := r.Store.Session()
	if err != nil {
		return nil, err
	}
	p, ok := s.(rowPairs)
	if !ok {
		return nil, errors.Join(errors.New("the engine keeps no rows"), s.Close())
	}
	return &naturalSession{rowPairs: p}, nil
}

// Collect implements Rows.
func (r *naturalRows) Collect() error {
	if r.collect != nil {
		return r.collect()
	}
	s, err := r.Store.Session()
	if err != nil {
		return err
	}
	d, ok := s.(deleter)
	if !ok {
		return errors.Join(errors.New("the engine cannot delete"), s.Close())
	}
	// The rule looks at one column at a time and needs its versions counted from the newest, which is the order of keys.
	rule := keeper{oldest: time.Now().UnixMicro() - KeepMicros}
	var drop []byte
	var c Cell
	var bad error
	err = s.Scan(nil, everything, false, func(key, _ []byte) {
		if err := decodeCell(key, &c); err != nil {
			bad = err
		} else if !rule.keeps(key[:columnBytes], c.Micros) {
			drop = append(drop, key...)
		}
	})
	const size, batch = columnBytes + 8, 1000
	var keys [][]byte
	for len(drop) > 0 && err == nil && bad == nil {
		keys = keys[:0]
		for ; len(drop) > 0 && len(keys) < batch; drop = drop[size:] {
			keys = append(keys, drop[:size])
		}
		err = d.Delete(keys)
	}
	if err := errors.Join(err, bad, s.Close()); err != nil {
		return err
	}
	return r.Compact()
}

// keeper is the collection rule applied to cells in order.
type keeper struct {
	oldest int64 // microseconds
	column [columnBytes]byte
	n      int
}

func (k *keeper) keeps(column []byte, micros int64) bool {
	if string(k.column[:]) != string(column) {
		copy(k.column[:], column)
		k.n = 0
	}
	k.n++
	return k.n <= KeepVersions && micros >= k.oldest
}

// naturalSession is a caller of such a store.
type naturalSession struct {
	rowPairs
	keys, values [][]byte
	all          []byte
	start, end   []byte
	cell         Cell
}

func (s *naturalSession) Write(cells []Cell) error {
	s.keys, s.values, s.all = s.keys[:0], s.values[:0], s.all[:0]
	for i := range cells {
		s.all = appendCell(s.all, &cells[i])
	}
	size := len(s.all) / len(cells)
	for i := range cells {
		s.keys = append(s.keys, s.all[i*size:(i+1)*size])
		s.values = append(s.values, cells[i].Value)
	}
	return s.Put(s.keys, s.values, false)
}

func (s *naturalSession) ReadRow(row []byte, fn func(Cell)) error {
	s.start = append(append(s.start[:0], row...), 0)
	s.end = append(append(s.end[:0], row...), 1)
	var bad error
	err := s.Within(s.start, s.end, everything, func(key, value []byte) {
		if err := decodeCell(key, &s.cell); err != nil {
			bad = err
			return
		}
		s.cell.Value = value
		fn(s.cell)
	})
	return errors.Join(err, bad)
}

func (s *naturalSession) Newest(row []byte, family, qualifier string, fn func([]byte)) (ok bool, err error) {
	s.start = appendColumn(s.start[:0], row, family, qualifier)
	s.end = append(s.end[:0], s.start...)
	s.end[len(s.end)-1]++
	err = s.Within(s.start, s.end, 1, func(_, value []byte) {
		ok = true
		fn(value)
	})
	return ok, err
}

func (s *naturalSession) ScanRows(fn func(Cell)) error {
	var bad error
	err := s.Scan(nil, everything, false, func(key, value []byte) {
		if err := decodeCell(key, &s.cell); err != nil {
			bad = fmt.Errorf("scan: %w", err)
			return
		}
		s.cell.Value = value
		fn(s.cell)
	})
	return errors.Join(err, bad)
}
