package engine

import (
	"fmt"
	"testing"
)

// An exhaustive model of crashes: two trees with one log and one manifest, three batches that each write both trees, and two
// crashes. Batches are queued, written in groups with one write in flight, and durable; of a write in flight every record
// survives a crash or not by itself, and of an edit in flight likewise. Every order of place, write, sync, flush, drop, recycle
// and crash is walked, with every outcome of each crash, and damage to any one durable record.
//
// After each recovery the trees must hold the same prefix of the batches, each once; all that was durable must be in it; a drop
// that is there stands on everything placed before it. Damage is an error, unless it strikes the last write that is on the disk.

const (
	crashBatches = 3
	crashMax     = 2
	crashSlots   = 4 // records of the log
)

// crashRecord is a record of the log.
type crashRecord struct {
	id     uint8 // batch, from 1; 0 for none
	header uint8 // records that were durable when its write began
	group  uint8 // number of the write
}

type crashEdit struct {
	flushed [2]uint8 // through this record, by tree
	dropped bool     // tree 1
	dropAt  uint8    // records placed before that
}

type crashState struct {
	log      [crashSlots]crashRecord
	placed   uint8 // records placed
	written  uint8 // of them, handed to the disk
	durable  uint8
	start    uint8 // records before it are recycled
	group    uint8
	stale    [crashSlots]crashRecord // what a slot still holds from before the last crash
	next     uint8                   // id of the next batch
	manifest crashEdit
	pending  crashEdit
	inFlight bool
	crashes  uint8
}

// crashRules are what makes it so; a mutant breaks one.
type crashRules struct {
	flushWaits   bool // an edit of a flush is written when the log is durable through it
	dropSettles  bool // so is one of a drop, through all that is placed
	replaySkips  bool // replay skips what the tree's files hold
	recycleLate  bool // records are recycled when the edit that frees them is durable
	recycleAll   bool // and every tree that is there has them
	freshSlot    bool // recovery goes on in a slot of its own
	headersCount bool // a header beyond the first bad record tells damage from the end
	oneInFlight  bool // the next write begins when the last one is durable
}

var crashRight = crashRules{true, true, true, true, true, true, true, true}

// step calls fn for every state that is one step further and wrong for what must not be.
func (s crashState) step(r crashRules, fn func(crashState), wrong func(string)) {
	gate := s.inFlight && s.pending.dropped && !s.manifest.dropped // batches of the dropped tree wait
	if n := s; s.next <= crashBatches && s.placed < crashSlots && !gate {
		n.log[n.placed] = crashRecord{id: n.next}
		n.placed++
		n.next++
		fn(n)
	}
	if n := s; s.written < s.placed && (s.written == s.durable || !r.oneInFlight) {
		n.group++
		for i := n.written; i < n.placed; i++ {
			n.log[i].header, n.log[i].group = n.durable, n.group
		}
		n.written = n.placed
		fn(n)
	}
	if n := s; s.durable < s.written {
		n.durable = n.written
		fn(n)
	}
	if !s.inFlight {
		for t := range 2 {
			if n := s; (t == 0 || !s.manifest.dropped) && s.manifest.flushed[t] < s.placed && (!r.flushWaits || s.durable == s.placed) {
				n.pending, n.inFlight = n.manifest, true
				n.pending.flushed[t] = n.placed
				fn(n)
			}
		}
		if n := s; !s.manifest.dropped && (!r.dropSettles || s.durable == s.placed) {
			n.pending, n.inFlight = n.manifest, true
			n.pending.dropped, n.pending.dropAt = true, n.placed
			fn(n)
		}
	} else {
		n := s
		n.manifest, n.pending, n.inFlight = n.pending, crashEdit{}, false
		fn(n)
	}
	m := s.manifest
	if s.inFlight && !r.recycleLate {
		m = s.pending
	}
	free := m.flushed[0]
	if r.recycleAll && !m.dropped {
		free = min(free, m.flushed[1])
	}
	if n := s; free > s.start && free <= s.durable {
		n.start = free
		fn(n)
	}
	if s.crashes < crashMax {
		s.crash(r, fn, wrong)
	}
}

// crash tries every outcome of a crash.
func (s crashState) crash(r crashRules, fn func(crashState), wrong func(string)) {
	for kept := range 1 << (s.written - s.durable) {
		for e := range 2 {
			m := s.manifest
			if e == 1 {
				if !s.inFlight {
					continue
				}
				m = s.pending
			}
			for bad := int(s.start) - 1; bad < int(s.durable); bad++ { // the first time nothing is damaged
				disk := s.stale
				for i := s.start; i < s.written; i++ {
					if ok := i < s.durable || kept>>(i-s.durable)&1 == 1; ok && int(i) != bad {
						disk[i] = s.log[i]
					} else if i < s.durable || ok {
						disk[i] = crashRecord{}
					}
				}
				damaged := bad >= int(s.start)
				n, err := s.recover(r, m, &disk, damaged, uint8(max(bad, 0)))
				if err != "" {
					wrong(err)
				} else if !damaged {
					fn(n)
				}
			}
		}
	}
}

