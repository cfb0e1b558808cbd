package direct

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rowandb/rowan/io/vfs"
)

// Mode says how the bytes go to the file.
type Mode uint32

const (
	Buffered Mode = iota // through the page cache
	Direct               // past it
)

func (m Mode) String() string {
	if m == Direct {
		return "direct"
	}
	return "buffered"
}

// Options of a Writer. The zero value is fine.
type Options struct {
	Expect int64 // bytes the file will probably have; reserved at once, what is too much is given back by Finish
	// Mode is how NewWriter's file was opened. Create tries Direct unless NoDirect is set.
	Mode     Mode
	NoDirect bool
}

// Writer appends to one file. It is used by one goroutine; a second one, its own, writes the full buffers. Exactly one of
// Finish and Abort must end it; both close the file and neither leaves the goroutine behind.
//
// The first failure sticks: every later Write and Finish returns it.
type Writer struct {
	fsys  vfs.FS // nil if the file cannot be opened again
	name  string
	f     vfs.File // used by the goroutine only, between start and wait
	align int
	mode  atomic.Uint32
	alloc bool // space was reserved beyond the end

	cur  *[]byte // being filled
	n    int     // bytes in cur
	off  int64   // offset of cur in the file
	done bool

	full chan chunk   // nil until the first buffer is full: a small file needs no goroutine
	free chan *[]byte // buffers that came back
	wg   sync.WaitGroup
	mu   sync.Mutex
	err  error
}

type chunk struct {
	buf *[]byte
	off int64
}

// Create makes the file name, which must not exist, and returns a Writer for it. It tries direct I/O and falls back to a
// buffered handle when that is refused, be it at open or by the first write; Mode says what is in force.
func Create(fsys vfs.FS, name string, o Options) (*Writer, error) {
	o.Mode = Direct
	var f vfs.File
	err := error(vfs.ErrDirect)
	if !o.NoDirect {
		f, err = fsys.Open(name, vfs.How{Create: true, Direct: true})
	}
	if errors.Is(err, vfs.ErrDirect) {
		o.Mode = Buffered
		f, err = fsys.Open(name, vfs.How{Create: true})
		if errors.Is(err, fs.ErrExist) && !o.NoDirect {
			// A refused create may leave its empty file behind.
			if i, serr := fsys.Stat(name); serr == nil && i.Size == 0 && !i.Dir {
				f, err = fsys.Open(name, vfs.How{Write: true})
			}
		}
	}
	if err != nil {
		return nil, err
	}
	w := NewWriter(f, o)
	w.fsys = fsys
	if err := w.failure(); err != nil {
		return nil, errors.Join(err, w.Abort(), fsys.Remove(name))
	}
	return w, nil
}

// NewWriter returns a Writer that appends to the empty file f and owns it from now on.
func NewWriter(f vfs.File, o Options) *Writer {
	w := &Writer{f: f, name: f.Name(), align: f.Align()}
	w.mode.Store(uint32(o.Mode))
	if o.Expect > 0 {
		err := f.Preallocate(o.Expect)
		w.alloc = err == nil
		if errors.Is(err, syscall.ENOSPC) {
			w.fail(err)
		}
	}
	return w
}

// Mode is the mode in force. It may still turn from Direct to Buffered at the first write.
func (w *Writer) Mode() Mode { return Mode(w.mode.Load()) }

// Offset is the number of bytes accepted so far.
func (w *Writer) Offset() int64 { return w.off + int64(w.n) }

func (w *Writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// Write appends p. An error may stem from an earlier call's bytes; then nothing of p counts.
func (w *Writer) Write(p []byte) (int, error) {
	if w.done {
		return 0, fmt.Errorf("write %s: %w", w.name, os.ErrClosed)
	}
	total := len(p)
	for len(p) > 0 {
		if w.cur == nil {
			w.cur = get(w.align)
		}
		k := copy((*w.cur)[w.n:], p)
		w.n, p = w.n+k, p[k:]
		if w.n == len(*w.cur) {
			if err := w.pass(); err != nil {
				return 0, err
			}
		}
	}
	return total, nil
}

// pass hands the full buffer to the goroutine and takes the other one, waiting until that has been written.
func (w *Writer) pass() error {
	if w.full == nil {
		w.full, w.free = make(chan chunk), make(chan *[]byte, 2)
		w.free <- get(w.align)
		w.wg.Go(w.run)
	}
	next := <-w.free
	w.full <- chunk{w.cur, w.off}
	w.off += int64(w.n)
	w.cur, w.n = next, 0
	return w.failure()
}

func (w *Writer) run() {
	for c := range w.full {
		if w.failure() == nil {
			if err := w.write(*c.buf, c.off); err != nil {
				w.fail(err)
			}
		}
		w.free <- c.buf
	}
}

// write puts b at off, changing over to a buffered handle if the first direct write is refused.
func (w *Writer) write(b []byte, off int64) error {
	_, err := w.f.WriteAt(b, off)
	if off > 0 || w.Mode() != Direct || w.fsys == nil || !errors.Is(err, vfs.ErrDirect) {
		return err
	}
	f, err := w.fsys.Open(w.name, vfs.How{Write: true})
	if err != nil {
		return err
	}
	_ = w.f.Close() // nothing was written through it
	w.f = f
	w.mode.Store(uint32(Buffered))
	_, err = f.WriteAt(b, off)
	return err
}

// wait ends the goroutine and returns the buffers other than cur.
func (w *Writer) wait() {
	if w.full == nil {
		return
	}
	close(w.full)
	w.wg.Wait()
	w.full = nil
	close(w.free)
	for b := range w.free {
		put(b, w.align)
	}
}

// Finish writes what is left, sets the file's true length, syncs and closes it. The directory entry is the caller's business.
func (w *Writer) Finish() error {
	if w.done {
		return fmt.Errorf("finish %s: %w", w.name, os.ErrClosed)
	}
	w.done = true
	w.wait()
	size := w.Offset()
	err := w.failure()
	if err == nil && w.n > 0 {
		err = w.tail(size)
	}
	if err == nil && w.alloc {
		err = w.f.Truncate(size) // also gives back what was reserved beyond the end
	}
	if err == nil {
		err = w.f.Sync()
	}
	put(w.cur, w.align)
	w.cur = nil
	err = errors.Join(err, w.f.Close())
	if err != nil {
		w.fail(err)
	}
	return err
}

func (w *Writer) tail(size int64) error {
	b := *w.cur
	if w.Mode() == Direct {
		end := (w.n + w.align - 1) &^ (w.align - 1)
		clear(b[w.n:end])
		if err := w.write(b[:end], w.off); err != nil {
			return err
		}
		if end == w.n {
			return nil
		}
		return w.f.Truncate(size)
	}
	return w.write(b[:w.n], w.off)
}

// Abort gives up and closes the file, whose content is then anything; the caller removes it. Does nothing after Finish.
func (w *Writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	w.wait()
	put(w.cur, w.align)
	w.cur = nil
	return w.f.Close()
}
