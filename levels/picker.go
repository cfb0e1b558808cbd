package levels

import (
	"bytes"
	"slices"
	"sort"

	"github.com/rowandb/rowan/cell"
)

const (
	defaultFactor = 10
	// l0JobBytes bounds what one compaction takes out of L0, so that a long backlog is worked off in steps that each give
	// writers room. At least L0Files files go together all the same.
	l0JobBytes = 512 << 20
)

func (o PickOptions) factor() int64 {
	if o.Factor > 1 {
		return int64(o.Factor)
	}
	return defaultFactor
}

// targets returns the size each level may have, and the base: the level that L0 is merged into. The last level in use sets
// the scale and each level above it is a factor smaller, down to LevelBytes; so the levels above the last hold about a
// ninth of it. The base is never below a level that holds files: what leaves L0 is newer than they are.
func targets(t *Tree, o PickOptions) (target [Depth]int64, base int) {
	last := Depth - 1
	size := o.LevelBytes
	for l := 1; l < Depth; l++ {
		size = max(size, t.Bytes(l))
	}
	base = last
	target[last] = size
	for base > 1 && target[base] > o.LevelBytes {
		target[base-1] = target[base] / o.factor()
		base--
	}
	// The last step may have fallen far below LevelBytes: then the level above would be a waste.
	if base < last && target[base]*o.factor() <= o.LevelBytes*2 {
		base++
	}
	for l := 1; l < base; l++ {
		if len(t.Files[l]) > 0 {
			base = l
			break
		}
	}
	for l := 1; l < Depth; l++ {
		if target[l] == 0 {
			target[l] = max(o.LevelBytes/o.factor(), 1)
		}
	}
	return target, base
}

// Pick chooses the most urgent compaction of a tree that the running ones leave room for; ok is false when nothing is due.
// It is pure: files and options in, plan out.
func Pick(t *Tree, o PickOptions, b *Busy) (Plan, bool) {
	target, base := targets(t, o)
	type due struct {
		level int
		score float64
	}
	var list []due
	if n := len(t.Sub); n >= o.L0Files {
		list = append(list, due{0, float64(n) / float64(o.L0Files)})
	}
	for l := 1; l < Depth-1; l++ {
		if size := t.Bytes(l); size > target[l] {
			list = append(list, due{l, float64(size) / float64(target[l])})
		}
	}
	fits := func(p *Plan) bool { return p.Move || o.fits(p.Bytes()) }
	sort.SliceStable(list, func(i, j int) bool { return list[i].score > list[j].score })
	for _, d := range list {
		p, ok := Plan{}, false
		if d.level == 0 {
			p, ok = pickL0(t, o, b, base)
		} else {
			p, ok = pickLevel(t, o, b, d.level, nil)
		}
		if ok && !p.Move {
			_, ok = o.Changes.Fit(t, &p, o.OldestMem) // if not, what is behind goes first
		}
		if ok && fits(&p) {
			return p, true
		}
	}
	if p, ok := pickSettle(t, o, b, base); ok && fits(&p) {
		return p, true
	}
	if o.Hungry {
		if p, ok := pickHungry(t, o, b, base); ok && fits(&p) {
			return p, true
		}
	}
	if o.Rest {
		if p, ok := pickRest(t, o, b, base); ok && fits(&p) {
			return p, true
		}
	}
	return Plan{}, false
}

// fits reports whether there is room for a plan of n bytes.
func (o PickOptions) fits(n int64) bool {
	if o.MaxBytes == 0 || n <= o.MaxBytes {
		return true
	}
	if o.TooBig != nil {
		o.TooBig(n)
	}
	return false
}

