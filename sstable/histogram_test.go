package sstable

import (
	"math"
	"testing"
)

// The whole range of timestamps fits, in either order.
func TestHistogramReachesFromZeroToTheLargestTimestamp(t *testing.T) {
	for _, order := range [][]int64{{0, math.MaxInt64}, {math.MaxInt64, 0}, {math.MaxInt64 - 1, 5, math.MaxInt64, 1}} {
		var h Histogram
		for _, ts := range order {
			h.Add(ts, 10)
		}
		var sum uint64
		for _, n := range h.Counts {
			sum += n
		}
		if want := uint64(10 * len(order)); sum != want || h.Older(0) != 0 || h.Older(math.MaxInt64) > want {
			t.Errorf("%v: %d bytes in all, %d older than the largest", order, sum, h.Older(math.MaxInt64))
		}
	}
}
