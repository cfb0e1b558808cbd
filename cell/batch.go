package cell

// Batch is a stretch of whole rows that have cells and no deletes. It is reused: filling it again overwrites what it held.
type Batch struct {
	Rows []BatchRow // ascending

	// Memory that the rows may point into; whoever fills the batch uses it as he likes.
	Keys  []byte
	Cells []Cell
}

// BatchRow is one row of a batch and all its cells, at least one.
type BatchRow struct {
	Key   []byte
	Cells []Cell
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { b.Keys, b.Rows, b.Cells = b.Keys[:0], b.Rows[:0], b.Cells[:0] }

// Batcher is an Iter that can hand out many rows at a time, which saves merges the calls per row.
type Batcher interface {
	Iter

	// NextBatch fills b with the current row and some that follow it, all below stop unless that is nil, and goes to the last of
	// them with its cells passed. It may be called on a row that a move forward has just led to; what it cannot hand out whole
	// it leaves alone: then b is empty and nothing has moved, unless Err says that it failed. The batch is valid until the
	// next row move. Its cells may be moved about; values have spare capacity that is not theirs: nobody may append to them.
	NextBatch(b *Batch, stop []byte)
}