// pickHungry looks for what may free space though nothing is due: L0 with what it overlaps, from above down, then files that have
// deletes for something below them. Each step brings data down, so that it comes to an end.
func pickHungry(t *Tree, o PickOptions, b *Busy, base int) (Plan, bool) {
	fit := func(p Plan, ok bool) (Plan, bool) {
		if ok && !p.Move {
			_, ok = o.Changes.Fit(t, &p, o.OldestMem)
		}
		return p, ok
	}
	if len(t.Files[0]) > 0 {
		if p, ok := fit(pickL0(t, o, b, base)); ok && p.Output > 0 {
			return p, true
		}
	}
	for l := 1; l < Depth-1; l++ {
		p, ok := fit(pickLevel(t, o, b, l, func(f *File) bool { return f.HasDeletes() && deeper(t, l, f.Bounds) }))
		if ok {
			return p, true
		}
	}
	if o.MaxBytes == 0 {
		return Plan{}, false
	}
	for l := 0; l < Depth-1; l++ {
		for _, f := range t.Files[l] {
			if (l == 0 || f.HasDeletes()) && !b.Held(f.Num) && !b.Filling(t.ID, l, f.Bounds) && len(CutRows(t, o, l, f.Bounds)) > 1 && o.fits(f.Size) {
				if p, ok := fit(Plan{Tree: t.ID, Output: l, Inputs: []Input{{l, f}}, Split: true, Why: "split"}, true); ok {
					return p, true
				}
			}
		}
	}
	return Plan{}, false
}

// CutRows are the rows, ascending, at which what lies in bounds on a level can be cut so that each part is merged with fewer files
// next: where those begin.
func CutRows(t *Tree, o PickOptions, level int, bounds cell.Bounds) (rows [][]byte) {
	next := level + 1
	if level == 0 {
		_, next = targets(t, o)
	}
	for _, f := range Overlapping(t.Files[next], bounds) {
		row := f.Bounds.LoRow
		if bytes.Compare(row, bounds.LoRow) > 0 && bytes.Compare(row, bounds.HiRow) <= 0 && (len(rows) == 0 || !bytes.Equal(row, rows[len(rows)-1])) {
			rows = append(rows, row)
		}
	}
	return rows
}

// pickL0 takes the oldest files of L0 down to the base, or, while the base is busy there, merges young ones with each other.
func pickL0(t *Tree, o PickOptions, b *Busy, base int) (Plan, bool) {
	var in, blocked []*File
	var size int64
	for _, f := range t.Files[0] { // oldest first: whatever overlaps f and is older comes before it
		if b.Held(f.Num) || overlapsAny(blocked, f.Bounds) {
			blocked = append(blocked, f)
			continue
		}
		if len(in) > 0 && o.Changes.class(f) != o.Changes.class(in[0]) {
			break // what is behind a change of a rule goes by itself first
		}
		if len(in) >= o.L0Files && size+f.Size > l0JobBytes {
			break
		}
		// Files that do not touch the others so far would only make the job larger and its hull wider.
		if len(in) > 0 && !f.Bounds.Overlaps(hull(in)) {
			continue
		}
		grown := append(in[:len(in):len(in)], f)
		if o.MaxBytes > 0 && !o.fits(size+f.Size+overlapBytes(t.Files[base], hull(grown))) {
			blocked = append(blocked, f)
			continue
		}
		if !free(t, b, base, hull(grown)) {
			blocked = append(blocked, f)
			continue
		}
		// A wider hull must not take in an older file that was passed over.
		if overlapsOlder(t.Files[0], f, grown) {
			blocked = append(blocked, f)
			continue
		}
		in, size = grown, size+f.Size
	}
	if len(in) > 0 {
		return down(t, in, 0, base), true
	}
	return pickInsideL0(t, o, b)
}

// overlapsOlder reports whether an L0 file older than f overlaps it without being in the list.
func overlapsOlder(l0 []*File, f *File, in []*File) bool {
	for _, g := range l0 {
		if g == f {
			return false
		}
		if g.Bounds.Overlaps(f.Bounds) && !slices.Contains(in, g) {
			return true
		}
	}
	return false
}

