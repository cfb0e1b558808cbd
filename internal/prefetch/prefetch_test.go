package prefetch

import (
	"testing"
	"unsafe"
)

// Lines changes nothing, needs no alignment and does not mind where it points.
func TestLinesChangesNothing(t *testing.T) {
	p := make([]byte, 4096)
	for i := range p {
		p[i] = byte(i)
	}
	for n := range uintptr(300) {
		Lines(unsafe.Pointer(&p[n]), n)
	}
	Lines(nil, 1)
	for i := range p {
		if p[i] != byte(i) {
			t.Fatal("a byte has changed at", i)
		}
	}
}
