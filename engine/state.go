package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/engine/internal/memtable"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/levels"
)

// state is everything a reader needs, frozen: files, memtables, schema. A reader pins one and keeps it for as long as it
// reads. States are counted; the last holder lets go of memtables and files.
type state struct {
	version *levels.Version
	tables  map[string]*rtable
	trees   map[uint64]*memtree
	// gen is raised by everything that moves entries between places or changes the schema, compactions aside. A reader that
	// finds it unchanged after it has read the published sequence has every entry up to that sequence, in one place each.
	gen  uint64
	refs atomic.Int64

	replaced time.Time // by a newer state; set when it is listed in states.kept
}

// memtree is one tree's memtables. Immutable; the active memtable itself takes writes.
type memtree struct {
	active *mem
	sealed []*mem // oldest first
}

// mem is a memtable with its place in the write order.
type mem struct {
	*memtable.Table
	// first and last are the sequences of its entries, 0 while empty. Guarded by DB.placeMu while active, fixed once sealed.
	first, last uint64
	at          int64        // DB.logged when first was given; guarded like first
	size        atomic.Int64 // bytes of its entries as logged, with what the memtable adds per entry
	refs        atomic.Int64 // states that list it, and writers at work in it
}

// entryCost is what an entry takes in a memtable beside its names and value, about.
const entryCost = 48

func (m *mem) grow(bytes, entries int) { m.size.Add(int64(bytes) + int64(entries)*entryCost) }

func (m *mem) unref() {
	if m.refs.Add(-1) == 0 {
		m.Table.Release()
	}
}

// rtable is a table as the running store sees it.
type rtable struct {
	*levels.Table
	families *merge.Families
	groups   []group // as in Table
	// gate is held shared by batches of the table from evaluation until their entries are in the memtables, and exclusively
	// by schema changes. It lives as long as the table id.
	gate *sync.RWMutex
}

// states holds the current state.
type states struct {
	cur atomic.Pointer[state]
	// mu serialises swaps; it is held for pointer work only. A reader that was overtaken by swaps three times takes it to
	// hold them off.
	mu sync.Mutex
	// kept are the states that were replaced while snapshots or reads held them, and some that have been let go of since.
	// Guarded by mu.
	kept []*state
}

// pin returns the current state with a reference.
func (s *states) pin() *state {
	for {
		if st := s.cur.Load(); st.ref() { // else it was replaced and let go between the two
			return st
		}
	}
}

// ref takes a reference, unless nobody has one any more.
func (st *state) ref() bool {
	for {
		n := st.refs.Load()
		if n == 0 {
			return false
		}
		if st.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// outdated returns the states that were replaced and are still held, each with a reference.
func (s *states) outdated() []*state {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	var out []*state
	for _, st := range s.kept {
		if st.ref() {
			out = append(out, st)
		}
	}
	return out
}

func (s *states) prune() {
	s.kept = slices.DeleteFunc(s.kept, func(st *state) bool { return st.refs.Load() == 0 })
}

// pinWith returns a pinned state together with a sequence that it holds completely and beyond which it holds nothing in
// files. Batches are never seen in part.
func (s *states) pinWith(seq func() uint64) (*state, uint64) {
	for try := 0; try < 3; try++ {
		st := s.pin()
		n := seq()
		if s.cur.Load().gen == st.gen {
			return st, n
		}
		st.unref()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pin(), seq()
}

func (st *state) unref() {
	if st.refs.Add(-1) != 0 {
		return
	}
	for _, t := range st.trees {
		t.active.unref()
		for _, m := range t.sealed {
			m.unref()
		}
	}
	st.version.Unref()
}

// change replaces the current state by a copy that edit has changed. edit works on fresh maps and must replace, not change,
// the memtrees in them. The version that edit leaves in the copy comes with its own reference. Holds s.mu meanwhile. now is when
// the old state is replaced.
func (s *states) change(now time.Time, edit func(st *state)) {
	s.mu.Lock()
	old := s.cur.Load()
	st := &state{version: old.version, gen: old.gen, tables: old.tables, trees: make(map[uint64]*memtree, len(old.trees)+1)}
	for id, t := range old.trees {
		st.trees[id] = t
	}
	edit(st)
	if st.version == old.version {
		st.version.Ref()
	}
	for _, t := range st.trees {
		t.active.refs.Add(1)
		for _, m := range t.sealed {
			m.refs.Add(1)
		}
	}
	st.refs.Store(1)
	s.cur.Store(st)
	s.prune()
	s.mu.Unlock()
	old.unref()
	if old.refs.Load() > 0 { // once at 0 it stays there
		s.mu.Lock()
		old.replaced = now
		s.kept = append(s.kept, old)
		s.mu.Unlock()
	}
}

// tablesOf builds the runtime tables of a schema, keeping what has not changed.
func tablesOf(schema *levels.Schema, old map[string]*rtable) map[string]*rtable {
	out := make(map[string]*rtable)
	for _, t := range schema.Tables() {
		o := old[t.Name]
		switch {
		case o != nil && o.Table == t:
			out[t.Name] = o
		default:
			r := newTable(t)
			if o != nil && o.ID == t.ID {
				r.gate = o.gate
			}
			out[t.Name] = r
		}
	}
	return out
}
