package engine

import (
	"math"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/io/mapped"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// propertiesIn are those of the files of a tree that overlap bounds, nil for all, and that may be done. They are read before
// anything is planned: plans are made under the lock of the jobs, where no file may be read.
func (db *DB) propertiesIn(tree uint64, bounds *cell.Bounds) map[levels.Num]*sstable.Properties {
	st := db.states.pin()
	defer st.unref()
	known := map[levels.Num]*sstable.Properties{}
	t := st.version.Trees[tree]
	if t == nil {
		return known
	}
	for _, files := range t.Files {
		for _, f := range files {
			cut := len(f.Bounds.LoCol) > 0 || f.Bounds.HiCol != nil
			if cut || f.HasDeletes() || bounds != nil && !f.Bounds.Overlaps(*bounds) || db.aside.of(f.Num) != nil {
				continue
			}
			p, err := db.properties(f)
			if err != nil {
				db.logger.Warn("cannot tell whether a table file needs merging, so it is merged", "file", db.files.path(f.Num), "cause", err)
				continue
			}
			known[f.Num] = p
		}
	}
	return known
}

// done returns the function that tells from which files a merge of the file alone would take nothing, now: it has no deletes, and of
// each family at most as many and as young versions as the rules keep. A file that is set aside or could not be read is none of
// them, so that its merge will tell.
func (db *DB) done(t *rtable, known map[levels.Num]*sstable.Properties) func(*levels.File) bool {
	asOf := db.clock.now()
	return func(f *levels.File) bool {
		p := known[f.Num]
		return p != nil && t != nil && db.aside.of(f.Num) == nil && keptWhole(t.Table, p, asOf)
	}
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
