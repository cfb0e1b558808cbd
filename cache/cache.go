// Package cache is the bounded, scan-resistant cache of decoded blocks. It knows no format: an entry is a slot number of an
// open file and bytes.
//
// A hit takes no lock: each open file has an array of atomic pointers, one per slot. Misses take one mutex. Eviction is
// SIEVE: entries stand in the order of their arrival; a hand walks from old to new, spares what was hit since it last came by,
// and evicts the first that was not. New entries arrive unvisited, so what is read once leaves first.
//
// Bytes live outside the Go heap where the platform allows it.
package cache

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/rowandb/rowan/internal/prefetch"
	"github.com/rowandb/rowan/internal/stripe"
)

// Cache is shared by all open files of a store. Safe for concurrent use.
type Cache struct {
	mu       sync.Mutex
	capacity int64
	used     int64 // bytes of entries whose memory is not returned yet, plus charged
	charged  int64
	lent     int64  // part of charged, see Lend
	head     *entry // newest
	tail     *entry // oldest
	hand     *entry // next candidate; nil: start at the tail
	count    int
	mem      allocator

	hits, misses       stripe.Counter
	refused, evictions atomic.Uint64
}

// entry holds the bytes of one slot. It belongs to one (file, slot) for all its life, so a reader that acquired it reads the
// right bytes even if it has been evicted meanwhile.
type entry struct {
	refs    atomic.Int32 // holders, the cache itself included; at 0 the memory goes back
	visited atomic.Bool
	buf     []byte
	block   memory
	c       *Cache
	file    *File
	slot    int

	// Guarded by Cache.mu.
	prev, next *entry // towards older, newer
	listed     bool
}

// File is one open file's part of the cache.
type File struct {
	c      *Cache
	slots  []atomic.Pointer[entry]
	closed bool // guarded by c.mu
}

// Stats are counters since the start, and sizes in bytes.
type Stats struct {
	Hits, Misses, Evictions uint64
	Refused                 uint64 // entries too large for the cache, or all room held
	Entries                 int
	Capacity                int64
	Used                    int64 // entries, held ones that were evicted included, and charged memory
	Charged                 int64 // memory of others that counts against the capacity
	Mapped                  int64 // memory taken from the operating system for entries
}

// New returns a cache of at most capacity bytes. Entries that are held cannot be freed; what others hold beyond the capacity is
// the only overshoot.
func New(capacity int64) *Cache {
	return &Cache{capacity: capacity, mem: newAllocator(capacity)}
}

// Handle is a held entry. The zero Handle holds nothing. A Handle is released exactly once.
type Handle struct{ e *entry }

// Bytes are valid until Release. They may be written only between Reserve and Publish.
func (h Handle) Bytes() []byte { return h.e.buf }

// Held reports whether h holds an entry.
func (h Handle) Held() bool { return h.e != nil }

// Release lets go of the entry and makes h zero.
func (h *Handle) Release() {
	if e := h.e; e != nil {
		h.e = nil
		e.release()
	}
}

