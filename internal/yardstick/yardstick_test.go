package yardstick

import "testing"

func BenchmarkYardstick(b *testing.B) { Bench(b) }

// The chain visits every line before it comes back.
func TestChainIsOneCycle(t *testing.T) {
	lines := chain()
	n := 0
	for at := uint32(0); ; n++ {
		if at = lines[at].next; at == 0 {
			break
		}
	}
	if n+1 != len(lines) {
		t.Fatalf("%d of %d lines", n+1, len(lines))
	}
}
