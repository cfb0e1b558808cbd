package fuzz

import (
	"time"

	"github.com/rowandb/rowan/gc"
)

// Rule is a collection rule as the model understands it: a floor below which versions do not show. It shares no code with
// the store's. The zero Rule keeps everything; of the fields one is set.
type Rule struct {
	Versions int
	Age      int64 // microseconds
	Any, All []Rule
}

// floor returns the timestamp below which versions are collected; ts are the live versions, newest first.
func (r Rule) floor(ts []int64, now int64) (floor int64, ok bool) {
	switch {
	case r.Versions > 0:
		if len(ts) < r.Versions {
			return 0, false
		}
		return ts[r.Versions-1], true
	case r.Age > 0:
		return now - r.Age, true
	}
	for _, part := range append(append([]Rule(nil), r.Any...), r.All...) {
		f, has := part.floor(ts, now)
		switch {
		case len(r.All) > 0 && !has:
			return 0, false
		case !has:
		case !ok || len(r.Any) > 0 && f > floor || len(r.All) > 0 && f < floor:
			floor, ok = f, true
		}
	}
	return floor, ok
}

// Policy is the same rule for the store.
func (r Rule) Policy() gc.Rule {
	var parts []gc.Rule
	for _, p := range append(append([]Rule(nil), r.Any...), r.All...) {
		parts = append(parts, p.Policy())
	}
	switch {
	case r.Versions > 0:
		return gc.MaxVersionsPolicy(r.Versions)
	case r.Age > 0:
		return gc.MaxAgePolicy(time.Duration(r.Age) * time.Microsecond)
	case len(r.Any) > 0:
		return gc.UnionPolicy(parts...)
	case len(r.All) > 0:
		return gc.IntersectionPolicy(parts...)
	}
	return gc.NoPolicy()
}
