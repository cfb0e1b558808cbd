package memtable

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A ref addresses 8-byte words of the arena: bits 30-31 are free for tags, 19-29 choose the chunk, 0-18 the word in it.
// Ref 0 is 64 zero bytes: a row without a key, an entry without a column.
const (
	wordLog    = 3
	chunkWords = chunkMax >> wordLog
	chunksMax  = 2048 // 8 GiB in all
	refMask    = 1<<30 - 1
)

// ErrFull reports that a table has no more addresses. It takes 8 GiB.
var ErrFull = errors.New("memtable: full")

// largeMin is the size from which an allocation gets memory of its own, spread over as many chunk numbers as it needs.
const largeMin = chunkMax / 8

// spareMin is the room in the current chunk below which the next one is fetched before it is needed: more than the
// splits of one insert take, so that no latch is held during a system call.
const spareMin = 16 << 10

// arena hands out memory that lives until the whole arena is released.
type arena struct {
	chunks [chunksMax]unsafe.Pointer
	pool   *Pool
	held   atomic.Int64 // bytes taken from the pool or the system
	used   atomic.Int64 // bytes handed out; a writer's whole region counts
	low    atomic.Bool  // the current chunk runs out and there is no spare

	mu     sync.Mutex // guards all below; taken once per writer's region, node and large value
	blocks []block
	nchunk uint32
	chunk  uint32 // number of the current chunk
	off    int    // bytes of it handed out
	size   int
	spare  block
	next   int // log2 of the next chunk's size
}

func (a *arena) init() error {
	a.next = chunkMinLog
	ref, err := a.alloc(64)
	if err == nil {
		clear(unsafe.Slice((*byte)(a.at(ref)), 64))
	}
	return err
}

// at turns a ref, with or without tags, into an address.
func (a *arena) at(ref uint32) unsafe.Pointer {
	return unsafe.Add(a.chunks[ref/chunkWords%chunksMax], uintptr(ref%chunkWords)<<wordLog)
}

// alloc returns size bytes, rounded up to words, at a multiple of 64 if size is one. Their contents are arbitrary.
func (a *arena) alloc(size int) (uint32, error) {
	size = (size + 7) &^ 7
	a.mu.Lock()
	defer a.mu.Unlock()
	if size >= largeMin {
		return a.allocLarge(size)
	}
	if size%64 == 0 {
		a.off = (a.off + 63) &^ 63
	}
	if a.off+size > a.size {
		if err := a.grow(size); err != nil {
			return 0, err
		}
	}
	ref := a.chunk*chunkWords + uint32(a.off>>wordLog)
	a.off += size
	a.used.Add(int64(size))
	if a.size-a.off < spareMin && a.spare.p == nil {
		a.low.Store(true)
	}
	return ref, nil
}

// grow makes the spare chunk, or a new one of at least size bytes, the current one.
func (a *arena) grow(size int) error {
	if a.nchunk == chunksMax {
		return ErrFull
	}
	b := a.spare
	if b.p == nil || b.size < size {
		fresh, err := a.fetch(size)
		if err != nil {
			return err
		}
		b = fresh
	} else {
		a.spare = block{}
	}
	a.chunk, a.off, a.size = a.nchunk, 0, b.size
	a.chunks[a.nchunk] = b.p
	a.nchunk++
	return nil
}

// fetch takes a chunk of at least size bytes, under largeMin, from the pool. Chunks double up to chunkMax.
func (a *arena) fetch(size int) (block, error) {
	l := a.next
	for 1<<l < size {
		l++
	}
	b, err := a.pool.get(1 << l)
	if err != nil {
		return b, err
	}
	a.next = min(l+1, chunkMaxLog)
	a.blocks = append(a.blocks, b)
	a.held.Add(int64(b.size))
	return b, nil
}

func (a *arena) allocLarge(size int) (uint32, error) {
	n := uint32((size + chunkMax - 1) / chunkMax)
	if n > chunksMax-a.nchunk {
		return 0, fmt.Errorf("%w: no room for %d bytes", ErrFull, size)
	}
	b, err := osAlloc((size + 4095) &^ 4095)
	if err != nil {
		return 0, err
	}
	a.blocks = append(a.blocks, b)
	a.held.Add(int64(b.size))
	a.used.Add(int64(b.size))
	first := a.nchunk
	for i := range n {
		a.chunks[first+i] = unsafe.Add(b.p, int(i)*chunkMax)
	}
	a.nchunk += n
	return first * chunkWords, nil
}

// prepare fetches the next chunk if the current one runs low. Writers call it before they take a latch.
func (a *arena) prepare() error {
	if !a.low.Load() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spare.p == nil {
		b, err := a.fetch(0)
		if err != nil {
			return err
		}
		a.spare = b
	}
	a.low.Store(false)
	return nil
}

func (a *arena) release() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first error
	for _, b := range a.blocks {
		if err := a.pool.put(b); err != nil && first == nil {
			first = err
		}
	}
	clear(a.chunks[:a.nchunk])
	a.blocks, a.spare, a.off, a.size, a.nchunk = nil, block{}, 0, 0, 0
	a.held.Store(0)
	a.used.Store(0)
	return first
}
