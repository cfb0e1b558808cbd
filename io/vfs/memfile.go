package vfs

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// memNode is a file's bytes. Its lock is taken inside Mem.mu.
type memNode struct {
	mu    sync.RWMutex
	data  []byte
	links int
	users int   // open handles and mappings
	room  int64 // reserved by Preallocate: writes before it need no space

	// What a power cut leaves for sure. While nothing durable was overwritten it is data[:durLen] and no copy is kept
	// (durable is nil and split is false).
	split   bool
	durable []byte
	durLen  int
	durRoom int64 // of room

	// pending are the changes since the last sync, oldest first.
	pending []memWrite
}

// memWrite is a write of data at off, or, if data is nil, a change of size to off.
type memWrite struct {
	off  int64
	data []byte
	sure bool // durable already, but queued behind older ones that are not
}

func (n *memNode) size() int64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return int64(len(n.data))
}

// hold counts a handle or mapping.
func (n *memNode) hold() {
	n.mu.Lock()
	n.users++
	n.mu.Unlock()
}

// held reports whether the file is open or mapped. A nil node is not.
func (n *memNode) held() bool {
	if n == nil {
		return false
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.users > 0
}

// release is the end of a handle or mapping.
func (m *Mem) release(n *memNode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.users--
	m.reap(n)
}

// reap gives the space of a file back that has no name, handle or mapping any more. The caller holds n.mu.
func (m *Mem) reap(n *memNode) {
	if n.links == 0 && n.users == 0 {
		m.charge(-n.space())
		n.room = 0
	}
}

// space is what the file takes up on the disk.
func (n *memNode) space() int64 { return max(int64(len(n.data)), n.room) }

// divide gives the durable image bytes of its own before data[:durLen] changes.
func (n *memNode) divide() {
	if !n.split {
		n.split, n.durable = true, slices.Clone(n.data[:n.durLen])
	}
}

func resize(b []byte, size int) []byte {
	if size <= len(b) {
		return b[:size]
	}
	old := len(b)
	b = slices.Grow(b, size-old)[:size]
	clear(b[old:])
	return b
}

func (w memWrite) apply(b []byte) []byte {
	if w.data == nil {
		return resize(b, int(w.off))
	}
	if end := int(w.off) + len(w.data); end > len(b) {
		b = resize(b, end)
	}
	copy(b[w.off:], w.data)
	return b
}

// settle makes the first k pending changes durable.
func (n *memNode) settle(k int) {
	k = min(k, len(n.pending))
	n.durRoom = n.room
	if k == len(n.pending) && !n.split {
		n.durLen = len(n.data)
	} else {
		n.divide()
		for _, w := range n.pending[:k] {
			n.durable = w.apply(n.durable)
		}
	}
	if k == len(n.pending) {
		n.pending = nil
		return
	}
	n.pending = slices.Delete(n.pending, 0, k)
}

// memFile is an open handle.
type memFile struct {
	m      *Mem
	n      *memNode
	name   string
	how    How
	closed atomic.Bool
}

func (f *memFile) Name() string { return f.name }
func (f *memFile) Align() int   { return f.m.o.Align }

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathErr("close", f.name, os.ErrClosed)
	}
	f.m.release(f.n)
	return nil
}

func (f *memFile) check(op string, write bool, n int, off int64) error {
	switch {
	case f.closed.Load():
		return pathErr(op, f.name, os.ErrClosed)
	case write && !f.how.Write && !f.how.Create:
		return pathErr(op, f.name, syscall.EBADF)
	case off < 0:
		return pathErr(op, f.name, syscall.EINVAL)
	case f.how.Direct && (n%f.m.o.Align != 0 || off%int64(f.m.o.Align) != 0):
		return pathErr(op, f.name, fmt.Errorf("direct: %d bytes at %d, alignment %d: %w", n, off, f.m.o.Align, syscall.EINVAL))
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", false, len(p), off); err != nil {
		return 0, err
	}
	f.n.mu.RLock()
	defer f.n.mu.RUnlock()
	if off >= int64(len(f.n.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	k := copy(p, f.n.data[off:])
	if k < len(p) {
		return k, io.EOF
	}
	return k, nil
}

// WriteAt implements File. On a full disk the part that found room is written, in whole sectors or direct blocks, and the
// error is ENOSPC.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check("write", true, len(p), off); err != nil || len(p) == 0 {
		return 0, err
	}
	if off > int64(maxMemFile-len(p)) {
		return 0, pathErr("write", f.name, syscall.EFBIG)
	}
	n, w, err := f.put(p, off)
	if w != nil { // the call is durable once the in-flight hook has had its look
		f.m.inFlight("write", f.name)
		f.landed(w)
	}
	return n, err
}

