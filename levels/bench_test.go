package levels

import "testing"

// BenchmarkPick chooses among a thousand files; BenchmarkApply makes the version after an edit of them.
func benchVersion(b *testing.B) *Version {
	v := NewVersion(nil)
	e := &Edit{Num: 1, PutTables: []*Table{{ID: 1, Name: "t", Groups: []Group{{Tree: 1}}}}}
	for i := range 1000 {
		f := &File{Num: Num(i) + 1, Size: 64 << 20, FirstSeq: 1, LastSeq: 1}
		f.Bounds.LoRow, f.Bounds.HiRow = key(i%900*10), key(i%900*10+9)
		e.Added = append(e.Added, AddedFile{1, 6 - i/900, f})
	}
	n, err := v.Apply(e)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func BenchmarkPick(b *testing.B) {
	v := benchVersion(b)
	o := PickOptions{L0Files: 4, LevelBytes: 256 << 20, FileBytes: 64 << 20, Factor: 100}
	for b.Loop() {
		if _, ok := Pick(v.Trees[1], o, new(Busy)); !ok {
			b.Fatal("nothing is due")
		}
	}
}

func BenchmarkApply(b *testing.B) {
	v := benchVersion(b)
	for b.Loop() {
		f := &File{Num: 5000, Size: 1, FirstSeq: 2, LastSeq: 2}
		f.Bounds.LoRow, f.Bounds.HiRow = key(0), key(1)
		n, err := v.Apply(&Edit{Num: 2, Added: []AddedFile{{1, 0, f}}})
		if err != nil {
			b.Fatal(err)
		}
		n.Unref()
	}
}
