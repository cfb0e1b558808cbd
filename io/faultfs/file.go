package faultfs

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/rowandb/rowan/io/vfs"
)

type wrapped struct {
	vfs.File
	f   *FS
	how vfs.How
}

func (w *wrapped) op(k Kind, off int64, n int) error {
	return w.f.call(Op{Kind: k, Name: w.Name(), Off: off, Len: n, Direct: w.how.Direct})
}

func (w *wrapped) Align() int {
	if w.f.o.Align != 0 {
		return max(w.f.o.Align, w.File.Align())
	}
	return w.File.Align()
}

func (w *wrapped) strict(k Kind, off int64, n int) error {
	if a := w.Align(); w.how.Direct && (off%int64(a) != 0 || n%a != 0) {
		return fmt.Errorf("%s %s: %d bytes at %d, alignment %d: %w", k, w.Name(), n, off, a, syscall.EINVAL)
	}
	return nil
}

func (w *wrapped) ReadAt(p []byte, off int64) (int, error) {
	err := w.op(Read, off, len(p))
	if errors.Is(err, ErrFlipped) {
		n, err := w.File.ReadAt(p, off)
		if n > 0 {
			p[n/2] ^= 4
		}
		return n, err
	}
	if err := errors.Join(err, w.strict(Read, off, len(p))); err != nil {
		return 0, err
	}
	return w.File.ReadAt(p, off)
}

func (w *wrapped) WriteAt(p []byte, off int64) (int, error) {
	err := w.op(Write, off, len(p))
	if errors.Is(err, ErrShort) {
		n := len(p) / 2
		if w.how.Direct {
			n -= n % w.Align()
		}
		if n > 0 {
			n, _ = w.File.WriteAt(p[:n], off)
		}
		return n, fmt.Errorf("%w: %w", io.ErrShortWrite, err)
	}
	if errors.Is(err, ErrDone) {
		n, e := w.File.WriteAt(p, off)
		return n, errors.Join(err, e)
	}
	if err := errors.Join(err, w.strict(Write, off, len(p))); err != nil {
		return 0, err
	}
	if w.how.Direct && w.f.o.RefuseWrite {
		return 0, fmt.Errorf("write %s: %w", w.Name(), vfs.ErrDirect)
	}
	return w.File.WriteAt(p, off)
}

func (w *wrapped) Sync() error {
	err := w.op(Sync, 0, 0)
	if l, ok := w.File.(interface{ LoseUnsynced() }); ok && errors.Is(err, ErrLost) {
		l.LoseUnsynced()
	}
	if err == nil || errors.Is(err, ErrDone) {
		err = errors.Join(err, w.File.Sync())
	}
	return err
}

func (w *wrapped) Truncate(size int64) error {
	err := w.op(Truncate, size, 0)
	if err == nil || errors.Is(err, ErrDone) {
		err = errors.Join(err, w.File.Truncate(size))
	}
	return err
}

func (w *wrapped) Preallocate(size int64) error {
	err := w.op(Preallocate, size, 0)
	if err == nil || errors.Is(err, ErrDone) {
		err = errors.Join(err, w.File.Preallocate(size))
	}
	return err
}

func (w *wrapped) Map(size int64) (vfs.Mapping, error) {
	if err := w.op(Map, size, 0); err != nil {
		return nil, err
	}
	if w.f.o.RefuseMap {
		return nil, fmt.Errorf("map %s: %w", w.Name(), errors.Join(vfs.ErrMap, w.f.o.MapError))
	}
	return w.File.Map(size)
}

// Close closes the file even if a rule makes the call fail: nothing else could.
func (w *wrapped) Close() error { return errors.Join(w.op(Close, 0, 0), w.File.Close()) }
