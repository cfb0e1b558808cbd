// Package cell is the vocabulary of the store: what a cell is, how cells are ordered, what a delete covers, and how a
// batch of changes is written down. It imports no other room.
//
// A cell is (row key, column key, timestamp) -> value. One comparison orders all cells: row ascending, column ascending,
// timestamp descending, bytes compared as unsigned.
package cell

import (
	"bytes"
	"math"
)

// Limits of the model. They are checked before anything is written; a server may set lower ones.
const (
	RowKeyMax    = 64 << 10  // bytes of a row key; at least 1
	FamilyMax    = 64        // bytes of a family name; at least 1
	QualifierMax = 16 << 10  // bytes of a qualifier; may be empty
	ValueMax     = 100 << 20 // bytes of a value; may be empty

	// ColumnMax bounds a column key: family, 0x00, a life of at most 10 bytes, qualifier.
	ColumnMax = FamilyMax + 1 + 10 + QualifierMax
)

// Timestamps are microseconds, 0..MaxTimestamp.
const MaxTimestamp = math.MaxInt64

// Kind says what the value bytes of a cell are. The numbers are part of format 1.
type Kind uint8

const (
	KindSet   Kind = 1 // the value itself
	KindMerge Kind = 2 // a state that folds with older ones of the same cell, see Fold; only in aggregate families
	KindBlob  Kind = 3 // reserved: a reference to a value in a blob file
)

// Cell is one cell of a row that the reader knows already. It fills one cache line on 64-bit machines.
// Col and Value are borrowed from the source that produced them; see Iter.Cells for how long they live.
type Cell struct {
	Col   []byte // column key: family 0x00 life qualifier
	TS    int64  // microseconds, >= 0
	Value []byte
	// Dict names the dictionary of columns that the cell came with, for one process and across all sources; Code is the
	// column's number there. Equal Code and equal Dict mean equal columns. Dict is 0 where the source has no dictionary. A
	// dictionary's name is not used again before four billion others.
	Dict uint32
	Code uint16
	Kind Kind
}

// Compare orders two cells of one row: column ascending, timestamp descending.
func Compare(acol []byte, ats int64, bcol []byte, bts int64) int {
	if c := bytes.Compare(acol, bcol); c != 0 {
		return c
	}
	switch {
	case ats > bts:
		return -1
	case ats < bts:
		return 1
	}
	return 0
}
