package engine

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/rowandb/rowan/cell"
)

// Timestamp is a cell's version: microseconds since the Unix epoch, 0 to MaxInt64.
type Timestamp int64

// ServerTime as the timestamp of a Set asks the store for one: never below its clock, and for one row greater than every
// earlier stamp that the store gave it. All ServerTime cells of a batch get the same stamp.
const ServerTime Timestamp = -1

// Time returns t as a timestamp.
func Time(t time.Time) Timestamp { return Timestamp(t.UnixMicro()) }

// Time returns the timestamp as a time.
func (t Timestamp) Time() time.Time { return time.UnixMicro(int64(t)) }

// Mutation is a list of changes to one row, applied in order and all at once. A delete removes what exists at that moment;
// what is written afterwards, later in the same mutation too, stays, whatever its timestamp. Not safe for concurrent use;
// it may be applied any number of times.
type Mutation struct {
	ops []op
}

type opKind uint8

const (
	opSet opKind = iota
	opDeleteColumn
	opDeleteFamily
	opDeleteRow
)

type op struct {
	kind      opKind
	family    string
	qualifier string
	ts        Timestamp // opSet
	lo, hi    int64     // opDeleteColumn, inclusive
	value     []byte
	err       error
}

// NewMutation returns an empty mutation.
func NewMutation() *Mutation { return &Mutation{} }

// Reset empties the mutation and keeps its memory.
func (m *Mutation) Reset() {
	clear(m.ops)
	m.ops = m.ops[:0]
}

// Len is the number of changes.
func (m *Mutation) Len() int { return len(m.ops) }

// Set writes one cell, replacing the one at the same column and timestamp. value is not copied: leave it alone until the
// mutation has been applied for the last time.
func (m *Mutation) Set(family, qualifier string, ts Timestamp, value []byte) {
	m.ops = append(m.ops, op{kind: opSet, family: family, qualifier: qualifier, ts: ts, value: value})
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
	if o.kind == opSet {
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

// Batch is a list of mutations of rows, over any tables of one store, that is applied as a whole or not at all. Not safe
// for concurrent use.
type Batch struct {
	items []batchItem
}

type batchItem struct {
	table *Table
	row   string
	mut   *Mutation
}

// NewBatch returns an empty batch.
func NewBatch() *Batch { return &Batch{} }

// Add appends a mutation of one row. The mutation must not change until the batch has been applied. Mutations of the same
// row apply in the order in which they were added.
func (b *Batch) Add(t *Table, row string, m *Mutation) {
	b.items = append(b.items, batchItem{table: t, row: row, mut: m})
}

// Len is the number of mutations.
func (b *Batch) Len() int { return len(b.items) }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	clear(b.items)
	b.items = b.items[:0]
}

// check is everything about a batch that needs no schema.
func (b *Batch) check(db *DB) error {
	if b == nil {
		return ErrNilBatch
	}
	count, size := 0, int64(0)
	for i := range b.items {
		it := &b.items[i]
		if err := it.check(db); err != nil {
			return b.place(i, err)
		}
		for j := range it.mut.ops {
			o := &it.mut.ops[j]
			if err := o.check(); err != nil {
				return b.place(i, fmt.Errorf("change %d of %d: %w", j+1, len(it.mut.ops), err))
			}
			size += int64(len(o.family)+len(o.qualifier)+len(o.value)) + entryOverhead
		}
		size += int64(len(it.row))
		count += len(it.mut.ops)
	}
	if count > BatchCellsMax {
		return fmt.Errorf("%w: %d, the most is %d", ErrBatchTooLong, count, BatchCellsMax)
	}
	if size > BatchBytesMax {
		return fmt.Errorf("%w: %d, the most is %d", ErrBatchTooBig, size, BatchBytesMax)
	}
	return nil
}

// entryOverhead bounds what one change adds to the log beside its names and value: operation, lengths, life, timestamps,
// and the pin that a delete of single versions may bring along.
const entryOverhead = 64

func (it *batchItem) check(db *DB) error {
	switch {
	case it.mut == nil:
		return ErrNilMutation
	case it.table == nil || it.table.db != db:
		return fmt.Errorf("%w: the mutation names no table of this store", ErrNoTable)
	}
	return checkRow(it.row)
}

// place says which mutation an error is about, where there are several.
func (b *Batch) place(i int, err error) error {
	row := b.items[i].row
	if len(row) > 80 {
		row = row[:80] + "..."
	}
	if len(b.items) == 1 {
		return fmt.Errorf("row %q: %w", row, err)
	}
	return fmt.Errorf("mutation %d of %d, row %q: %w", i+1, len(b.items), row, err)
}

// bytesOf is s as bytes that must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
