package gc

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// smallRules returns every tree over a few leaves: leaves, and composites of up to two parts, two levels deep.
func smallRules() []Rule {
	leaves := []Rule{NoPolicy(), MaxVersionsPolicy(1), MaxVersionsPolicy(2), MaxVersionsPolicy(3),
		MaxAgePolicy(time.Millisecond), MaxAgePolicy(3 * time.Millisecond)}
	one := append([]Rule{UnionPolicy(), IntersectionPolicy()}, leaves...)
	for _, a := range leaves {
		for _, b := range leaves {
			one = append(one, UnionPolicy(a, b), IntersectionPolicy(a, b))
		}
	}
	out := append([]Rule(nil), one...)
	for _, a := range one {
		out = append(out, UnionPolicy(a), IntersectionPolicy(a))
		for _, b := range one {
			out = append(out, UnionPolicy(a, b), IntersectionPolicy(a, b))
		}
	}
	return out
}

// timelines returns every subset of a few timestamps, newest first.
func timelines() [][]int64 {
	stamps := []int64{6000, 5000, 3000, 1000, 0}
	var out [][]int64
	for m := 0; m < 1<<len(stamps); m++ {
		var ts []int64
		for i, t := range stamps {
			if m>>i&1 != 0 {
				ts = append(ts, t)
			}
		}
		out = append(out, ts)
	}
	return out
}

func TestDropsFloorAndAgeFloorAgreeOnEverySmallTree(t *testing.T) {
	asOfs := []int64{0, 1000, 4000, 6000, 6001, 9000, math.MinInt64, math.MaxInt64}
	lines := timelines()
	for _, r := range smallRules() {
		need := r.VersionsNeeded()
		if r.CountsVersions() != (need > 0) {
			t.Fatalf("%v: CountsVersions and VersionsNeeded disagree", r)
		}
		for _, ts := range lines {
			for _, asOf := range asOfs {
				floor, ok := r.Floor(ts, asOf)
				if f2, ok2 := r.Floor(ts[:min(need, len(ts))], asOf); f2 != floor || ok2 != ok {
					t.Fatalf("%v %v as of %d: floor %d %v, of the needed versions %d %v", r, ts, asOf, floor, ok, f2, ok2)
				}
				ageFloor, ageOK := r.AgeFloor(asOf)
				before := false
				for rank, v := range ts {
					drops := r.Drops(rank, v, asOf)
					if drops != (ok && v < floor) {
						t.Fatalf("%v %v as of %d: drops(%d, %d) = %v, floor %d %v", r, ts, asOf, rank, v, drops, floor, ok)
					}
					if before && !drops {
						t.Fatalf("%v %v as of %d: not monotone at rank %d", r, ts, asOf, rank)
					}
					if ageOK && v < ageFloor && !r.Drops(0, v, asOf) {
						t.Fatalf("%v as of %d: age floor %d but newest version %d stays", r, asOf, ageFloor, v)
					}
					if !r.CountsVersions() && drops != (ageOK && v < ageFloor) {
						t.Fatalf("%v as of %d: a rule without ranks is its age floor", r, asOf)
					}
					before = drops
				}
			}
		}
	}
}

func TestTighteningNeverLowersAFloor(t *testing.T) {
	leaves := []Rule{NoPolicy(), MaxVersionsPolicy(1), MaxVersionsPolicy(2), MaxAgePolicy(time.Millisecond), MaxAgePolicy(3 * time.Millisecond)}
	rules := append([]Rule{UnionPolicy(), IntersectionPolicy()}, leaves...)
	for _, a := range leaves {
		for _, b := range leaves {
			u, x := UnionPolicy(a, b), IntersectionPolicy(a, b)
			rules = append(rules, u, x, UnionPolicy(x, MaxVersionsPolicy(1)), IntersectionPolicy(u, MaxAgePolicy(time.Millisecond)))
		}
	}
	lines := timelines()
	proven := 0
	for _, r := range rules {
		if !r.Tightens(r) || !r.Tightens(NoPolicy()) {
			t.Fatalf("%v does not tighten itself or nothing", r)
		}
		for _, old := range rules {
			if !r.Tightens(old) {
				continue
			}
			proven++
			for _, ts := range lines {
				for _, asOf := range []int64{1000, 4000, 6001, 9000} {
					was, had := old.Floor(ts, asOf)
					if is, has := r.Floor(ts, asOf); had && (!has || is < was) {
						t.Fatalf("%v after %v, %v as of %d: floor %d %v, was %d", r, old, ts, asOf, is, has, was)
					}
				}
			}
		}
	}
	if proven < len(rules)*5 {
		t.Fatalf("only %d of %d pairs proven: the rule proves too little", proven, len(rules)*len(rules))
	}
}

