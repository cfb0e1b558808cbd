package levels

import (
	"slices"

	"github.com/rowandb/rowan/cell"
)

// Plan is one compaction as decided: which files of a tree to merge into which level. A Move changes the level of its one
// input and rewrites nothing.
type Plan struct {
	Tree   uint64
	Inputs []Input // newest first: L0 by LastSeq descending, then by level
	Output int
	Move   bool
	// Split rewrites the one input in its place, cut along the files that it will be merged with: each of these merges then takes
	// less room.
	Split bool
	Why   string // for people: "l0", "size of level 3", "manual", ...
}

// Input is one file of a plan with the level it is in.
type Input struct {
	Level int
	File  *File
}

// Bounds is the hull of the inputs.
func (p *Plan) Bounds() cell.Bounds {
	b := p.Inputs[0].File.Bounds
	for _, in := range p.Inputs[1:] {
		b = b.Union(in.File.Bounds)
	}
	return b
}

// Bytes is the size of the inputs, and the most that the outputs take while both are there.
func (p *Plan) Bytes() (n int64) {
	for _, in := range p.Inputs {
		n += in.File.Size
	}
	return n
}

// Has reports whether a file is an input.
func (p *Plan) Has(num Num) bool {
	return slices.ContainsFunc(p.Inputs, func(in Input) bool { return in.File.Num == num })
}

// PickOptions shape the tree.
type PickOptions struct {
	L0Files    int   // sublevels of L0 at which it is merged down
	LevelBytes int64 // target of the first level below L0 that is in use
	FileBytes  int64 // size at which table files are cut
	Factor     int   // size ratio of neighbouring levels; 0 means 10
	// MaxBytes bounds the inputs of a plan that writes, for want of space; 0 means no bound. TooBig, if given, is called with the
	// size of every plan that was passed over for it.
	MaxBytes int64
	TooBig   func(bytes int64)
	// Hungry looks for space: also what is not due is merged if that may free some.
	Hungry bool
	// Rest says that nobody writes: also what is not due is merged where that costs no more than it would later, so that reads
	// have fewer files to look into.
	Rest bool
	// Changes are those that stand for the tree, nil for most, and OldestMem is the lowest sequence in its sealed memtables,
	// NoMem if there is none; looked at only where a change stands.
	Changes   Standing
	OldestMem uint64
}

// Busy is what running jobs hold: their inputs, and the ranges that their outputs will fill. Files set aside are held too, apart
// from what jobs do. Not safe for concurrent use.
type Busy struct {
	files  map[Num]bool
	aside  map[Num]bool
	ranges []busyRange
}

type busyRange struct {
	tree   uint64
	level  int
	bounds cell.Bounds
	first  Num // identifies the plan
}

// Add takes a plan's files and its output range.
func (b *Busy) Add(p *Plan) {
	for _, in := range p.Inputs {
		b.Hold(in.File.Num)
	}
	b.ranges = append(b.ranges, busyRange{tree: p.Tree, level: p.Output, bounds: p.Bounds(), first: p.Inputs[0].File.Num})
}

// Remove gives them back.
func (b *Busy) Remove(p *Plan) {
	for _, in := range p.Inputs {
		delete(b.files, in.File.Num)
	}
	b.ranges = slices.DeleteFunc(b.ranges, func(r busyRange) bool { return r.tree == p.Tree && r.first == p.Inputs[0].File.Num })
}

// SetAside takes a file away from jobs, Return gives it back.
func (b *Busy) SetAside(num Num) {
	if b.aside == nil {
		b.aside = map[Num]bool{}
	}
	b.aside[num] = true
}

// Return undoes SetAside.
func (b *Busy) Return(num Num) { delete(b.aside, num) }

// Aside reports whether a file is set aside.
func (b *Busy) Aside(num Num) bool { return b.aside[num] }

// Taken reports whether a job holds a file.
func (b *Busy) Taken(num Num) bool { return b.files[num] }

// Hold takes one file, as a drop does.
func (b *Busy) Hold(num Num) {
	if b.files == nil {
		b.files = map[Num]bool{}
	}
	b.files[num] = true
}

// Release gives back a file that Hold took.
func (b *Busy) Release(num Num) { delete(b.files, num) }

// Held reports whether a file is taken or set aside.
func (b *Busy) Held(num Num) bool { return b.files[num] || b.aside[num] }

// Filling reports whether a running job will put files into (level, bounds) of a tree.
func (b *Busy) Filling(tree uint64, level int, bounds cell.Bounds) bool {
	for _, r := range b.ranges {
		if r.tree == tree && r.level == level && r.bounds.Overlaps(bounds) {
			return true
		}
	}
	return false
}
