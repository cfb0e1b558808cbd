//go:build !amd64 || race

package memtable

import "sync/atomic"

// store32 and store64 store what readers load atomically.
func store32(a *atomic.Uint32, v uint32) { a.Store(v) }
func store64(a *atomic.Uint64, v uint64) { a.Store(v) }
