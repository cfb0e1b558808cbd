package levels

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// sim is a tree whose files are imagined: contents maps file to key to version. Jobs run side by side and end in any order.
type sim struct {
	t        *testing.T
	rng      *rand.Rand
	v        *Version
	contents map[Num]map[int]int
	busy     Busy
	running  []Plan
	settled  []uint64 // of the running jobs' outputs
	want     map[int]int
	seq      uint64
	next     Num
	o        PickOptions
	log      []string
	cut      func(k int) bool // a new file begins before key k
}

func key(k int) []byte { return fmt.Appendf(nil, "%04d", k) }

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{t: t, rng: rand.New(rand.NewPCG(seed, seed)), contents: map[Num]map[int]int{}, want: map[int]int{}, next: 1,
		o: PickOptions{L0Files: 2 + int(seed%3), LevelBytes: 200, FileBytes: 60, Factor: 2 + int(seed%4)}}
	v := NewVersion(nil)
	v.OpenCount = 1
	n, err := v.Apply(&Edit{Num: 1, PutTables: []*Table{{ID: 1, Name: "t", Groups: []Group{{Tree: 1}}}}})
	if err != nil {
		t.Fatal(err)
	}
	s.v = n
	return s
}

func (s *sim) tree() *Tree { return s.v.Trees[1] }

func (s *sim) install(e *Edit) {
	s.t.Helper()
	e.Num = s.v.EditNum + 1
	if d, err := DecodeEdit(e.Append(nil)); err != nil || len(d.Added) != len(e.Added) {
		s.t.Fatalf("edit does not survive its encoding: %v", err)
	}
	n, err := s.v.Apply(e)
	if err == nil {
		err = Check(s.v.Trees[1], n.Trees[1], e)
	}
	if err != nil {
		s.t.Fatalf("%v\nafter %v", err, s.log)
	}
	s.v.Unref()
	s.v = n
	s.verify()
}

// files cuts keys into files of FileBytes, one byte a key.
func (s *sim) files(c map[int]int, first, last uint64) (out []*File) {
	var f *File
	for k := 0; k < 1000; k++ {
		v, ok := c[k]
		if !ok {
			continue
		}
		if f == nil || f.Size >= s.o.FileBytes || s.cut != nil && s.cut(k) {
			f = &File{Num: s.next, ID: s.next, Bounds: cell.Bounds{LoRow: key(k)}, FirstSeq: first, LastSeq: last}
			s.contents[f.Num] = map[int]int{}
			s.next++
			out = append(out, f)
		}
		f.Bounds.HiRow = key(k)
		f.Size++
		s.contents[f.Num][k] = v
	}
	return out
}

func (s *sim) flush() {
	c := map[int]int{}
	first := s.seq + 1
	at, width := s.rng.IntN(1000), 1+s.rng.IntN(400)
	for i := 0; i < 5+s.rng.IntN(60); i++ {
		k := min(at+s.rng.IntN(width), 999)
		s.seq++
		c[k] = int(s.seq)
		s.want[k] = int(s.seq)
	}
	e := &Edit{Flushed: []Flushed{{1, s.seq}}}
	for _, f := range s.files(c, first, s.seq) {
		e.Added = append(e.Added, AddedFile{1, 0, f})
	}
	s.log = append(s.log, fmt.Sprintf("flush %d", len(c)))
	s.install(e)
}

func (s *sim) start(p Plan) {
	if len(p.Inputs) == 0 {
		return
	}
	s.log = append(s.log, fmt.Sprintf("start %s %d->%d", p.Why, len(p.Inputs), p.Output))
	s.busy.Add(&p)
	s.running = append(s.running, p)
	s.settled = append(s.settled, s.settles(&p))
}

func (s *sim) end(i int) {
	p := s.running[i]
	settled := s.settled[i]
	s.running = append(s.running[:i], s.running[i+1:]...)
	s.settled = append(s.settled[:i], s.settled[i+1:]...)
	e := &Edit{}
	c := map[int]int{}
	first, last := p.Inputs[0].File.FirstSeq, uint64(0)
	for j := len(p.Inputs) - 1; j >= 0; j-- { // oldest first, newer ones overwrite
		in := p.Inputs[j]
		e.Deleted = append(e.Deleted, DeletedFile{1, in.Level, in.File.Num})
		first, last = min(first, in.File.FirstSeq), max(last, in.File.LastSeq)
		for k, v := range s.contents[in.File.Num] {
			c[k] = v
		}
	}
	s.log = append(s.log, fmt.Sprintf("end %s->%d", p.Why, p.Output))
	if p.Move {
		e.Added = append(e.Added, AddedFile{1, p.Output, p.Inputs[0].File})
	} else {
		for _, f := range s.files(c, first, last) {
			f.Settled = settled
			e.Added = append(e.Added, AddedFile{1, p.Output, f})
		}
	}
	s.install(e)
	s.busy.Remove(&p)
}

// verify reads every key from the newest source that has it.
func (s *sim) verify() {
	s.t.Helper()
	t := s.tree()
	var runs [][]*File
	for i := len(t.Sub) - 1; i >= 0; i-- {
		runs = append(runs, t.Sub[i])
	}
	runs = append(runs, t.Files[1:]...)
	for k, want := range s.want {
		got := 0
		for _, run := range runs {
			for _, f := range run {
				if v, ok := s.contents[f.Num][k]; ok && got == 0 {
					got = v
				}
			}
		}
		if got != want {
			s.t.Fatalf("key %d reads %d, want %d, after %v", k, got, want, s.log)
		}
	}
}

