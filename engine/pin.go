package engine

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/gc"
)

type ruleOf = gc.Rule

// versions returns the timestamps of a column's undeleted versions, newest first, at most limit, rules not applied. It sees
// batches that are not published yet; the caller holds the row's latch, so that none of them is still at work on this row.
func (db *DB) versions(t *rtable, row, col []byte, limit int) ([]int64, error) {
	if limit == 0 {
		limit = 1 // whether anything is visible must be known
	}
	st := db.states.pin()
	defer st.unref()
	rd := reading{db: db, st: st, table: t, seq: math.MaxUint64}
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

// append adds an entry to the batch.
func (r *run) append(e cell.Entry) {
	before := r.entries.Len()
	r.entries.Append(e)
	at := 0
	for at < len(r.trees) && r.trees[at].tree != e.Tree {
		at++
	}
	if at == len(r.trees) {
		r.trees = append(r.trees, touched{tree: e.Tree})
	}
	r.trees[at].bytes += r.entries.Len() - before
	r.trees[at].entries++
	if !r.holes {
		return // nobody will ask
	}
	if r.own == nil {
		r.own = map[string]struct{}{}
	}
	r.own[string(r.ownKey(e.Tree, e.Row, e.Col))] = struct{}{} // a wide delete has no column
}

func (r *run) ownKey(tree uint64, row, col []byte) []byte {
	r.key = binary.AppendUvarint(r.key[:0], tree)
	r.key = binary.AppendUvarint(r.key, uint64(len(row)))
	r.key = append(append(r.key, row...), col...)
	return r.key
}

// ownEntries reports whether the batch may have changed this column before.
func (r *run) ownEntries(tree uint64, row, col []byte) bool {
	if _, ok := r.own[string(r.ownKey(tree, row, col))]; ok {
		return true
	}
	_, ok := r.own[string(r.ownKey(tree, row, nil))]
	return ok
}

// replayOwn applies the batch's earlier changes of the row to versions of column r.col.
func (r *run) replayOwn(tree uint64, row []byte, versions []int64) ([]int64, error) {
	rec := r.entries.AppendRecord(nil, cell.Header{FirstSeq: 1})
	rd, err := cell.ReadRecord(rec)
	if err != nil {
		return nil, err
	}
	for e, ok := rd.Next(); ok; e, ok = rd.Next() {
		if e.Tree != tree || !bytes.Equal(e.Row, row) {
			continue
		}
		switch e.Op {
		case cell.OpCell:
			if bytes.Equal(e.Col, r.col) && !slices.Contains(versions, e.TS) {
				versions = append(versions, e.TS)
			}
		case cell.OpDelete:
			if bytes.Equal(e.Col, r.col) {
				versions = slices.DeleteFunc(versions, func(ts int64) bool { return e.Lo <= ts && ts <= e.Hi })
			}
		case cell.OpRange:
			if e.Range.Contains(r.col) {
				versions = versions[:0]
			}
		}
	}
	slices.SortFunc(versions, func(a, b int64) int {
		if a > b {
			return -1
		}
		return 1
	})
	return versions, rd.Err()
}
