package engine

import (
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/memtable"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// sources is the memory of the sources of one scan, reused by the next: a short scan costs less than making them anew.
type sources struct {
	o    cell.IterOptions
	list []cell.Iter
	mems []memtable.Iter
	runs []merge.Run
	iter []sstable.Iter
	open merge.OpenFile // opens a file as o says
	db   *DB
}

// reset forgets all but the memory. The sources have been closed.
func (s *sources) reset() {
	clear(s.list)
	s.list, s.mems, s.runs, s.iter = s.list[:0], s.mems[:0], s.runs[:0], s.iter[:0]
	s.o, s.db = cell.IterOptions{}, nil
}

// room returns s with room for one more, in new memory if need be: what points into the old one stays right.
func room[T any](s []T) []T {
	if len(s) < cap(s) {
		return s
	}
	return make([]T, 0, max(4, 2*cap(s)))
}

func (s *sources) mem(m *mem, seq uint64) cell.Iter {
	s.mems = room(s.mems)
	s.mems = s.mems[:len(s.mems)+1]
	it := &s.mems[len(s.mems)-1]
	it.Init(m.Table, seq, s.o)
	return it
}

func (s *sources) run(g *group, files []*levels.File) cell.Iter {
	s.runs = room(s.runs)
	s.runs = s.runs[:len(s.runs)+1]
	r := &s.runs[len(s.runs)-1]
	if s.open == nil {
		s.open = s.openFile
	}
	r.Reset(files, g.opener(s.open))
	return r.Restrict(s.o.Columns)
}

func (s *sources) openFile(f *levels.File) (cell.Iter, error) {
	r, err := s.db.files.table(f)
	if err != nil {
		return nil, err
	}
	s.iter = room(s.iter)
	s.iter = s.iter[:len(s.iter)+1]
	it := &s.iter[len(s.iter)-1]
	r.Init(it, s.o)
	return it, nil
}

// scan has m join all sources of the table that may hold columns of o, newest first.
func (r *reading) scan(m *merge.Scan, s *sources, o cell.IterOptions, cfg merge.Config) {
	s.o, s.db = o, r.db
	var ends []int
	for i := range r.table.groups {
		if g := &r.table.groups[i]; len(r.table.groups) == 1 || g.has(&o) {
			s.list = r.sources(s, s.list, g)
			ends = append(ends, len(s.list))
		}
	}
	m.Reset(cfg, s.list)
	if len(r.table.groups) > 1 {
		m.Groups(ends)
	}
}

// sources appends the sources of one tree.
func (r *reading) sources(s *sources, src []cell.Iter, g *group) []cell.Iter {
	if len(g.layers) == 0 || r.flat {
		return r.flatSources(s, src, g, noClass)
	}
	s.o.MaxTS = 0         // the old rule may count what is newer
	var older []cell.Iter // what is behind the layers so far, as at most one source
	for i := range g.layers {
		in := append(r.flatSources(s, nil, g, i), older...)
		if older = in; len(in) > 0 {
			older = []cell.Iter{merge.NewNested(merge.New(merge.Config{Families: g.layers[i].families}, in))}
		}
	}
	return append(r.flatSources(s, src, g, len(g.layers)), older...)
}

// flatSources appends the sources of a tree of one class, newest first.
func (r *reading) flatSources(s *sources, src []cell.Iter, g *group, class int) []cell.Iter {
	tree := r.st.version.Trees[g.tree]
	mems := r.st.trees[g.tree]
	if class >= len(g.layers) {
		src = append(src, s.mem(mems.active, r.seq))
	}
	for i := len(mems.sealed) - 1; i >= 0; i-- {
		m := mems.sealed[i]
		if class == noClass || g.classOfMem(m.last) == class {
			src = append(src, view(s.mem(m, r.seq), g.hiddenMem(m.last)))
		}
	}
	for i := len(tree.Sub) - 1; i >= 0; i-- {
		if run := r.left(g.ofClass(tree.Sub[i], class)); len(run) > 0 {
			src = append(src, s.run(g, run))
		}
	}
	for l := 1; l < levels.Depth; l++ {
		if run := r.left(g.ofClass(tree.Files[l], class)); len(run) > 0 {
			src = append(src, s.run(g, run))
		}
	}
	return src
}
