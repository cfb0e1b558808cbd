// Package mapped reads files through memory maps and turns the faults of such reads into errors. A mapped page that the file
// no longer has (truncated behind our back) or that the disk cannot deliver kills a process by default.
//
// Every operation that may touch mapped bytes runs under the guard:
//
//	func (r *Reader) Get(key []byte) (value []byte, err error) {
//		defer mapped.Leave(mapped.Enter(), &err)
//		...
//	}
//
// The guard belongs to the goroutine. What must be released on the way out (latches, pins) is released by defer. Mapped bytes
// must not be handed to assembly with a stack frame of its own, such as the decoders of S2 and zstd: a fault there while the
// garbage collector runs cannot be survived. Copy them off the map first; copy and comparison are safe.
package mapped

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"unsafe"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/vfs"
)

// Mapped is a read-only view of a file. Its methods are safe for concurrent use, but nobody may use Bytes after Close.
type Mapped struct {
	m    vfs.Mapping
	name string
	base uintptr
	size int64
	once sync.Once
	err  error
}

// live are the mappings that a fault may be blamed on, sorted by base. It is consulted after a fault only.
var live struct {
	sync.RWMutex
	m []*Mapped
}

// Open maps the first size bytes of f, which may be closed afterwards. A file that is shorter is damaged; where the file
// cannot be mapped the error is vfs.ErrMap and positional reads are the way.
func Open(f vfs.File, size int64) (*Mapped, error) {
	have, err := f.Size()
	if err != nil {
		return nil, err
	}
	if have < size {
		return nil, damage.At(damage.New("file", have, "ends here, %d bytes expected", size), f.Name(), 0)
	}
	m, err := f.Map(size)
	if err != nil {
		return nil, err
	}
	p := &Mapped{m: m, name: f.Name(), base: uintptr(unsafe.Pointer(unsafe.SliceData(m.Bytes()))), size: size}
	if size > 0 {
		live.Lock()
		defer live.Unlock()
		i, _ := slices.BinarySearchFunc(live.m, p.base, byBase)
		live.m = slices.Insert(live.m, i, p)
	}
	return p, nil
}

func byBase(m *Mapped, base uintptr) int {
	switch {
	case m.base < base:
		return -1
	case m.base > base:
		return 1
	}
	return 0
}

// Bytes is the view, valid until Close. Read it under the guard.
func (m *Mapped) Bytes() []byte { return m.m.Bytes() }

// Populate reads [off, off+n) into memory ahead of use; only a hint.
func (m *Mapped) Populate(off, n int64) error { return m.m.Populate(off, n) }

// Close removes the mapping. It may be called twice.
func (m *Mapped) Close() error {
	m.once.Do(func() {
		live.Lock()
		if i := slices.Index(live.m, m); i >= 0 {
			live.m = slices.Delete(live.m, i, i+1)
		}
		live.Unlock()
		m.err = m.m.Close()
	})
	return m.err
}

// Enter makes faults of this goroutine panics, and returns what Leave needs. Guards nest.
func Enter() (old bool) { return debug.SetPanicOnFault(true) }

// Leave ends the guard; it must be deferred directly. A fault inside a live mapping is stored in *err as a damage.Error naming
// the file and the offset; any other panic goes on with its value unchanged.
func Leave(old bool, err *error) {
	debug.SetPanicOnFault(old)
	r := recover()
	if r == nil {
		return
	}
	if d := blame(r); d != nil {
		*err = d
		return
	}
	// No panic begins here: this one was under way when the guard caught it, and is no fault of a mapping. Keeping it would hide a
	// bug of the host (in a callback, say) behind an error about a file.
	panic(r) // the caught panic goes on unchanged, as if there were no guard
}

func blame(r any) *damage.Error {
	f, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		return nil
	}
	addr := f.Addr()
	live.RLock()
	defer live.RUnlock()
	i, found := slices.BinarySearchFunc(live.m, addr, byBase)
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	// The last page of a mapping ends beyond the file; a read past Bytes would be a bug and goes on as a panic. In-memory
	// files may share an address, and never fault.
	m := live.m[i]
	off := int64(addr - m.base)
	if off >= m.size {
		return nil
	}
	return &damage.Error{File: m.name, Part: "mapping", Offset: off, Detail: "the page cannot be read: the file was shortened or the disk failed", Cause: f}
}
