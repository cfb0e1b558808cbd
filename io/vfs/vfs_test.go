//go:build (linux && (amd64 || arm64 || 386)) || darwin

package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"testing"
	"unsafe"

	"github.com/rowandb/rowan/io/vfs"
)

// each runs f on every file system there is here.
func each(t *testing.T, f func(t *testing.T, fsys vfs.FS, dir string)) {
	t.Run("os", func(t *testing.T) { f(t, vfs.OS(), t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := vfs.NewMem()
		must(t, m.MkdirAll("/a/b"))
		f(t, m, "/a/b")
	})
	t.Run("memInFlight", func(t *testing.T) {
		m := vfs.NewMem(vfs.MemOptions{InFlight: func(string, string) {}})
		must(t, m.MkdirAll("/a/b"))
		f(t, m, "a/b")
	})
	t.Run("memNoCrash", func(t *testing.T) {
		f(t, vfs.NewMem(vfs.MemOptions{NoCrash: true}), "")
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func create(t testing.TB, fsys vfs.FS, name string, data string) {
	t.Helper()
	f, err := fsys.Open(name, vfs.How{Create: true})
	must(t, err)
	_, err = f.WriteAt([]byte(data), 0)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
}

func read(t testing.TB, fsys vfs.FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name, vfs.How{})
	must(t, err)
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	must(t, err)
	return string(b)
}

func TestFiles(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		p := dir + "/f"
		_, err := fsys.Open(p, vfs.How{})
		wantErr(t, err, fs.ErrNotExist)
		_, err = fsys.Open(dir+"/none/f", vfs.How{Create: true})
		wantErr(t, err, fs.ErrNotExist)
		_, err = fsys.Stat(p)
		wantErr(t, err, fs.ErrNotExist)
		create(t, fsys, p, "hello")
		_, err = fsys.Open(p, vfs.How{Create: true})
		wantErr(t, err, fs.ErrExist)

		f, err := fsys.Open(p, vfs.How{Write: true})
		must(t, err)
		if f.Name() != p {
			t.Fatal(f.Name())
		}
		_, err = f.WriteAt([]byte("world"), 7)
		must(t, err)
		b := make([]byte, 20)
		n, err := f.ReadAt(b, 0)
		if n != 12 || err != io.EOF || string(b[:n]) != "hello\x00\x00world" {
			t.Fatalf("%d %v %q", n, err, b)
		}
		n, err = f.ReadAt(b[:5], 7)
		if n != 5 || err != nil {
			t.Fatal(n, err)
		}
		must(t, f.Truncate(3))
		must(t, f.Truncate(6))
		if s := read(t, fsys, p); s != "hel\x00\x00\x00" {
			t.Fatalf("%q", s)
		}
		if err := f.Preallocate(1 << 16); err == nil {
			if n, err := f.Size(); n != 6 || err != nil {
				t.Fatal(n, err)
			}
		}
		must(t, f.Sync())

		// The file lives on without its name, and a new one under the name is another.
		must(t, fsys.Remove(p))
		create(t, fsys, p, "new")
		if n, err := f.ReadAt(b[:3], 0); n != 3 || err != nil || string(b[:3]) != "hel" {
			t.Fatal(n, err)
		}
		must(t, f.Close())
		_, err = f.ReadAt(b, 0)
		wantErr(t, err, os.ErrClosed)
		wantErr(t, f.Close(), os.ErrClosed)

		r, err := fsys.Open(p, vfs.How{})
		must(t, err)
		if _, err := r.WriteAt([]byte("x"), 0); err == nil {
			t.Fatal("write through a reading handle")
		}
		must(t, r.Close())
	})
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		create(t, fsys, dir+"/b", "bb")
		create(t, fsys, dir+"/a", "a")
		must(t, fsys.MkdirAll(dir+"/c/d"))
		must(t, fsys.MkdirAll(dir+"/c/d"))
		must(t, fsys.SyncDir(dir))
		ls, err := fsys.List(dir)
		must(t, err)
		if len(ls) != 3 || ls[0].Name != "a" || ls[0].Size != 1 || ls[1].Size != 2 || !ls[2].Dir {
			t.Fatalf("%+v", ls)
		}
		must(t, fsys.Rename(dir+"/a", dir+"/b"))
		must(t, fsys.Link(dir+"/b", dir+"/c/x"))
		wantErr(t, fsys.Link(dir+"/b", dir+"/c/x"), fs.ErrExist)
		must(t, fsys.Remove(dir+"/b"))
		wantErr(t, fsys.Remove(dir+"/b"), fs.ErrNotExist)
		if s := read(t, fsys, dir+"/c/x"); s != "a" {
			t.Fatal(s)
		}
		if fsys.Remove(dir+"/c") == nil {
			t.Fatal("removed a full directory")
		}
		i, err := fsys.Stat(dir + "/c")
		if err != nil || !i.Dir || i.Name != "c" {
			t.Fatal(i, err)
		}
		if _, err := fsys.Open(dir+"/c/x/y", vfs.How{}); err == nil {
			t.Fatal("file as directory")
		}
		if n, err := fsys.Free(dir); err != nil || n <= 0 {
			t.Fatal(n, err)
		}
	})
}

