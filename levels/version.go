// Package levels knows which files exist. A Version is an immutable list of every tree's files by level together with the
// schema; an Edit turns one version into the next and is what the manifest stores; the picker chooses the next compaction.
// It opens no table file.
package levels

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/rowandb/rowan/cell"
)

// Tree is one locality group's files. Immutable.
type Tree struct {
	ID uint64
	// FlushedThrough is the sequence up to which every entry of this tree is in its files; replay skips what is at or below.
	FlushedThrough uint64
	// Collected is the latest time, microseconds, as of which rules removed cells of this tree.
	Collected int64
	// Files by level. L0 is sorted by LastSeq ascending (oldest first), every other level by bounds, disjoint.
	Files [Depth][]*File
	// Sub is L0 cut into sublevels, oldest first: inside one the files are disjoint and sorted by bounds, and of two files
	// that overlap the newer is in the later sublevel.
	Sub [][]*File
}

// Empty reports whether the tree has no files.
func (t *Tree) Empty() bool {
	for _, run := range t.Files {
		if len(run) > 0 {
			return false
		}
	}
	return true
}

// Version is one state of the store on disk. Immutable; counted.
type Version struct {
	Schema *Schema
	Trees  map[uint64]*Tree

	NextFile   Num    // lowest number never used
	LastTable  uint64 // highest table and tree ids ever given
	LastTree   uint64
	LogStart   uint64 // log slot where replay starts
	LastSeq    uint64 // a sequence that was in use; the next one is above it
	EngineTime int64  // high-water mark of engine time, microseconds
	LoweredAt  uint64 // times in the log count from above this sequence on; 0 if engine time was never set back
	Stamp      int64  // highest ServerTime stamp, microseconds
	OpenCount  uint64 // times the store was opened for writing
	StoreID    uint64
	// Logged is the sequence through which the log was durable when it was last closed: one that ends before was cut off.
	Logged uint64
	// CheckpointOf is StoreID in a checkpoint that was not opened for writing since it was made, and 0 otherwise.
	CheckpointOf uint64
	EditNum      uint64 // number of the last edit

	refs     atomic.Int32
	obsolete func(*File)
}

// NewVersion returns an empty version holding one reference. obsolete is called once for every file that no version lists
// any more, by the goroutine that dropped the last one; it may be nil.
func NewVersion(obsolete func(*File)) *Version {
	v := &Version{Schema: newSchema(0), Trees: map[uint64]*Tree{}, NextFile: 1, obsolete: obsolete}
	v.refs.Store(1)
	return v
}

// Ref takes another reference; the caller must hold one.
func (v *Version) Ref() { v.refs.Add(1) }

// Unref drops a reference. The last one lets go of the files.
func (v *Version) Unref() {
	if v.refs.Add(-1) != 0 {
		return
	}
	v.Live(func(_ uint64, _ int, f *File) {
		if f.refs.Add(-1) == 0 && v.obsolete != nil {
			v.obsolete(f)
		}
	})
}

// Live calls fn for every file of the version, always in the same order.
func (v *Version) Live(fn func(tree uint64, level int, f *File)) {
	for _, id := range slices.Sorted(maps.Keys(v.Trees)) {
		for l, files := range v.Trees[id].Files {
			for _, f := range files {
				fn(id, l, f)
			}
		}
	}
}

// Bytes is the size of a level's files.
func (t *Tree) Bytes(level int) int64 {
	var n int64
	for _, f := range t.Files[level] {
		n += f.Size
	}
	return n
}

// Find returns the index of the first file of a sorted disjoint run whose bounds do not lie wholly before b.
func Find(run []*File, b cell.Bounds) int {
	return sort.Search(len(run), func(i int) bool { return !run[i].Bounds.Before(b) })
}

// Overlapping returns the files of a sorted disjoint run that overlap b. The result aliases run.
func Overlapping(run []*File, b cell.Bounds) []*File {
	i := Find(run, b)
	j := i
	for j < len(run) && run[j].Bounds.Overlaps(b) {
		j++
	}
	return run[i:j]
}

