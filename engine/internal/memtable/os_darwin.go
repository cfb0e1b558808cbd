//go:build darwin && !race

package memtable

import "unsafe"

func adviseHuge(unsafe.Pointer, int) {}
