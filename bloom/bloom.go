// Package bloom is the filter of table files: a set of 64-bit hashes that may answer "perhaps" for a hash that was never
// added, never "no" for one that was. All bits of a hash lie in one line of 512 bits, so a probe costs one cache miss.
//
// The bits of a hash are nine-bit fields of two products of it; docs/formats/filter.md has the formula. A progression with a
// step, as unblocked filters use, has too few different patterns in 512 bits: at 24 bits per key it gives 7 times as many
// false positives. The same bits are what bits-and-blooms/bloom tests at locations line*512 + bit; a test holds that.
package bloom

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/internal/prefetch"
)

// Format, little-endian:
//
//	<k 1B> <zero 7B> <keys 8B> <lines x 64B>
//
// Bit i of a line is bit i%64 of its i/64-th 8-byte word. Zero keys means zero lines.
const (
	headLen  = 16
	lineLen  = 64
	lineBits = 512
	perWord  = 7 // nine-bit fields of a word
	kMax     = 2 * perWord

	// Odd constants with irregular bits: the golden ratio, and the second multiplier of xxhash64.
	mixer  = 0x9e3779b97f4a7c15
	mixer2 = 0xc2b2ae3d27d4eb4f
)

// ErrFilter marks bytes that are no filter.
var ErrFilter = errors.New("malformed filter")

// HashRow is the hash under which a row is added and asked for.
func HashRow(row []byte) uint64 { return xxhash.Sum64(row) }

// HashColumn is the hash of a (row, column) pair. It extends the row's hash, so that a reader computes that once.
func HashColumn(rowHash uint64, col []byte) uint64 {
	// The multiplication keeps rowHash from cancelling against the column's hash where row and column are equal bytes.
	return bits.RotateLeft64(rowHash*mixer, 31) ^ xxhash.Sum64(col)
}

// Builder collects hashes. The zero value takes DefaultBits bits per key.
type Builder struct {
	BitsPerKey int // 1..64; 0 means DefaultBits
	full       []*chunk
	last       *chunk
	n          int // in last
	prev       uint64
}

// chunk is a part of the hashes. Chunks are shared by all builders in turn: a list that grows by doubling would leave twice
// its size to the garbage collector for every file, at 30 ns a key.
type chunk [8192]uint64

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// DefaultBits per key give about 1 % false positives.
const DefaultBits = 10

// Add adds a hash. Adding the last one again has no effect; other repetitions only waste space.
func (b *Builder) Add(h uint64) {
	if h == b.prev && b.last != nil {
		return
	}
	b.prev = h
	if b.last == nil || b.n == len(b.last) {
		b.grow()
	}
	b.last[b.n] = h
	b.n++
}

func (b *Builder) grow() {
	if b.last != nil {
		b.full = append(b.full, b.last)
	}
	b.last, b.n = chunks.Get().(*chunk), 0
}

// Len is the number of hashes. Size is the number of bytes that Build will append.
func (b *Builder) Len() int  { return len(b.full)*len(chunk{}) + b.n }
func (b *Builder) Size() int { return headLen + lineLen*b.lines() }

// Reset forgets all hashes.
func (b *Builder) Reset() {
	for i, c := range b.full {
		chunks.Put(c)
		b.full[i] = nil
	}
	if b.last != nil {
		chunks.Put(b.last)
	}
	b.full, b.last, b.n = b.full[:0], nil, 0
}

func (b *Builder) bitsPerKey() int {
	if b.BitsPerKey <= 0 {
		return DefaultBits
	}
	return min(b.BitsPerKey, 64)
}

func (b *Builder) lines() int {
	return int((int64(b.Len())*int64(b.bitsPerKey()) + lineBits - 1) / lineBits)
}

// probes returns the number of bits per hash for a filter with bpk bits per key. ln2 * bpk is the optimum of an unblocked
// filter; lines fill unevenly, which favours a few less.
func probes(bpk int) int {
	k := int(math.Round(float64(bpk) * math.Ln2 * 0.9))
	return max(1, min(k, kMax))
}

