package merge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowandb/rowan/gc"
)

// An exhaustive model of collection: one row, one column, a few timestamps, up to four sources. From an empty store every order
// of these steps is walked, breadth first, to a depth: set or Add, delete of one version, the same delete evaluated first and
// published later, seal of the memtable, merge of neighbouring sources at once or in the steps choose, look and install, clock
// tick, and change of the rule. In every state that is reached the visible versions and values must equal those of a twin that
// collects eagerly: after each step it forgets for good whatever its rule does not keep. (The twin of a model with deletes in two
// steps cannot do that, since such a delete happens at one time and is seen at another: it never merges instead.)
//
// The rules that make it so, each of which a mutant breaks:
//
//   - A delete that makes a hole first deletes everything below the floor; everything, if nothing is visible.
//   - A merge fixes its time, then waits for the holes that were evaluated before, then looks at the newer sources: if one has a
//     hole it drops by age alone.
//   - A merge forgets deletes only if there is no older source.
//   - A rule that is no tightening seals all sources: together they follow the old rule as of the change, for good. A merge takes
//     only sealed sources, or only newer ones, or all sealed ones with newer ones, in two phases.
//   - Adds fold over sources until a newer source's delete; a source's deletes say nothing about its own Adds.

const modelSources = 4

// modelSource is a source. Sets of timestamps are bit masks, bit i for timestamp i; there is nothing between two of them. vals
// has two bits for each timestamp.
type modelSource struct {
	cells, vals, dels uint8
	behind            bool // sealed by the change of rule that stands
}

type modelState struct {
	twin  modelSource
	last  uint8                     // value bit last set per timestamp
	src   [modelSources]modelSource // newest first; src[0] is the memtable
	n     uint8
	clock int8
	rule  uint8

	standing bool // a change of rule has sealed sources
	old      uint8
	oldTime  int8

	// A delete that is evaluated and not yet published. No other change of the row comes between.
	hole    uint8 // what it will delete, 0 if there is none
	holeOld bool  // the epoch was raised since it was evaluated

	job     uint8 // of the steps of a merge: jobNone...
	below   uint8 // sources older than its inputs
	inputs  uint8
	jobTime int8
	jobOut  modelSource
}

const (
	jobNone uint8 = iota
	jobTimed
	jobDone // but for the install
)

type modelMutant struct {
	noPin, noWait, noQuestion, offByOne, forgetEarly bool
	noSeal, mixed, unionForIntersection              bool
	addTwice, deleteTouchesOwn                       bool
}

type model struct {
	name    string
	rules   []gc.Rule // the first one at the start
	stamps  int
	depth   int
	adds    bool // the family folds
	slow    bool // deletes and merges in steps too
	lazy    bool // the twin never merges, see above
	clockTo int8
	mut     modelMutant
}

func bitsOf(v uint8, ts int) uint8 { return v >> (2 * ts) & 3 }

func (s *modelSource) put(ts int, val uint8) {
	s.cells |= 1 << ts
	s.vals = s.vals&^(3<<(2*ts)) | val&3<<(2*ts)
}

func (s *modelSource) drop(mask uint8) {
	s.cells &^= mask
	for ts := range 4 {
		if mask>>ts&1 != 0 {
			s.vals &^= 3 << (2 * ts)
		}
	}
}

func (s *modelSource) del(mask uint8) {
	s.drop(mask)
	s.dels |= mask
}

// add folds 1 into the cell, modulo 4.
func (s *modelSource) add(ts int) {
	v := uint8(0)
	if s.cells>>ts&1 != 0 {
		v = bitsOf(s.vals, ts)
	}
	s.put(ts, v+1)
}