func sublevels(l0 []*File) [][]*File {
	var subs [][]*File
	for _, f := range l0 { // oldest first
		at := len(subs)
		for at > 0 && len(Overlapping(subs[at-1], f.Bounds)) == 0 {
			at--
		}
		if at == len(subs) {
			subs = append(subs, nil)
		}
		run := subs[at]
		i := Find(run, f.Bounds)
		run = append(run, nil)
		copy(run[i+1:], run[i:])
		run[i] = f
		subs[at] = run
	}
	return subs
}

// Apply returns the version after e, holding one reference of its own. v keeps its own. The edit is checked: a file added
// twice, a missing file, an unknown tree or a number from the past is an error that names it, and nothing changes.
func (v *Version) Apply(e *Edit) (*Version, error) {
	n := &Version{
		Schema: v.Schema, Trees: make(map[uint64]*Tree, len(v.Trees)), NextFile: max(v.NextFile, e.NextFile),
		LastTable: v.LastTable, LastTree: v.LastTree, LogStart: max(v.LogStart, e.LogStart), LastSeq: max(v.LastSeq, e.LastSeq),
		EngineTime: max(v.EngineTime, e.EngineTime), Stamp: max(v.Stamp, e.Stamp), OpenCount: max(v.OpenCount, e.OpenCount),
		StoreID: v.StoreID, CheckpointOf: max(v.CheckpointOf, e.CheckpointOf), Logged: max(v.Logged, e.Logged), EditNum: e.Num, obsolete: v.obsolete,
	}
	if e.StoreID != 0 && e.StoreID != v.StoreID {
		n.StoreID, n.CheckpointOf, n.Logged = e.StoreID, e.CheckpointOf, e.Logged // a store of its own, with a log of its own
	}
	if n.CheckpointOf != 0 && n.CheckpointOf != n.StoreID {
		return nil, fmt.Errorf("edit %d makes store %016x a checkpoint of store %016x", e.Num, n.StoreID, n.CheckpointOf)
	}
	n.LoweredAt = v.LoweredAt
	if e.Lowered != nil {
		n.EngineTime, n.LoweredAt = min(n.EngineTime, e.Lowered.Time), e.Lowered.Seq
	}
	for id, t := range v.Trees {
		n.Trees[id] = t
	}
	for _, id := range e.DropTables {
		var t *Table
		for _, c := range n.Schema.tables {
			if c.ID == id {
				t = c
			}
		}
		if t == nil {
			return nil, fmt.Errorf("edit %d drops table %d, which does not exist", e.Num, id)
		}
		for _, g := range t.Groups {
			delete(n.Trees, g.Tree)
		}
		n.Schema = n.Schema.without(t.Name)
	}
	for _, t := range e.PutTables {
		if old := n.Schema.Table(t.Name); old != nil && old.ID != t.ID {
			return nil, fmt.Errorf("edit %d puts table %q as %d, it exists as %d", e.Num, t.Name, t.ID, old.ID)
		}
		n.Schema = n.Schema.with(t)
		n.LastTable = max(n.LastTable, t.ID)
		for _, g := range t.Groups {
			n.LastTree = max(n.LastTree, g.Tree)
			if n.Trees[g.Tree] == nil {
				n.Trees[g.Tree] = &Tree{ID: g.Tree}
			}
		}
	}
	n.LastTable = max(n.LastTable, e.LastTable)
	n.LastTree = max(n.LastTree, e.LastTree)
	if err := n.applyFiles(e); err != nil {
		return nil, err
	}
	n.refs.Store(1)
	n.Live(func(_ uint64, _ int, f *File) { f.refs.Add(1) })
	return n, nil
}

