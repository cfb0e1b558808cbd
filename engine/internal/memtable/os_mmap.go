//go:build (linux || darwin) && !race

package memtable

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const offHeap = true

// osAlloc maps private memory, so that a large memtable neither feeds the collector nor paces it.
func osAlloc(size int) (block, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return block{}, fmt.Errorf("memtable: map %d bytes: %w", size, err)
	}
	adviseHuge(p, size)
	return block{p, size}, nil
}

func osFree(b block) error {
	if err := unix.MunmapPtr(b.p, uintptr(b.size)); err != nil {
		return fmt.Errorf("memtable: unmap %d bytes: %w", b.size, err)
	}
	return nil
}
