// Package measure holds the instruments of a run: latencies, time lines, and what the system says of the process.
package measure

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets that are 1/32 of a power of two wide: quantiles are at most 3 % too high. It has a fixed
// size and never allocates. Not safe for concurrent use: each caller has its own, and they are added up in the end. The zero
// value is empty.
type Histogram struct {
	counts [buckets]uint64
	n      uint64
	max    int64
}

const (
	subBits = 5
	sub     = 1 << subBits
	buckets = (64 - subBits) * sub
)

// bucket of v nanoseconds: exact below sub, then sub buckets for each power of two.
func bucket(v int64) int {
	u := uint64(max(v, 0))
	if u < sub {
		return int(u)
	}
	shift := bits.Len64(u) - subBits - 1
	return shift<<subBits + int(u>>shift)
}

// top is the highest value of a bucket.
func top(b int) int64 {
	if b < sub {
		return int64(b)
	}
	shift := b>>subBits - 1
	return int64(uint64(b&(sub-1)+sub+1)<<shift - 1)
}

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucket(int64(d))]++
	h.n++
	h.max = max(h.max, int64(d))
}

// Merge adds what o has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// Count is how many durations were added, Max the longest of them.
func (h *Histogram) Count() uint64      { return h.n }
func (h *Histogram) Max() time.Duration { return time.Duration(h.max) }

// Quantile is a duration that the part q (0..1) of all does not exceed; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := min(uint64(q*float64(h.n)), h.n-1)
	var seen uint64
	for b, c := range h.counts {
		if seen += c; seen > rank {
			return time.Duration(min(top(b), h.max))
		}
	}
	return h.Max()
}

// Curve returns the quantiles of a latency curve, in microseconds: see Quantiles.
func (h *Histogram) Curve() []float64 {
	var out []float64
	for _, q := range Quantiles {
		out = append(out, float64(h.Quantile(q))/1e3)
	}
	return out
}

// Quantiles are those of a latency curve.
var Quantiles = []float64{0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999}