func (v *Version) applyFiles(e *Edit) error {
	fresh := map[uint64]*Tree{} // trees copied for this edit
	tree := func(id uint64) *Tree {
		if t := fresh[id]; t != nil {
			return t
		}
		old := v.Trees[id]
		if old == nil {
			return nil
		}
		t := *old
		fresh[id], v.Trees[id] = &t, &t
		return &t
	}
	type place struct {
		tree  uint64
		level int
	}
	gone := map[place]map[Num]bool{} // all files of a level go, and come, at once: a first edit may have a hundred thousand
	for _, d := range e.Deleted {
		t := tree(d.Tree)
		if t == nil {
			return fmt.Errorf("edit %d removes file %d from unknown tree %d", e.Num, d.Num, d.Tree)
		}
		at := place{d.Tree, d.Level}
		if gone[at] == nil {
			gone[at] = map[Num]bool{}
		}
		if gone[at][d.Num] || !slices.ContainsFunc(t.Files[d.Level], func(f *File) bool { return f.Num == d.Num }) {
			return fmt.Errorf("edit %d removes file %d, which is not in level %d of tree %d", e.Num, d.Num, d.Level, d.Tree)
		}
		gone[at][d.Num] = true
	}
	for at, nums := range gone {
		t := tree(at.tree)
		left := make([]*File, 0, len(t.Files[at.level]))
		for _, f := range t.Files[at.level] {
			if !nums[f.Num] {
				left = append(left, f)
			}
		}
		t.Files[at.level] = left
	}
	came := map[place][]*File{}
	for _, a := range e.Added {
		if tree(a.Tree) == nil {
			return fmt.Errorf("edit %d adds file %d to unknown tree %d", e.Num, a.File.Num, a.Tree)
		}
		if a.File.Num >= v.NextFile {
			v.NextFile = a.File.Num + 1
		}
		at := place{a.Tree, a.Level}
		came[at] = append(came[at], a.File)
	}
	for at, files := range came {
		t := tree(at.tree)
		run := append(slices.Clone(t.Files[at.level]), files...)
		slices.SortStableFunc(run, func(x, y *File) int {
			switch {
			case before(at.level, x, y):
				return -1
			case before(at.level, y, x):
				return 1
			}
			return 0
		})
		t.Files[at.level] = run
	}
	for _, f := range e.Flushed {
		t := tree(f.Tree)
		if t == nil {
			return fmt.Errorf("edit %d flushes unknown tree %d", e.Num, f.Tree)
		}
		if f.Seq < t.FlushedThrough {
			return fmt.Errorf("edit %d flushes tree %d through %d, it is at %d", e.Num, f.Tree, f.Seq, t.FlushedThrough)
		}
		t.FlushedThrough = f.Seq
	}
	for _, c := range e.Collected {
		t := tree(c.Tree)
		if t == nil {
			return fmt.Errorf("edit %d collects from unknown tree %d", e.Num, c.Tree)
		}
		t.Collected = max(t.Collected, c.Time)
	}
	for _, t := range fresh {
		if err := t.order(); err != nil {
			return fmt.Errorf("edit %d, tree %d: %w", e.Num, t.ID, err)
		}
		t.Sub = sublevels(t.Files[0])
	}
	return nil
}

// order checks that levels below L0 are disjoint and that no number is listed twice.
func (t *Tree) order() error {
	seen := map[Num]bool{}
	for l, files := range t.Files {
		for i, f := range files {
			if seen[f.Num] {
				return fmt.Errorf("file %d is listed twice", f.Num)
			}
			seen[f.Num] = true
			if l > 0 && i > 0 && !files[i-1].Bounds.Before(f.Bounds) {
				return fmt.Errorf("files %d and %d of level %d overlap", files[i-1].Num, f.Num, l)
			}
		}
	}
	return nil
}

func before(level int, a, b *File) bool {
	if level == 0 {
		return a.LastSeq < b.LastSeq || a.LastSeq == b.LastSeq && a.FirstSeq < b.FirstSeq
	}
	return a.Bounds.Before(b.Bounds)
}
