package levels

import (
	"fmt"
	"sync/atomic"

	"github.com/rowandb/rowan/cell"
)

// Depth is the number of levels of a tree, L0 included.
const Depth = 7

// Num numbers a table file.
type Num = uint64

// File describes one table file. Its fields do not change once it is part of a Version.
type File struct {
	Num    Num    // number, unique for the life of the store; gives the name
	ID     uint64 // identity that seeds the file's checksums
	Size   int64  // bytes
	Bounds cell.Bounds

	FirstSeq, LastSeq uint64 // the batches it came from
	Settled           uint64 // number of the last change of the table that its contents have gone through

	Rows, Cells     uint64
	Ranges, Deletes uint64 // wide and narrow deletes
	Holes           uint64 // narrow deletes that spare something older
	Lives           uint64 // of its cells' families: bit n is set if one is n modulo 64
	MinTS, MaxTS    int64  // of its cells; MinTS > MaxTS when it has none
	LogicalBytes    uint64 // keys and values as the user counts them

	refs atomic.Int32 // versions that list it
	slot atomic.Value // see Slot
}

// Slot is a place where the owner of the open files keeps what belongs to this one. Package levels never looks into it.
func (f *File) Slot() *atomic.Value { return &f.slot }

// HasDeletes reports whether the file says anything about older files.
func (f *File) HasDeletes() bool { return f.Ranges+f.Deletes > 0 }

// Base names of the files that only hold room for when the disk is full: one is given up to go on, the other to open. Their bytes
// mean nothing.
const (
	ReserveName     = "reserve"
	OpenReserveName = "reserve-open"
)

// IsReserve reports whether a base name is that of a file that only holds room.
func IsReserve(name string) bool { return name == ReserveName || name == OpenReserveName }

// TableName is the base name of a table file.
func TableName(num Num) string { return fmt.Sprintf("%08d.sst", num) }

// ParseTableName is the inverse of TableName.
func ParseTableName(name string) (Num, bool) {
	var n Num
	if len(name) < 12 || name[len(name)-4:] != ".sst" {
		return 0, false
	}
	for _, c := range []byte(name[:len(name)-4]) {
		if c < '0' || c > '9' || n > 1<<59 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, TableName(n) == name
}
