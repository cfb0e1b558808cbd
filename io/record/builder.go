package record

import (
	"encoding/binary"
	"fmt"
)

// Builder lays records out in the blocks of one slot after the other, in a buffer that its caller writes out. It does no I/O
// and is used by one goroutine.
//
//	b.Reset(...)                    // a slot
//	b.Start(seq, payload)           // unless b.Full()
//	for !b.Fill() {                 // the buffer or the slot is full
//		write b.Pending(), b.Written(); if b.Full() { b.Reset(next slot) }
//	}
//	write b.Pending(), b.Written()  // the tail block stays in the buffer and is written again, longer
type Builder struct {
	// State goes into the headers of the blocks that are begun from now on.
	State State

	store, slot, open, seed uint64
	size                    int64 // of the slot
	align                   int

	buf  []byte // its length is a multiple of align
	base int64  // place of buf[0] in the slot, a multiple of align
	n    int    // bytes used in buf

	gap  bool // the next block begins after a gap
	end  Pos
	head [FrameSize]byte
	left int    // bytes of head that are still to be placed
	rest []byte // bytes of the payload that are
}

// NewBuilder returns a builder that uses buf, whose length must be a multiple of align, which is a multiple of BlockSize.
func NewBuilder(store uint64, buf []byte, align int) (*Builder, error) {
	if align < BlockSize || align%BlockSize != 0 || len(buf) < align || len(buf)%align != 0 {
		return nil, fmt.Errorf("record: buffer of %d bytes, alignment %d", len(buf), align)
	}
	return &Builder{store: store, buf: buf, align: align}, nil
}

// Grow replaces the buffer by a larger one, whose length is a multiple of the alignment too; the pending bytes move.
func (b *Builder) Grow(buf []byte) {
	copy(buf, b.buf[:b.n])
	b.buf = buf
}

// SetAlign changes the alignment; to be followed by Reset.
func (b *Builder) SetAlign(align int) error {
	if align < BlockSize || align%BlockSize != 0 || len(b.buf)%align != 0 {
		return fmt.Errorf("record: buffer of %d bytes, alignment %d", len(b.buf), align)
	}
	b.align = align
	return nil
}

// Room is the size of the buffer.
func (b *Builder) Room() int { return len(b.buf) }

// Reset goes on in a fresh slot of size bytes, a multiple of the alignment. After a gap, the stream ended at end.
func (b *Builder) Reset(slot, open uint64, size int64, gap bool, end Pos) {
	b.slot, b.open, b.seed, b.size = slot, open, seedOf(b.store, slot, open), size
	b.base, b.n = 0, 0
	b.gap, b.end = gap, end
}

func (b *Builder) off() int64 { return b.base + int64(b.n) }

// Pos is the place where the next byte goes.
func (b *Builder) Pos() Pos { return Pos{b.slot, canon(b.off())} }

// Full reports that the slot has no room for another byte.
func (b *Builder) Full() bool { return b.off() >= b.size }

// Left is the number of bytes of the slot not used yet.
func (b *Builder) Left() int64 { return b.size - b.off() }

// Start begins a record. The slot must not be full and the record before must be placed as a whole. payload is kept until
// Fill returns true.
func (b *Builder) Start(seq uint64, payload []byte) {
	le := binary.LittleEndian
	le.PutUint32(b.head[:], uint32(len(payload)))
	le.PutUint64(b.head[4:], seq)
	le.PutUint64(b.head[12:], frameSum(b.seed, canon(b.off()), seq, payload))
	b.left, b.rest = FrameSize, payload
}

// Fill places what is left of the record and reports whether that was all; false means that the buffer or the slot is full.
func (b *Builder) Fill() bool {
	for b.left+len(b.rest) > 0 {
		in := int(b.off() % BlockSize)
		if in == 0 {
			if b.Full() || b.n == len(b.buf) {
				return false
			}
			b.begin()
			in = HeaderSize
		}
		to := b.buf[b.n : b.n+BlockSize-in]
		k := copy(to, b.head[FrameSize-b.left:])
		b.left -= k
		m := copy(to[k:], b.rest)
		b.rest = b.rest[m:]
		b.n += k + m
	}
	return true
}

// begin writes a block's header.
func (b *Builder) begin() {
	first := HeaderSize // a record starts, or will
	if b.left < FrameSize {
		if first += b.left + len(b.rest); first >= BlockSize {
			first = 0
		}
	}
	b.header(first)
}

func (b *Builder) header(first int) {
	h := Header{Slot: b.slot, Open: b.open, First: first, Gap: b.gap, End: b.end, State: b.State}
	h.put(b.buf[b.n:], b.store, b.off()/BlockSize)
	b.n += HeaderSize
	b.gap, b.end = false, Pos{}
}

// Mark begins a block that has only its header and says that all is durable: damage to what lies before it cannot pass as
// the end of the log any more. It reports false if the buffer or the slot is full; a full slot is followed by one that was
// Reset after a gap at Pos, and Mark there.
func (b *Builder) Mark() bool {
	if in := int(b.off() % BlockSize); in != 0 {
		if b.off()-int64(in)+BlockSize >= b.size {
			return false
		}
		end := b.Pos()
		if b.n-in+BlockSize >= len(b.buf) {
			return false
		}
		clear(b.buf[b.n : b.n-in+BlockSize])
		b.n += BlockSize - in
		b.gap, b.end = true, end
	} else if b.Full() || b.n == len(b.buf) {
		return false
	}
	b.left, b.rest = 0, nil
	b.header(HeaderSize)
	return true
}

// Pending returns the bytes to write and their place in the slot; both are aligned. They stay valid until the next call.
func (b *Builder) Pending() (p []byte, off int64) {
	end := (b.n + b.align - 1) / b.align * b.align
	clear(b.buf[b.n:end])
	return b.buf[:end], b.base
}

// Written drops from the buffer what is complete; the tail stays.
func (b *Builder) Written() {
	keep := b.n / b.align * b.align
	b.n = copy(b.buf, b.buf[keep:b.n])
	b.base += int64(keep)
}
