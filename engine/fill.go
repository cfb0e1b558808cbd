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
		if lastRow != nil && &row[0] == &lastRow[0] { // the same row's next cell
			s.hint = last
			continue
		}
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
	tree, tried := -1, 0
	lastRow := uint32(0) // where the bytes of the row of the last Set are; 0: none
	var err error
	for i := 0; i < len(r.sets) && err == nil; {
		s := &r.sets[i]
		end := min(i-i%hintsMax+hintsMax, len(r.sets)) // of the hints
		if i > 0 && i%hintsMax == 0 {
			r.hints(i, func(t *touched) *mem { return t.mem })
		}
		if s.tree != tree || i%hintsMax == 0 { // and now and then, for those who wait for writers
			if tree >= 0 {
				w.End()
			}
			tree, lastRow = s.tree, 0
			w = r.trees[tree].mem.Begin()
		}
		it := s.item(bytes)
		if s.spot.Row == lastRow { // the next cell of the row that this writer has just been at
			err = w.SetMore(it.Col, it.TS, cell.KindSet, it.Value, first+uint64(i))
			i++
			continue
		}
		same := i + 1 // rows of one leaf, one cell each
		for same < end && r.sets[same].tree == tree && r.sets[same].hint == s.hint && r.sets[same].spot.Row != r.sets[same-1].spot.Row {
			same++
		}
		if n := 0; same-i >= appendMin && i >= tried {
			r.items = r.items[:0]
			for j := i; j < same; j++ {
				r.items = append(r.items, r.sets[j].item(bytes))
			}
			n, err = w.Append(s.hint, r.items, cell.KindSet, first+uint64(i))
			i += n
			if n > 0 {
				lastRow = 0
				continue
			}
			tried = same
		}
		lastRow = s.spot.Row
		err = w.Set(s.hint, it.Row, it.Col, it.TS, cell.KindSet, it.Value, first+uint64(i))
		i++
	}
	w.End()
	clear(r.items)
	return err
}

// appendMin is the number of rows of one leaf that are worth a try to append them together.
const appendMin = 4

func (s *setting) item(bytes []byte) memtable.Item {
	p := &s.spot
	return memtable.Item{Row: bytes[p.Row:][:p.RowLen], Col: bytes[p.Col:][:p.ColLen], Value: bytes[p.Value:][:p.ValueLen], TS: s.ts}
}
