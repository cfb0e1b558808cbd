// Package direct writes files with direct I/O: aligned buffers, and an append-only writer that fills one buffer while a
// goroutine writes the other. Where the file system refuses direct I/O the same writer works on a buffered handle.
package direct

import (
	"sync"
	"unsafe"
)

// BufferSize is the size of a Writer's buffers and of those that are pooled: below it the cost per call shows, above it only
// CPU time is gained.
const BufferSize = 1 << 20

// pageAlign is the alignment of pooled buffers; files that need more get buffers of their own.
const pageAlign = 16 << 10

// Buffer returns n zero bytes at an address that is a multiple of align, a power of two. The garbage collector does not move
// them.
func Buffer(n, align int) []byte {
	b := make([]byte, n+align)
	off := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (align - 1)
	return b[off : off+n : off+n]
}

var pool = sync.Pool{New: func() any {
	b := Buffer(BufferSize, pageAlign)
	return &b
}}

// get returns a buffer of BufferSize bytes of any content; a multiple of align, which is a power of two.
func get(align int) *[]byte {
	if align <= pageAlign {
		return pool.Get().(*[]byte)
	}
	n := max(BufferSize, align)
	b := Buffer(n, align)
	return &b
}

func put(b *[]byte, align int) {
	if b != nil && align <= pageAlign {
		pool.Put(b)
	}
}
