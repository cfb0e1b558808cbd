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

	// What a power cut leaves for sure. While nothing durable was overwritten it is data[:durLen] and no copy is kept
	// (durable is nil and split is false).
	split   bool
	durable []byte
	durLen  int

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

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check("write", true, len(p), off); err != nil || len(p) == 0 {
		return 0, err
	}
	if off > int64(maxMemFile-len(p)) {
		return 0, pathErr("write", f.name, syscall.EFBIG)
	}
	w, err := f.put(p, off)
	switch {
	case err != nil:
		return 0, err
	case w == nil:
		return len(p), nil
	}
	// The call is durable once the in-flight hook has had its look.
	f.m.inFlight("write", f.name)
	f.landed(w)
	return len(p), nil
}

// put writes p and reports its place in pending (by address), if the write still has to become durable.
func (f *memFile) put(p []byte, off int64) (*byte, error) {
	m, n := f.m, f.n
	m.mu.RLock()
	defer m.mu.RUnlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := f.grow("write", int(off)+len(p)); err != nil {
		return nil, err
	}
	if m.o.NoCrash {
		copy(n.data[off:], p)
		return nil, nil
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
		return nil, nil
	}
	w := memWrite{off: off, data: slices.Clone(p)}
	n.pending = append(n.pending, w)
	if !f.how.DSync {
		return nil, nil
	}
	return &w.data[0], nil
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

// grow extends the file to size, if it is shorter, and charges the space.
func (f *memFile) grow(op string, size int) error {
	d := size - len(f.n.data)
	if d <= 0 {
		return nil
	}
	if f.n.links > 0 {
		if used := f.m.used.Add(int64(d)); f.m.o.Capacity > 0 && used > f.m.o.Capacity {
			f.m.used.Add(-int64(d))
			return pathErr(op, f.name, syscall.ENOSPC)
		}
	}
	f.n.data = resize(f.n.data, size)
	return nil
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

func (f *memFile) Size() (int64, error) {
	if err := f.check("stat", false, 0, 0); err != nil {
		return 0, err
	}
	return f.n.size(), nil
}

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
	if d := len(n.data) - int(size); d > 0 {
		if n.links > 0 {
			f.m.used.Add(-int64(d))
		}
		// A mapping keeps the old bytes, so the tail is not reused in place.
		n.data = slices.Clip(n.data[:size])
	} else if err := f.grow("truncate", int(size)); err != nil {
		return err
	}
	if !f.m.o.NoCrash {
		n.pending = append(n.pending, memWrite{off: size})
	}
	return nil
}

// Preallocate only checks that the space is there.
func (f *memFile) Preallocate(size int64) error {
	if err := f.check("fallocate", true, 0, 0); err != nil {
		return err
	}
	if c := f.m.o.Capacity; c > 0 && f.m.used.Load()+size-f.n.size() > c {
		return pathErr("fallocate", f.name, syscall.ENOSPC)
	}
	return nil
}

// Map returns a view of the file's bytes as they are now: what a mapping of a finished file shows.
func (f *memFile) Map(size int64) (Mapping, error) {
	if err := f.check("map", false, 0, 0); err != nil {
		return nil, err
	}
	f.n.mu.RLock()
	defer f.n.mu.RUnlock()
	if f.m.o.NoMap || size < 0 || size > int64(len(f.n.data)) {
		return nil, pathErr("map", f.name, fmt.Errorf("%w: %d bytes of %d", ErrMap, size, len(f.n.data)))
	}
	return memMapping(f.n.data[:size:size]), nil
}

type memMapping []byte

func (m memMapping) Bytes() []byte               { return m }
func (m memMapping) Populate(off, n int64) error { return nil }
func (m memMapping) Close() error                { return nil }
