package record

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

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

// Bad is a copy in which a frame is not whole that another copy has.
type Bad struct {
	Copy int
	Err  error // names the offset
	Torn bool  // it may be the last append, which a crash kept from the copy: the frame is the last one and nothing follows it
}

// ReadFrames reads the frames of a file that is kept in several copies, each frame from the first copy in which it is whole, calls
// fn for them in order, and returns where they end. A copy that does not have a frame that another has is told in bad. What
// follows the end is a torn tail (the last append before a crash) if no good frame comes after it in any copy; else it is damage,
// and the error names its offset. An error of fn ends the reading and is returned with the frame's offset.
func ReadFrames(copies [][]byte, seed uint64, fn func(off int64, payload []byte) error) (end int64, bad []Bad, err error) {
	for {
		payload, size, c, errs := readFrameOf(copies, end, seed)
		if size == 0 {
			return end, bad, judgeTails(copies, seed, end, errs)
		}
		for i, e := range errs {
			if e != nil && !slices.ContainsFunc(bad, func(b Bad) bool { return b.Copy == i }) {
				last := true
				for _, b := range copies {
					last = last && int64(len(b)) <= end+size
				}
				bad = append(bad, Bad{Copy: i, Err: e, Torn: last && i > c})
			}
		}
		if err := fn(end, payload); err != nil {
			return end, bad, fmt.Errorf("frame at offset %d: %w", end, err)
		}
		end += size
	}
}

// readFrameOf reads the frame at an offset from the first copy that has it. size is 0 if none has. errs tells, by copy, why a copy
// has not.
func readFrameOf(copies [][]byte, off int64, seed uint64) (payload []byte, size int64, from int, errs []error) {
	errs = make([]error, len(copies))
	for i, b := range copies {
		var rest []byte
		err := error(nil)
		if off > int64(len(b)) {
			err = damage.New("frame", off, "the copy ends before it, at offset %d", len(b))
		} else if p, more, e := ReadFrame(b[off:], seed); e == io.EOF {
			err = damage.New("frame", off, "the copy ends before it")
		} else if e != nil {
			err = damage.At(e, "", off)
		} else if size == 0 {
			payload, rest, from = p, more, i
			size = int64(len(b)) - off - int64(len(rest))
		}
		errs[i] = err
	}
	return payload, size, from, errs
}

// judgeTails returns nil if in no copy a good frame starts anywhere behind end.
func judgeTails(copies [][]byte, seed uint64, end int64, bad []error) error {
	for i, b := range copies {
		if int64(len(b)) <= end {
			continue
		}
		if err := judgeTail(b[end:], seed, end, bad[i]); err != nil {
			return err
		}
	}
	return nil
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
