package engine

import (
	"sync"
	"time"
)

// Snapshot is the store at one moment: files, memtables, schema, rules and time as they were, for any number of reads. It
// keeps the space of what it shows from being given back until Close.
type Snapshot struct {
	db   *DB
	mu   sync.Mutex // guards st
	st   *state     // nil once closed
	seq  uint64
	asOf int64
	made time.Time
}

// snapshots lists the open ones, for metrics and for Close.
type snapshots struct {
	mu   sync.Mutex
	open map[*Snapshot]struct{}
}

// Snapshot returns the present moment. Close it.
func (db *DB) Snapshot() (*Snapshot, error) {
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	s := &Snapshot{db: db, made: db.opts.Clock()}
	s.st, s.seq = db.states.pinWith(0, db.visible)
	s.asOf = db.clock.now() // after the pin: never before the as-of time of a merge whose output the state lists
	db.snaps.mu.Lock()
	defer db.snaps.mu.Unlock()
	if db.snaps.open == nil {
		db.snaps.open = map[*Snapshot]struct{}{}
	}
	db.snaps.open[s] = struct{}{}
	return s, nil
}

// Close lets go of what the snapshot holds. Reads that run go on to their end. It may be called twice.
func (s *Snapshot) Close() error {
	s.mu.Lock()
	st := s.st
	s.st = nil
	s.mu.Unlock()
	if st != nil {
		s.db.snaps.mu.Lock()
		delete(s.db.snaps.open, s)
		s.db.snaps.mu.Unlock()
		st.unref()
	}
	return nil
}

// use gives a read the snapshot's state with a reference of its own.
func (s *Snapshot) use(rd *reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st == nil || s.db != rd.db {
		return ErrClosed
	}
	s.st.hold(rd.slot)
	rd.st, rd.asOf = s.st, s.asOf
	rd.seq = min(s.seq, rd.db.visible()) // less if the store has failed since, and what the snapshot saw is not durable
	return nil
}
