//go:build (linux && (amd64 || arm64 || 386)) || darwin

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// OS is the file system of the operating system. Linux on amd64, arm64 and 386 has everything; on macOS direct I/O is always
// refused and a sync reaches the medium (F_FULLFSYNC); everything else answers ErrUnsupported.
//
// Interrupted calls are retried and short writes continued (package os does both).
func OS() FS { return osFS{} }

type osFS struct{}

const (
	filePerm = 0o644
	dirPerm  = 0o755
)

func (osFS) Open(name string, how How) (File, error) {
	flags := os.O_RDONLY
	if how.Write || how.Create {
		flags = os.O_RDWR
	}
	if how.Create {
		flags |= os.O_CREATE | os.O_EXCL
	}
	flags, err := sysFlags(flags, how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	h, err := os.OpenFile(name, flags, filePerm)
	if err != nil {
		if how.Direct && directRefused(err) {
			// The kernel checks for direct I/O after it has made the file. O_EXCL proves that the file is ours: had it been
			// there before, the error would be EEXIST.
			if how.Create {
				_ = os.Remove(name)
			}
			return nil, fmt.Errorf("%w: %w", ErrDirect, err)
		}
		return nil, err
	}
	f := &osFile{File: h, how: how, align: minAlign}
	if how.Direct {
		if f.align = directAlign(h); f.align == 0 {
			err := &fs.PathError{Op: "open", Path: name, Err: ErrDirect}
			_ = h.Close()
			if how.Create {
				_ = os.Remove(name)
			}
			return nil, err
		}
	}
	size, err := f.Size()
	if err != nil {
		_ = h.Close()
		return nil, err
	}
	f.size.Store(size)
	f.meta.Store(how.Create)
	return f, nil
}

func (osFS) Remove(name string) error             { return os.Remove(name) }
func (osFS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }
func (osFS) Link(oldName, newName string) error   { return os.Link(oldName, newName) }
func (osFS) MkdirAll(dir string) error            { return os.MkdirAll(dir, dirPerm) }

func (osFS) List(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(entries))
	for _, e := range entries {
		i, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the directory was read
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, Info{Name: e.Name(), Size: i.Size(), Dir: i.IsDir()})
	}
	return infos, nil
}

func (osFS) Stat(name string) (Info, error) {
	i, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Name: i.Name(), Size: i.Size(), Dir: i.IsDir()}, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

func (osFS) Free(dir string) (int64, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
		}
		break
	}
	bs := uint64(st.Bsize)
	if st.Blocks == 0 {
		return math.MaxInt64, nil // ramfs and its like keep no count
	}
	if st.Bavail > math.MaxInt64/max(bs, 1) {
		return math.MaxInt64, nil
	}
	return int64(st.Bavail * bs), nil
}

// held is the in-process half of Lock: on file systems that emulate flock by record locks, two locks of one process would
// not exclude each other.
var held struct {
	sync.Mutex
	m map[fileID]bool
}

type fileID struct{ dev, ino uint64 }

type osLock struct {
	f    *os.File
	id   fileID
	once sync.Once
	err  error
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		_ = f.Close()
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	id := fileID{uint64(st.Dev), st.Ino}
	held.Lock()
	defer held.Unlock()
	if held.m[id] {
		_ = f.Close()
		return nil, &fs.PathError{Op: "lock", Path: name, Err: ErrLocked}
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		if err == unix.EWOULDBLOCK {
			err = ErrLocked
		}
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	if held.m == nil {
		held.m = map[fileID]bool{}
	}
	held.m[id] = true
	return &osLock{f: f, id: id}, nil
}

func (l *osLock) Close() error {
	l.once.Do(func() {
		held.Lock()
		defer held.Unlock()
		delete(held.m, l.id)
		l.err = l.f.Close() // closing the only descriptor gives the flock back
	})
	return l.err
}

// minAlign is the least alignment ever reported, so that a file written on one machine can be written on with direct I/O on
// most others.
const minAlign = 4096

type osFile struct {
	*os.File
	how   How
	align int
	size  atomic.Int64 // as far as this handle knows
	meta  atomic.Bool  // size or extents changed since the last sync: it must be a full one
	wrote atomic.Bool  // a direct write went through: EINVAL is no longer a refusal
}

func (f *osFile) Align() int { return f.align }

func (f *osFile) Size() (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}

func (f *osFile) aligned(n int, off int64) bool {
	return n%f.align == 0 && off%int64(f.align) == 0
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	if !f.how.Direct {
		return f.File.ReadAt(p, off)
	}
	return f.readDirect(p, off)
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	if f.how.Direct && !f.aligned(len(p), off) {
		// Some file systems (tmpfs) would take it; a mistake must show everywhere.
		return 0, &fs.PathError{Op: "write", Path: f.Name(), Err: unix.EINVAL}
	}
	if end := off + int64(len(p)); end > f.size.Load() {
		f.meta.Store(true)
		storeMax(&f.size, end)
	}
	n, err := f.File.WriteAt(p, off)
	if f.how.Direct {
		if err == nil {
			if !f.wrote.Load() {
				f.wrote.Store(true)
			}
		} else if n == 0 && !f.wrote.Load() && directRefused(err) {
			return 0, fmt.Errorf("%w: %w", ErrDirect, err)
		}
	}
	if err == nil && f.how.DSync {
		err = f.afterDSync()
	}
	return n, err
}

func storeMax(a *atomic.Int64, v int64) {
	for {
		old := a.Load()
		if old >= v || a.CompareAndSwap(old, v) {
			return
		}
	}
}

func (f *osFile) Sync() error {
	// The flag is taken before the call: what changes meanwhile belongs to the next one.
	full := f.meta.Swap(false)
	err := f.sysSync(full)
	if err != nil && full {
		f.meta.Store(true)
	}
	return err
}

func (f *osFile) Truncate(size int64) error {
	f.meta.Store(true)
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	f.size.Store(size)
	return nil
}

func (f *osFile) Map(size int64) (Mapping, error) {
	have, err := f.Size()
	switch {
	case err != nil:
		return nil, err
	case size < 0 || size > have:
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: fmt.Errorf("%w: %d bytes asked of %d", ErrMap, size, have)}
	case size == 0:
		return &osMapping{}, nil
	case size > math.MaxInt:
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: fmt.Errorf("%w: %d bytes do not fit the address space", ErrMap, size)}
	}
	m, err := mmap.MapRegion(f.File, int(size), mmap.RDONLY, 0, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: fmt.Errorf("%w: %w", ErrMap, err)}
	}
	// Without the advice a fault reads megabytes around it. A kernel that does not take it still serves the map.
	_ = unix.Madvise(m, unix.MADV_RANDOM)
	return &osMapping{m: m}, nil
}

type osMapping struct {
	m    mmap.MMap
	once sync.Once
	err  error
}

func (m *osMapping) Bytes() []byte { return m.m }

func (m *osMapping) Populate(off, n int64) error {
	if off < 0 || n <= 0 || off >= int64(len(m.m)) {
		return nil
	}
	end := off + min(n, int64(len(m.m))-off)
	off -= off % int64(os.Getpagesize())
	return populate(m.m[off:end])
}

func (m *osMapping) Close() error {
	m.once.Do(func() {
		if m.m != nil {
			m.err = m.m.Unmap()
		}
	})
	return m.err
}

func directRefused(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}
