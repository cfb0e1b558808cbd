package cell

import "github.com/rowandb/rowan/internal/stripe"

// IterOptions narrows what an iterator over one source yields. The zero value yields everything.
type IterOptions struct {
	// Columns restricts cells and deletes to these columns; ranges are clipped to them. The zero Range means all. A row
	// without an entry in Columns may still be yielded, empty: a source does not look at cells to tell whether a row is there.
	Columns Range

	// Bounds restricts the iterator to what the source speaks for, where that is less than what it holds: a file whose
	// bounds were narrowed by a drop of rows. Nil means no restriction. Like Columns, it may leave a row empty.
	Bounds *Bounds

	// Point says that SeekGE is asked for one row and the rows after it do not matter: the iterator may end instead of going
	// on to them.
	Point bool

	// Wanted, if not nil, says more closely than Columns which columns are wanted: ascending, disjoint ranges inside Columns.
	// A source may use it to leave out blocks, and yields what it likes of the rest of Columns.
	Wanted []Range

	// MinTS and MaxTS allow a source to leave out cells outside [MinTS, MaxTS], both included, where that saves work; it may
	// yield them as well. Deletes are never left out. MaxTS 0 means no upper end.
	MinTS, MaxTS int64

	// ValuesTo allows a source to leave Cell.Value nil in cells with a later timestamp, where that saves work. 0: all values.
	ValuesTo int64

	// KeysOnly leaves Cell.Value nil. Values are neither read nor decoded.
	KeysOnly bool

	// NoFill keeps what is read out of the cache: for scans and merges, which read each block once. Blocks that are in the
	// cache are used.
	NoFill bool

	// Pass says that blocks are passed over one after the other, most of them once: for scans. What is read at first goes into the
	// cache, because a short scan is likely to be made again near by, and what follows only as far as the cache has room
	// to spare. NoFill goes before it.
	Pass bool

	// Stats, if not nil, gets what the iterator did added when it is closed.
	Stats *ReadStats
}

// ReadStats counts the work of iterators over files.
type ReadStats struct {
	Blocks     stripe.Counter // of which the keys were looked at
	LeftOut    stripe.Counter // that were not looked at because of what their index entry says
	ValueParts stripe.Counter // of blocks, of which values were looked at
}
