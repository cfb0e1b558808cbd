package engine

import (
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/memtable"
)

// setting is an entry that sets a cell: where the batch's record has its bytes, and where its row belongs.
type setting struct {
	spot cell.Spot
	ts   int64
	tree int // of run.trees
	hint memtable.Hint
}

// hintsMax is for how many entries the way is looked up at once: what that brings near fits into the caches.
const hintsMax = 32

// lookAhead finds out where the first entries of the batch go, before it takes its place: the memory there comes near meanwhile.
// Should a memtable be sealed in between, that was for nothing.
func (r *run) lookAhead() {
	if len(r.sets) != r.entries.Count() {
		return
	}
	st := r.db.states.pin()
	defer st.unref()
	for i := range r.trees {
		r.trees[i].ahead = st.trees[r.trees[i].tree].active
	}
	r.hints(0, func(t *touched) *mem { return t.ahead })
}

// hints looks up the way of hintsMax entries from i on.
func (r *run) hints(i int, memOf func(*touched) *mem) {
	bytes := r.entries.Bytes()
	var last memtable.Hint
	var lastRow []byte
	lastTree := -1
	for end := min(i+hintsMax, len(r.sets)); i < end; i++ {
		s := &r.sets[i]
		if s.tree != lastTree {
			last, lastRow, lastTree = memtable.Hint{}, nil, s.tree
		}
		row := bytes[s.spot.Row:][:s.spot.RowLen]
		s.hint = memOf(&r.trees[s.tree]).Ahead(row, last, lastRow)
		last, lastRow = s.hint, row
	}
}

// fill puts the entries of a batch that has its place into the memtables; first is the sequence of the first.
func (r *run) fill(first uint64) error {
	if len(r.sets) != r.entries.Count() {
		return applyRecord(r.record, r.memOf, r.foldOf)
	}
	bytes := r.entries.Bytes()
	for i := range r.trees {
		if t := &r.trees[i]; t.mem != t.ahead {
			for j := range r.sets[:min(hintsMax, len(r.sets))] {
				if s := &r.sets[j]; s.tree == i {
					s.hint = memtable.Hint{}
				}
			}
		}
	}
	var w memtable.Writer
	tree := -1
	var err error
	for i := range r.sets {
		s := &r.sets[i]
		if i > 0 && i%hintsMax == 0 {
			r.hints(i, func(t *touched) *mem { return t.mem })
		}
		if s.tree != tree || i%hintsMax == 0 {
			if tree >= 0 {
				w.End()
			}
			tree = s.tree
			w = r.trees[tree].mem.Begin()
		}
		p := &s.spot
		err = w.Set(s.hint, bytes[p.Row:][:p.RowLen], bytes[p.Col:][:p.ColLen], s.ts, cell.KindSet, bytes[p.Value:][:p.ValueLen], first+uint64(i))
		if err != nil {
			break
		}
	}
	w.End()
	return err
}
