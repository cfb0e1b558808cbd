package engine

import (
	"bytes"
	"math"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/gc"
)

// pin decides what a delete that makes a hole must remove beforehand: everything below the collection floor, so that what
// was collected, or may be at any moment, does not come back because a newer version is deleted. It returns the highest
// timestamp to remove from 0 on, -1 for none. r.col is the column.
func (r *run) pin(t *rtable, row []byte, rule gc.Rule) (int64, error) {
	versions, err := r.versions(t, row, r.col, rule.VersionsNeeded())
	if err != nil {
		return 0, err
	}
	if len(versions) == 0 || rule.Drops(0, versions[0], r.now) {
		return math.MaxInt64, nil
	}
	if floor, ok := rule.Floor(versions, r.now); ok {
		return floor - 1, nil
	}
	return -1, nil
}

// versions returns the timestamps of a column's undeleted versions, newest first, at most limit and at least one if there is
// any, rules not applied.
func (r *run) versions(t *rtable, row, col []byte, limit int) ([]int64, error) {
	limit = max(limit, 1) // whether anything is visible must be known
	rd := r.reading(t)
	m, err := rd.point(row, cell.IterOptions{Columns: columnRange(col), KeysOnly: true}, merge.Config{Families: t.families, Raw: true})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	var out []int64
	buf := make([]cell.Cell, 0, 64)
	for len(out) < limit {
		buf = m.Cells(buf[:0])
		if len(buf) == 0 {
			break
		}
		for i := range buf {
			if bytes.Equal(buf[i].Col, col) && len(out) < limit {
				out = append(out, buf[i].TS)
			}
		}
	}
	return out, m.Err()
}

// columnRange is the range of exactly one column.
func columnRange(col []byte) cell.Range {
	return cell.Range{From: col, To: append(append(make([]byte, 0, len(col)+1), col...), 0)}
}
