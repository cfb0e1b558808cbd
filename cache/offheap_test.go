package cache

import (
	"runtime"
	"testing"
)

// Cached bytes are not on the Go heap, so that the collector neither counts nor scans them and a large cache does not let the heap
// double (BTrDB/btrdb-server #12; cockroachdb/pebble #31, #521: a 32 GiB cache let the heap grow to twice that before a
// collection).
func TestCachedBytesAreOffTheHeap(t *testing.T) {
	if !offHeap {
		t.Log("this platform keeps the cache on the heap")
		return
	}
	const capacity, piece = 64 << 20, 32 << 10
	c := New(capacity)
	defer c.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := c.NewFile(4 * capacity / piece)
	for i := range 4 * capacity / piece {
		h := f.Reserve(piece)
		if !h.Held() {
			t.Fatal("no room")
		}
		b := h.Bytes()
		b[0], b[piece-1] = 1, 1
		f.Publish(i, h)
		h.Release()
	}
	used := c.Stats().Used
	runtime.ReadMemStats(&after)
	grown := int64(after.TotalAlloc) - int64(before.TotalAlloc)
	t.Logf("%d MiB cached, %d MiB allocated on the heap meanwhile", used>>20, grown>>20)
	if used < capacity/2 || grown > capacity/8 {
		t.Errorf("%d bytes are cached; %d bytes were allocated on the heap", used, grown)
	}
}
