//go:build linux && !race

package cache

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages. A kernel that refuses changes nothing but speed.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
