package engine

import (
	"bytes"
	"slices"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/levels"
)

// cutsMax bounds the files that one is cut into for the sake of what follows it, and cutBytes their size from below.
const (
	cutsMax  = 256
	cutBytes = 16 << 10
)

// cuts are the rows at which new files of a level of a tree are cut, so that what follows can be done in parts. Around a file that
// was set aside: what lies beside it is not held up with what overlaps it. While space is short, along the files that the new
// ones will be merged with: each such merge then takes less room. size is what is to be cut, plan where it comes from, nil for a
// memtable.
func (db *DB) cuts(st *state, tree uint64, level int, size int64, plan *levels.Plan) [][]byte {
	low := db.space.low.Load() || plan != nil && plan.Split
	if !low && !db.aside.any.Load() {
		return nil
	}
	t := st.version.Trees[tree]
	var out [][]byte
	for _, files := range t.Files {
		for _, f := range files {
			if db.aside.of(f.Num) != nil {
				out = append(out, f.Bounds.LoRow, append(bytes.Clone(f.Bounds.HiRow), 0))
			}
		}
	}
	if low {
		bounds := cell.Bounds{HiRow: bytes.Repeat([]byte{0xff}, cell.RowKeyMax)}
		if plan != nil {
			bounds = plan.Bounds()
		}
		rows := levels.CutRows(t, db.pickOptions(st, tree), level, bounds)
		cuts := int(min(max(size/cutBytes, 1), cutsMax))
		for i := 0; i < cuts && i < len(rows); i++ { // spread evenly
			out = append(out, rows[(2*i+1)*len(rows)/(2*min(cuts, len(rows)))])
		}
	}
	slices.SortFunc(out, bytes.Compare)
	return slices.CompactFunc(out, bytes.Equal)
}
