//go:build linux && (amd64 || arm64 || 386)

package vfs

import (
	"errors"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysFlags(flags int, how How) (int, error) {
	if how.Direct {
		flags |= unix.O_DIRECT
	}
	if how.DSync {
		flags |= unix.O_DSYNC
	}
	return flags, nil
}

// directAlign asks the file what direct I/O on it needs; 0 means that it has none. A kernel before 6.1 has no answer.
func directAlign(f *os.File) int {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return minAlign
	}
	if st.Dio_offset_align == 0 {
		return 0
	}
	a := max(st.Dio_mem_align, st.Dio_offset_align, minAlign)
	if a > 1<<20 {
		return 0
	}
	return 1 << bits.Len32(a-1)
}

func (f *osFile) sysSync(full bool) error {
	if full {
		return f.File.Sync()
	}
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = c.Control(func(fd uintptr) {
		for {
			if serr = unix.Fdatasync(int(fd)); serr != unix.EINTR {
				return
			}
		}
	})
	if err == nil && serr != nil {
		err = &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: serr}
	}
	return err
}

// afterDSync has nothing to do: O_DSYNC writes are durable with the size and extents that reading them back needs.
func (f *osFile) afterDSync() error { return nil }

func (f *osFile) Preallocate(size int64) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	f.meta.Store(true)
	var serr error
	err = c.Control(func(fd uintptr) {
		for {
			if serr = unix.Fallocate(int(fd), unix.FALLOC_FL_KEEP_SIZE, 0, size); serr != unix.EINTR {
				return
			}
		}
	})
	if err == nil && serr != nil {
		err = &fs.PathError{Op: "fallocate", Path: f.Name(), Err: serr}
	}
	return err
}

// readDirect differs from os.File.ReadAt in one point: a short read that ends off the alignment is the file's end, and going
// on from there would be refused.
func (f *osFile) readDirect(p []byte, off int64) (int, error) {
	if !f.aligned(len(p), off) {
		return 0, &fs.PathError{Op: "read", Path: f.Name(), Err: syscall.EINVAL}
	}
	c, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	n := 0
	var serr error
	err = c.Control(func(fd uintptr) {
		for n < len(p) {
			m, e := unix.Pread(int(fd), p[n:], off+int64(n))
			if e == unix.EINTR {
				continue
			}
			if e != nil {
				serr = e
				return
			}
			n += m
			if m == 0 || m%f.align != 0 {
				break
			}
		}
		if n < len(p) {
			serr = io.EOF
		}
	})
	if err == nil {
		err = serr
	}
	if err != nil && err != io.EOF {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return n, err
}

func populate(b []byte) error {
	for {
		err := unix.Madvise(b, unix.MADV_POPULATE_READ)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case errors.Is(err, unix.EINVAL): // before Linux 5.14
			return unix.Madvise(b, unix.MADV_WILLNEED)
		}
		return err
	}
}
