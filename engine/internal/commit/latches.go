// Package commit holds the parts of the write path that order batches: row latches, the publishing queue and the epochs of
// deletes that spare older versions.
package commit

import (
	"math/bits"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// stripes is the number of row latches; rows share them by hash. A power of two.
const stripes = 1024

// Latches serialise the batches that touch a row. They are taken in ascending order, each at most once per batch, and held
// for preparing and for memory work only, never across I/O.
type Latches struct {
	s [stripes]stripe
}

type stripe struct {
	mu sync.Mutex
	// stamp is the last ServerTime stamp given to a row of this stripe. Guarded by mu.
	stamp int64
	_     [40]byte // one cache line each
}

// Stripe is the latch of a row.
func Stripe(table uint64, row []byte) uint16 {
	return uint16((xxhash.Sum64(row) ^ table*0x9e3779b97f4a7c15) % stripes)
}

// Lock takes the latches of set, which it sorts and frees of repetitions; Unlock must get the result.
func (l *Latches) Lock(set []uint16) []uint16 {
	switch n := len(set); {
	case n > 8:
		var in [stripes / 64]uint64
		for _, i := range set {
			in[i/64] |= 1 << (i % 64)
		}
		set = set[:0]
		for j, w := range in {
			for ; w != 0; w &= w - 1 {
				set = append(set, uint16(j*64+bits.TrailingZeros64(w)))
			}
		}
	case n > 1:
		slices.Sort(set)
		set = slices.Compact(set)
	}
	for _, i := range set {
		l.s[i].mu.Lock()
	}
	return set
}

// Unlock lets go.
func (l *Latches) Unlock(set []uint16) {
	for _, i := range set {
		l.s[i].mu.Unlock()
	}
}

// Stamp returns a ServerTime stamp for a batch that holds set: at least now and floor, and above every earlier stamp of
// these stripes.
func (l *Latches) Stamp(set []uint16, now, floor int64) int64 {
	stamp := max(now, floor)
	for _, i := range set {
		stamp = max(stamp, l.s[i].stamp+1)
	}
	for _, i := range set {
		l.s[i].stamp = stamp
	}
	return stamp
}
