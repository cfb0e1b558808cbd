package direct_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/io/direct"
	"github.com/rowandb/rowan/io/vfs"
)

// quirk wraps a file system: direct I/O refused at the first write, an empty file left by a refused create, or the n-th write
// failing.
type quirk struct {
	vfs.FS
	refuseWrite, leave bool
	failAt             int
}

type quirkFile struct {
	vfs.File
	q      *quirk
	direct bool
}

func (q *quirk) Open(name string, how vfs.How) (vfs.File, error) {
	if q.leave && how.Direct {
		f, err := q.FS.Open(name, vfs.How{Create: true})
		if err == nil {
			_ = f.Close()
		}
		return nil, vfs.ErrDirect
	}
	f, err := q.FS.Open(name, how)
	if err != nil {
		return nil, err
	}
	return &quirkFile{f, q, how.Direct}, nil
}

func (f *quirkFile) WriteAt(p []byte, off int64) (int, error) {
	if f.q.refuseWrite && f.direct {
		return 0, vfs.ErrDirect
	}
	if f.q.failAt > 0 {
		if f.q.failAt--; f.q.failAt == 0 {
			return 0, syscall.EIO
		}
	}
	return f.File.WriteAt(p, off)
}

func content(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	f, err := fsys.Open(name, vfs.How{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWriter(t *testing.T) {
	data := make([]byte, 3<<20+777)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(data)
	dir := t.TempDir()
	systems := []struct {
		name string
		fsys func() vfs.FS
		dir  string
		o    direct.Options
		mode direct.Mode
	}{
		{"os", vfs.OS, dir, direct.Options{}, 2},
		{"osBuffered", vfs.OS, dir, direct.Options{NoDirect: true, Expect: 9 << 20}, direct.Buffered},
		{"mem", func() vfs.FS { return vfs.NewMem() }, "", direct.Options{Expect: 1 << 20}, direct.Direct},
		{"mem64K", func() vfs.FS { return vfs.NewMem(vfs.MemOptions{Align: 64 << 10}) }, "", direct.Options{}, direct.Direct},
		{"memRefuses", func() vfs.FS { return vfs.NewMem(vfs.MemOptions{NoDirect: true}) }, "", direct.Options{}, direct.Buffered},
		{"firstWrite", func() vfs.FS { return &quirk{FS: vfs.NewMem(), refuseWrite: true} }, "", direct.Options{}, direct.Buffered},
		{"emptyLeft", func() vfs.FS { return &quirk{FS: vfs.NewMem(), leave: true} }, "", direct.Options{}, direct.Buffered},
	}
	sizes := []int{0, 1, 4095, 4096, 4097, 1<<20 - 1, 1 << 20, 1<<20 + 1, 2 << 20, len(data)}
	for _, s := range systems {
		t.Run(s.name, func(t *testing.T) {
			fsys := s.fsys()
			for i, size := range sizes {
				name := fmt.Sprintf("%s/%s%d", s.dir, s.name, i)
				w, err := direct.Create(fsys, name, s.o)
				if err != nil {
					t.Fatal(err)
				}
				step := max(1, min(size/3+1, 100_000))
				for lo := 0; lo < size; lo += step {
					if n, err := w.Write(data[lo:min(lo+step, size)]); err != nil || n == 0 {
						t.Fatal(n, err)
					}
				}
				if w.Offset() != int64(size) {
					t.Fatal(w.Offset())
				}
				if err := w.Finish(); err != nil {
					t.Fatal(err)
				}
				if err := w.Abort(); err != nil {
					t.Fatal("abort after finish:", err)
				}
				if _, err := w.Write(data); !errors.Is(err, os.ErrClosed) {
					t.Fatal(err)
				}
				if s.mode < 2 && size > 0 && w.Mode() != s.mode {
					t.Fatal(w.Mode())
				}
				if !bytes.Equal(content(t, fsys, name), data[:size]) {
					t.Fatalf("content differs at size %d", size)
				}
				if _, err := direct.Create(fsys, name, s.o); !errors.Is(err, fs.ErrExist) && (s.name != "emptyLeft" || size > 0) {
					t.Fatal("created over an existing file:", err)
				}
			}
		})
	}
}

// After Finish all is durable but the name.
func TestWriterDurable(t *testing.T) {
	m := vfs.NewMem()
	w, err := direct.Create(m, "f", direct.Options{Expect: 100})
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789"), 200_000)
	_, _ = w.Write(data)
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	_ = m.SyncDir(".")
	if !bytes.Equal(content(t, m.CrashClone(1, 0), "f"), data) {
		t.Fatal("finished bytes lost")
	}
}

// A failed write is reported, by a later Write or by Finish, and no goroutine stays.
func TestWriterFailure(t *testing.T) {
	before := runtime.NumGoroutine()
	for n := 1; n <= 4; n++ {
		w, err := direct.Create(&quirk{FS: vfs.NewMem(), failAt: n}, "f", direct.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 35 {
			if _, err = w.Write(make([]byte, 100_000)); err != nil {
				break
			}
		}
		if ferr := w.Finish(); !errors.Is(ferr, syscall.EIO) || err != nil && !errors.Is(err, syscall.EIO) {
			t.Fatal(n, err, ferr)
		}
	}
	w, err := direct.Create(vfs.NewMem(), "f", direct.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(make([]byte, 3<<20))
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	_, err = direct.Create(vfs.NewMem(vfs.MemOptions{Capacity: 100}), "f", direct.Options{Expect: 1000})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i > 1000 {
			t.Fatal("goroutines left")
		}
		time.Sleep(time.Millisecond)
	}
}

var sink uint64

func BenchmarkWriter(b *testing.B) {
	const size = 64 << 20
	src := make([]byte, 256<<10)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(src)
	for _, v := range []struct {
		name string
		o    direct.Options
	}{
		{"direct", direct.Options{Expect: size}}, {"directNoReserve", direct.Options{}},
		{"buffered", direct.Options{NoDirect: true}},
	} {
		b.Run(v.name, func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(size)
			for i := range b.N {
				name := fmt.Sprintf("%s/%d", dir, i)
				w, err := direct.Create(vfs.OS(), name, v.o)
				if err != nil {
					b.Fatal(err)
				}
				for n := 0; n < size; n += len(src) {
					_, _ = w.Write(src)
				}
				if err := w.Finish(); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				_ = os.Remove(name)
				b.StartTimer()
			}
		})
	}
	// With a producer that costs CPU time, as merging and encoding do: about 2 GB/s if it runs alone.
	for _, v := range []struct {
		name string
		o    direct.Options
	}{{"busyDirect", direct.Options{Expect: size}}, {"busyBuffered", direct.Options{NoDirect: true}}} {
		b.Run(v.name, func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(size)
			for i := range b.N {
				name := fmt.Sprintf("%s/%d", dir, i)
				w, err := direct.Create(vfs.OS(), name, v.o)
				if err != nil {
					b.Fatal(err)
				}
				for n := 0; n < size; n += len(src) {
					for range 8 {
						sink += xxhash.Sum64(src)
					}
					_, _ = w.Write(src)
				}
				if err := w.Finish(); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				_ = os.Remove(name)
				b.StartTimer()
			}
		})
	}
	b.Run("plainWriteCalls", func(b *testing.B) { // the yardstick: one buffered write call per piece, then a sync
		dir := b.TempDir()
		b.SetBytes(size)
		for i := range b.N {
			f, err := os.Create(fmt.Sprintf("%s/%d", dir, i))
			if err != nil {
				b.Fatal(err)
			}
			for n := 0; n < size; n += len(src) {
				_, _ = f.Write(src)
			}
			if err := errors.Join(f.Sync(), f.Close()); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			_ = os.Remove(f.Name())
			b.StartTimer()
		}
	})
}
