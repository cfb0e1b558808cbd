// Package gc holds the collection rules of column families and the one function that says which versions stay.
//
// Everything here is pure: time is an argument, never asked for. Reads, flushes, compactions, conditions and increments all
// ask Rule.Drops, so that no answer depends on whether a compaction has run.
//
// A rule is a floor: a timestamp below which the versions of a column are collected. docs/gc.md has worked timelines.
package gc

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Limits of a rule tree. They keep every walk over a rule short and every decoder bounded.
const (
	DepthMax    = 8             // levels of nesting; a leaf has 1
	NodesMax    = 64            // leaves and composites together
	VersionsMax = math.MaxInt32 // largest n of MaxVersionsPolicy, the same on 32-bit machines
	AgeMin      = time.Millisecond
)

// ErrRule is matched by every error about a rule that the limits do not allow or that cannot be parsed.
var ErrRule = errors.New("bad collection rule")

type op uint8

// The numbers are part of format 1.
const (
	opNone     op = 0
	opVersions op = 1
	opAge      op = 2
	opUnion    op = 3
	opIntersec op = 4
)

// Rule says which versions of a column are collected. It is an immutable value and may be shared by goroutines; the zero
// Rule keeps everything. A rule that Validate refuses collects nothing where it is out of limits.
type Rule struct {
	op   op
	n    int64 // opVersions: versions kept; opAge: age in microseconds
	kids []Rule
}

// NoPolicy keeps everything.
func NoPolicy() Rule { return Rule{} }

// MaxVersionsPolicy keeps the n newest versions of each column. n is 1..VersionsMax.
func MaxVersionsPolicy(n int) Rule { return Rule{op: opVersions, n: int64(n)} }

// MaxAgePolicy keeps versions whose timestamp is at most d old: a version that is exactly d old stays. d is at least AgeMin
// and counts in whole microseconds, rounded up.
func MaxAgePolicy(d time.Duration) Rule {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return Rule{op: opAge, n: min(us, ageMax)}
}

// UnionPolicy collects what any of the rules collects. Without rules it keeps everything.
func UnionPolicy(rules ...Rule) Rule { return Rule{op: opUnion, kids: append([]Rule(nil), rules...)} }

// IntersectionPolicy collects what all of the rules collect. Without rules it keeps everything.
func IntersectionPolicy(rules ...Rule) Rule {
	return Rule{op: opIntersec, kids: append([]Rule(nil), rules...)}
}

// Validate reports the first thing about r that the limits do not allow, with the place in the tree. The error matches
// ErrRule.
func (r Rule) Validate() error {
	nodes := 0
	return r.validate(1, &nodes)
}

func (r *Rule) validate(depth int, nodes *int) error {
	*nodes++
	if *nodes > NodesMax {
		return fmt.Errorf("%w: more than %d parts", ErrRule, NodesMax)
	}
	if depth > DepthMax {
		return fmt.Errorf("%w: nested more than %d deep", ErrRule, DepthMax)
	}
	switch r.op {
	case opVersions:
		if r.n < 1 || r.n > VersionsMax {
			return fmt.Errorf("%w: versions(%d): the number must be 1..%d", ErrRule, r.n, int64(VersionsMax))
		}
	case opAge:
		if r.n < AgeMin.Microseconds() || r.n > ageMax {
			return fmt.Errorf("%w: age of %d us: must be at least %v and at most %v", ErrRule, r.n, AgeMin, time.Duration(math.MaxInt64))
		}
	case opUnion, opIntersec:
		for i := range r.kids {
			if err := r.kids[i].validate(depth+1, nodes); err != nil {
				return fmt.Errorf("%s: rule %d of %d: %w", r.op, i+1, len(r.kids), err)
			}
		}
	}
	return nil
}

// ageMax is the longest age in microseconds: what a time.Duration holds, about 292 years.
const ageMax = math.MaxInt64 / 1000

func (o op) String() string {
	switch o {
	case opVersions:
		return "versions"
	case opAge:
		return "age"
	case opUnion:
		return "union"
	case opIntersec:
		return "intersection"
	}
	return "none"
}

// Drops reports whether the version with this rank and timestamp is collected as of asOf (microseconds). rank is the
// 0-based place among the column's live versions, newest first; live means not deleted, collected ones included. For one
// column and one asOf the answer is monotone: once true it stays true for all older versions.
func (r Rule) Drops(rank int, ts, asOf int64) bool {
	switch r.op {
	case opVersions:
		return int64(rank) >= r.n && r.n > 0
	case opAge:
		return ts < ageFloor(asOf, r.n)
	case opNone:
		return false
	}
	return r.dropsTree(rank, ts, asOf)
}

func (r *Rule) dropsTree(rank int, ts, asOf int64) bool {
	switch r.op {
	case opUnion:
		for i := range r.kids {
			if r.kids[i].Drops(rank, ts, asOf) {
				return true
			}
		}
		return false
	case opIntersec:
		for i := range r.kids {
			if !r.kids[i].Drops(rank, ts, asOf) {
				return false
			}
		}
		return len(r.kids) > 0
	}
	return false
}

// ageFloor is asOf - age, stopping at the smallest int64. An age out of limits has a floor below every timestamp.
func ageFloor(asOf, age int64) int64 {
	if age <= 0 || asOf < math.MinInt64+age {
		return math.MinInt64
	}
	return asOf - age
}

// CountsVersions reports whether the rank of a version matters.
func (r Rule) CountsVersions() bool { return r.VersionsNeeded() > 0 }

