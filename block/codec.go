// Package block is the byte format of the parts of a table file: cell blocks, index blocks, and the envelope (codec, sizes,
// checksum) around every part. It touches no file. The drawings are in docs/formats/block.md.
package block

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/rowandb/rowan/internal/damage"
)

// Codec says how the bytes of a part are compressed. The numbers are part of format 1.
type Codec uint8

const (
	CodecNone Codec = 0
	CodecS2   Codec = 1
	CodecZstd Codec = 2
)

func (c Codec) String() string {
	switch c {
	case CodecNone:
		return "none"
	case CodecS2:
		return "s2"
	case CodecZstd:
		return "zstd"
	}
	return fmt.Sprintf("codec(%d)", uint8(c))
}

// Valid reports whether c is a codec that this build knows.
func (c Codec) Valid() bool { return c <= CodecZstd }

// The options below cannot fail: they are constants that the library accepts. EncodeAll and DecodeAll start no goroutines.
// A single shared encoder may be used by several writers at once; it keeps one state per concurrent user.
var (
	zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
		return e
	})
	zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.IgnoreChecksum(true), zstd.WithDecodeAllCapLimit(true))
		return d
	})
)

// minSaving is the share of the raw size that compression must save to be kept: one eighth. Below that a raw part, which is
// read in place, is worth more than the bytes.
const minSaving = 8

// Compress returns src compressed into buf, or src itself with CodecNone when that saves less than an eighth. buf's memory
// is used; the grown buffer comes back so that the caller can keep it.
func Compress(c Codec, buf, src []byte) (out []byte, used Codec, grown []byte) {
	// Below this, an envelope's head outweighs what can be saved.
	const tooSmall = 64
	if c == CodecNone || len(src) < tooSmall {
		return src, CodecNone, buf
	}
	switch c {
	case CodecS2:
		if n := s2.MaxEncodedLen(len(src)); cap(buf) < n {
			buf = make([]byte, n)
		}
		out = s2.Encode(buf[:cap(buf)], src)
	case CodecZstd:
		out = zstdEncoder().EncodeAll(src, buf[:0])
		if cap(out) > cap(buf) {
			buf = out[:0]
		}
	}
	if len(out) > len(src)-len(src)/minSaving {
		return src, CodecNone, buf
	}
	return out, c, buf
}

// Decode decompresses stored into dst, whose length is the raw size. stored must not be mapped memory unless the codec is
// CodecNone: a fault inside the decoders' assembly kills the process.
func Decode(c Codec, dst, stored []byte) error {
	switch c {
	case CodecNone:
		if len(dst) != len(stored) {
			return damage.New("part", -1, "%d raw bytes stored as %d without a codec", len(dst), len(stored))
		}
		copy(dst, stored)
		return nil
	case CodecS2:
		n, err := s2.DecodedLen(stored)
		if err == nil && n != len(dst) {
			return damage.New("part", -1, "s2 holds %d bytes, head says %d", n, len(dst))
		}
		if err == nil {
			_, err = s2.Decode(dst, stored)
		}
		if err != nil {
			return &damage.Error{Part: "part", Offset: -1, Detail: "s2", Cause: err}
		}
		return nil
	case CodecZstd:
		out, err := zstdDecoder().DecodeAll(stored, dst[:0:len(dst)])
		if err != nil {
			return &damage.Error{Part: "part", Offset: -1, Detail: "zstd", Cause: err}
		}
		if len(out) != len(dst) {
			return damage.New("part", -1, "zstd holds %d bytes, head says %d", len(out), len(dst))
		}
		if len(out) > 0 && &out[0] != &dst[0] {
			copy(dst, out)
		}
		return nil
	}
	return damage.New("part", -1, "unknown codec %d", c)
}
