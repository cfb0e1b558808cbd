package engine

import (
	"fmt"
	"math"
	"time"

	"github.com/rowandb/rowan/cell"
)

// Timestamp is a cell's version: microseconds since the Unix epoch, 0 to MaxInt64.
type Timestamp int64

// ServerTime as the timestamp of a Set asks the store for one: never below its clock, and for one row greater than every
// earlier stamp that the store gave it. All ServerTime cells of a batch get the same stamp.
const ServerTime Timestamp = -1

// Time returns t as a timestamp; times that have none become the nearest number of microseconds that there is.
func Time(t time.Time) Timestamp { return Timestamp(micros(t)) }

// micros is t.UnixMicro where that does not overflow.
func micros(t time.Time) int64 {
	const most = math.MaxInt64 / 1_000_000
	switch s := t.Unix(); {
	case s >= most:
		return math.MaxInt64
	case s <= -most:
		return math.MinInt64
	}
	return t.UnixMicro()
}

// Time returns the timestamp as a time.
func (t Timestamp) Time() time.Time { return time.UnixMicro(int64(t)) }

// Mutation is a list of changes to one row, applied in order and all at once. A delete removes what exists at that moment;
// what is written afterwards, later in the same mutation too, stays, whatever its timestamp. Not safe for concurrent use;
// it may be applied any number of times.
type Mutation struct {
	ops  []op
	cond *condition // of a conditional mutation, which has no ops of its own
}

type opKind uint8

const (
	opSet opKind = iota
	opDeleteColumn
	opDeleteFamily
	opDeleteRow
	opAdd
)

type op struct {
	kind      opKind
	family    string
	qualifier string
	ts        Timestamp // opSet, opAdd
	lo, hi    int64     // opDeleteColumn, inclusive; lo: the state of an opAdd
	value     []byte
	err       error
}

// NewMutation returns an empty mutation.
func NewMutation() *Mutation { return &Mutation{} }

// Reset empties the mutation and keeps its memory.
func (m *Mutation) Reset() {
	clear(m.ops)
	m.ops, m.cond = m.ops[:0], nil
}

// Len is the number of changes; of a conditional mutation, those of the longer branch.
func (m *Mutation) Len() int {
	if m.cond != nil {
		return max(m.cond.branch(true).Len(), m.cond.branch(false).Len())
	}
	return len(m.ops)
}

// Set writes one cell, replacing the one at the same column and timestamp. value is not copied: leave it alone until the
// mutation has been applied for the last time.
func (m *Mutation) Set(family, qualifier string, ts Timestamp, value []byte) {
	m.ops = append(m.ops, op{kind: opSet, family: family, qualifier: qualifier, ts: ts, value: value})
}

// AddIntToCell folds n into one cell of an aggregate family, as the family says: sum, minimum or maximum. A cell that does not
// exist becomes n. The cell is not read: Adds of many writers never wait for a file. ts is 0 or more; ServerTime is refused,
// because the timestamp names the cell that is folded into: choose it, for example the beginning of the hour. A family that is
// not an aggregate gives ErrNotAggregate.
func (m *Mutation) AddIntToCell(family, qualifier string, ts Timestamp, n int64) {
	m.ops = append(m.ops, op{kind: opAdd, family: family, qualifier: qualifier, ts: ts, lo: n})
}

// MergeBytesToCell is AddIntToCell of a state as a read returns it: exactly 8 bytes, big-endian.
func (m *Mutation) MergeBytesToCell(family, qualifier string, ts Timestamp, state []byte) {
	o := op{kind: opAdd, family: family, qualifier: qualifier, ts: ts}
	var ok bool
	if o.lo, ok = cell.State(state); !ok {
		o.err = fmt.Errorf("%w: it has %d bytes", ErrState, len(state))
	}
	m.ops = append(m.ops, o)
}

// DeleteCellsInColumn removes all versions of a column.
func (m *Mutation) DeleteCellsInColumn(family, qualifier string) {
	m.ops = append(m.ops, op{kind: opDeleteColumn, family: family, qualifier: qualifier, lo: 0, hi: math.MaxInt64})
}

// DeleteTimestampRange removes the versions of a column from start, included, to end, excluded. End 0 means no upper end.
// An empty or negative range is an error when the mutation is applied.
func (m *Mutation) DeleteTimestampRange(family, qualifier string, start, end Timestamp) {
	o := op{kind: opDeleteColumn, family: family, qualifier: qualifier, lo: int64(start), hi: int64(end) - 1}
	if end == 0 {
		o.hi = math.MaxInt64
	}
	if start < 0 || end < 0 || end != 0 && start >= end {
		o.err = fmt.Errorf("%w: [%d, %d)", ErrTimeRange, start, end)
	}
	m.ops = append(m.ops, o)
}

// DeleteCellsInFamily removes all cells of a family.
func (m *Mutation) DeleteCellsInFamily(family string) {
	m.ops = append(m.ops, op{kind: opDeleteFamily, family: family})
}

// DeleteRow removes all cells of the row.
func (m *Mutation) DeleteRow() {
	m.ops = append(m.ops, op{kind: opDeleteRow})
}

func (o *op) check() error {
	if o.err != nil {
		return o.err
	}
	if o.kind == opDeleteRow {
		return nil
	}
	if err := cell.CheckFamily(o.family); err != nil {
		return err
	}
	if len(o.qualifier) > cell.QualifierMax {
		return fmt.Errorf("%w: it has %d", ErrQualifier, len(o.qualifier))
	}
	switch o.kind {
	case opAdd:
		if o.ts < 0 {
			return fmt.Errorf("%w: %d; an Add names the cell that it folds into", ErrAddTimestamp, o.ts)
		}
	case opSet:
		if o.ts < ServerTime {
			return fmt.Errorf("%w: %d", ErrTimestamp, o.ts)
		}
		if len(o.value) > cell.ValueMax {
			return fmt.Errorf("%w: it has %d bytes", ErrValue, len(o.value))
		}
	}
	return nil
}

func checkRow(row string) error {
	if len(row) == 0 || len(row) > cell.RowKeyMax {
		return fmt.Errorf("%w: it has %d", ErrRowKey, len(row))
	}
	return nil
}
