package vfs

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// MemOptions tunes a Mem. The zero value is a large disk that grants direct I/O at an alignment of 4096.
type MemOptions struct {
	Align    int   // of direct handles, 0 = 4096
	NoDirect bool  // opens with How.Direct fail with ErrDirect
	NoMap    bool  // Map fails with ErrMap
	Capacity int64 // bytes of file data and reserved space before ENOSPC, 0 = no limit

	// HoldOpen refuses to remove or replace a file that is open or mapped, with EBUSY, as some systems do.
	HoldOpen bool

	// NoCrash keeps no record of what is durable: CrashClone returns everything. It halves the memory traffic.
	NoCrash bool

	// InFlight is called, without any lock held, in the middle of every call that makes something durable (a write through a
	// DSync handle, Sync, SyncDir): the bytes are on their way and not yet safe. A CrashClone taken inside sees each of
	// their sectors kept or dropped.
	InFlight func(op, name string)
}

// Mem is a file system in memory that knows what a power cut would leave. Safe for concurrent use.
//
// The crash model: the bytes of a file are durable after File.Sync, or on return from a write through a DSync handle; a file
// sync does not cover the file's directory entry; an entry (made by create, rename, link, remove or MkdirAll) is durable
// after SyncDir of its directory, and a directory's own entry is in its parent. CrashClone makes the image.
type Mem struct {
	o     MemOptions
	mu    sync.RWMutex // write: names, entries and crash images; read: file data, so that an image is one moment
	root  *memDir
	used  atomic.Int64
	limit atomic.Int64      // bytes that used may reach, 0 = any
	locks map[*memNode]bool // under mu
}

// NewMem returns an empty file system whose only directory is the root. At most one MemOptions is used.
func NewMem(o ...MemOptions) *Mem {
	m := &Mem{root: newMemDir(), locks: map[*memNode]bool{}}
	if len(o) > 0 {
		m.o = o[0]
	}
	if m.o.Align == 0 {
		m.o.Align = minMemAlign
	}
	m.limit.Store(m.o.Capacity)
	return m
}

// SetCapacity replaces MemOptions.Capacity, also while the file system is in use: a disk that fills up from outside, or gets
// space back. What is over the limit then stays.
func (m *Mem) SetCapacity(bytes int64) { m.limit.Store(bytes) }

// Used is the number of bytes that files and what is reserved for them take up.
func (m *Mem) Used() int64 { return m.used.Load() }

// charge takes d more bytes of the disk, or gives them back. It returns by how many bytes it fell short; then nothing is taken.
func (m *Mem) charge(d int64) (short int64) {
	if d == 0 {
		return 0
	}
	used, limit := m.used.Add(d), m.limit.Load()
	if d > 0 && limit > 0 && used > limit {
		m.used.Add(-d)
		return used - limit
	}
	return 0
}

const minMemAlign = 4096

// memEntry is a file or a directory, exactly one of the two; the zero value is "no entry".
type memEntry struct {
	file *memNode
	dir  *memDir
}

type memDir struct {
	entries map[string]memEntry
	durable map[string]memEntry
	pending []memChange // entry changes since the last SyncDir, oldest first
}

// memChange is one entry change: kept or dropped as a whole, so that a rename inside a directory is atomic.
type memChange []memAssign

type memAssign struct {
	name string
	to   memEntry
}

func newMemDir() *memDir {
	return &memDir{entries: map[string]memEntry{}, durable: map[string]memEntry{}}
}

func (m *Mem) change(d *memDir, c ...memAssign) {
	d.apply(d.entries, c)
	if m.o.NoCrash {
		return
	}
	d.pending = append(d.pending, c)
}

func (d *memDir) apply(to map[string]memEntry, c memChange) {
	for _, a := range c {
		if a.to == (memEntry{}) {
			delete(to, a.name)
		} else {
			to[a.name] = a.to
		}
	}
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// split returns the directory that holds name, and the base name; "" is the root itself. Absolute and relative paths mean
// the same.
func (m *Mem) split(op, name string) (*memDir, string, error) {
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	if clean == "" {
		return m.root, "", nil
	}
	d := m.root
	for {
		head, rest, more := strings.Cut(clean, "/")
		if !more {
			return d, head, nil
		}
		e := d.entries[head]
		switch {
		case e.dir != nil:
			d = e.dir
		case e.file != nil:
			return nil, "", pathErr(op, name, syscall.ENOTDIR)
		default:
			return nil, "", pathErr(op, name, fs.ErrNotExist)
		}
		clean = rest
	}
}

func (m *Mem) dir(op, name string) (*memDir, error) {
	d, base, err := m.split(op, name)
	if err != nil || base == "" {
		return d, err
	}
	e := d.entries[base]
	switch {
	case e.dir != nil:
		return e.dir, nil
	case e.file != nil:
		return nil, pathErr(op, name, syscall.ENOTDIR)
	}
	return nil, pathErr(op, name, fs.ErrNotExist)
}

// Open implements FS.
func (m *Mem) Open(name string, how How) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.open(name, how)
	if err != nil {
		return nil, err
	}
	n.hold()
	return &memFile{m: m, n: n, name: name, how: how}, nil
}

func (m *Mem) open(name string, how How) (*memNode, error) {
	d, base, err := m.split("open", name)
	if err != nil {
		return nil, err
	}
	e := d.entries[base]
	switch {
	case base == "" || e.dir != nil:
		return nil, pathErr("open", name, syscall.EISDIR)
	case how.Create && e.file != nil:
		return nil, pathErr("open", name, fs.ErrExist)
	case how.Direct && m.o.NoDirect:
		return nil, pathErr("open", name, ErrDirect)
	case how.Create:
		e.file = &memNode{links: 1}
		m.change(d, memAssign{base, e})
	case e.file == nil:
		return nil, pathErr("open", name, fs.ErrNotExist)
	}
	return e.file, nil
}

