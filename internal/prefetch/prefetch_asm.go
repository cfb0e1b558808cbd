//go:build amd64 || arm64

package prefetch

import "unsafe"

// Lines asks for the cache lines of n bytes from p on, at least one. It never faults, wherever p points.
//
//go:noescape
func Lines(p unsafe.Pointer, n uintptr)