func TestTightensByStructure(t *testing.T) {
	for _, c := range []struct {
		new, old string
		want     bool
	}{
		{"versions(2)", "versions(3)", true},
		{"versions(3)", "versions(2)", false},
		{"age(1h)", "age(2h)", true},
		{"age(2h)", "age(1h)", false},
		{"versions(1)", "age(1h)", false},
		{"none", "versions(1)", false},
		{"none", "union()", true},
		{"intersection()", "age(1h)", false},
		{"versions(2)|age(1h)", "versions(2)", true},
		{"versions(2)", "versions(2)|age(1h)", false},
		{"versions(2)", "versions(2)&age(1h)", true},
		{"versions(2)&age(1h)", "versions(2)", false},
		{"versions(2)&age(1h)", "versions(3)&age(1h)", true},
		{"versions(2)|age(1h)", "age(2h)|versions(2)", true},
		{"versions(1)&age(1m)|age(1h)", "versions(2)&age(2m)|age(2h)", true},
		{"versions(1)", "none&versions(1)", true},
	} {
		if got := mustParse(t, c.new).Tightens(mustParse(t, c.old)); got != c.want {
			t.Errorf("%s after %s: %v, want %v", c.new, c.old, got, c.want)
		}
	}
}

func TestValidateNamesThePlace(t *testing.T) {
	deep := MaxVersionsPolicy(1)
	for range DepthMax {
		deep = UnionPolicy(deep)
	}
	for _, c := range []struct {
		r    Rule
		want string // "" = valid
	}{
		{Rule{}, ""},
		{MaxVersionsPolicy(1), ""},
		{MaxVersionsPolicy(0), "versions(0)"},
		{MaxVersionsPolicy(-1), "versions(-1)"},
		{MaxAgePolicy(time.Millisecond), ""},
		{MaxAgePolicy(time.Millisecond - 1), ""}, // rounded up to a whole microsecond
		{MaxAgePolicy(time.Millisecond - 1000), "age of 999 us"},
		{MaxAgePolicy(math.MaxInt64), ""},
		{MaxAgePolicy(-time.Hour), "age of"},
		{UnionPolicy(), ""},
		{UnionPolicy(MaxVersionsPolicy(1), MaxVersionsPolicy(0), Rule{}), "union: rule 2 of 3: "},
		{UnionPolicy(IntersectionPolicy(MaxAgePolicy(0))), "union: rule 1 of 1: intersection: rule 1 of 1: "},
		{deep, "nested more than 8 deep"},
		{UnionPolicy(make([]Rule, NodesMax-1)...), ""},
		{UnionPolicy(make([]Rule, NodesMax)...), "more than 64 parts"},
	} {
		err := c.r.Validate()
		if c.want == "" {
			if err != nil {
				t.Errorf("%v: %v", c.r, err)
			}
			continue
		}
		if !errors.Is(err, ErrRule) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.r, err, c.want)
		}
	}
}

func TestRulesOutOfLimitsCollectNothing(t *testing.T) {
	for _, r := range []Rule{MaxVersionsPolicy(0), MaxVersionsPolicy(-3), MaxAgePolicy(0), MaxAgePolicy(-time.Hour)} {
		if r.Drops(100, 0, math.MaxInt64) {
			t.Errorf("%v drops", r)
		}
	}
}

func TestPoliciesCopyTheirArguments(t *testing.T) {
	parts := []Rule{MaxVersionsPolicy(1)}
	r := UnionPolicy(parts...)
	parts[0] = MaxVersionsPolicy(9)
	if got := r.String(); got != "union(versions(1))" {
		t.Fatal(got)
	}
}

func mustParse(t testing.TB, s string) Rule {
	t.Helper()
	r, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func BenchmarkDrops(b *testing.B) {
	for _, s := range []string{"versions(2)", "age(30m)", "versions(2) | age(30m)", "(versions(2) & age(1h)) | age(720h)"} {
		r := mustParse(b, s)
		b.Run(strings.ReplaceAll(s, " ", ""), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for i := 0; b.Loop(); i++ {
				if r.Drops(i&3, int64(i), 1<<40) {
					n++
				}
			}
			_ = n
		})
	}
}

func TestDropsDoesNotAllocate(t *testing.T) {
	r := mustParse(t, "(versions(2) & age(1h)) | age(720h)")
	ts := []int64{5, 4, 3}
	if n := testing.AllocsPerRun(100, func() { r.Drops(1, 5, 1<<50); r.Floor(ts, 1<<50); r.AgeFloor(9) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestLimitsSayWhatDropsDoes(t *testing.T) {
	put := 0
	for _, r := range append(smallRules(), Rule{op: opVersions}, Rule{op: opVersions, n: -1}, Rule{op: opAge, n: -5}) {
		for _, asOf := range []int64{0, 1000, 4000, 6001, math.MinInt64, math.MaxInt64} {
			versions, floor, ok := r.Limits(asOf)
			if !ok {
				continue
			}
			put++
			for rank := range 5 {
				for _, ts := range []int64{0, 999, 1000, 1001, 3000, 5000, 6000, math.MaxInt64} {
					if got, want := rank >= versions || ts < floor, r.Drops(rank, ts, asOf); got != want {
						t.Fatalf("%v as of %d: limits %d and %d drop version %d at %d: %v, want %v", r, asOf, versions, floor, rank, ts, got, want)
					}
				}
			}
		}
	}
	if put < 1000 {
		t.Fatalf("only %d rules have limits", put)
	}
}
