//go:build linux && !race

package memtable

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHuge asks for huge pages where a block holds one. Random access over a few hundred MiB misses the translation
// cache on nearly every row otherwise. A kernel that refuses changes nothing but speed.
func adviseHuge(p unsafe.Pointer, size int) {
	if size >= 2<<20 {
		_ = unix.Madvise(unsafe.Slice((*byte)(p), size), unix.MADV_HUGEPAGE)
	}
}
