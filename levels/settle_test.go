package levels

import (
	"testing"

	"github.com/rowandb/rowan/cell"
)

// settles checks that a plan mixes nothing that it must not, and returns what its output will have gone through.
func (s *sim) settles(p *Plan) uint64 {
	s.t.Helper()
	if len(s.o.Changes) == 0 || p.Move {
		return 0
	}
	n, ok := s.o.Changes.Fit(s.tree(), p, s.o.OldestMem)
	if !ok {
		s.t.Fatalf("a plan that must not run is picked: %+v after %v", p, s.log)
	}
	settled := uint64(0)
	for i, c := range s.o.Changes {
		behind, other := 0, false
		for _, in := range p.Inputs {
			if c.Behind(in.File) {
				behind++
			}
			for _, level := range s.tree().Files {
				for _, f := range level {
					other = other || c.Behind(f) && !p.Has(f.Num) && f.Bounds.Overlaps(in.File.Bounds)
				}
			}
		}
		if c.Kind == ChangeRule && behind > 0 && other && (behind < len(p.Inputs) || i < n) {
			s.t.Fatalf("%d of %d inputs are behind change %d, and so is a file outside: %+v after %v", behind, len(p.Inputs), c.Num, p, s.log)
		}
		if i < n {
			settled = c.Num
		}
	}
	return settled
}

// With changes standing, jobs never mix what is behind a change of a rule with what is not unless all that is behind there is
// among them; and work comes to rest with nothing behind.
func TestPicksSettleStandingChanges(t *testing.T) {
	settled, changes := 0, 0
	for seed := uint64(0); seed < 120; seed++ {
		s := newSim(t, seed)
		s.o.OldestMem = NoMem
		for step := 0; step < 120; step++ {
			switch r := s.rng.IntN(20); {
			case r < 6:
				s.flush()
			case r < 12 && len(s.running) < 3:
				if p, ok := Pick(s.tree(), s.o, &s.busy); ok {
					if p.Why == "settle" {
						settled++
					}
					s.start(p)
				}
			case r == 12 && len(s.o.Changes) < 3:
				changes++
				c := &Change{Num: uint64(changes), Kind: ChangeRule, Seq: s.seq}
				if s.rng.IntN(3) == 0 {
					lo := s.rng.IntN(900)
					c.Kind, c.Lo, c.Hi = ChangeRows, key(lo), key(lo+1+s.rng.IntN(100))
				}
				s.o.Changes = append(s.o.Changes, c)
			case len(s.running) > 0:
				s.end(s.rng.IntN(len(s.running)))
			}
		}
		for len(s.running) > 0 {
			s.end(0)
		}
		for n := 0; ; n++ {
			p, ok := Pick(s.tree(), s.o, &s.busy)
			if !ok {
				break
			}
			if n > 500 {
				t.Fatalf("seed %d: picking never comes to rest: %v", seed, s.log[len(s.log)-20:])
			}
			s.start(p)
			s.end(0)
		}
		if files, bytes := s.o.Changes.Left(s.tree()); files > 0 || bytes > 0 {
			t.Fatalf("seed %d: %d files are behind at rest", seed, files)
		}
		for _, c := range s.o.Changes {
			if !c.Forgettable(s.tree()) {
				t.Fatalf("seed %d: change %d cannot be forgotten", seed, c.Num)
			}
		}
	}
	if settled < 200 || changes < 100 {
		t.Fatalf("too little was tried: %d jobs, %d changes", settled, changes)
	}
}

// A file behind an alteration that dropped one family and changed the rule of another must not be rewritten for the sake of the
// drop alone: its number would still say that it is behind, and it would be picked again for ever.
func TestAlterationIsGoneThroughAsAWhole(t *testing.T) {
	file := func(num Num, level string) *File {
		return &File{Num: num, Size: 100, FirstSeq: 1, LastSeq: 5, Bounds: cell.Bounds{LoRow: []byte("a"), HiRow: []byte(level)}}
	}
	tree := &Tree{ID: 1}
	young, old := file(2, "m"), file(1, "z")
	tree.Files[0], tree.Files[6] = []*File{young}, []*File{old}
	tree.Sub = sublevels(tree.Files[0])
	s := Standing{{Num: 3, Kind: ChangeLife, Seq: 9, Life: 1}, {Num: 3, Kind: ChangeRule, Seq: 9, Life: 2}}
	alone := &Plan{Tree: 1, Output: 0, Inputs: []Input{{0, young}}}
	if n, ok := s.Fit(tree, alone, NoMem); !ok || n != 0 {
		t.Fatalf("one of two files that overlap goes through %d changes, %v", n, ok)
	}
	both := &Plan{Tree: 1, Output: 6, Inputs: []Input{{0, young}, {6, old}}}
	if n, ok := s.Fit(tree, both, NoMem); !ok || n != 2 {
		t.Fatalf("both files go through %d changes, %v", n, ok)
	}
	p, ok := Pick(tree, PickOptions{L0Files: 4, LevelBytes: 1 << 20, FileBytes: 1 << 20, Changes: s, OldestMem: NoMem}, &Busy{})
	if !ok || len(p.Inputs) != 2 {
		t.Fatalf("picked %+v, %v", p, ok)
	}
}

func TestChangesForPeople(t *testing.T) {
	for want, c := range map[string]Change{
		`change 1 at sequence 9: rows from "a" to "b" were dropped`:    {Num: 1, Kind: ChangeRows, Seq: 9, Lo: []byte("a"), Hi: []byte("b")},
		`change 2 at sequence 9: rows from "" on were dropped`:         {Num: 2, Kind: ChangeRows, Seq: 9},
		`change 3 at sequence 9: life 4 followed none until time 1000`: {Num: 3, Kind: ChangeRule, Seq: 9, Life: 4, Time: 1000},
		`change 4 at sequence 9: life 4 was dropped`:                   {Num: 4, Kind: ChangeLife, Seq: 9, Life: 4},
	} {
		if got := c.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