// recover is what opening makes of a disk.
func (s crashState) recover(r crashRules, m crashEdit, disk *[crashSlots]crashRecord, damaged bool, bad uint8) (crashState, string) {
	end := s.start
	for end < crashSlots && disk[end].id != 0 {
		end++
	}
	if r.headersCount {
		for i := end; i < crashSlots; i++ {
			if disk[i].id == 0 || disk[i].header <= end {
				continue
			}
			if !damaged {
				return s, fmt.Sprintf("record %d is taken for damaged", end)
			}
			return s, "" // an error, as it should be
		}
	}
	// What the trees hold.
	var held [2][crashBatches + 1]int
	for t := range held {
		for i := uint8(0); i < m.flushed[t]; i++ {
			held[t][s.log[i].id]++
		}
		for i := s.start; i < end; i++ {
			if i >= m.flushed[t] || !r.replaySkips {
				held[t][disk[i].id]++
			}
		}
	}
	last := max(end, m.flushed[0])
	if !m.dropped {
		last = max(last, m.flushed[1])
	}
	if damaged {
		// A loss that nothing tells of is allowed in the last write on the disk only: no later one says that it was durable.
		for i := bad; last < s.durable && i < s.written; i++ {
			if disk[i].id != 0 && disk[i].group != s.log[bad].group {
				return s, fmt.Sprintf("record %d is damaged, and the batches from there on are lost without a word", bad)
			}
		}
		return s, ""
	}
	if last < s.durable {
		return s, fmt.Sprintf("%d batches are durable, %d are left", s.durable, last)
	}
	for t := range held {
		if t == 1 && m.dropped {
			continue
		}
		for i := range s.placed {
			want := 0
			if i < last {
				want = 1
			}
			if got := held[t][s.log[i].id]; got != want {
				return s, fmt.Sprintf("tree %d holds batch %d %d times, the other side is %d batches long", t, s.log[i].id, got, last)
			}
			held[t][s.log[i].id] = 0
		}
		for id, n := range held[t] {
			if n > 0 {
				return s, fmt.Sprintf("batch %d came back", id)
			}
		}
	}
	if m.dropped && last < m.dropAt {
		return s, fmt.Sprintf("a drop is there, and a batch placed before it is not: %d of %d", last, m.dropAt)
	}
	n := s
	n.manifest, n.pending, n.inFlight = m, crashEdit{}, false
	n.placed, n.written, n.durable = last, last, last
	n.crashes++
	n.stale = [crashSlots]crashRecord{}
	for i := last; i < crashSlots; i++ {
		n.log[i] = crashRecord{}
		if !r.freshSlot {
			n.stale[i] = disk[i]
		}
	}
	return n, ""
}

func exploreCrashes(r crashRules) (first string, states int) {
	seen := map[crashState]struct{}{}
	stack := []crashState{{next: 1}}
	for len(stack) > 0 && first == "" {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if _, ok := seen[s]; ok {
			continue
		}
		seen[s] = struct{}{}
		s.step(r, func(n crashState) { stack = append(stack, n) }, func(w string) {
			if first == "" {
				first = w
			}
		})
	}
	return first, len(seen)
}

// Whatever the order of steps, and whatever a crash leaves, recovery finds a prefix.
func TestEveryCrashLeavesAPrefix(t *testing.T) {
	wrong, n := exploreCrashes(crashRight)
	if wrong != "" {
		t.Fatal(wrong)
	}
	if n < 2_000 {
		t.Fatalf("only %d states", n)
	}
	t.Logf("%d states", n)
}

// Each rule is needed.
func TestEveryRuleOfRecoveryIsNeeded(t *testing.T) {
	for name, change := range map[string]func(r *crashRules){
		"a flush does not wait for the log":            func(r *crashRules) { r.flushWaits = false },
		"a drop does not wait for the log":             func(r *crashRules) { r.dropSettles = false },
		"replay applies what files hold":               func(r *crashRules) { r.replaySkips = false },
		"records are recycled before the edit":         func(r *crashRules) { r.recycleLate = false },
		"records are recycled when one tree has them":  func(r *crashRules) { r.recycleAll = false },
		"recovery writes on where it stopped to read":  func(r *crashRules) { r.freshSlot = false },
		"the first bad record is always the end":       func(r *crashRules) { r.headersCount = false },
		"two writes are in flight, headers are behind": func(r *crashRules) { r.oneInFlight = false },
	} {
		r := crashRight
		change(&r)
		if wrong, n := exploreCrashes(r); wrong == "" {
			t.Errorf("%s: nothing is wrong in %d states", name, n)
		} else {
			t.Logf("%s: %s", name, wrong)
		}
	}
}
