package engine

import (
	"bytes"

	"github.com/rowandb/rowan/bloom"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/levels"
)

// reading is one read's view of a table: a pinned state and the sequence up to which memtables are shown.
type reading struct {
	db    *DB
	st    *state
	table *rtable
	seq   uint64
	own   *overlay // of a batch that reads; the newest source
	flat  bool     // show what is stored, past the rules that old sources follow for good
	// without are the files to leave out, because they are damaged; nil for none, as always but with LeaveOutDamaged.
	without map[levels.Num]bool
}

// ofClass returns the files of a run that are of a class.
func (g *group) ofClass(run []*levels.File, class int) []*levels.File {
	if class == noClass || len(g.layers) == 0 {
		return run
	}
	var out []*levels.File
	for _, f := range run {
		if g.class(f) == class {
			out = append(out, f)
		}
	}
	return out
}

// point returns the sources that have row, newest first, joined and standing on it. A source without the row is left out;
// for files the row filter decides first.
func (r *reading) point(row []byte, o cell.IterOptions, cfg merge.Config) (_ *merge.Iter, err error) {
	src := make([]cell.Iter, 0, 8)
	var ends []int
	for i := range r.table.groups {
		g := &r.table.groups[i]
		if len(r.table.groups) > 1 && !g.has(&o) {
			continue
		}
		if src, err = r.pointSources(src, g, row, o); err != nil {
			for _, it := range src {
				it.Close()
			}
			return nil, err
		}
		if len(r.table.groups) > 1 {
			ends = append(ends, len(src))
		}
	}
	m := merge.New(cfg, src)
	if ends != nil {
		m.Groups(ends)
	}
	m.Here(row)
	return m, nil
}

// pointSources appends the sources of one tree that have row. On an error too it returns all that is to be closed.
func (r *reading) pointSources(src []cell.Iter, g *group, row []byte, o cell.IterOptions) ([]cell.Iter, error) {
	if len(g.layers) == 0 || r.flat {
		return r.pointFlat(src, g, row, o, noClass)
	}
	o.MaxTS = 0 // as in sources
	var older []cell.Iter
	for i := range g.layers {
		in, err := r.pointFlat(nil, g, row, o, i)
		in = append(in, older...)
		if err != nil {
			return append(src, in...), err
		}
		if older = in; len(in) > 0 {
			m := merge.New(merge.Config{Families: g.layers[i].families}, in)
			m.Here(row)
			older = []cell.Iter{merge.NewNested(m)}
		}
	}
	src, err := r.pointFlat(src, g, row, o, len(g.layers))
	return append(src, older...), err
}

// pointFlat appends the sources of a tree of one class that have row.
func (r *reading) pointFlat(src []cell.Iter, g *group, row []byte, o cell.IterOptions, class int) (_ []cell.Iter, err error) {
	if own := r.own.of(g.tree); own != nil && class >= len(g.layers) {
		if it := own.NewIter(everything, o); it.SeekExact(row) {
			src = append(src, it)
		} else {
			it.Close()
		}
	}
	mems := r.st.trees[g.tree]
	for i := len(mems.sealed); i >= 0; i-- {
		m := mems.active
		if i < len(mems.sealed) {
			m = mems.sealed[i]
			if class != noClass && g.classOfMem(m.last) != class || len(g.rows) > 0 && covers(g.hiddenMem(m.last), row) {
				continue
			}
		} else if class < len(g.layers) {
			continue
		}
		it := m.NewIter(r.seq, o)
		if it.SeekExact(row) {
			src = append(src, it)
		} else {
			it.Close()
		}
	}
	tree := r.st.version.Trees[g.tree]
	hash := bloom.HashRow(row)
	for i := len(tree.Sub) - 1; i >= 0; i-- {
		if src, err = r.pointRun(src, g, tree.Sub[i], row, hash, o, class); err != nil {
			return src, err
		}
	}
	for l := 1; l < levels.Depth; l++ {
		if src, err = r.pointRun(src, g, tree.Files[l], row, hash, o, class); err != nil {
			return src, err
		}
	}
	return src, nil
}

func covers(rows []merge.Rows, row []byte) bool {
	_, in := merge.FindRows(rows, row)
	return in
}

func (r *reading) pointRun(src []cell.Iter, g *group, run []*levels.File, row []byte, hash uint64, o cell.IterOptions, class int) ([]cell.Iter, error) {
	lo, hi := 0, len(run)
	for lo < hi {
		mid := (lo + hi) / 2
		if bytes.Compare(run[mid].Bounds.HiRow, row) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for hi = lo; hi < len(run) && run[hi].Bounds.ContainsRow(row); hi++ {
	}
	run = r.left(run[lo:hi])
	if len(g.standing) > 0 {
		run = g.showing(run, row, class)
	}
	var it cell.Iter
	switch len(run) {
	case 0:
		return src, nil
	case 1:
		t, err := r.db.files.table(run[0])
		if err != nil {
			return src, err
		}
		if !t.MayContainRow(hash) {
			r.db.stats.filtered.Add(1)
			return src, nil
		}
		o.Point = true
		it = t.NewIter(o)
	default:
		it = merge.NewRun(run, r.db.files.opener(o)).Restrict(o.Columns)
	}
	if it.SeekGE(row) && bytes.Equal(it.Row(), row) {
		return append(src, it), nil
	}
	err := it.Err()
	it.Close()
	return src, err
}

// showing returns the files of a class among run that may show row.
func (g *group) showing(run []*levels.File, row []byte, class int) []*levels.File {
	var out []*levels.File
	for _, f := range g.ofClass(run, class) {
		if !covers(g.hidden(f), row) {
			out = append(out, f)
		}
	}
	return out
}
