package vfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"syscall"
)

const copyBuffer = 1 << 20

// Copy writes the first n bytes of file `from` into the new file `to`, which is synced; its directory entry is not. A file that ends
// before is an error, io.ErrUnexpectedEOF. On failure no new file is left, as far as it can be removed.
func Copy(ctx context.Context, fsys FS, from, to string, n int64) (err error) {
	r, err := fsys.Open(from, How{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	w, err := fsys.Open(to, How{Create: true})
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, w.Close()); err != nil {
			err = errors.Join(err, fsys.Remove(to))
		}
	}()
	buf := make([]byte, min(n, copyBuffer))
	for off := int64(0); off < n; {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := buf[:min(int64(len(buf)), n-off)]
		if k, err := r.ReadAt(p, off); k < len(p) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("copy %s, %d of %d bytes: %w", from, off+int64(k), n, err)
		}
		if _, err := w.WriteAt(p, off); err != nil {
			return err
		}
		off += int64(len(p))
	}
	return w.Sync()
}

// LinkOrCopy makes `to` a second name of a file of n bytes, or a synced copy where the file system cannot link: across file
// systems, without links at all, or with too many.
func LinkOrCopy(ctx context.Context, fsys FS, from, to string, n int64) (linked bool, err error) {
	err = fsys.Link(from, to)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.EMLINK),
		errors.Is(err, syscall.ENOSYS), errors.Is(err, errors.ErrUnsupported):
		return false, Copy(ctx, fsys, from, to, n)
	}
	return false, err
}

// ErrNotEmpty: a directory that is to be filled holds something.
var ErrNotEmpty = errors.New("directory is not empty")

// NewDir makes a directory that is to be filled, durably, in one that exists. It may be there, if it is empty; made says whether it
// was not.
func NewDir(fsys FS, dir string) (made bool, err error) {
	parent := path.Dir(path.Clean(dir))
	if _, err := fsys.List(parent); err != nil {
		return false, fmt.Errorf("parent directory: %w", err)
	}
	list, err := fsys.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := fsys.MkdirAll(dir); err != nil {
			return false, err
		}
		made = true
	case err != nil:
		return false, err
	case len(list) > 0:
		return false, fmt.Errorf("%s: %w: it holds %q", dir, ErrNotEmpty, list[0].Name)
	}
	return made, fsys.SyncDir(parent)
}
