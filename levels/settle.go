package levels

import (
	"bytes"
	"math"
	"slices"

	"github.com/rowandb/rowan/cell"
)

// NoMem is PickOptions.OldestMem when no memtable holds anything.
const NoMem = math.MaxUint64

// Fit says what a merge of a plan's inputs does about standing changes of its tree. After it the output has gone through the
// first n of s. ok is false when the merge would mix what is behind a change of a rule with what is not, without having all
// that is behind there: then it may not run.
//
// oldestMem is the lowest sequence in any sealed memtable of the tree, NoMem if there is none.
func (s Standing) Fit(t *Tree, p *Plan, oldestMem uint64) (n int, ok bool) {
	open := false
	for i, c := range s {
		if c.Kind == ChangeRule {
			behind := 0
			for _, in := range p.Inputs {
				if c.Behind(in.File) {
					behind++
				}
			}
			switch {
			case behind == 0 || oldestMem > c.Seq && c.closed(t, p):
			case behind < len(p.Inputs):
				return 0, false
			default:
				open = true
			}
		}
		if !open {
			n = i + 1
		}
	}
	// A file says by one number how far it has come: what was changed at once is gone through at once.
	for n > 0 && n < len(s) && s[n-1].Num == s[n].Num {
		n--
	}
	return n, true
}

// closed reports whether no file outside of the plan that is behind c overlaps an input.
func (c *Change) closed(t *Tree, p *Plan) bool {
	for _, in := range p.Inputs {
		if c.other(t, in.File.Bounds, p.Has) {
			return false
		}
	}
	return true
}

// other reports whether a file that is behind c overlaps b, those left out that skip names.
func (c *Change) other(t *Tree, b cell.Bounds, skip func(Num) bool) bool {
	hit := func(run []*File) bool {
		return slices.ContainsFunc(Overlapping(run, b), func(f *File) bool { return c.Behind(f) && !skip(f.Num) })
	}
	return slices.ContainsFunc(t.Sub, hit) || slices.ContainsFunc(t.Files[1:], hit)
}

// Forgettable reports whether no file of the tree is behind the change.
func (c *Change) Forgettable(t *Tree) bool {
	for _, files := range t.Files {
		if slices.ContainsFunc(files, c.Behind) {
			return false
		}
	}
	return true
}

// Left counts the files of the tree that are behind one of the changes, and their bytes.
func (s Standing) Left(t *Tree) (files int, bytes int64) {
	if len(s) == 0 {
		return 0, 0
	}
	for _, level := range t.Files {
		for _, f := range level {
			if s.behind(f) != 0 {
				files++
				bytes += f.Size
			}
		}
	}
	return files, bytes
}

// pickSettle takes a file that is behind a change through it, alone and in its place if that is possible. Where others are behind
// a change of a rule there too, it first brings them down to one level, in steps like those of any compaction; only where that
// cannot be are all of them merged at once.
func pickSettle(t *Tree, o PickOptions, b *Busy, base int) (Plan, bool) {
	if len(o.Changes) == 0 {
		return Plan{}, false
	}
	each := func(pick func(l int, f *File, num uint64) (Plan, bool)) (Plan, bool) {
		for l := range t.Files {
			for _, f := range t.Files[l] {
				if num := o.Changes.behind(f); num != 0 && !b.Held(f.Num) {
					if p, ok := pick(l, f, num); ok {
						p.Why = "settle"
						return p, true
					}
				}
			}
		}
		return Plan{}, false
	}
	p, ok := each(func(l int, f *File, num uint64) (Plan, bool) {
		p := Plan{Tree: t.ID, Output: l, Inputs: []Input{{l, f}}}
		return p, !b.Filling(t.ID, l, f.Bounds) && settles(t, o, &p, num)
	})
	if ok || !o.Changes.Rules() || o.OldestMem <= o.Changes[len(o.Changes)-1].Seq { // a flush comes first
		return p, ok
	}
	p, ok = each(func(l int, f *File, _ uint64) (Plan, bool) { return sink(t, o, b, base, l, f) })
	if ok {
		return p, ok
	}
	return each(func(l int, f *File, num uint64) (Plan, bool) {
		p, ok := planAll(t, b, []Input{{l, f}}, o.Changes, "settle")
		return p, ok && settles(t, o, &p, num)
	})
}

// sink brings a file one level further down towards older ones that are behind the same changes.
func sink(t *Tree, o PickOptions, b *Busy, base, l int, f *File) (p Plan, ok bool) {
	switch {
	case l == 0:
		p, ok = pickL0(t, o, b, base)
	case l+1 < Depth && free(t, b, l+1, f.Bounds) && !b.Filling(t.ID, l, f.Bounds):
		p, ok = down(t, []*File{f}, l, l+1), false
		for _, c := range o.Changes {
			for d := l + 1; d < Depth && !ok && c.Kind == ChangeRule && c.Behind(f); d++ {
				ok = slices.ContainsFunc(Overlapping(t.Files[d], f.Bounds), c.Behind)
			}
		}
	}
	if ok && !p.Move {
		_, ok = o.Changes.Fit(t, &p, o.OldestMem)
	}
	return p, ok
}

// settles reports whether a plan may run and takes its output through change num.
func settles(t *Tree, o PickOptions, p *Plan, num uint64) bool {
	n, ok := o.Changes.Fit(t, p, o.OldestMem)
	return ok && n > 0 && o.Changes[n-1].Num >= num
}

// takeBehind calls take for every file that overlaps f and is behind a change of a rule.
func (s Standing) takeBehind(t *Tree, f *File, take func(l int, f *File)) {
	for _, c := range s {
		if c.Kind != ChangeRule {
			continue
		}
		for l, files := range t.Files {
			for _, g := range files {
				if c.Behind(g) && g.Bounds.Overlaps(f.Bounds) {
					take(l, g)
				}
			}
		}
	}
}

func sortInputs(in []Input) {
	slices.SortStableFunc(in, func(x, y Input) int {
		switch {
		case x.Level != y.Level:
			return x.Level - y.Level
		case x.Level == 0 && x.File.LastSeq != y.File.LastSeq:
			if x.File.LastSeq > y.File.LastSeq {
				return -1
			}
			return 1
		}
		return bytes.Compare(x.File.Bounds.LoRow, y.File.Bounds.LoRow)
	})
}
