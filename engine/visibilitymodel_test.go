package engine

import (
	"fmt"
	"testing"
)

// An exhaustive model of what readers see: two trees, two batches that each write both, seals and flushes, and one reader, in
// every order of their steps. A batch takes its place (and with it the active memtable of each tree), goes into one memtable
// after the other, and is visible when it and those before it are published. A flush waits until
// all of its memtable is visible; what is in files has no sequences, and so shows at once. The reader must see every batch in both trees or in neither, and all that were visible when it began.

const (
	visBatches = 2
	visMems    = 3 // of a tree
	visTries   = 1 // before the reader takes the lock; the store has 3, which shows nothing more
)

// visTree is where a tree's entries are: memtables below flushed are in files, those below active are sealed.
type visTree struct{ active, flushed uint8 }

type visState struct {
	phase  [visBatches]uint8 // 0 to come, 1 placed, 2 in one tree, 3 in both, 4 published
	target [visBatches][2]uint8
	tree   [2]visTree
	gen    uint8

	// The reader.
	step   uint8 // 0 not begun, 1 to pin, 2 to read the sequence, 3 to compare, 4 done
	tries  uint8
	least  uint8 // batches visible when it began
	pinned [2]visTree
	pinGen uint8
	seq    uint8 // batches 1..seq are shown from memtables
}

// visRules are what makes it so; a mutant breaks one.
type visRules struct {
	compare    bool // pin, sequence, then again if the generation moved
	sealRaises bool // seals raise the generation
	flushWaits bool // a flush waits until what it holds is published
	prefix     bool // a batch is visible when all before it are published, not when it is itself
	locked     bool // the last try holds off what raises the generation
	seqFirst   bool // sequence, then pin: enough for one tree
	oneTree    bool // the reader looks at tree 0 only
}

// visible is the sequence up to which batches show.
func (s *visState) visible(r visRules) (n uint8) {
	for b := range uint8(visBatches) {
		switch {
		case s.phase[b] == 4:
			n = b + 1
		case r.prefix:
			return n
		}
	}
	return n
}

// next calls fn for every state that is one step further.
func (s visState) next(r visRules, fn func(visState)) {
	for b := range s.phase {
		n := s
		switch s.phase[b] {
		case 0:
			if b > 0 && s.phase[b-1] == 0 {
				continue // places are taken in order
			}
			n.target[b] = [2]uint8{s.tree[0].active, s.tree[1].active}
		case 4:
			continue
		}
		n.phase[b]++
		fn(n)
	}
	for t := range s.tree {
		used := false
		for b := range s.phase {
			used = used || s.phase[b] > 0 && s.target[b][t] == s.tree[t].active
		}
		if n := s; used && s.tree[t].active < visMems-1 {
			n.tree[t].active++
			if r.sealRaises {
				n.gen++
			}
			fn(n)
		}
		ready := s.tree[t].flushed < s.tree[t].active
		for b := range s.phase {
			if s.phase[b] > 0 && s.target[b][t] == s.tree[t].flushed && s.phase[b] < 4 {
				// Without the wait a flush still takes what is in the memtable by then, all of it.
				ready = ready && !r.flushWaits && s.phase[b] >= 2+uint8(t)
			}
			ready = ready && (!r.flushWaits || s.phase[b] == 0 || s.target[b][t] != s.tree[t].flushed || uint8(b) < s.visible(r))
		}
		if n := s; ready {
			n.tree[t].flushed++
			fn(n)
		}
	}
	s.read(r, fn)
}

