package bloom

import (
	"encoding/binary"

	library "github.com/bits-and-blooms/bloom/v3"
)

// Reference reads a built filter through bits-and-blooms/bloom, bit by bit and with nothing of MayContain's. It is slower and
// has a copy of the bits; verification uses it, so that a mistake in the short probe cannot vouch for itself.
type Reference struct {
	f   Filter
	lib *library.BloomFilter
}

// Reference returns the library's view of the filter.
func (f Filter) Reference() Reference {
	words := make([]uint64, f.n*lineLen/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(f.lines[8*i:])
	}
	return Reference{f: f, lib: library.From(words, uint(f.k))}
}

// MayContain is Filter.MayContain by the library.
func (r Reference) MayContain(h uint64) bool {
	return r.f.n > 0 && r.lib.TestLocations(r.f.Locations(h))
}

// Bits is the number of bits that are set.
func (r Reference) Bits() uint { return r.lib.BitSet().Count() }
