package levels

import (
	"bytes"
	"testing"
)

// tightRun ends a plan as an engine does: one that splits is cut along what lies below.
func (s *sim) tightRun(p Plan) {
	if p.Split {
		rows := CutRows(s.tree(), s.o, p.Output, p.Bounds())
		s.cut = func(k int) (passed bool) {
			for ; len(rows) > 0 && bytes.Compare(rows[0], key(k)) <= 0; rows = rows[1:] {
				passed = true
			}
			return passed
		}
	}
	s.start(p)
	s.end(len(s.running) - 1)
	s.cut = nil
}

// While space is short only plans are picked that fit; what does not is told; looking for space comes to an end, and with little
// more room than the largest file takes it brings everything down.
func TestPicksFitIntoWhatIsFree(t *testing.T) {
	splits, told, down := 0, 0, 0
	for seed := uint64(0); seed < 30; seed++ {
		s := newSim(t, seed)
		for range 30 {
			s.flush()
		}
		for range 200 {
			if p, ok := Pick(s.tree(), s.o, &s.busy); ok {
				s.tightRun(p)
			}
		}
		for range 3 {
			s.flush()
		}
		s.o.Hungry = true
		for _, most := range []int64{1, 40, 150, 100_000} {
			s.o.MaxBytes = most
			s.o.TooBig = func(n int64) {
				told++
				if n <= most {
					t.Fatalf("seed %d: a plan of %d bytes is called too big for %d", seed, n, most)
				}
			}
			for n := 0; ; n++ {
				p, ok := Pick(s.tree(), s.o, &s.busy)
				if !ok {
					break
				}
				if !p.Move && p.Bytes() > most {
					t.Fatalf("seed %d: a plan of %d bytes with room for %d: %s", seed, p.Bytes(), most, p.Why)
				}
				if p.Split {
					splits++
				}
				if n > 1000 {
					t.Fatalf("seed %d, room for %d: picking never comes to rest: %v", seed, most, s.log[len(s.log)-20:])
				}
				s.tightRun(p)
			}
		}
		if len(s.tree().Files[0]) == 0 {
			down++
		}
	}
	if splits < 5 || told < 50 || down != 30 {
		t.Errorf("%d splits, %d plans were too big, L0 was emptied %d times of 30", splits, told, down)
	}
}

// Files that are set aside are in no plan, whatever is picked around them; the sublevels of L0 stay few though the same keys are
// written again and again over one of them.
func TestPicksGoAroundFilesSetAside(t *testing.T) {
	most := 0
	for seed := uint64(0); seed < 12; seed++ {
		s := newSim(t, seed)
		for range 20 {
			s.flush()
		}
		for range 200 {
			if p, ok := Pick(s.tree(), s.o, &s.busy); ok {
				s.tightRun(p)
			}
		}
		var aside Num
		for _, files := range s.tree().Files {
			if len(files) > 0 {
				aside = files[s.rng.IntN(len(files))].Num
			}
		}
		s.busy.SetAside(aside)
		for range 150 {
			s.flush()
			for n := 0; ; n++ {
				p, ok := Pick(s.tree(), s.o, &s.busy)
				if !ok {
					break
				}
				if p.Has(aside) {
					t.Fatalf("seed %d: a plan takes the file that is set aside: %+v", seed, p)
				}
				if n > 200 {
					t.Fatalf("seed %d: picking never comes to rest: %v", seed, s.log[len(s.log)-20:])
				}
				s.tightRun(p)
			}
			if n := len(s.tree().Sub); n > 2*s.o.L0Files+12 {
				t.Fatalf("seed %d: %d sublevels: %v", seed, n, s.log[len(s.log)-20:])
			}
			most = max(most, len(s.tree().Sub)-2*s.o.L0Files)
		}
		s.busy.Return(aside)
		for range 500 {
			if p, ok := Pick(s.tree(), s.o, &s.busy); ok {
				s.tightRun(p)
			}
		}
		if Debt(s.tree(), s.o) > 0 {
			t.Errorf("seed %d: debt stays when the file is back", seed)
		}
	}
	t.Logf("at most %d sublevels more than twice those of a merge", most)
}