// over is what s and everything older amounts to.
func (m *model) over(s, older modelSource) modelSource {
	out := s
	if m.mut.deleteTouchesOwn {
		out.drop(s.dels)
	}
	below := older.cells &^ s.dels
	for ts := range m.stamps {
		if below>>ts&1 == 0 {
			continue
		}
		o := bitsOf(older.vals, ts)
		switch {
		case out.cells>>ts&1 == 0:
			out.put(ts, o)
		case m.adds:
			if m.mut.addTwice {
				o *= 2
			}
			out.put(ts, bitsOf(out.vals, ts)+o)
		}
	}
	out.dels |= older.dels
	return out
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

// keep drops what a rule does not keep.
func keep(s modelSource, rule *gc.Rule, asOf int8, skew int) modelSource {
	rank := skew
	for ts := 7; ts >= 0; ts-- {
		if s.cells>>ts&1 != 0 {
			if rule.Drops(rank, int64(ts), int64(asOf)) {
				s.drop(1<<(ts+1) - 1)
				break
			}
			rank++
		}
	}
	return s
}

// ruleOf is a rule as the store, or the mutant of it, understands it.
func (m *model) ruleOf(i uint8) *gc.Rule { return &m.rules[i] }

// live is what the store has before its rule: what is sealed goes through the old one first.
func (m *model) live(s *modelState) modelSource {
	out, i := modelSource{}, int(s.n)-1
	if s.standing {
		for ; i >= 0 && s.src[i].behind; i-- {
			out = m.over(s.src[i], out)
		}
		out = keep(out, m.ruleOf(s.old), s.oldTime, 0)
	}
	for ; i >= 0; i-- {
		out = m.over(s.src[i], out)
	}
	return out
}

func (m *model) visible(s *modelState) modelSource {
	v := keep(m.live(s), m.ruleOf(s.rule), s.clock, 0)
	v.dels, v.behind = 0, false
	return v
}

func (m *model) twinVisible(s *modelState) modelSource {
	v := keep(s.twin, m.ruleOf(s.rule), s.clock, 0)
	v.dels = 0
	return v
}

// holeMask is what the delete of the version at ts deletes, with all as what is alive.
func (m *model) holeMask(all modelSource, rule *gc.Rule, ts int, asOf int8) uint8 {
	mask := uint8(1) << ts
	if ts == 0 || m.mut.noPin {
		return mask
	}
	if keep(all, rule, asOf, 0).cells == 0 {
		return 0xff
	}
	if floor, ok := rule.Floor(desc(all.cells), int64(asOf)); ok && floor > 0 {
		mask |= 1<<min(floor, 8) - 1
	}
	return mask
}

// settle lets the twin forget, and the store the change that no source is behind any more.
func (m *model) settle(s *modelState) {
	if !m.lazy {
		s.twin = keep(s.twin, m.ruleOf(s.rule), s.clock, 0)
	}
	if !s.standing {
		return
	}
	for i := range s.n {
		if s.src[i].behind {
			return
		}
	}
	s.standing, s.old, s.oldTime = false, 0, 0
}

// merged is the merge of sources i..j of s as of asOf; ok is false if it may not run.
func (m *model) merged(s *modelState, i, j int, asOf int8) (out modelSource, ok bool) {
	behind, left := 0, 0
	for k := range int(s.n) {
		switch in := i <= k && k <= j; {
		case in && s.src[k].behind:
			behind++
		case s.src[k].behind:
			left++
		}
	}
	all := behind == j-i+1
	twoPhases := behind > 0 && left == 0
	rule, time := s.rule, asOf
	switch {
	case behind == 0 || twoPhases:
	case all:
		rule, time = s.old, s.oldTime
	case !m.mut.mixed:
		return out, false
	}
	k := j
	for ; k >= i; k-- {
		if twoPhases && !s.src[k].behind {
			break
		}
		out = m.over(s.src[k], out)
	}
	if twoPhases {
		out = keep(out, m.ruleOf(s.old), s.oldTime, 0)
		for ; k >= i; k-- {
			out = m.over(s.src[k], out)
		}
	}
	hole := false
	for k := range i {
		hole = hole || s.src[k].hole()
	}
	r := m.ruleOf(rule)
	if m.mut.unionForIntersection {
		r = &modelUnion
	}
	switch {
	case !hole || m.mut.noQuestion:
		skew := 0
		if m.mut.offByOne {
			skew = 1
		}
		out = keep(out, r, time, skew)
	default:
		if floor, ok := r.AgeFloor(int64(time)); ok && floor > 0 {
			out.drop(1<<min(floor, 8) - 1)
		}
	}
	if j == int(s.n)-1 || m.mut.forgetEarly {
		out.dels = 0
	}
	out.behind = behind > 0 && !twoPhases
	return out, true
}

// modelUnion is IntersectionPolicy(MaxVersionsPolicy(1), age(1)) mistaken for a union.
var modelUnion = gc.UnionPolicy(gc.MaxVersionsPolicy(1), age(1))

// replace puts out in the place of sources i..j.
func (s *modelState) replace(i, j int, out modelSource) {
	src := s.src
	s.src[i] = out
	copy(s.src[i+1:], src[j+1:s.n])
	s.n -= uint8(j - i)
	for k := s.n; k < modelSources; k++ {
		s.src[k] = modelSource{}
	}
}

func (s *modelState) seal() {
	copy(s.src[1:], s.src[:s.n])
	s.src[0] = modelSource{}
	s.n++
}

// steps calls f with every state one step away.
func (m *model) steps(s *modelState, f func(n *modelState, op string, args ...int)) {
	if s.hole == 0 {
		m.changes(s, f)
	} else {
		n := *s
		n.src[0].del(s.hole)
		n.twin.del(s.hole)
		n.twin.dels, n.hole, n.holeOld = 0, 0, false
		f(&n, "publish")
	}
	if s.n < modelSources {
		n := *s
		n.seal()
		f(&n, "seal")
	}
	if s.clock < m.clockTo {
		n := *s
		n.clock++
		f(&n, "tick")
	}
	m.jobSteps(s, f)
}

// changes are the steps that a delete on its way keeps off the row.
func (m *model) changes(s *modelState, f func(n *modelState, op string, args ...int)) {
	rule := m.ruleOf(s.rule)
	for ts := range m.stamps {
		n := *s
		if m.adds {
			n.twin.add(ts)
			n.src[0].add(ts)
		} else {
			n.last ^= 1 << ts
			n.twin.put(ts, n.last>>ts&1)
			n.src[0].put(ts, n.last>>ts&1)
		}
		f(&n, "write", ts)

		mask := m.holeMask(m.live(s), rule, ts, s.clock)
		n = *s
		n.src[0].del(mask)
		if m.lazy {
			n.twin.del(m.holeMask(s.twin, rule, ts, s.clock))
		} else {
			n.twin.del(1 << ts)
		}
		n.twin.dels = 0
		f(&n, "delete", ts)
		if m.slow && m.lazy && ts > 0 {
			n = *s
			n.hole = mask
			f(&n, "evaluate delete", ts)
		}
	}
	for r := range m.rules {
		to := uint8(r)
		if to == s.rule {
			continue
		}
		n := *s
		n.rule = to
		switch {
		case m.rules[to].Tightens(*rule) || m.mut.noSeal:
			f(&n, "tighten to rule", r)
		case !s.standing && s.n < modelSources:
			n.seal()
			for k := 1; k < int(n.n); k++ {
				n.src[k].behind = true
			}
			if n.job == jobDone {
				n.jobOut.behind = true
			}
			n.standing, n.old, n.oldTime = true, s.rule, s.clock
			f(&n, "change to rule", r)
		}
	}
}

func (m *model) jobSteps(s *modelState, f func(n *modelState, op string, args ...int)) {
	switch s.job {
	case jobNone:
		for i := 1; i < int(s.n); i++ {
			for j := i; j < int(s.n); j++ {
				out, ok := m.merged(s, i, j, s.clock)
				if !ok {
					continue
				}
				if s.hole == 0 || m.mut.noWait { // else it takes the steps
					n := *s
					n.replace(i, j, out)
					f(&n, "merge", i, j)
				}
				if m.slow {
					n := *s
					n.job, n.below, n.inputs, n.jobTime, n.holeOld = jobTimed, s.n-1-uint8(j), uint8(j-i+1), s.clock, s.hole != 0
					f(&n, "begin merge", i, j)
				}
			}
		}
	case jobTimed:
		if s.holeOld && !m.mut.noWait {
			return
		}
		n := *s
		j := int(s.n - 1 - s.below)
		i := j + 1 - int(s.inputs)
		out, ok := m.merged(s, i, j, s.jobTime)
		if !ok {
			n.job, n.below, n.inputs, n.jobTime = jobNone, 0, 0, 0
			f(&n, "give up")
			return
		}
		n.job, n.jobOut, n.jobTime = jobDone, out, 0
		f(&n, "look", i, j)
	case jobDone:
		n := *s
		j := int(s.n - 1 - s.below)
		n.replace(j+1-int(s.inputs), j, s.jobOut)
		n.job, n.below, n.inputs, n.jobOut = jobNone, 0, 0, modelSource{}
		f(&n, "install")
	}
}

// explore walks all states to the depth, breadth first. It calls look for each, and returns the number of states and the steps to
// the first in which the store and its twin differ.
func (m *model) explore(look func(s *modelState)) (states int, bad string) {
	if bad, states = m.walk(nil, look); bad != "" {
		from := map[modelState]modelFrom{}
		bad, _ = m.walk(from, nil)
	}
	return states, bad
}

type modelFrom struct {
	prev modelState
	op   string
}

func (m *model) walk(from map[modelState]modelFrom, look func(s *modelState)) (bad string, states int) {
	start := modelState{n: 1, clock: 1}
	seen := map[modelState]struct{}{start: {}}
	front := []modelState{start}
	for range m.depth {
		var next []modelState
		for i := range front {
			s := &front[i]
			m.steps(s, func(n *modelState, op string, args ...int) {
				if bad != "" {
					return
				}
				m.settle(n)
				if _, old := seen[*n]; old {
					return
				}
				seen[*n] = struct{}{}
				next = append(next, *n)
				if from != nil {
					from[*n] = modelFrom{*s, fmt.Sprint(op, args)}
				}
				want, got := m.twinVisible(n), m.visible(n)
				if got != want {
					bad = fmt.Sprintf("%s; time %d, rule %v: visible %v values %08b, the twin has %v values %08b", path(from, n, start), n.clock,
						m.rules[n.rule], desc(got.cells), got.vals, desc(want.cells), want.vals)
				} else if look != nil {
					look(n)
				}
			})
			if bad != "" {
				return bad, len(seen)
			}
		}
		front = next
	}
	return "", len(seen)
}

func path(from map[modelState]modelFrom, n *modelState, start modelState) string {
	if from == nil {
		return ""
	}
	var ops []string
	for at := *n; at != start; at = from[at].prev {
		ops = append(ops, from[at].op)
	}
	slices.Reverse(ops)
	return strings.Join(ops, ", ")
}

// age is a rule that keeps what is at most n ticks old; a tick is a microsecond.
func age(n int) gc.Rule { return gc.MaxAgePolicy(time.Duration(n) * time.Microsecond) }
