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
}

// scan returns all sources of the table, newest first, joined.
func (r *reading) scan(o cell.IterOptions, cfg merge.Config) *merge.Iter {
	tree := r.st.version.Trees[r.table.tree]
	mems := r.st.trees[r.table.tree]
	src := make([]cell.Iter, 0, 1+len(mems.sealed)+len(tree.Sub)+levels.Depth)
	src = append(src, mems.active.NewIter(r.seq, o))
	for i := len(mems.sealed) - 1; i >= 0; i-- {
		src = append(src, mems.sealed[i].NewIter(r.seq, o))
	}
	open := r.db.files.opener(o)
	for i := len(tree.Sub) - 1; i >= 0; i-- {
		src = append(src, merge.NewRun(tree.Sub[i], open))
	}
	for l := 1; l < levels.Depth; l++ {
		if len(tree.Files[l]) > 0 {
			src = append(src, merge.NewRun(tree.Files[l], open))
		}
	}
	return merge.New(cfg, src)
}

// point returns the sources that have row, newest first, joined and standing on it. A source without the row is left out;
// for files the row filter decides first.
func (r *reading) point(row []byte, o cell.IterOptions, cfg merge.Config) (_ *merge.Iter, err error) {
	src := make([]cell.Iter, 0, 8)
	defer func() {
		if err != nil {
			for _, it := range src {
				it.Close()
			}
		}
	}()
	if own := r.own.of(r.table.tree); own != nil {
		if it := own.NewIter(everything, o); it.SeekExact(row) {
			src = append(src, it)
		} else {
			it.Close()
		}
	}
	mems := r.st.trees[r.table.tree]
	for i := len(mems.sealed); i >= 0; i-- {
		m := mems.active
		if i < len(mems.sealed) {
			m = mems.sealed[i]
		}
		it := m.NewIter(r.seq, o)
		if it.SeekExact(row) {
			src = append(src, it)
		} else {
			it.Close()
		}
	}
	tree := r.st.version.Trees[r.table.tree]
	hash := bloom.HashRow(row)
	for i := len(tree.Sub) - 1; i >= 0; i-- {
		if src, err = r.pointRun(src, tree.Sub[i], row, hash, o); err != nil {
			return nil, err
		}
	}
	for l := 1; l < levels.Depth; l++ {
		if src, err = r.pointRun(src, tree.Files[l], row, hash, o); err != nil {
			return nil, err
		}
	}
	m := merge.New(cfg, src)
	m.Here(row)
	return m, nil
}

func (r *reading) pointRun(src []cell.Iter, run []*levels.File, row []byte, hash uint64, o cell.IterOptions) ([]cell.Iter, error) {
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
	var it cell.Iter
	switch hi - lo {
	case 0:
		return src, nil
	case 1:
		t, err := r.db.files.table(run[lo])
		if err != nil {
			return src, err
		}
		if !t.MayContainRow(hash) {
			r.db.stats.filtered.Add(1)
			return src, nil
		}
		it = t.NewIter(o)
	default:
		it = merge.NewRun(run[lo:hi], r.db.files.opener(o))
	}
	if it.SeekGE(row) && bytes.Equal(it.Row(), row) {
		return append(src, it), nil
	}
	err := it.Err()
	it.Close()
	return src, err
}
