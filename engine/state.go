package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/engine/internal/memtable"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/internal/stripe"
	"github.com/rowandb/rowan/levels"
)

// state is everything a reader needs, frozen: files, memtables, schema. A reader pins one and keeps it for as long as it
// reads. Holders are counted; the last one lets go of memtables and files.
type state struct {
	version *levels.Version
	tables  map[string]*rtable
	trees   map[uint64]*memtree
	// gen is raised by everything that moves entries between places or changes the schema, compactions aside. A reader that
	// finds it unchanged after it has read the published sequence has every entry up to that sequence, in one place each.
	gen uint64

	in       *states
	pins     stripe.Counter // holders; the states themselves are one while it is the current one
	replaced atomic.Bool    // by a newer state
	gone     bool           // nobody holds it any more, nor ever will; guarded by states.mu
	since    time.Time      // when it was replaced; set when it is listed in states.kept
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
	ages     bool    // some family's rule looks at the age of cells
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
func (s *states) pin() *state { return s.pinAt(0) }

// pinAt is pin for those who come often and have a slot of their own. They let go with unpin.
func (s *states) pinAt(slot stripe.Slot) *state {
	for {
		st := s.cur.Load()
		if st.pins.Add(slot, 1); !st.replaced.Load() {
			return st
		}
		st.unpin(slot) // it was replaced between the two, and perhaps let go
	}
}

// hold takes one more reference to a state that the caller holds, or knows to be held.
func (st *state) hold(slot stripe.Slot) {
	// Holders of a state that was replaced are counted line by line. One who comes meanwhile might be missed if the other left.
	st.in.mu.Lock()
	st.pins.Add(slot, 1)
	st.in.mu.Unlock()
}

// outdated returns the states that were replaced and are still held, each with a reference.
func (s *states) outdated() []*state {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	var out []*state
	for _, st := range s.kept {
		st.pins.Add(0, 1)
		out = append(out, st)
	}
	return out
}

func (s *states) prune() {
	s.kept = slices.DeleteFunc(s.kept, func(st *state) bool { return st.gone })
}

// pinWith returns a pinned state together with a sequence that it holds completely and beyond which it holds nothing in
// files. Batches are never seen in part.
func (s *states) pinWith(slot stripe.Slot, seq func() uint64) (*state, uint64) {
	for try := 0; try < 3; try++ {
		st := s.pinAt(slot)
		n := seq()
		if s.cur.Load().gen == st.gen {
			return st, n
		}
		st.unpin(slot)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pinAt(slot), seq() // not replaced meanwhile, so that mu is not taken twice
}

func (st *state) unref() { st.unpin(0) }

// unpin ends pinAt or hold.
func (st *state) unpin(slot stripe.Slot) {
	if st.pins.Add(slot, -1); !st.replaced.Load() {
		return // the states hold it
	}
	st.in.mu.Lock()
	last := !st.gone && st.pins.Load() == 0
	st.gone = st.gone || last
	st.in.mu.Unlock()
	if last {
		st.letGo()
	}
}

// letGo gives up what the state holds.
func (st *state) letGo() {
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
	st := &state{in: s, version: old.version, gen: old.gen, tables: old.tables, trees: make(map[uint64]*memtree, len(old.trees)+1)}
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
	st.pins.Add(0, 1)
	s.cur.Store(st)
	old.replaced.Store(true) // from here on a holder who leaves asks whether it was the last
	s.prune()
	s.mu.Unlock()
	old.unref()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !old.gone {
		old.since = now
		s.kept = append(s.kept, old)
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
