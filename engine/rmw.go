package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/rowandb/rowan/cell"
)

// ReadModifyWrite is a list of rules, each of which appends to or increments the newest cell of a column. Not safe for
// concurrent use; it may be applied any number of times.
type ReadModifyWrite struct {
	rules []rmwRule
}

type rmwRule struct {
	family    string
	qualifier string
	increment bool
	delta     int64
	value     []byte // to append
}

// NewReadModifyWrite returns an empty list of rules.
func NewReadModifyWrite() *ReadModifyWrite { return &ReadModifyWrite{} }

// AppendValue appends value to the column's newest value; a column that has none counts as empty. value is not copied: leave it
// alone until the rules have been applied for the last time.
func (m *ReadModifyWrite) AppendValue(family, qualifier string, value []byte) {
	m.rules = append(m.rules, rmwRule{family: family, qualifier: qualifier, value: value})
}

// Increment adds delta to the column's newest value, a 64-bit big-endian integer; a column that has none counts as 0. Overflow
// wraps. A value of another size than 8 bytes fails the whole with ErrNotCounter.
func (m *ReadModifyWrite) Increment(family, qualifier string, delta int64) {
	m.rules = append(m.rules, rmwRule{family: family, qualifier: qualifier, increment: true, delta: delta})
}

// Len is the number of rules.
func (m *ReadModifyWrite) Len() int { return len(m.rules) }

// Reset empties the list and keeps its memory.
func (m *ReadModifyWrite) Reset() {
	clear(m.rules)
	m.rules = m.rules[:0]
}

func (m *ReadModifyWrite) check() (count int, size int64, err error) {
	if m == nil {
		return 0, 0, ErrNilReadModifyWrite
	}
	if len(m.rules) == 0 {
		return 0, 0, ErrNoRules
	}
	for i := range m.rules {
		u := &m.rules[i]
		o := op{kind: opSet, family: u.family, qualifier: u.qualifier, ts: ServerTime, value: u.value}
		if err := o.check(); err != nil {
			return 0, 0, placeRule(i, len(m.rules), err)
		}
		size += int64(len(u.family)+len(u.qualifier)+len(u.value)+cell.StateLen) + entryOverhead
	}
	return len(m.rules), size, nil
}

func placeRule(i, n int, err error) error { return fmt.Errorf("rule %d of %d: %w", i+1, n, err) }

// ReadModifyWrite applies rules to a row, in order and as one: each rule sees what those before it wrote. A rule takes the
// newest cell of its column, whatever its timestamp, if the collection rules leave it; and writes the result at the batch's
// ServerTime stamp or the timestamp of that cell, whichever is higher. So a cell from the future is replaced, and any other one
// stays as an older version.
//
// The row returned has the cells written, one a column, with their last values, in the order of reads. See Table.Apply for
// options, errors and ctx; with ErrUnknownOutcome the row is what would be written.
func (t *Table) ReadModifyWrite(ctx context.Context, row string, m *ReadModifyWrite, opts ...ApplyOption) (Row, error) {
	b := ones.Get().(*Batch)
	defer b.done()
	b.more.rmw, b.more.out, b.out = m, &b.out, Row{Key: row}
	b.items = append(b.items[:0], batchItem{table: t, row: row, more: &b.more})
	err := t.db.Apply(ctx, b, opts...)
	return b.out, err
}

// modified is a column that a read-modify-write changes.
type modified struct {
	tree      uint64
	col       []byte
	family    string
	qualifier string
	ts        int64
	value     []byte
}

// byName is the number of columns above which they are looked up by name.
const byName = 16

// modify evaluates rules and adds what they write to the batch. The result is the caller's own.
func (r *run) modify(t *rtable, row []byte, m *ReadModifyWrite) ([]Cell, error) {
	r.mods = r.mods[:0]
	var names map[string]int
	for i := range m.rules {
		u := &m.rules[i]
		f := t.Family(u.family)
		switch {
		case f == nil:
			return nil, placeRule(i, len(m.rules), fmt.Errorf("%w: %q in table %q", ErrNoFamily, u.family, t.Name))
		case f.Fold != cell.FoldNone:
			return nil, placeRule(i, len(m.rules), fmt.Errorf("%w: %q in table %q", ErrAggregate, u.family, t.Name))
		}
		r.col = cell.AppendColumn(r.col[:0], u.family, f.Life, u.qualifier)
		at := -1
		if names != nil {
			if n, ok := names[string(r.col)]; ok {
				at = n
			}
		} else {
			at = slices.IndexFunc(r.mods, func(x modified) bool { return bytes.Equal(x.col, r.col) })
		}
		if at < 0 {
			at = len(r.mods)
			if err := r.base(t, row, u); err != nil {
				return nil, placeRule(i, len(m.rules), err)
			}
			if names != nil {
				names[string(r.col)] = at
			} else if len(r.mods) > byName {
				names = make(map[string]int, len(m.rules))
				for n := range r.mods {
					names[string(r.mods[n].col)] = n
				}
			}
		}
		if err := r.mods[at].apply(u); err != nil {
			return nil, placeRule(i, len(m.rules), err)
		}
	}
	if len(r.mods) > 1 {
		slices.SortFunc(r.mods, func(a, b modified) int { return bytes.Compare(a.col, b.col) })
	}
	cells := make([]Cell, len(r.mods))
	for i := range r.mods {
		x := &r.mods[i]
		if err := r.append(t, &cell.Entry{Tree: x.tree, Row: row, Op: cell.OpCell, Kind: cell.KindSet, Col: x.col, TS: x.ts, Value: x.value}); err != nil {
			return nil, err
		}
		cells[i] = Cell{Family: x.family, Qualifier: x.qualifier, Timestamp: Timestamp(x.ts), Value: x.value}
	}
	return cells, nil
}

// base adds the newest cell of column r.col, which rule u is about, to r.mods.
func (r *run) base(t *rtable, row []byte, u *rmwRule) error {
	f := t.Family(u.family)
	c, ok, err := r.newest(t, f, row, r.col)
	if err != nil {
		return err
	}
	n := len(r.mods)
	if n < cap(r.mods) {
		r.mods = r.mods[:n+1]
	} else {
		r.mods = append(r.mods, modified{})
	}
	x := &r.mods[n]
	x.col = append(x.col[:0], r.col...)
	x.tree, x.family, x.qualifier, x.ts = t.treeOf(f), f.Name, u.qualifier, r.serverTime()
	switch {
	case ok:
		x.ts = max(x.ts, c.TS)
		x.value = append(make([]byte, 0, len(c.Value)+len(u.value)), c.Value...)
	case u.increment:
		x.value = make([]byte, cell.StateLen)
	default:
		x.value = make([]byte, 0, len(u.value))
	}
	return nil
}

func (x *modified) apply(u *rmwRule) error {
	if !u.increment {
		if n := len(x.value) + len(u.value); n > cell.ValueMax {
			return fmt.Errorf("%w: appending to column %q makes %d bytes", ErrValue, u.family+":"+u.qualifier, n)
		}
		x.value = append(x.value, u.value...)
		return nil
	}
	n, ok := cell.State(x.value)
	if !ok {
		return fmt.Errorf("%w: column %q has %d bytes", ErrNotCounter, u.family+":"+u.qualifier, len(x.value))
	}
	cell.PutState(x.value, n+u.delta)
	return nil
}
