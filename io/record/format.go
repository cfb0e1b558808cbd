// Package record is the byte format of the write-ahead log (slots of blocks that carry a stream of records) and the simple
// frames of the manifest. It lays bytes out and reads them back; opening, writing and syncing files is its caller's business.
// The drawing is docs/formats/log.md.
package record

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/internal/damage"
)

// Sizes of the log's format, in bytes.
const (
	BlockSize  = 4096      // what is rewritten until full; sectors of disks divide it
	HeaderSize = 80        // begins every block
	FrameSize  = 20        // begins every record: length, last sequence, checksum
	PayloadMax = 256 << 20 // of one record
	SlotMax    = 1 << 30   // of one slot: offsets fit 32 bits
)

// Pos is a place in the stream of all slots. Off counts from the start of the slot; a place at the edge of two blocks is the
// start of the second.
type Pos struct {
	Slot uint64
	Off  int64
}

// Compare orders places by age.
func (p Pos) Compare(o Pos) int {
	switch {
	case p.Slot != o.Slot && p.Slot < o.Slot, p.Slot == o.Slot && p.Off < o.Off:
		return -1
	case p == o:
		return 0
	}
	return 1
}

// canon gives the edge of two blocks its one name.
func canon(off int64) int64 {
	if in := off % BlockSize; in <= HeaderSize {
		return off - in
	}
	return off
}

// Header begins a block. It is written once, with the block's first bytes; a rewrite of the block repeats it.
type Header struct {
	Slot  uint64 // number of the slot, ascending over the life of the store
	Open  uint64 // how often the store had been opened
	First int    // offset in the block where the first record that starts in it does, or will; 0 if none does

	// Gap says that the stream before this block ends at End, and not at the end of the block before: after recovery
	// (End lies in an earlier slot) and after a quiet moment (End lies in the block before).
	Gap bool
	End Pos

	State
}

// State is what was known when a block was begun.
type State struct {
	Durable    Pos    // end of the last record that was durable as a whole
	DurableSeq uint64 // its last sequence
	EngineTime int64  // microseconds
	Stamp      int64  // highest stamp given, microseconds
}

const (
	magic   = 0x4c57_5231 // "1RWL": format 1
	flagGap = 1
)

// mix is a bijection that scatters (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// seedOf is the seed of all records that start in one life of a slot.
func seedOf(store, slot, open uint64) uint64 { return mix(mix(mix(store+1)+slot) + open) }

func headerSum(b []byte, store uint64, block int64) uint64 {
	return xxhash.Sum64(b[8:HeaderSize]) ^ mix(mix(store+2)+uint64(block))
}

// put writes the header of the block with the given number in its slot.
func (h *Header) put(b []byte, store uint64, block int64) {
	le := binary.LittleEndian
	b = b[:HeaderSize]
	flags, end := uint16(0), Pos{}
	if h.Gap {
		flags, end = flagGap, h.End
	}
	le.PutUint32(b[8:], magic)
	le.PutUint16(b[12:], uint16(h.First))
	le.PutUint16(b[14:], flags)
	le.PutUint64(b[16:], h.Slot)
	le.PutUint64(b[24:], h.Open)
	le.PutUint64(b[32:], h.Durable.Slot)
	le.PutUint32(b[40:], uint32(h.Durable.Off))
	le.PutUint32(b[44:], uint32(end.Off))
	le.PutUint64(b[48:], uint64(h.EngineTime))
	le.PutUint64(b[56:], uint64(h.Stamp))
	le.PutUint64(b[64:], h.DurableSeq)
	le.PutUint64(b[72:], end.Slot)
	le.PutUint64(b, headerSum(b, store, block))
}

// ReadHeader reads the header of a block. store is the identity of the store and block the block's number in its slot; both
// are part of the checksum. The error is a damage error without a file, its offset that of the block, or matches
// damage.ErrFormat if the header checks and is of a later format.
func ReadHeader(b []byte, store uint64, block int64) (Header, error) {
	h, ok := readHeader(b, store, block)
	if !ok {
		if n := laterFormat(b, store, block); n != 0 {
			return Header{}, fmt.Errorf("log of format %d, this build knows 1: %w", n, damage.ErrFormat)
		}
		return Header{}, damage.New("block header", block*BlockSize, "not a header of this store's log")
	}
	return h, nil
}

// laterFormat is the format that a header of a later one names, 0 if b is no such header. Later formats keep the checksum and
// the magic, but for its digit.
func laterFormat(b []byte, store uint64, block int64) int {
	le := binary.LittleEndian
	if len(b) < HeaderSize || le.Uint32(b[8:])>>8 != magic>>8 || b[8] <= '1' || b[8] > '9' || le.Uint64(b) != headerSum(b, store, block) {
		return 0
	}
	return int(b[8] - '0')
}

func readHeader(b []byte, store uint64, block int64) (h Header, ok bool) {
	le := binary.LittleEndian
	if len(b) < HeaderSize || le.Uint32(b[8:]) != magic || le.Uint64(b) != headerSum(b, store, block) {
		return h, false
	}
	flags := le.Uint16(b[14:])
	h = Header{
		First: int(le.Uint16(b[12:])), Gap: flags&flagGap != 0, Slot: le.Uint64(b[16:]), Open: le.Uint64(b[24:]),
		State: State{
			Durable:    Pos{le.Uint64(b[32:]), int64(le.Uint32(b[40:]))},
			DurableSeq: le.Uint64(b[64:]), EngineTime: int64(le.Uint64(b[48:])), Stamp: int64(le.Uint64(b[56:])),
		},
		End: Pos{le.Uint64(b[72:]), int64(le.Uint32(b[44:]))},
	}
	ok = flags&^flagGap == 0 && (h.Gap || h.End == Pos{}) && (h.First == 0 || h.First >= HeaderSize && h.First < BlockSize) &&
		h.End.Slot <= h.Slot && h.EngineTime >= 0 && h.Stamp >= 0
	return h, ok
}

// frameSum covers a record: its bytes, length, sequence, place, and the life of the slot it starts in. Two lives of a slot
// never give the same record the same sum, since everything but the hash of the bytes goes through bijections.
func frameSum(seed uint64, off int64, seq uint64, payload []byte) uint64 {
	s := mix(mix(mix(seed+uint64(off))+seq) + uint64(len(payload)))
	return xxhash.Sum64(payload) ^ bits.RotateLeft64(s, 17)
}