// put writes p, or what of it finds room, and reports the write's place in pending (by address), if it still has to become
// durable.
func (f *memFile) put(p []byte, off int64) (int, *byte, error) {
	m, n := f.m, f.n
	m.mu.RLock()
	defer m.mu.RUnlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	var full error
	for {
		short := f.grow(off + int64(len(p)))
		if short == 0 {
			break
		}
		full = pathErr("write", f.name, syscall.ENOSPC)
		unit := int64(sector)
		if f.how.Direct {
			unit = int64(m.o.Align)
		}
		end := off + int64(len(p)) - short
		if end -= end % unit; end <= off {
			return 0, nil, full
		}
		p = p[:end-off]
	}
	if m.o.NoCrash {
		copy(n.data[off:], p)
		return len(p), nil, full
	}
	if int(off) < n.durLen {
		n.divide()
	}
	copy(n.data[off:], p)
	if f.how.DSync && m.o.InFlight == nil && len(n.pending) == 0 {
		if n.split {
			n.durable = memWrite{off: off, data: p}.apply(n.durable)
		}
		n.durLen = max(n.durLen, int(off)+len(p))
		return len(p), nil, full
	}
	w := memWrite{off: off, data: slices.Clone(p)}
	n.pending = append(n.pending, w)
	if !f.how.DSync {
		return len(p), nil, full
	}
	return len(p), &w.data[0], full
}

// landed makes one write durable. Older changes of other handles stay in doubt before it.
func (f *memFile) landed(w *byte) {
	m, n := f.m, f.n
	m.mu.RLock()
	defer m.mu.RUnlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	k, front := 0, true
	for i := range n.pending {
		if d := n.pending[i].data; d != nil && &d[0] == w {
			n.pending[i].sure = true
		}
		if front = front && n.pending[i].sure; front {
			k++
		}
	}
	if k > 0 {
		n.settle(k)
	}
}

const maxMemFile = 1<<31 - 1<<16

// grow extends the file to size, if it is shorter, and charges the space beyond what is reserved. If there is too little it
// does nothing and returns by how much.
func (f *memFile) grow(size int64) (short int64) {
	if size <= int64(len(f.n.data)) {
		return 0
	}
	if short = f.m.charge(max(size, f.n.room) - f.n.space()); short == 0 {
		f.n.data = resize(f.n.data, int(size))
	}
	return short
}

func (f *memFile) Sync() error {
	if err := f.check("sync", false, 0, 0); err != nil {
		return err
	}
	f.n.mu.RLock()
	k := len(f.n.pending)
	f.n.mu.RUnlock()
	f.m.inFlight("sync", f.name)
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.n.settle(k)
	return nil
}

// LoseUnsynced makes the file's unsynced changes pass for clean, as some kernels do with pages whose writing failed: they are
// read as before, no later sync makes them durable, and a crash loses them.
func (f *memFile) LoseUnsynced() {
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	if len(f.n.pending) > 0 {
		f.n.divide()
		f.n.pending = nil
	}
}

func (f *memFile) Size() (int64, error) {
	if err := f.check("stat", false, 0, 0); err != nil {
		return 0, err
	}
	return f.n.size(), nil
}

// Truncate implements File. It gives back what was reserved beyond the new size, unless the file grows.
func (f *memFile) Truncate(size int64) error {
	if f.closed.Load() || !f.how.Write && !f.how.Create {
		return f.check("truncate", true, 0, 0)
	}
	if size < 0 || size > maxMemFile {
		return pathErr("truncate", f.name, syscall.EINVAL)
	}
	n := f.n
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if int(size) < n.durLen {
		n.divide()
	}
	if size <= int64(len(n.data)) {
		f.m.charge(size - n.space())
		n.room = 0
		// A mapping keeps the old bytes, so the tail is not reused in place.
		n.data = slices.Clip(n.data[:size])
	} else if f.grow(size) > 0 {
		return pathErr("truncate", f.name, syscall.ENOSPC)
	}
	if !f.m.o.NoCrash {
		n.pending = append(n.pending, memWrite{off: size})
	}
	return nil
}

// Preallocate implements File. A crash may forget what is reserved until the file is synced.
func (f *memFile) Preallocate(size int64) error {
	if err := f.check("fallocate", true, 0, 0); err != nil {
		return err
	}
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if size <= n.space() {
		return nil
	}
	if f.m.charge(size-n.space()) > 0 {
		return pathErr("fallocate", f.name, syscall.ENOSPC)
	}
	n.room = size
	return nil
}

// Map returns a view of the file's bytes as they are now: what a mapping of a finished file shows.
func (f *memFile) Map(size int64) (Mapping, error) {
	if err := f.check("map", false, 0, 0); err != nil {
		return nil, err
	}
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	if f.m.o.NoMap || size < 0 || size > int64(len(f.n.data)) {
		return nil, pathErr("map", f.name, fmt.Errorf("%w: %d bytes of %d", ErrMap, size, len(f.n.data)))
	}
	f.n.users++
	return &memMapping{m: f.m, n: f.n, b: f.n.data[:size:size]}, nil
}

type memMapping struct {
	m    *Mem
	n    *memNode
	b    []byte
	once sync.Once
}

func (m *memMapping) Bytes() []byte               { return m.b }
func (m *memMapping) Populate(off, n int64) error { return nil }

func (m *memMapping) Close() error {
	m.once.Do(func() { m.m.release(m.n) })
	return nil
}
