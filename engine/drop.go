package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/levels"
)

// DropRowRange removes all rows of a range, in one step whose cost does not depend on how much they hold: what lies in whole
// files goes at once, the rest is hidden from then on and removed in the background. It has a place in the order of writes: what
// was written before is gone, what is written after stays, whatever its timestamp. It is durable when it returns. ctx bounds
// waiting; batches of the table wait meanwhile. Snapshots taken before still see the rows. For a few rows a batch of deletes is
// cheaper: a drop seals the table's memtables, and files that lie in the range in part are rewritten. A NewRange with an empty
// end is refused with ErrRange: to drop all that follows takes InfiniteRange.
func (t *Table) DropRowRange(ctx context.Context, rows RowRange) error {
	if rows.end == (bound{kind: exclusive}) {
		return fmt.Errorf("%w: the end is empty; use InfiniteRange to drop all rows from %.80q on", ErrRange, rows.start.key)
	}
	spans, err := rows.spans(nil)
	if err != nil {
		return err
	}
	var s span
	if len(spans) > 0 {
		s = spans[0].ofRows()
		if s.hi != nil && bytes.Compare(s.lo, s.hi) >= 0 {
			spans = nil // no row lies between
		}
	}
	var held []levels.Num
	defer func() { t.db.jobs.unhold(held) }()
	return t.db.alter(ctx, t.name, alteration{
		make: func(a *altering) error {
			if len(spans) == 0 {
				return nil
			}
			c := levels.Change{Kind: levels.ChangeRows, Lo: s.lo, Hi: s.hi}
			// What is behind an earlier drop of some of these rows is behind this one.
			a.table.Changes = slices.DeleteFunc(a.table.Changes, func(o levels.Change) bool { return c.Includes(&o) })
			a.change(c)
			return nil
		},
		files: func(v *levels.Version, a *altering, e *levels.Edit) {
			if len(spans) > 0 {
				held = t.db.jobs.takeWhole(v, a.table, e)
			}
		},
	})
}

// ofRows is the span with the same rows whose ends are no longer than the key after the longest row: the manifest takes no
// longer ones.
func (s span) ofRows() span {
	clip := func(key []byte) []byte {
		if len(key) <= cell.RowKeyMax {
			return key
		}
		return append(bytes.Clone(key[:cell.RowKeyMax]), 0)
	}
	return span{lo: clip(s.lo), hi: clip(s.hi)}
}

// DropAllRows removes all rows of the table, as DropRowRange does.
func (t *Table) DropAllRows(ctx context.Context) error { return t.DropRowRange(ctx, AllRows()) }

// takeWhole removes with e the files that lie whole in the rows which the table's last change drops, and holds them until the
// edit is installed; damaged ones that were set aside too. Files that a job is at work on stay: its output is behind the
// change as they are.
func (j *jobs) takeWhole(v *levels.Version, t *levels.Table, e *levels.Edit) (held []levels.Num) {
	c := &t.Changes[len(t.Changes)-1]
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, g := range t.Groups {
		tree := v.Trees[g.Tree]
		if tree == nil {
			continue
		}
		for l, files := range tree.Files {
			for _, f := range files {
				if c.Covers(f.Bounds) && !j.busy.Taken(f.Num) {
					j.busy.Hold(f.Num)
					held = append(held, f.Num)
					e.Deleted = append(e.Deleted, levels.DeletedFile{Tree: g.Tree, Level: l, Num: f.Num})
				}
			}
		}
	}
	if len(held) > 0 {
		j.dropping++
	}
	return held
}

// unhold gives back what takeWhole took, and wakes who found it in his way.
func (j *jobs) unhold(files []levels.Num) {
	if len(files) == 0 {
		return
	}
	j.mu.Lock()
	j.dropping--
	for _, num := range files {
		j.busy.Release(num)
	}
	j.mu.Unlock()
	j.kick()
	j.wake()
}
