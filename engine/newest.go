package engine

import (
	"bytes"
	"math"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/memtable"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/levels"
)

// newest returns the newest cell of a column of a plain family that its rule leaves, as the batch sees it. Its value is valid as
// long as the state is pinned.
//
// Of the cells that a rule leaves the newest live one is always the first, so memtables are asked from the newest on, and files
// only if one of them may hold a later timestamp than what was found: a counter that is written often costs no file access.
func (r *run) newest(t *rtable, f *levels.Family, row, col []byte) (cell.Cell, bool, error) {
	tree, rule := t.treeOf(f), f.Rule
	c, found, sure := r.newestInMemory(t, tree, row, col)
	if !sure {
		return r.newestOfAll(t, row, col)
	}
	return c, found && !rule.Drops(0, c.TS, r.now), nil
}

// newestInMemory looks at memtables only. sure is false if the answer may lie deeper, or takes merging to know.
func (r *run) newestInMemory(t *rtable, tree uint64, row, col []byte) (best cell.Cell, found, sure bool) {
	if len(t.group(tree).standing) > 0 {
		return best, false, false // a source may have to be seen through a mask or an older rule
	}
	mems := r.st.trees[tree]
	n := len(mems.sealed)
	r.upTo = append(append(r.upTo[:0], col...), 0)
	cols := cell.Range{From: col, To: r.upTo}
	for i := -1; i <= n; i++ {
		var m *memtable.Table
		switch {
		case i < 0:
			if m = r.own.of(tree); m == nil {
				continue
			}
		case i == 0:
			m = mems.active.Table
		default:
			m = mems.sealed[n-i].Table
		}
		c, ok, deleted := m.Newest(&r.it, row, cols)
		if ok && (!found || c.TS > best.TS) {
			best, found = c, true
		}
		switch deleted {
		case memtable.DeletedAll:
			return best, found, true
		case memtable.DeletedSome:
			return best, found, false
		}
	}
	return best, found, found && best.TS >= newestInFiles(r.st.version.Trees[tree], row)
}

// newestInFiles bounds the timestamps that a row can have in a tree's files, from what is known of them without opening any.
func newestInFiles(tree *levels.Tree, row []byte) int64 {
	most := int64(math.MinInt64)
	for _, run := range tree.Sub {
		most = max(most, newestInRun(run, row))
	}
	for l := 1; l < levels.Depth; l++ {
		most = max(most, newestInRun(tree.Files[l], row))
	}
	return most
}

func newestInRun(run []*levels.File, row []byte) int64 {
	most := int64(math.MinInt64)
	lo, hi := 0, len(run)
	for lo < hi {
		mid := (lo + hi) / 2
		if bytes.Compare(run[mid].Bounds.HiRow, row) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for ; lo < len(run) && run[lo].Bounds.ContainsRow(row); lo++ {
		if f := run[lo]; f.MinTS <= f.MaxTS {
			most = max(most, f.MaxTS)
		}
	}
	return most
}

// newestOfAll merges all sources.
func (r *run) newestOfAll(t *rtable, row, col []byte) (c cell.Cell, ok bool, err error) {
	rd := r.reading(t)
	m, err := rd.point(row, cell.IterOptions{Columns: columnRange(col)}, merge.Config{Families: t.families, AsOf: r.now, Pass: true})
	if err != nil {
		return c, false, err
	}
	defer closeInto(m, &err)
	r.db.stats.rowReads.Add(0, 1)
	cells := m.Cells(make([]cell.Cell, 0, 1))
	if len(cells) == 0 {
		return c, false, m.Err()
	}
	c = cells[0]
	c.Value = bytes.Clone(c.Value) // the file lets go of it
	return c, true, nil
}
