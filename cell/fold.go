package cell

import "encoding/binary"

// Fold is how the entries of one (row, column, timestamp) of an aggregate family become one value. The numbers are part of
// format 1.
//
// What is folded is a state: an int64 of StateLen bytes, big-endian two's complement. Folding is associative and
// commutative, so a fold of folds is the fold of all.
type Fold uint8

const (
	FoldNone Fold = 0 // not an aggregate family
	FoldSum  Fold = 1 // overflow wraps, as Go's int64 does
	FoldMin  Fold = 2
	FoldMax  Fold = 3
)

// StateLen is the size of a state, the value of every cell of KindMerge.
const StateLen = 8

// Join folds two states. FoldNone keeps newer.
func (f Fold) Join(newer, older int64) int64 {
	switch f {
	case FoldSum:
		return newer + older
	case FoldMin:
		return min(newer, older)
	case FoldMax:
		return max(newer, older)
	}
	return newer
}

// State decodes a state of exactly StateLen bytes.
func State(value []byte) (n int64, ok bool) {
	if len(value) != StateLen {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(value)), true
}

// PutState encodes a state into dst, which has StateLen bytes.
func PutState(dst []byte, n int64) { binary.BigEndian.PutUint64(dst, uint64(n)) }
