package engine

import (
	"math"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/io/mapped"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// doneFiles returns the files of a tree that overlap bounds, nil for all, and from which a merge of the file alone would take
// nothing: it has no deletes, and of each family at most as many and as young versions as the rules keep now. A file that is set aside
// or cannot be read is none of them, so that its merge will tell.
func (db *DB) doneFiles(tree uint64, bounds *cell.Bounds) map[levels.Num]bool {
	st := db.states.pin()
	defer st.unref()
	done := map[levels.Num]bool{}
	table, t := st.tableOf(tree), st.version.Trees[tree]
	if table == nil || t == nil {
		return done
	}
	asOf := db.clock.now()
	for _, files := range t.Files {
		for _, f := range files {
			cut := len(f.Bounds.LoCol) > 0 || f.Bounds.HiCol != nil
			if cut || f.HasDeletes() || db.aside.of(f.Num) != nil || bounds != nil && !f.Bounds.Overlaps(*bounds) {
				continue
			}
			p, err := db.properties(f)
			if err != nil {
				db.logger.Warn("cannot tell whether a table file needs merging, so it is merged", "file", db.files.path(f.Num), "cause", err)
				continue
			}
			done[f.Num] = keptWhole(table.Table, p, asOf)
		}
	}
	return done
}

// properties are a file's own, of which the manifest has a part.
func (db *DB) properties(f *levels.File) (p *sstable.Properties, err error) {
	defer mapped.Leave(mapped.Enter(), &err)
	r, err := db.files.table(f)
	if err != nil {
		return nil, err
	}
	return r.Properties(), nil
}

// keptWhole reports whether the rules of the table keep all cells of a file whose rows are whole.
func keptWhole(t *levels.Table, p *sstable.Properties, asOf int64) bool {
	for i := range p.Families {
		have := &p.Families[i]
		f := t.ByLife(have.Life)
		// What is added to a cell of an aggregate family may stand beside it.
		if f == nil || f.Fold != levels.FoldNone || f.Rule.Drops(highestRank(have), have.MinTS, asOf) {
			return false
		}
	}
	return true
}

// highestRank is a rank that no version of a cell of the family is beyond; the newest version has 0.
func highestRank(f *sstable.FamilyProps) int {
	for i, beyond := range f.Beyond { // beyond so many versions: 1, 2, 4, 8
		if beyond == 0 {
			return 1<<i - 1
		}
	}
	return math.MaxInt32
}
