//go:build darwin

package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// sysFlags refuses direct I/O: macOS has a no-cache hint, but no way to be refused or to know the alignment.
func sysFlags(flags int, how How) (int, error) {
	if how.Direct {
		return 0, ErrDirect
	}
	return flags, nil
}

func directAlign(*os.File) int { return 0 }

// sysSync reaches the medium: package os uses F_FULLFSYNC, which fsync alone does not do here.
func (f *osFile) sysSync(bool) error { return f.File.Sync() }

// afterDSync syncs in full: O_DSYNC of macOS stops at the drive's cache.
func (f *osFile) afterDSync() error { return f.Sync() }

func (f *osFile) Preallocate(int64) error { return ErrUnsupported }

func (f *osFile) readDirect([]byte, int64) (int, error) { return 0, ErrDirect }

func populate(b []byte) error { return unix.Madvise(b, unix.MADV_WILLNEED) }