// pickInsideL0 merges the youngest files of L0 when there are too many of them and they cannot leave.
func pickInsideL0(t *Tree, o PickOptions, b *Busy) (Plan, bool) {
	if len(t.Sub) < 2*o.L0Files {
		return Plan{}, false
	}
	l0 := t.Files[0]
	from := len(l0)
	var size int64
	most := int64(l0JobBytes)
	if o.MaxBytes > 0 {
		most = min(most, o.MaxBytes)
	}
	for from > 0 && !b.Held(l0[from-1].Num) && o.Changes.class(l0[from-1]) == o.Changes.class(l0[len(l0)-1]) {
		// Beyond the bound only where a file set aside keeps things in L0 for good, and only what is no larger than what is
		// younger: each byte is then written a logarithmic number of times, and there are as many sublevels.
		if n := l0[from-1].Size; size+n > most && (n > size || o.MaxBytes > 0 || len(b.aside) == 0) {
			break
		}
		from--
		size += l0[from].Size
	}
	// The files of one flush stay together: one that is left out would lie between the others in age.
	for from > 0 && from < len(l0) && l0[from].LastSeq == l0[from-1].LastSeq {
		from++
	}
	in := l0[from:]
	if len(in) < 2 || len(sublevels(in)) < o.L0Files || b.Filling(t.ID, 0, hull(in)) {
		return Plan{}, false
	}
	p := Plan{Tree: t.ID, Output: 0, Why: "inside L0"}
	for i := len(in) - 1; i >= 0; i-- {
		p.Inputs = append(p.Inputs, Input{0, in[i]})
	}
	return p, true
}

// overlapBytes is the size of the files of a run that overlap bounds.
func overlapBytes(run []*File, b cell.Bounds) (n int64) {
	for _, g := range Overlapping(run, b) {
		n += g.Size
	}
	return n
}

// pickLevel takes the file of a level, of those that want says if it is not nil, that drags the least along from the next one.
func pickLevel(t *Tree, o PickOptions, b *Busy, level int, want func(*File) bool) (Plan, bool) {
	var best *File
	bestCost := 0.0
	for _, f := range t.Files[level] {
		if b.Held(f.Num) || want != nil && !want(f) || !free(t, b, level+1, f.Bounds) || b.Filling(t.ID, level, f.Bounds) {
			continue
		}
		drag := overlapBytes(t.Files[level+1], f.Bounds)
		if (drag > 0 || f.HasDeletes()) && !o.fits(f.Size+drag) {
			continue
		}
		if cost := float64(drag) / float64(max(f.Size, 1)); best == nil || cost < bestCost {
			best, bestCost = f, cost
		}
	}
	if best == nil {
		return Plan{}, false
	}
	return down(t, []*File{best}, level, level+1), true
}

// down makes the plan that merges files of a level into a deeper one.
func down(t *Tree, in []*File, level, output int) Plan {
	p := Plan{Tree: t.ID, Output: output, Why: "size of level " + string(rune('0'+level))}
	if level == 0 {
		p.Why = "L0"
	}
	for i := len(in) - 1; i >= 0; i-- {
		p.Inputs = append(p.Inputs, Input{level, in[i]})
	}
	h := hull(in)
	for _, g := range Overlapping(t.Files[output], h) {
		p.Inputs = append(p.Inputs, Input{output, g})
	}
	// Alone in its range a file just changes its level, unless its deletes reach nothing any more and can be dropped now.
	p.Move = len(p.Inputs) == 1 && !(in[0].HasDeletes() && !deeper(t, output, h))
	return p
}

// deeper reports whether a file below a level overlaps bounds.
func deeper(t *Tree, level int, bounds cell.Bounds) bool {
	for l := level + 1; l < Depth; l++ {
		if len(Overlapping(t.Files[l], bounds)) > 0 {
			return true
		}
	}
	return false
}

// free reports whether a job may write into (level, bounds): no other fills it and none of its files is held.
func free(t *Tree, b *Busy, level int, bounds cell.Bounds) bool {
	if b.Filling(t.ID, level, bounds) {
		return false
	}
	for _, g := range Overlapping(t.Files[level], bounds) {
		if b.Held(g.Num) {
			return false
		}
	}
	return true
}

