// Package yardstick measures the machine, so that benchmarks can be compared with what it can do at that moment: figures taken
// on different machines, or beside other work, only mean something next to it.
package yardstick

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	chaseBytes = 64 << 20 // beyond what caches and their translation buffers hold
	lineBytes  = 64
	chaseSteps = 50_000
	bulkBytes  = 16 << 20 // copied and hashed: beyond the cache of one core
)

// line is one cache line that names the next one.
type line struct {
	next uint32
	_    [lineBytes - 4]byte
}

var chain = sync.OnceValue(func() []line {
	lines := make([]line, chaseBytes/lineBytes)
	order := rand.New(rand.NewPCG(1, 1)).Perm(len(lines))
	for i, at := range order {
		lines[at].next = uint32(order[(i+1)%len(order)])
	}
	return lines
})

var bulk = sync.OnceValues(func() (src, dst []byte) {
	src, dst = make([]byte, bulkBytes), make([]byte, bulkBytes)
	for i := range src {
		src[i] = byte(i * 7)
	}
	copy(dst, src) // so that its pages are there
	return src, dst
})

// Sink keeps the work from being optimised away.
var Sink uint64

// Bench reports, each as the best of the rounds that b asks for:
//
//	ns/miss      latency of a read from memory, by following a random chain through 64 MiB
//	copy-GB/s    bytes copied from memory to memory, in 1e9 bytes per second
//	xxhash-GB/s  bytes hashed
func Bench(b *testing.B) {
	lines := chain()
	src, dst := bulk()
	miss, copied, hashed := time.Hour, time.Hour, time.Hour
	at := uint32(0)
	for b.Loop() {
		start := time.Now()
		for range chaseSteps {
			at = lines[at].next
		}
		miss = min(miss, time.Since(start))
		start = time.Now()
		copy(dst, src)
		copied = min(copied, time.Since(start))
		start = time.Now()
		Sink += xxhash.Sum64(src)
		hashed = min(hashed, time.Since(start))
	}
	Sink += uint64(at)
	b.ReportMetric(0, "ns/op") // the sum of the three says nothing
	b.ReportMetric(float64(miss.Nanoseconds())/chaseSteps, "ns/miss")
	b.ReportMetric(bulkBytes/float64(copied.Nanoseconds()), "copy-GB/s")
	b.ReportMetric(bulkBytes/float64(hashed.Nanoseconds()), "xxhash-GB/s")
}
