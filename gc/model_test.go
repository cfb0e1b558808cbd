package gc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// An exhaustive model of one row and one column: a few timestamps, up to four sources, every order of set, delete of one
// version, flush, merge of neighbouring sources, and clock step, down to a depth. In every state that can be reached the
// visible versions must equal those of a twin that never flushed, merged or collected anything. It holds the rules for holes:
//
//   - a delete that makes a hole first deletes everything below the floor (everything, if nothing is visible);
//   - a merge drops by rank only if no newer source has a hole in the column, else by age alone;
//   - a merge forgets deletes only if there is no older source.
//
// A mutant of each rule must break the equality.

const modelSources = 4

// A set of timestamps is a bit mask, bit i for timestamp i: there is nothing between two of them. vals holds one bit of
// value per timestamp, so that an older value that comes back is seen.
type modelSource struct{ cells, vals, dels uint8 }

type modelState struct {
	ref   modelSource               // the twin
	last  uint8                     // value bit last written per timestamp
	src   [modelSources]modelSource // newest first; src[0] is the memtable
	n     uint8
	clock int8
}

type modelMutant struct {
	noPin, noQuestion, offByOne, forgetEarly bool
}

type model struct {
	rule    Rule
	stamps  int
	clockTo int8
	mut     modelMutant
}

// set and del change the newest source, as a memtable does.
func (s *modelSource) set(ts int, val uint8) {
	s.cells |= 1 << ts
	s.vals = s.vals&^(1<<ts) | val<<ts
}

func (s *modelSource) del(mask uint8) {
	s.cells &^= mask
	s.dels |= mask
}

// over is what s and everything older amounts to.
func (s modelSource) over(older modelSource) modelSource {
	below := older.cells &^ (s.dels | s.cells)
	return modelSource{cells: s.cells | below, vals: s.vals&s.cells | older.vals&below, dels: s.dels | older.dels}
}

func (s modelSource) hole() bool { return s.dels&(s.dels+1) != 0 } // set bits do not reach down to 0 without a gap

// desc lists the timestamps of a mask, newest first.
func desc(mask uint8) (ts []int64) {
	for i := 7; i >= 0; i-- {
		if mask>>i&1 != 0 {
			ts = append(ts, int64(i))
		}
	}
	return ts
}

// keep applies the rule to a column's live versions.
func (m *model) keep(s modelSource, asOf int8, skew int) modelSource {
	for rank, ts := range desc(s.cells) {
		if m.rule.Drops(rank+skew, ts, int64(asOf)) {
			s.cells &^= 1 << ts
		}
	}
	s.vals &= s.cells
	return s
}

func (m *model) visible(s modelSource, asOf int8) modelSource {
	v := m.keep(s, asOf, 0)
	v.dels = 0
	return v
}

// deleteOne deletes the version at ts, as seen by a store that holds all in one or many sources.
func (m *model) deleteOne(top *modelSource, all modelSource, ts int, asOf int8) {
	mask := uint8(1) << ts
	if ts > 0 && !m.mut.noPin {
		if m.visible(all, asOf).cells == 0 {
			mask = 0xff
		} else if floor, ok := m.rule.Floor(desc(all.cells), int64(asOf)); ok && floor > 0 {
			mask |= 1<<min(floor, 8) - 1
		}
	}
	top.del(mask)
}

func (s *modelState) all() modelSource {
	v := s.src[s.n-1]
	for i := int(s.n) - 2; i >= 0; i-- {
		v = s.src[i].over(v)
	}
	return v
}

// merge replaces sources i..j by one.
func (m *model) merge(s modelState, i, j int) modelState {
	out := s.src[j]
	for k := j - 1; k >= i; k-- {
		out = s.src[k].over(out)
	}
	hole := false
	for k := range i {
		hole = hole || s.src[k].hole()
	}
	switch {
	case !hole || m.mut.noQuestion:
		skew := 0
		if m.mut.offByOne {
			skew = 1
		}
		out = m.keep(out, s.clock, skew)
	default:
		if floor, ok := m.rule.AgeFloor(int64(s.clock)); ok && floor > 0 {
			out.cells &^= 1<<min(floor, 8) - 1
			out.vals &= out.cells
		}
	}
	if j == int(s.n)-1 || m.mut.forgetEarly {
		out.dels = 0
	}
	next := s
	next.src[i] = out
	copy(next.src[i+1:], s.src[j+1:s.n])
	next.n = s.n - uint8(j-i)
	for k := next.n; k < modelSources; k++ {
		next.src[k] = modelSource{}
	}
	return next
}