func (e *entry) acquire() bool {
	for {
		n := e.refs.Load()
		if n <= 0 {
			return false
		}
		if e.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (e *entry) release() {
	if e.refs.Add(-1) == 0 {
		e.c.mu.Lock()
		e.c.freeLocked(e)
		e.c.mu.Unlock()
	}
}

func (c *Cache) freeLocked(e *entry) {
	c.used -= e.block.size
	c.mem.free(e.block)
	e.buf, e.block = nil, memory{}
}

// NewFile returns the part of a file with the given number of slots. It must be closed.
func (c *Cache) NewFile(slots int) *File {
	f := &File{c: c, slots: make([]atomic.Pointer[entry], slots)}
	c.Charge(int64(slots) * 8)
	return f
}

// Close drops the file's entries. Handles stay valid until they are released. It may be called twice; Get finds nothing
// afterwards, Publish adds nothing.
func (f *File) Close() {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	c.used -= int64(len(f.slots)) * 8
	c.charged -= int64(len(f.slots)) * 8
	for i := range f.slots {
		if e := f.slots[i].Load(); e != nil {
			c.dropLocked(e)
		}
	}
}

// Get returns the entry of a slot, held, or a Handle that holds nothing. Hits are not counted here, so that they share no
// memory: the caller counts and tells Count.
func (f *File) Get(slot int) Handle {
	e := f.slots[slot].Load()
	if e == nil || !e.acquire() {
		return Handle{}
	}
	if !e.visited.Load() {
		e.visited.Store(true)
	}
	return Handle{e}
}

// Peek is Get for those who pass over many entries: the hit does not keep the entry from being evicted.
func (f *File) Peek(slot int) Handle {
	e := f.slots[slot].Load()
	if e == nil || !e.acquire() {
		return Handle{}
	}
	return Handle{e}
}

// Has reports whether a slot has an entry now.
func (f *File) Has(slot int) bool { return f.slots[slot].Load() != nil }

// Prefetch asks memory for what Get will look at, so that it is near when Get comes.
func (f *File) Prefetch(slot int) {
	if e := f.slots[slot].Load(); e != nil {
		prefetch.Lines(unsafe.Pointer(e), prefetch.Line)
	}
}

// Ask asks for the memory that a hit of slot needs first, and reports whether there is an entry: a reader who knows where it goes on
// finds it near.
func (f *File) Ask(slot int) bool {
	e := f.slots[slot].Load()
	if e == nil {
		return false
	}
	prefetch.Lines(unsafe.Pointer(e), unsafe.Sizeof(*e))
	return true
}

// Count adds to the statistics.
func (c *Cache) Count(slot stripe.Slot, hits, misses uint64) {
	if hits > 0 {
		c.hits.Add(slot, int64(hits))
	}
	if misses > 0 {
		c.misses.Add(slot, int64(misses))
	}
}

// Reserve returns room for n bytes, held and not yet in any slot, evicting what it must. It returns a Handle that holds nothing
// when n is over an eighth of the capacity, or everything is held.
func (f *File) Reserve(n int) Handle { return f.reserve(n, false) }

// ReserveSpare is Reserve for what is not worth the eviction of anything: it holds nothing either when less than a sixteenth of the
// capacity is free.
func (f *File) ReserveSpare(n int) Handle { return f.reserve(n, true) }

func (f *File) reserve(n int, spare bool) Handle {
	c := f.c
	size := int64(n)
	if size == 0 || size > c.capacity/8 {
		c.refused.Add(1)
		return Handle{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	rounded := c.mem.roundUp(size)
	if spare && c.used+rounded > c.capacity-c.capacity/16 {
		return Handle{}
	}
	if c.used+rounded > c.capacity && !c.makeRoomLocked(rounded) {
		c.refused.Add(1)
		return Handle{}
	}
	if c.mem.wants(size) {
		c.compactLocked(rounded)
	}
	m, ok := c.mem.alloc(size)
	if !ok {
		c.refused.Add(1)
		return Handle{}
	}
	e := &entry{buf: m.buf[:n:n], block: m, c: c, file: f}
	e.refs.Store(1)
	if m.slab != nil {
		m.slab.owner[m.nth] = e
	}
	c.used += m.size
	return Handle{e}
}

// compactLocked evicts what little there is in thinly used slabs, when memory taken from the system is a quarter above what
// entries may use: after a change of entry sizes, slabs of the old sizes would otherwise be held by a few entries each.
func (c *Cache) compactLocked(n int64) {
	for range 4 {
		if c.mem.mapped+n <= c.capacity+c.capacity/4 {
			return
		}
		s := c.mem.sparsest()
		if s == nil {
			return
		}
		for _, e := range s.owner {
			if e != nil && e.listed && e.refs.Load() == 1 {
				c.evictions.Add(1)
				c.dropLocked(e)
			}
		}
		c.mem.trim(0)
	}
}

// makeRoomLocked evicts until n more bytes fit, and reports whether they do.
func (c *Cache) makeRoomLocked(n int64) bool {
	// Two rounds clear every visited mark once and come by again; a third finds only held entries.
	for steps := 3 * c.count; c.used+n > c.capacity; steps-- {
		if steps <= 0 || c.count == 0 {
			return false
		}
		e := c.hand
		if e == nil {
			e = c.tail
		}
		c.hand = e.next
		if e.visited.Load() {
			e.visited.Store(false)
			continue
		}
		if e.refs.Load() > 1 {
			continue // freeing it now would give no memory back
		}
		c.evictions.Add(1)
		c.dropLocked(e)
	}
	return true
}

// dropLocked takes e out of its slot and the list and gives up the cache's hold on it.
func (c *Cache) dropLocked(e *entry) {
	e.file.slots[e.slot].CompareAndSwap(e, nil)
	if e.listed {
		if c.hand == e {
			c.hand = e.next
		}
		if e.prev != nil {
			e.prev.next = e.next
		} else {
			c.tail = e.next
		}
		if e.next != nil {
			e.next.prev = e.prev
		} else {
			c.head = e.prev
		}
		e.prev, e.next, e.listed = nil, nil, false
		c.count--
	}
	if e.refs.Add(-1) == 0 {
		c.freeLocked(e)
	}
}

// Publish puts a reserved entry into a slot; its bytes must not change from here on. The caller's hold stays. If the slot is
// taken or the file closed, the entry stays private to the caller.
func (f *File) Publish(slot int, h Handle) {
	c, e := f.c, h.e
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.closed || f.slots[slot].Load() != nil {
		return
	}
	e.slot = slot
	e.refs.Add(1)
	e.prev, e.listed = c.head, true
	if c.head != nil {
		c.head.next = e
	} else {
		c.tail = e
	}
	c.head = e
	c.count++
	f.slots[slot].Store(e)
}

// Charge counts n bytes of memory outside the cache (indexes, filters) against its capacity; negative n gives them back.
func (c *Cache) Charge(n int64) {
	c.mu.Lock()
	c.used += n
	c.charged += n
	if c.used > c.capacity {
		c.makeRoomLocked(0)
	}
	c.mu.Unlock()
}

// Lend is Charge for memory that makes hits faster, and reports whether it has counted it: all of it together is kept under an eighth
// of the capacity. Negative n gives back.
func (c *Cache) Lend(n int64) bool {
	c.mu.Lock()
	if n > 0 && c.lent+n > c.capacity/8 {
		c.mu.Unlock()
		return false
	}
	c.lent += n
	c.mu.Unlock()
	c.Charge(n)
	return true
}

// Resize changes the capacity and evicts down to it.
func (c *Cache) Resize(capacity int64) {
	c.mu.Lock()
	c.capacity = capacity
	c.makeRoomLocked(0)
	c.mu.Unlock()
}

// Stats returns a copy of the counters.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		Hits: uint64(c.hits.Load()), Misses: uint64(c.misses.Load()), Evictions: c.evictions.Load(), Refused: c.refused.Load(),
		Entries: c.count, Capacity: c.capacity, Used: c.used, Charged: c.charged, Mapped: c.mem.mapped,
	}
}

// Close drops every entry and returns the memory. Files and handles must have been closed and released before.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.tail != nil {
		c.dropLocked(c.tail)
	}
	c.mem.trim(0)
}
