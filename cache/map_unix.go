//go:build (linux || darwin) && !race

package cache

import "golang.org/x/sys/unix"

const offHeap = true

// mapMemory returns n zero bytes outside the Go heap, so that a large cache does not double the heap between collections.
func mapMemory(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err == nil && n%hugePage == 0 {
		adviseHuge(b)
	}
	return b, err
}

// unmapMemory cannot fail for a whole mapping that mapMemory returned.
func unmapMemory(b []byte) { _ = unix.Munmap(b) }
