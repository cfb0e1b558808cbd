package record

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/internal/damage"
)

// A frame of the manifest: one payload in an append-only file that is never recycled.
//
//	+-----------+-----------------+-------------------+---------+
//	| length 4B | check of it 4B  | payload check 8B  | payload |   little-endian
//	+-----------+-----------------+-------------------+---------+
//
// The first check makes a frame recognizable from its first 8 bytes, so that looking for a good frame after a bad one costs
// one pass.
const ManifestFrame = 16

func lengthSum(seed uint64, n uint32) uint32 { return uint32(mix(mix(seed+3)+uint64(n)) >> 32) }

func payloadSum(seed uint64, payload []byte) uint64 {
	return xxhash.Sum64(payload) ^ mix(mix(seed+4)+uint64(len(payload)))
}

// AppendFrame appends a frame. seed is the identity of the file; a frame of another one never checks. The payload must not be
// empty nor larger than PayloadMax.
func AppendFrame(dst []byte, seed uint64, payload []byte) []byte {
	le := binary.LittleEndian
	n := uint32(len(payload))
	dst = le.AppendUint32(dst, n)
	dst = le.AppendUint32(dst, lengthSum(seed, n))
	dst = le.AppendUint64(dst, payloadSum(seed, payload))
	return append(dst, payload...)
}

// ReadFrame takes the first frame off b; the payload aliases it. The error is io.EOF if b is empty, else a damage error whose
// offset is relative to b.
func ReadFrame(b []byte, seed uint64) (payload, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, io.EOF
	}
	n, ok := frameLen(b, seed)
	switch {
	case !ok:
		return nil, b, damage.New("frame", 0, "not a frame")
	case uint64(len(b)-ManifestFrame) < uint64(n):
		return nil, b, damage.New("frame", 0, "%d bytes of %d", len(b)-ManifestFrame, n)
	}
	payload = b[ManifestFrame:][:n:n]
	if binary.LittleEndian.Uint64(b[8:]) != payloadSum(seed, payload) {
		return nil, b, damage.New("frame", 0, "wrong checksum of %d bytes", n)
	}
	return payload, b[ManifestFrame+int(n):], nil
}

func frameLen(b []byte, seed uint64) (uint32, bool) {
	if len(b) < ManifestFrame {
		return 0, false
	}
	n := binary.LittleEndian.Uint32(b)
	return n, n > 0 && n <= PayloadMax && binary.LittleEndian.Uint32(b[4:]) == lengthSum(seed, n)
}

// ReadFrames calls fn for every frame of b in order and returns where the good ones end. What follows is a torn tail (the last
// append before a crash) if no good frame comes after it; else it is damage, and the error names its offset. An error of fn
// ends the reading and is returned with the frame's offset.
func ReadFrames(b []byte, seed uint64, fn func(off int64, payload []byte) error) (end int64, err error) {
	rest := b
	for {
		payload, more, err := ReadFrame(rest, seed)
		if err == io.EOF {
			return end, nil
		}
		if err != nil {
			return end, judgeTail(rest, seed, end, err)
		}
		if err := fn(end, payload); err != nil {
			return end, fmt.Errorf("frame at offset %d: %w", end, err)
		}
		rest, end = more, end+int64(len(rest)-len(more))
	}
}

// judgeTail returns nil if no good frame starts anywhere in b behind its first byte.
func judgeTail(b []byte, seed uint64, off int64, bad error) error {
	for i := 1; i+ManifestFrame < len(b); i++ {
		if _, ok := frameLen(b[i:], seed); !ok {
			continue
		}
		if _, _, err := ReadFrame(b[i:], seed); err == nil {
			d := damage.New("frame", off, "a good frame follows at offset %d", off+int64(i))
			d.Cause = bad
			return d
		}
	}
	return nil
}
