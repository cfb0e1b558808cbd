package engine

import (
	"math"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/memtable"
)

// everything is a sequence above all that are given.
const everything = math.MaxUint64

// overlay is a batch's own changes so far, by tree: the newest source of what the batch reads. It is kept only for batches that
// may read a row after they have changed it.
type overlay struct {
	trees []uint64
	mems  []*memtable.Table
}

// of is the source of a tree, nil if the batch has not changed it.
func (o *overlay) of(tree uint64) *memtable.Table {
	if o == nil {
		return nil
	}
	for i, id := range o.trees {
		if id == tree {
			return o.mems[i]
		}
	}
	return nil
}

func (o *overlay) add(db *DB, e cell.Entry, fold cell.Fold, seq uint64) error {
	m := o.of(e.Tree)
	if m == nil {
		m = memtable.New(memtable.Options{Pool: db.arenas})
		o.trees, o.mems = append(o.trees, e.Tree), append(o.mems, m)
	}
	return applyEntry(m, e, fold, seq)
}

func (o *overlay) release() {
	for _, m := range o.mems {
		m.Release()
	}
	clear(o.mems)
	o.trees, o.mems = o.trees[:0], o.mems[:0]
}
