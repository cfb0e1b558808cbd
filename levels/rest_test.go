package levels

import "testing"

// A store that rests merges until its reads have few files to look into, and comes to an end. Written in bursts with rests between
// them it writes little more than one that is never at rest: what comes down at rest drags no more along than what is due.
func TestMergesAtRest(t *testing.T) {
	runs := func(tree *Tree) (n int) {
		n = len(tree.Sub)
		for _, files := range tree.Files[1:] {
			if len(files) > 0 {
				n++
			}
		}
		return n
	}
	var written, runsAt [2]int64
	merges := 0
	for seed := uint64(0); seed < 40; seed++ {
		for i, rests := range []bool{false, true} {
			s := newSim(t, seed)
			s.o.Factor, s.o.L0Files = 10, 4 // those of an engine
			for range 60 {
				s.flush()
				for n := 0; ; n++ {
					s.o.Rest = rests
					p, ok := Pick(s.tree(), s.o, &s.busy)
					if !ok {
						break
					}
					if n > 500 {
						t.Fatalf("seed %d: picking never comes to rest: %v", seed, s.log[len(s.log)-20:])
					}
					if !p.Move {
						written[i] += p.Bytes()
					}
					s.o.Rest = false
					if _, due := Pick(s.tree(), s.o, &s.busy); !due {
						merges++
					}
					s.tightRun(p)
				}
				runsAt[i] += int64(runs(s.tree()))
			}
			if Debt(s.tree(), s.o) > 0 {
				t.Errorf("seed %d: debt is left at rest", seed)
			}
		}
	}
	if merges < 500 || runsAt[1]*10 > runsAt[0]*7 {
		t.Errorf("%d merges at rest; files for a read: %d without and %d with them", merges, runsAt[0], runsAt[1])
	}
	if written[1] > written[0]*2 { // one rest after each flush is the worst case
		t.Errorf("%d bytes written without rests, %d with one after each flush", written[0], written[1])
	}
	t.Logf("%d merges at rest; files for a read: %d without and %d with them; bytes written: %d and %d", merges, runsAt[0], runsAt[1], written[0], written[1])
}
