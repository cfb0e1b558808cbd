package levels

import (
	"testing"

	"github.com/rowandb/rowan/cell"
)

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
