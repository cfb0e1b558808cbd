//go:build !(linux || darwin) || race

package cache

const offHeap = false

// Where there is no mapping, and under the race detector, which cannot see memory outside the heap, entries are Go slices.
func mapMemory(n int) ([]byte, error) { return make([]byte, n), nil }

func unmapMemory([]byte) {}