// Build appends the filter to dst.
func (b *Builder) Build(dst []byte) []byte {
	k, n := probes(b.bitsPerKey()), b.lines()
	at := len(dst)
	dst = append(dst, make([]byte, b.Size())...)
	p := dst[at:]
	p[0] = byte(k)
	binary.LittleEndian.PutUint64(p[8:], uint64(b.Len()))
	p = p[headLen:]
	for _, c := range b.full {
		set(p, n, k, c[:])
	}
	if b.last != nil {
		set(p, n, k, b.last[:b.n])
	}
	return dst
}

// set sets k bits of each hash in n lines.
func set(p []byte, n, k int, hashes []uint64) {
	for _, h := range hashes {
		line, x, y := place(h, n)
		l := (*[lineLen]byte)(p[line*lineLen:])
		for i := min(k, perWord); i > 0; i-- {
			bit := x >> 55
			x <<= 9
			l[bit>>3] |= 1 << (bit & 7)
		}
		for i := perWord; i < k; i++ {
			bit := y >> 55
			y <<= 9
			l[bit>>3] |= 1 << (bit & 7)
		}
	}
}

// place returns the line of h and the two words whose fields, from the top, are its bits.
func place(h uint64, lines int) (line int, x, y uint64) {
	hi, _ := bits.Mul64(h, uint64(lines))
	return int(hi), h * mixer, bits.RotateLeft64(h, 32) * mixer2
}

// Filter reads a built filter in place. The zero Filter holds nothing. Safe for concurrent use.
type Filter struct {
	lines []byte
	n     int
	k     int
	keys  uint64
}

// Open checks p, which the filter keeps, and makes it readable. Errors match ErrFilter.
func Open(p []byte) (Filter, error) {
	if len(p) < headLen || (len(p)-headLen)%lineLen != 0 {
		return Filter{}, fmt.Errorf("%w: %d bytes", ErrFilter, len(p))
	}
	k := int(p[0])
	if k < 1 || k > kMax || binary.LittleEndian.Uint64(p)>>8 != 0 {
		return Filter{}, fmt.Errorf("%w: head %x", ErrFilter, p[:8])
	}
	f := Filter{lines: p[headLen:], n: (len(p) - headLen) / lineLen, k: k, keys: binary.LittleEndian.Uint64(p[8:])}
	if (f.n == 0) != (f.keys == 0) {
		return Filter{}, fmt.Errorf("%w: %d keys in %d lines", ErrFilter, f.keys, f.n)
	}
	return f, nil
}

// Keys is the number of hashes that were added, K the bits per hash, Lines the number of 512-bit lines.
func (f Filter) Keys() uint64 { return f.keys }
func (f Filter) K() int       { return f.k }
func (f Filter) Lines() int   { return f.n }

// Prefetch asks for the memory that MayContain will look at.
func (f Filter) Prefetch(h uint64) {
	if f.n > 0 {
		line, _, _ := place(h, f.n)
		prefetch.Lines(unsafe.Pointer(&f.lines[line*lineLen]), 1)
	}
}

// MayContain reports whether h may have been added: false is certain.
func (f Filter) MayContain(h uint64) bool {
	if f.n == 0 {
		return false
	}
	line, x, y := place(h, f.n)
	l := (*[lineLen]byte)(f.lines[line*lineLen:])
	// No early exit: absent keys then cost no mispredicted branch, and probes of several files overlap in the CPU.
	hit := byte(0xff)
	for i := min(f.k, perWord); i > 0; i-- {
		bit := x >> 55
		x <<= 9
		hit &= l[bit>>3] >> (bit & 7)
	}
	for i := perWord; i < f.k; i++ {
		bit := y >> 55
		y <<= 9
		hit &= l[bit>>3] >> (bit & 7)
	}
	return hit&1 != 0
}

// Locations returns the bit positions of h, as bits-and-blooms/bloom numbers them.
func (f Filter) Locations(h uint64) []uint64 {
	line, x, y := place(h, f.n)
	locs := make([]uint64, f.k)
	for i := range locs {
		if i == perWord {
			x = y
		}
		locs[i] = uint64(line)*lineBits + x>>55
		x <<= 9
	}
	return locs
}