func hull(files []*File) cell.Bounds {
	h := files[0].Bounds
	for _, f := range files[1:] {
		h = h.Union(f.Bounds)
	}
	return h
}

func overlapsAny(files []*File, b cell.Bounds) bool {
	return slices.ContainsFunc(files, func(f *File) bool { return f.Bounds.Overlaps(b) })
}

// Debt is how many bytes compactions still have to read to bring the tree to rest; 0 when nothing is due.
func Debt(t *Tree, o PickOptions) int64 {
	target, base := targets(t, o)
	var debt int64
	if len(t.Sub) >= o.L0Files {
		debt += t.Bytes(0)
		for _, g := range Overlapping(t.Files[base], hull(t.Files[0])) {
			debt += g.Size
		}
	}
	for l := 1; l < Depth-1; l++ {
		size := t.Bytes(l)
		if excess := size - target[l]; excess > 0 {
			debt += excess + int64(float64(excess)*float64(t.Bytes(l+1))/float64(size))
		}
	}
	return debt
}

// PlanRange plans to merge every file that overlaps bounds, nil for all, into the deepest level in use. Files go along that
// must for the sake of order, and all that is behind the same changes of rules. A file of the deepest level that no other file
// overlaps, and of which done is true, is left alone unless it lies between such that are merged. ok is false when a running job
// or a file set aside is in the way; a plan without inputs means that there is nothing to merge.
func PlanRange(t *Tree, b *Busy, bounds *cell.Bounds, changes Standing, done func(*File) bool) (Plan, bool) {
	deepest := t.deepest()
	alone := func(f *File) bool {
		over := func(run []*File) bool { return len(Overlapping(run, f.Bounds)) > 0 }
		return changes.behind(f) == 0 && done(f) && !slices.ContainsFunc(t.Sub, over) && !slices.ContainsFunc(t.Files[1:deepest], over)
	}
	var in []Input
	for l, files := range t.Files {
		for _, f := range files {
			if (bounds == nil || f.Bounds.Overlaps(*bounds)) && (l < deepest || !alone(f)) {
				in = append(in, Input{l, f})
			}
		}
	}
	return planAll(t, b, in, changes, "manual")
}

// deepest is the deepest level in use, the last one if none but L0 is.
func (t *Tree) deepest() int {
	for l := Depth - 1; l > 0; l-- {
		if len(t.Files[l]) > 0 {
			return l
		}
	}
	return Depth - 1
}

// planAll plans to merge files, with those that must go along, into the deepest level in use.
func planAll(t *Tree, b *Busy, seed []Input, changes Standing, why string) (Plan, bool) {
	p := Plan{Tree: t.ID, Why: why, Output: t.deepest(), Inputs: seed}
	if len(seed) == 0 {
		return p, true
	}
	in := map[*File]bool{}
	for _, x := range seed {
		in[x.File] = true
	}
	take := func(l int, f *File) {
		if !in[f] {
			in[f] = true
			p.Inputs = append(p.Inputs, Input{l, f})
		}
	}
	for i := 0; i < len(p.Inputs); i++ {
		x := p.Inputs[i]
		if x.Level == 0 {
			for _, f := range t.Files[0] {
				if f == x.File {
					break
				}
				if f.Bounds.Overlaps(x.File.Bounds) {
					take(0, f)
				}
			}
		}
		for l := max(x.Level, 1); l <= p.Output; l++ {
			for _, f := range Overlapping(t.Files[l], x.File.Bounds) {
				take(l, f)
			}
		}
		changes.takeBehind(t, x.File, take)
		if i+1 == len(p.Inputs) {
			// The outputs fill the hull of all inputs, so what lies there in the output level goes along as well.
			for _, f := range Overlapping(t.Files[p.Output], p.Bounds()) {
				take(p.Output, f)
			}
		}
	}
	sortInputs(p.Inputs)
	for _, x := range p.Inputs {
		if b.Held(x.File.Num) {
			return p, false
		}
	}
	return p, !b.Filling(t.ID, p.Output, p.Bounds())
}
