package engine

import (
	"fmt"
	"unsafe"
)

// Batch is a list of mutations, read-modify-writes and preconditions of rows, over any tables of one store, that is applied as
// a whole or not at all. Each item sees what the items before it did. Not safe for concurrent use.
//
// A Batch may be applied any number of times, and Reset makes it ready for other items in the same memory; the same goes for
// Mutation. A load that reuses its Batch and as many Mutations as that has items, and whose row keys are strings already,
// allocates nothing.
type Batch struct {
	items   []batchItem
	matched bool // what the last conditional mutation's condition said

	// Of a batch that Table.ReadModifyWrite makes.
	more batchMore
	out  Row
}

// batchItem has either a mutation or more.
type batchItem struct {
	table *Table
	row   string
	mut   *Mutation
	more  *batchMore
}

// batchMore is an item that is no mutation: a precondition, or a read-modify-write.
type batchMore struct {
	require bool
	cond    Filter // of a precondition
	want    bool
	rmw     *ReadModifyWrite
	out     *Row // where the result of a read-modify-write goes
}

// NewBatch returns an empty batch.
func NewBatch() *Batch { return &Batch{} }

// Add appends a mutation of one row. The mutation must not change until the batch has been applied. Mutations of the same
// row apply in the order in which they were added.
func (b *Batch) Add(t *Table, row string, m *Mutation) {
	b.items = append(b.items, batchItem{table: t, row: row, mut: m})
}

// Require makes the batch depend on a row: cond must pass at least one of its cells, or none if want is false, when the items
// before have been applied. A nil cond passes every cell. If it is otherwise the batch fails with ErrPrecondition and writes
// nothing. Collected cells are not there. Sink filters are refused.
func (b *Batch) Require(t *Table, row string, cond Filter, want bool) {
	b.items = append(b.items, batchItem{table: t, row: row, more: &batchMore{require: true, cond: cond, want: want}})
}

// AddReadModifyWrite appends a read-modify-write, see Table.ReadModifyWrite. The row that it returns is empty; it is filled in
// when the batch has its place in the write order, at each Apply anew.
func (b *Batch) AddReadModifyWrite(t *Table, row string, m *ReadModifyWrite) *Row {
	out := &Row{}
	b.items = append(b.items, batchItem{table: t, row: row, more: &batchMore{rmw: m, out: out}})
	return out
}

// Len is the number of items.
func (b *Batch) Len() int { return len(b.items) }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	clear(b.items)
	b.items = b.items[:0]
}

// conds counts the conditional mutations.
func (b *Batch) conds() (n int) {
	for i := range b.items {
		if m := b.items[i].mut; m != nil && m.cond != nil {
			n++
		}
	}
	return n
}

// check is everything about a batch that needs no schema.
func (b *Batch) check(db *DB) error {
	count, size := 0, int64(0)
	for i := range b.items {
		it := &b.items[i]
		n, s, err := it.check(db)
		if err != nil {
			return b.place(i, err)
		}
		count, size = count+n, size+s+int64(len(it.row))
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

// check returns the number of changes and about how many bytes they take in the log.
func (it *batchItem) check(db *DB) (count int, size int64, err error) {
	if it.mut == nil && it.more == nil {
		return 0, 0, ErrNilMutation
	}
	if it.table == nil || it.table.db != db {
		return 0, 0, fmt.Errorf("%w: the mutation names no table of this store", ErrNoTable)
	}
	if err := checkRow(it.row); err != nil {
		return 0, 0, err
	}
	switch {
	case it.mut != nil:
		return it.mut.check()
	case it.more.require:
		return 0, 0, nil
	}
	return it.more.rmw.check()
}

func (m *Mutation) check() (count int, size int64, err error) {
	if m.cond != nil {
		return m.checkCond()
	}
	for j := range m.ops {
		o := &m.ops[j]
		if err := o.check(); err != nil {
			return 0, 0, placeOp(j, len(m.ops), err)
		}
		size += int64(len(o.family)+len(o.qualifier)+len(o.value)) + entryOverhead
	}
	return len(m.ops), size, nil
}

// placeOp says which change of a mutation an error is about.
func placeOp(j, n int, err error) error { return fmt.Errorf("change %d of %d: %w", j+1, n, err) }

// place says which item an error is about, where there are several.
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