func (s visState) read(r visRules, fn func(visState)) {
	n := s
	pin := func() { n.pinned, n.pinGen = s.tree, s.gen }
	switch s.step {
	case 0:
		n.step, n.least = 1, s.visible(r)
	case 1:
		switch {
		case r.seqFirst:
			n.seq = s.visible(r)
			n.step = 2
		case s.tries == visTries && r.locked:
			pin()
			n.seq = s.visible(r)
			n.step = 4
		default:
			pin()
			n.step = 2
		}
	case 2:
		if r.seqFirst {
			pin()
			n.step = 4
			break
		}
		n.seq = s.visible(r)
		n.step = 3
	case 3:
		n.step = 4
		if r.compare && s.gen != s.pinGen {
			n.step, n.tries = 1, s.tries+1
			if s.tries == visTries && !r.locked {
				n.step = 4 // it gives up and takes what it has
			}
		}
	case 4:
		return
	}
	fn(n)
}

// wrong says what the reader of a finished read sees that it must not, or misses.
func (s *visState) wrong(r visRules) string {
	trees := 2
	if r.oneTree {
		trees = 1
	}
	for b := range s.phase {
		seen := [2]bool{}
		for t := range trees {
			at := s.target[b][t]
			switch {
			case s.phase[b] == 0 || at > s.pinned[t].active:
			case at < s.pinned[t].flushed:
				seen[t] = true
			default:
				seen[t] = uint8(b) < s.seq && s.phase[b] >= 2+uint8(t)
			}
		}
		switch {
		case trees == 2 && seen[0] != seen[1]:
			return fmt.Sprintf("batch %d is seen in half", b+1)
		case uint8(b) < s.least && !seen[0]:
			return fmt.Sprintf("batch %d was visible before the read and is not seen", b+1)
		case uint8(b) < s.seq && !seen[0]:
			return fmt.Sprintf("batch %d is not seen at sequence %d", b+1, s.seq)
		case uint8(b) >= s.seq && seen[0] && !r.oneTree:
			return fmt.Sprintf("batch %d is seen beyond sequence %d", b+1, s.seq)
		}
	}
	return ""
}

// explore walks all orders and returns the first wrong answer, and how many states there are.
func explore(r visRules) (string, int) {
	seen := map[visState]struct{}{}
	stack := []visState{{}}
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if _, ok := seen[s]; ok {
			continue
		}
		seen[s] = struct{}{}
		if s.step == 4 {
			if w := s.wrong(r); w != "" {
				return w, len(seen)
			}
		}
		s.next(r, func(n visState) { stack = append(stack, n) })
	}
	return "", len(seen)
}

var visRight = visRules{compare: true, sealRaises: true, flushWaits: true, prefix: true, locked: true}

// A reader of several trees sees whole batches, in every order of steps.
func TestEveryOrderOfSealFlushPublishAndRead(t *testing.T) {
	wrong, n := explore(visRight)
	if wrong != "" {
		t.Fatal(wrong)
	}
	if n < 20_000 {
		t.Fatalf("only %d states", n)
	}
	one := visRules{seqFirst: true, oneTree: true, flushWaits: true, prefix: true}
	if wrong, _ := explore(one); wrong != "" {
		t.Fatalf("a reader of one tree that takes the sequence, then pins: %s", wrong)
	}
	t.Logf("%d states", n)
}

// Each rule is needed.
func TestEveryRuleOfVisibilityIsNeeded(t *testing.T) {
	for name, change := range map[string]func(r *visRules){
		"the generation is not compared":         func(r *visRules) { r.compare = false },
		"seals do not raise it":                  func(r *visRules) { r.sealRaises = false },
		"flushes do not wait for publishing":     func(r *visRules) { r.flushWaits = false },
		"a batch shows before those before it":   func(r *visRules) { r.prefix = false },
		"the last try is like the others":        func(r *visRules) { r.locked = false },
		"two trees, but sequence first":          func(r *visRules) { r.seqFirst = true },
		"one tree, pinned before the sequence":   func(r *visRules) { r.compare, r.oneTree = false, true },
		"one tree, flushes do not wait, no gens": func(r *visRules) { *r = visRules{oneTree: true, prefix: true} },
	} {
		r := visRight
		change(&r)
		if wrong, n := explore(r); wrong == "" {
			t.Errorf("%s: nothing is wrong in %d states", name, n)
		}
	}
}
