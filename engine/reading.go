package engine

import (
	"bytes"

	"github.com/rowandb/rowan/bloom"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/internal/stripe"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// reading is one read's view of a table: a pinned state and the sequence up to which memtables are shown.
type reading struct {
	db    *DB
	st    *state
	table *rtable
	seq   uint64
	own   *overlay // of a batch that reads; the newest source
	slot  stripe.Slot
	pts   *points // to be used again; may be nil
	flat  bool    // show what is stored, past the rules that old sources follow for good
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
func (r *reading) point(row []byte, o cell.IterOptions, cfg merge.Config) (_ *points, err error) {
	p := r.pts.take()
	r.pts = p
	src := p.src[:0]
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
			p.src = src
			p.end()
			return nil, err
		}
		if len(r.table.groups) > 1 {
			ends = append(ends, len(src))
		}
	}
	p.src = src
	p.show(row, cfg, ends)
	return p, nil
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
		if it := r.pts.memory(own, row, everything, &o); it != nil {
			src = append(src, it)
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
		if it := r.pts.memory(m.Table, row, r.seq, &o); it != nil {
			src = append(src, it)
		}
	}
	tree := r.st.version.Trees[g.tree]
	if tree.Empty() {
		return src, nil
	}
	hash := bloom.HashRow(row)
	c := r.pts.among[:0]
	for i := len(tree.Sub) - 1; i >= 0; i-- {
		if c, err = r.candidates(c, g, tree.Sub[i], row, hash, class); err != nil {
			return src, err
		}
	}
	for l := 1; l < levels.Depth; l++ {
		if c, err = r.candidates(c, g, tree.Files[l], row, hash, class); err != nil {
			return src, err
		}
	}
	r.pts.among = c
	for i := range c {
		if src, err = r.candidate(src, &c[i], row, hash, o, len(c) == 1); err != nil {
			return src, err
		}
	}
	return src, nil
}

// candidate is a file that may have a row, or the few files of a run that share it.
type candidate struct {
	t   *sstable.Reader
	run []*levels.File // if more than one
}

func covers(rows []merge.Rows, row []byte) bool {
	_, in := merge.FindRows(rows, row)
	return in
}

// candidates appends what of a run may have row. It asks memory for the lines of the filters, so that those of all runs come at once.
func (r *reading) candidates(dst []candidate, g *group, run []*levels.File, row []byte, hash uint64, class int) ([]candidate, error) {
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
	switch len(run) {
	case 0:
		return dst, nil
	case 1:
		t, err := r.db.files.table(run[0])
		if err != nil {
			return dst, err
		}
		t.PrefetchRow(hash)
		return append(dst, candidate{t: t}), nil
	}
	return append(dst, candidate{run: run}), nil
}

// absentMany is after how many reads of rows that are not there a filter is expected to say so again.
const absentMany = 3

// candidate appends c if it has row. If it is the only one, it is found out where the row would be while the filter's memory comes; not
// of several, whose filters excuse most, and not where rows that are not there are asked for again and again.
func (r *reading) candidate(src []cell.Iter, c *candidate, row []byte, hash uint64, o cell.IterOptions, only bool) ([]cell.Iter, error) {
	if c.t == nil {
		it := merge.NewRun(c.run, r.db.files.opener(o)).Restrict(o.Columns)
		if it.SeekGE(row) && bytes.Equal(it.Row(), row) {
			return append(src, it), nil
		}
		err := it.Err()
		it.Close()
		return src, err
	}
	var at sstable.Spot
	if only && r.pts.absent < absentMany {
		at = c.t.Locate(row)
	}
	if !c.t.MayContainRow(hash) {
		r.pts.absent++
		r.db.stats.filtered.Add(r.slot, 1)
		return src, nil
	}
	r.pts.absent = 0
	o.Point = true
	it := r.pts.table(c.t, &o) // the pinned state lists the file, so it stays open
	if it.SeekRow(row, hash, at) {
		return append(src, it), nil
	}
	err := it.Err()
	it.Close()
	r.pts.untake()
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