// Whatever is picked and in whatever order jobs end, every key reads its newest version; at rest nothing is owed.
func TestPicksKeepNewerDataInFront(t *testing.T) {
	jobs, moves, inside, manual := 0, 0, 0, 0
	for seed := uint64(0); seed < 80; seed++ {
		s := newSim(t, seed)
		for step := 0; step < 150; step++ {
			switch r := s.rng.IntN(10); {
			case r < 3:
				s.flush()
			case r < 6 && len(s.running) < 4:
				if p, ok := Pick(s.tree(), s.o, &s.busy); ok {
					jobs++
					if p.Move {
						moves++
					}
					if p.Output == 0 {
						inside++
					}
					s.start(p)
				}
			case r == 6 && step%10 == 0:
				lo := s.rng.IntN(900)
				b := &cell.Bounds{LoRow: key(lo), HiRow: key(lo + s.rng.IntN(100))}
				if s.rng.IntN(4) == 0 {
					b = nil
				}
				if p, ok := PlanRange(s.tree(), &s.busy, b, s.o.Changes, func(f *File) bool { return f.Num%2 == 0 && !f.HasDeletes() }); ok {
					manual++
					s.start(p)
				}
			case len(s.running) > 0:
				s.end(s.rng.IntN(len(s.running)))
			}
		}
		for len(s.running) > 0 {
			s.end(0)
		}
		for n := 0; ; n++ {
			p, ok := Pick(s.tree(), s.o, &s.busy)
			if debt := Debt(s.tree(), s.o); ok != (debt > 0) {
				t.Fatalf("seed %d: a job is due: %v, debt %d", seed, ok, debt)
			}
			if !ok {
				break
			}
			if n > 500 {
				t.Fatalf("seed %d: picking never comes to rest: %v", seed, s.log[len(s.log)-20:])
			}
			s.start(p)
			s.end(0)
		}
	}
	if jobs < 1000 || moves < 20 || inside < 5 || manual < 50 {
		t.Fatalf("too little was tried: %d jobs, %d moves, %d inside L0, %d manual", jobs, moves, inside, manual)
	}
}

// Each rule of Check, broken once.
func TestCheckRefusesEditsOutOfOrder(t *testing.T) {
	file := func(num Num, lo, hi string, first, last uint64) *File {
		return &File{Num: num, Bounds: cell.Bounds{LoRow: []byte(lo), HiRow: []byte(hi)}, FirstSeq: first, LastSeq: last}
	}
	old := &Tree{ID: 1}
	old.Files[0] = []*File{file(1, "a", "m", 1, 10), file(2, "k", "z", 11, 20), file(3, "a", "c", 21, 30)}
	old.Files[2] = []*File{file(4, "a", "f", 1, 5), file(5, "g", "p", 1, 5)}
	del := func(level int, nums ...Num) (out []DeletedFile) {
		for _, n := range nums {
			out = append(out, DeletedFile{1, level, n})
		}
		return out
	}
	for _, c := range []struct {
		name string
		e    Edit
		ok   bool
	}{
		{"flush on top", Edit{Added: []AddedFile{{1, 0, file(9, "a", "b", 31, 40)}}}, true},
		{"flush behind", Edit{Added: []AddedFile{{1, 0, file(9, "a", "b", 25, 40)}}}, false},
		{"flush below L0", Edit{Added: []AddedFile{{1, 1, file(9, "q", "r", 31, 40)}}}, false},
		{"oldest goes alone", Edit{Deleted: append(del(0, 1), del(2, 4, 5)...), Added: []AddedFile{{1, 2, file(9, "a", "p", 1, 10)}}}, true},
		{"younger leaves before older", Edit{Deleted: append(del(0, 2), del(2, 5)...), Added: []AddedFile{{1, 2, file(9, "g", "z", 1, 20)}}}, false},
		{"past older data", Edit{Deleted: del(0, 1), Added: []AddedFile{{1, 3, file(9, "a", "m", 1, 10)}}}, false},
		{"into older data", Edit{Deleted: append(del(0, 1), del(2, 4)...), Added: []AddedFile{{1, 2, file(9, "a", "m", 1, 10)}}}, false},
		{"rises", Edit{Deleted: del(2, 4), Added: []AddedFile{{1, 1, file(9, "a", "f", 1, 5)}}}, false},
		{"reaches beyond", Edit{Deleted: del(2, 5), Added: []AddedFile{{1, 3, file(9, "g", "q", 1, 5)}}}, false},
		{"inside L0 around one", Edit{Deleted: del(0, 1, 3), Added: []AddedFile{{1, 0, file(9, "a", "m", 1, 30)}}}, false},
		{"inside L0", Edit{Deleted: del(0, 1, 2, 3), Added: []AddedFile{{1, 0, file(9, "a", "z", 1, 30)}}}, true},
		{"two levels", Edit{Deleted: del(2, 4), Added: []AddedFile{{1, 2, file(9, "a", "b", 1, 5)}, {1, 3, file(8, "c", "f", 1, 5)}}}, false},
	} {
		if err := Check(old, old, &c.e); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
