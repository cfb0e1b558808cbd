// Package work holds the data and the workloads that every engine is given.
//
// Everything is computed from a number: the i-th key, the g-th value of it, the order of accesses. So a reader can check every
// byte without keeping what was written.
package work

import (
	"encoding/binary"
	"math/bits"
)

// Sizes of standard pairs, in bytes.
const (
	KeyBytes   = 16
	ValueBytes = 100
)

// mix is the finalizer of a well-known generator: a permutation of the 64-bit numbers without visible pattern.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Key writes the i-th key of the data in random order: its order is that of mix(i).
func Key(i uint64, key []byte) {
	binary.BigEndian.PutUint64(key, mix(i))
	binary.BigEndian.PutUint64(key[8:], i)
}

// SeqKey writes the i-th key of the data in ascending order.
func SeqKey(i uint64, key []byte) {
	binary.BigEndian.PutUint64(key, i)
	binary.BigEndian.PutUint64(key[8:], mix(i))
}

// Value writes the g-th value of key i, of any length: a random half and its repetition, which compresses to a little over a half.
func Value(i, g uint64, value []byte) {
	half := value[:len(value)-len(value)/2]
	x := mix(i ^ g<<40)
	for len(half) >= 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(half, x)
		half = half[8:]
	}
	for j := range half {
		half[j] = byte(x >> (8 * j))
	}
	copy(value[len(value)-len(value)/2:], value)
}

// Sum is a running check of pairs, in any order: every byte of them counts.
type Sum struct{ N, H uint64 }

// Add adds a pair.
func (s *Sum) Add(key, value []byte) {
	s.H += (Hash(key) ^ 0x2545f4914f6cdd1d) * (Hash(value) | 1)
	s.N++
}

// Hash folds bytes to 64 bits, at the speed of memory: it must tell wrong answers, not attackers, and its cost must vanish
// beside the cheapest step of a scan. Words are turned by their place and multiplied with odd numbers, four at a time; the last
// word may overlap the one before.
func Hash(p []byte) uint64 {
	const a, b, c, d = 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb, 0xd6e8feb86659fd93
	h := uint64(len(p)) * a
	if len(p) < 8 {
		for _, x := range p {
			h = h<<8 ^ h>>56 ^ uint64(x)
		}
		h *= c
		return h ^ h>>32
	}
	last := binary.LittleEndian.Uint64(p[len(p)-8:])
	for len(p) >= 32 {
		w0, w1 := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
		w2, w3 := binary.LittleEndian.Uint64(p[16:]), binary.LittleEndian.Uint64(p[24:])
		h = bits.RotateLeft64(h, 13) + (w0+bits.RotateLeft64(w1, 17))*a + (w2+bits.RotateLeft64(w3, 29))*d
		p = p[32:]
	}
	for len(p) >= 8 {
		h = bits.RotateLeft64(h, 13) + binary.LittleEndian.Uint64(p)*a
		p = p[8:]
	}
	h = (bits.RotateLeft64(h, 29) ^ last*b) * c
	return h ^ h>>32
}

// rng is a small generator for the order of accesses: each caller has its own.
type rng uint64

func newRNG(seed uint64) *rng {
	alone := &struct {
		_ [apart]byte
		r rng
		_ [apart]byte
	}{r: rng(mix(seed))}
	return &alone.r
}

// apart keeps what several callers change out of each other's pairs of cache lines: else they slow each other down, and the fastest
// engine the most.
const apart = 128

// scratch is memory of one caller's own.
func scratch(n int) []byte { return make([]byte, n+2*apart)[apart : apart+n : apart+n] }

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return mix(uint64(*r))
}

// below returns a number under n.
func (r *rng) below(n uint64) uint64 {
	hi, _ := bits.Mul64(r.next(), n)
	return hi
}

// float returns a number in [0, 1).
func (r *rng) float() float64 { return float64(r.next()>>11) / (1 << 53) }

// number is the i of a key of Key.
func number(key []byte) uint64 { return binary.BigEndian.Uint64(key[8:]) }