func TestLock(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		for range 2 {
			l, err := fsys.Lock(dir + "/LOCK")
			must(t, err)
			_, err = fsys.Lock(dir + "/LOCK")
			wantErr(t, err, vfs.ErrLocked)
			o, err := fsys.Lock(dir + "/OTHER")
			must(t, err)
			must(t, o.Close())
			must(t, l.Close())
			must(t, l.Close())
		}
	})
}

func alignedBuf(n, align int) []byte {
	b := make([]byte, n+align)
	off := -int(uintptr(unsafe.Pointer(&b[0]))) & (align - 1)
	return b[off : off+n : off+n]
}

func TestDirect(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		for _, how := range []vfs.How{{Create: true, Direct: true}, {Create: true, Direct: true, DSync: true}, {Create: true, DSync: true}} {
			f, err := fsys.Open(dir+"/f", how)
			if errors.Is(err, vfs.ErrDirect) {
				_, err := fsys.Stat(dir + "/f")
				wantErr(t, err, fs.ErrNotExist)
				continue
			}
			must(t, err)
			a := f.Align()
			if a < 4096 || a&(a-1) != 0 {
				t.Fatal(a)
			}
			b := alignedBuf(2*a, a)
			for i := range b {
				b[i] = byte(i * 7)
			}
			if _, err := f.WriteAt(b, int64(a)); errors.Is(err, vfs.ErrDirect) {
				must(t, f.Close())
				must(t, fsys.Remove(dir+"/f"))
				continue
			} else {
				must(t, err)
			}
			must(t, f.Truncate(int64(2*a)+100))
			got := alignedBuf(4*a, a)
			n, err := f.ReadAt(got, 0)
			if n != 2*a+100 || err != io.EOF || !bytes.Equal(got[a:n], b[:a+100]) {
				t.Fatal(n, err)
			}
			n, err = f.ReadAt(got[:a], int64(4*a))
			if n != 0 || err != io.EOF {
				t.Fatal(n, err)
			}
			if how.Direct {
				if _, err := f.WriteAt(b[:100], 0); err == nil || errors.Is(err, vfs.ErrDirect) {
					t.Fatal("unaligned length:", err)
				}
				if _, err := f.ReadAt(b[:a], 512); err == nil {
					t.Fatal("unaligned offset")
				}
			}
			must(t, f.Sync())
			must(t, f.Close())
			must(t, fsys.Remove(dir+"/f"))
		}
	})
}

func TestMap(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		create(t, fsys, dir+"/f", "some bytes")
		f, err := fsys.Open(dir+"/f", vfs.How{})
		must(t, err)
		_, err = f.Map(11)
		wantErr(t, err, vfs.ErrMap)
		m, err := f.Map(9)
		must(t, err)
		e, err := f.Map(0)
		must(t, err)
		must(t, f.Close())
		must(t, fsys.Remove(dir+"/f"))
		must(t, m.Populate(3, 100))
		if string(m.Bytes()) != "some byte" || len(e.Bytes()) != 0 {
			t.Fatalf("%q", m.Bytes())
		}
		must(t, e.Close())
		must(t, m.Close())
		must(t, m.Close())
	})
}

// A file larger than the address space, or than what is left of it, is an error that the caller can go on from by reading, never a
// panic or a mapping of another size (boltdb/bolt #282; etcd-io/etcd #4715: 32-bit processes died of it).
func TestMapOfALargeSparseFile(t *testing.T) {
	fsys, dir := vfs.OS(), t.TempDir()
	const size = 5 << 30
	f, err := fsys.Open(dir+"/f", vfs.How{Create: true})
	must(t, err)
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("end"), size-3)
	must(t, err)
	if n, err := f.Size(); err != nil || n != size {
		t.Fatal(n, err)
	}
	m, err := f.Map(size)
	switch {
	case strconv.IntSize == 32:
		wantErr(t, err, vfs.ErrMap)
	case err != nil:
		wantErr(t, err, vfs.ErrMap) // a limit of the process
	default:
		if b := m.Bytes(); int64(len(b)) != size || string(b[len(b)-3:]) != "end" {
			t.Error(len(b))
		}
		must(t, m.Close())
	}
	b := make([]byte, 3)
	if _, err := f.ReadAt(b, size-3); err != nil || string(b) != "end" {
		t.Fatal(string(b), err)
	}
	must(t, f.Close())
}

// ramfs is the known file system that refuses direct I/O after it has made the file; a memory file system stands in for it
// where there is one.
func TestDirectRefusedLeavesNothing(t *testing.T) {
	m := vfs.NewMem(vfs.MemOptions{NoDirect: true})
	_, err := m.Open("f", vfs.How{Create: true, Direct: true})
	wantErr(t, err, vfs.ErrDirect)
	_, err = m.Stat("f")
	wantErr(t, err, fs.ErrNotExist)
}