// Remove implements FS. Like the operating system's it also removes an empty directory.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.split("remove", name)
	if err != nil {
		return err
	}
	e := d.entries[base]
	switch {
	case base == "":
		return pathErr("remove", name, syscall.EBUSY)
	case e == memEntry{}:
		return pathErr("remove", name, fs.ErrNotExist)
	case e.dir != nil && len(e.dir.entries) > 0:
		return pathErr("remove", name, syscall.ENOTEMPTY)
	case m.o.HoldOpen && e.file.held():
		return pathErr("remove", name, syscall.EBUSY)
	}
	m.change(d, memAssign{name: base})
	m.unlink(e.file)
	return nil
}

// unlink takes a name away. The space comes back with the last name and the last handle or mapping.
func (m *Mem) unlink(n *memNode) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links--
	m.reap(n)
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, a, err := m.split("rename", oldName)
	if err != nil {
		return err
	}
	to, b, err := m.split("rename", newName)
	if err != nil {
		return err
	}
	e, over := from.entries[a], to.entries[b]
	switch {
	case a == "" || b == "":
		return pathErr("rename", oldName, syscall.EBUSY)
	case e == memEntry{}:
		return pathErr("rename", oldName, fs.ErrNotExist)
	case e == over:
		return nil
	case over.dir != nil || e.dir != nil && over.file != nil:
		return pathErr("rename", newName, fs.ErrExist)
	case m.o.HoldOpen && over.file.held():
		return pathErr("rename", newName, syscall.EBUSY)
	}
	if from == to {
		m.change(to, memAssign{a, memEntry{}}, memAssign{b, e})
	} else { // each directory is synced on its own: a crash may leave both names, or none
		m.change(to, memAssign{b, e})
		m.change(from, memAssign{name: a})
	}
	m.unlink(over.file)
	return nil
}

// Link implements FS.
func (m *Mem) Link(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, a, err := m.split("link", oldName)
	if err != nil {
		return err
	}
	to, b, err := m.split("link", newName)
	if err != nil {
		return err
	}
	e := from.entries[a]
	switch {
	case e == memEntry{}:
		return pathErr("link", oldName, fs.ErrNotExist)
	case e.file == nil:
		return pathErr("link", oldName, syscall.EPERM)
	case b == "" || to.entries[b] != (memEntry{}):
		return pathErr("link", newName, fs.ErrExist)
	}
	e.file.mu.Lock()
	e.file.links++
	e.file.mu.Unlock()
	m.change(to, memAssign{b, e})
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.root
	for part := range strings.SplitSeq(strings.TrimPrefix(path.Clean("/"+name), "/"), "/") {
		if part == "" {
			continue
		}
		e := d.entries[part]
		if e.file != nil {
			return pathErr("mkdir", name, syscall.ENOTDIR)
		}
		if e.dir == nil {
			e.dir = newMemDir()
			m.change(d, memAssign{part, e})
		}
		d = e.dir
	}
	return nil
}

// List implements FS.
func (m *Mem) List(name string) ([]Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	d, err := m.dir("list", name)
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(d.entries))
	for base, e := range d.entries {
		infos = append(infos, e.info(base))
	}
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}

func (e memEntry) info(base string) Info {
	if e.dir != nil {
		return Info{Name: base, Dir: true}
	}
	return Info{Name: base, Size: e.file.size()}
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	d, base, err := m.split("stat", name)
	if err != nil {
		return Info{}, err
	}
	if base == "" {
		return Info{Name: "/", Dir: true}, nil
	}
	e := d.entries[base]
	if e == (memEntry{}) {
		return Info{}, pathErr("stat", name, fs.ErrNotExist)
	}
	return e.info(base), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(name string) error {
	m.mu.RLock()
	d, err := m.dir("sync", name)
	var n int
	if err == nil {
		n = len(d.pending)
	}
	m.mu.RUnlock()
	if err != nil {
		return err
	}
	m.inFlight("syncdir", name)
	m.mu.Lock()
	defer m.mu.Unlock()
	n = min(n, len(d.pending)) // another SyncDir may have been faster
	for _, c := range d.pending[:n] {
		d.apply(d.durable, c)
	}
	d.pending = slices.Delete(d.pending, 0, n)
	return nil
}

// SetInFlight replaces MemOptions.InFlight, as for a CrashClone. Nobody may be using the file system.
func (m *Mem) SetInFlight(f func(op, name string)) { m.o.InFlight = f }

func (m *Mem) inFlight(op, name string) {
	if m.o.InFlight != nil {
		m.o.InFlight(op, name)
	}
}

// Free implements FS.
func (m *Mem) Free(dir string) (int64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if _, err := m.dir("free", dir); err != nil {
		return 0, err
	}
	limit := m.limit.Load()
	if limit == 0 {
		return 1 << 40, nil
	}
	return max(0, limit-m.used.Load()), nil
}

type memLock struct {
	m    *Mem
	n    *memNode
	once sync.Once
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.split("lock", name)
	if err != nil {
		return nil, err
	}
	n, err := m.open(name, How{Write: true, Create: base != "" && d.entries[base] == memEntry{}})
	if err != nil {
		return nil, err
	}
	if m.locks[n] {
		return nil, pathErr("lock", name, ErrLocked)
	}
	m.locks[n] = true
	return &memLock{m: m, n: n}, nil
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		delete(l.m.locks, l.n)
	})
	return nil
}