// steps calls f with every state one step away.
func (m *model) steps(s modelState, f func(op string, next modelState)) {
	for ts := range m.stamps {
		n := s
		n.last ^= 1 << ts
		n.ref.set(ts, n.last>>ts&1)
		n.src[0].set(ts, n.last>>ts&1)
		f(fmt.Sprintf("set@%d", ts), n)

		n = s
		m.deleteOne(&n.ref, s.ref, ts, s.clock)
		n.ref.dels = 0
		m.deleteOne(&n.src[0], s.all(), ts, s.clock)
		f(fmt.Sprintf("delete@%d", ts), n)
	}
	if s.n < modelSources {
		n := s
		copy(n.src[1:], s.src[:s.n])
		n.src[0] = modelSource{}
		n.n++
		f("flush", n)
	}
	for i := 1; i < int(s.n); i++ {
		for j := i; j < int(s.n); j++ {
			f(fmt.Sprintf("merge %d..%d", i, j), m.merge(s, i, j))
		}
	}
	if s.clock < m.clockTo {
		n := s
		n.clock++
		f("tick", n)
	}
}

type modelFrom struct {
	prev modelState
	op   string
}

// explore walks all states to a depth, breadth first, and returns the steps to the first in which the store and its twin
// differ.
func (m *model) explore(depth int) (states int, bad string) {
	start := modelState{n: 1, clock: 1}
	from := map[modelState]modelFrom{start: {}}
	front := []modelState{start}
	for range depth {
		var next []modelState
		for _, s := range front {
			m.steps(s, func(op string, n modelState) {
				if _, seen := from[n]; bad != "" || seen {
					return
				}
				from[n] = modelFrom{s, op}
				next = append(next, n)
				want, got := m.visible(n.ref, n.clock), m.visible(n.all(), n.clock)
				if got != want {
					var ops []string
					for at := n; at != start; at = from[at].prev {
						ops = append(ops, from[at].op)
					}
					slices.Reverse(ops)
					bad = fmt.Sprintf("%s; clock %d: visible %v values %03b, without merges %v values %03b",
						strings.Join(ops, ", "), n.clock, desc(got.cells), got.vals, desc(want.cells), want.vals)
				}
			})
			if bad != "" {
				return len(from), bad
			}
		}
		front = next
	}
	return len(from), ""
}

func age(us int64) Rule { return Rule{op: opAge, n: us} }

var modelRules = []Rule{
	MaxVersionsPolicy(1),
	MaxVersionsPolicy(2),
	age(1),
	UnionPolicy(MaxVersionsPolicy(2), age(2)),
	IntersectionPolicy(MaxVersionsPolicy(1), age(1)),
	IntersectionPolicy(MaxVersionsPolicy(2), age(1)),
	UnionPolicy(IntersectionPolicy(MaxVersionsPolicy(1), age(1)), age(3)),
}

func TestVisibleVersionsNeverDependOnMerges(t *testing.T) {
	for _, r := range modelRules {
		t.Run(r.String(), func(t *testing.T) {
			t.Parallel()
			total := 0
			for _, size := range []struct{ stamps, depth int }{{2, 9}, {3, 8}, {4, 6}} {
				m := &model{rule: r, stamps: size.stamps, clockTo: 5}
				depth := size.depth
				if raceEnabled || testing.Short() {
					depth -= 2 // one goroutine, so that the detector has nothing to find; the whole walk is run without it
				}
				states, bad := m.explore(depth)
				if bad != "" {
					t.Fatalf("%d timestamps: %s", size.stamps, bad)
				}
				total += states
			}
			t.Logf("%d states", total)
		})
	}
}

func TestEachHoleRuleIsNeeded(t *testing.T) {
	for name, mut := range map[string]modelMutant{
		"no pin":                             {noPin: true},
		"newer sources are not asked":        {noQuestion: true},
		"rank off by one":                    {offByOne: true},
		"deletes forgotten above the oldest": {forgetEarly: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range modelRules {
				for _, stamps := range []int{2, 3} {
					m := &model{rule: r, stamps: stamps, clockTo: 5, mut: mut}
					if _, bad := m.explore(8 - stamps/3); bad != "" {
						t.Logf("%v: %s", r, bad)
						return
					}
				}
			}
			t.Fatal("no state differs without the rule")
		})
	}
}