// LooksAtAge reports whether time matters.
func (r Rule) LooksAtAge() bool {
	return r.op == opAge || slices.ContainsFunc(r.kids, Rule.LooksAtAge)
}

// VersionsNeeded is the most versions of a column, newest first, that Floor has to see: the largest n in the tree, or 0 if
// no part counts versions.
func (r Rule) VersionsNeeded() int {
	switch r.op {
	case opVersions:
		return int(min(max(r.n, 0), VersionsMax))
	case opUnion, opIntersec:
		most := 0
		for i := range r.kids {
			most = max(most, r.kids[i].VersionsNeeded())
		}
		return most
	}
	return 0
}

// Floor returns the timestamp below which r collects the versions of a column as of asOf; ok is false when it collects
// none. timestampsDesc holds the timestamps of the column's live versions, newest first, without repeats; the first
// VersionsNeeded of them are enough. A live version is dropped exactly when its timestamp is below the floor.
func (r Rule) Floor(timestampsDesc []int64, asOf int64) (floor int64, ok bool) {
	switch r.op {
	case opVersions:
		if r.n < 1 || int64(len(timestampsDesc)) < r.n {
			return 0, false
		}
		return timestampsDesc[r.n-1], true
	case opAge:
		return ageFloor(asOf, r.n), true
	}
	return r.fold(func(kid *Rule) (int64, bool) { return kid.Floor(timestampsDesc, asOf) })
}

// AgeFloor returns a timestamp below which every version is dropped as of asOf, whatever its rank; ok is false when there
// is none. What it drops needs no question to other sources.
func (r Rule) AgeFloor(asOf int64) (floor int64, ok bool) {
	switch r.op {
	case opVersions:
		return 0, false
	case opAge:
		return ageFloor(asOf, r.n), true
	}
	return r.fold(func(kid *Rule) (int64, bool) { return kid.AgeFloor(asOf) })
}

// fold joins the floors of a composite: the higher one of a union, the lower one of an intersection, and none if the
// intersection has a part without one.
func (r *Rule) fold(of func(*Rule) (int64, bool)) (floor int64, ok bool) {
	for i := range r.kids {
		f, has := of(&r.kids[i])
		switch {
		case r.op == opIntersec && !has:
			return 0, false
		case !has:
		case !ok:
			floor, ok = f, true
		case r.op == opUnion:
			floor = max(floor, f)
		default:
			floor = min(floor, f)
		}
	}
	return floor, ok
}

// Equal reports whether r and o are the same tree.
func (r Rule) Equal(o Rule) bool {
	if r.op != o.op || r.n != o.n || len(r.kids) != len(o.kids) {
		return false
	}
	for i := range r.kids {
		if !r.kids[i].Equal(o.kids[i]) {
			return false
		}
	}
	return true
}

// Tightens reports whether the structure of the two rules proves that r's floor is never below old's, for any versions and
// any time. false means only that it was not proven.
func (r Rule) Tightens(old Rule) bool { return tightens(&r, &old) }

func tightens(r, old *Rule) bool {
	if old.keepsAll() {
		return true
	}
	// A union floor is the highest of its parts and an intersection's the lowest, so these two splits lose nothing.
	if old.op == opUnion {
		return all(old.kids, func(k *Rule) bool { return tightens(r, k) })
	}
	if r.op == opIntersec {
		return len(r.kids) > 0 && all(r.kids, func(k *Rule) bool { return tightens(k, old) })
	}
	// These two are sufficient only.
	if r.op == opUnion && some(r.kids, func(k *Rule) bool { return tightens(k, old) }) {
		return true
	}
	if old.op == opIntersec && some(old.kids, func(k *Rule) bool { return tightens(r, k) }) {
		return true
	}
	return r.op == old.op && (r.op == opVersions || r.op == opAge) && 0 < r.n && r.n <= old.n
}

// keepsAll reports whether the structure shows that r never has a floor.
func (r *Rule) keepsAll() bool {
	switch r.op {
	case opNone:
		return true
	case opUnion:
		return all(r.kids, (*Rule).keepsAll)
	case opIntersec:
		return len(r.kids) == 0 || some(r.kids, (*Rule).keepsAll)
	}
	return false
}

func all(rs []Rule, f func(*Rule) bool) bool { return !some(rs, func(r *Rule) bool { return !f(r) }) }

func some(rs []Rule, f func(*Rule) bool) bool {
	for i := range rs {
		if f(&rs[i]) {
			return true
		}
	}
	return false
}

// Limits puts r as two numbers where that is possible: Drops(rank, ts, asOf) is then rank >= versions || ts < floor.
func (r Rule) Limits(asOf int64) (versions int, floor int64, ok bool) {
	versions, floor = math.MaxInt, math.MinInt64
	switch r.op {
	case opNone:
		return versions, floor, true
	case opVersions:
		if r.n > 0 && r.n <= VersionsMax {
			versions = int(r.n)
		}
		return versions, floor, r.n <= VersionsMax
	case opAge:
		return versions, ageFloor(asOf, r.n), true
	case opUnion:
		for i := range r.kids {
			v, f, ok := r.kids[i].Limits(asOf)
			if !ok {
				return 0, 0, false
			}
			versions, floor = min(versions, v), max(floor, f)
		}
		return versions, floor, true
	case opIntersec:
		switch len(r.kids) {
		case 0:
			return versions, floor, true
		case 1:
			return r.kids[0].Limits(asOf)
		}
	}
	return 0, 0, false
}
