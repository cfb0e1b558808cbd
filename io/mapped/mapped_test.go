//go:build (linux && (amd64 || arm64 || 386)) || darwin

package mapped_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/mapped"
	"github.com/rowandb/rowan/io/vfs"
)

func mapFile(t testing.TB, size int) (*mapped.Mapped, string) {
	t.Helper()
	name := t.TempDir() + "/f"
	if err := os.WriteFile(name, bytes.Repeat([]byte{'x'}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS().Open(name, vfs.How{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := mapped.Open(f, int64(size))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m, name
}

//go:noinline
func sum(b []byte, err *error) (s int) {
	defer mapped.Leave(mapped.Enter(), err)
	for _, c := range b {
		s += int(c)
	}
	return s
}

func TestFaultBecomesError(t *testing.T) {
	page := os.Getpagesize()
	m, name := mapFile(t, 4*page)
	var err error
	if s := sum(m.Bytes(), &err); s != 4*page*'x' || err != nil {
		t.Fatal(s, err)
	}
	if err := os.Truncate(name, int64(2*page)); err != nil {
		t.Fatal(err)
	}
	sum(m.Bytes()[:2*page], &err)
	if err != nil {
		t.Fatal(err)
	}
	sum(m.Bytes(), &err)
	var d *damage.Error
	if !errors.As(err, &d) || !errors.Is(err, damage.Err) || d.File != name || d.Offset != int64(2*page) {
		t.Fatalf("%#v", err)
	}
	if debug.SetPanicOnFault(false) {
		t.Fatal("the guard stayed")
	}
}

// Other panics pass through unchanged, and so does a fault outside every live mapping.
func TestOtherPanics(t *testing.T) {
	anything := errors.New("anything")
	catch := func(f func()) (r any, err error) {
		func() {
			defer func() { r = recover() }()
			func() {
				defer mapped.Leave(mapped.Enter(), &err)
				f()
			}()
		}()
		return r, err
	}
	if r, err := catch(func() { panic(anything) }); r != anything || err != nil {
		t.Fatal(r, err)
	}
	var nilp *int
	if r, err := catch(func() { *nilp++ }); r == nil || err != nil {
		t.Fatal(r, err)
	}
	if r, err := catch(func() { var b []byte; _ = b[len(os.Args)] }); r == nil || err != nil {
		t.Fatal(r, err)
	}
	// A mapping that is not ours.
	f, err := os.OpenFile(t.TempDir()+"/f", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(b) }()
	r, gerr := catch(func() { runtime.KeepAlive(b[7]) })
	if e, ok := r.(runtime.Error); !ok || gerr != nil {
		t.Fatal(r, gerr, e)
	}
}

func TestOpen(t *testing.T) {
	m := vfs.NewMem()
	f, err := m.Open("f", vfs.How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteAt([]byte("abc"), 0)
	_, err = mapped.Open(f, 4)
	var d *damage.Error
	if !errors.As(err, &d) || d.File != "f" || d.Offset != 3 {
		t.Fatal(err)
	}
	for _, size := range []int64{0, 2, 3} {
		p, err := mapped.Open(f, size)
		if err != nil || int64(len(p.Bytes())) != size {
			t.Fatal(err)
		}
		_ = p.Populate(0, size)
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Faults in memmove, memequal and the hash's assembly are survived while the collector runs and stacks move.
func TestFaultsBesideCollector(t *testing.T) {
	page := os.Getpagesize()
	m, name := mapFile(t, 4*page)
	if err := os.Truncate(name, int64(2*page)); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			runtime.GC()
		}
	}()
	dst, other := make([]byte, 4*page), bytes.Repeat([]byte{'x'}, 4*page)
	ops := []func(b []byte){
		func(b []byte) { copy(dst, b) },
		func(b []byte) { runtime.KeepAlive(bytes.Equal(b, other)) },
		func(b []byte) { runtime.KeepAlive(bytes.Compare(b, other)) },
		func(b []byte) { runtime.KeepAlive(bytes.IndexByte(b, 'y')) },
		func(b []byte) { runtime.KeepAlive(xxhash.Sum64(b)) },
	}
	for i := range 400 {
		err := deep(i%30, func() (err error) {
			defer mapped.Leave(mapped.Enter(), &err)
			ops[i%len(ops)](m.Bytes())
			return nil
		})
		if !errors.Is(err, damage.Err) {
			t.Fatal(i, err)
		}
	}
	stop.Store(true)
	<-done
}

func deep(n int, f func() error) error {
	var pad [256]byte
	if n == 0 {
		return f()
	}
	err := deep(n-1, f)
	runtime.KeepAlive(pad)
	return err
}

func BenchmarkGuard(b *testing.B) {
	var err error
	n := 0
	for range b.N {
		func() {
			defer mapped.Leave(mapped.Enter(), &err)
			n++
		}()
	}
	if n != b.N || err != nil {
		b.Fatal(err)
	}
}

func BenchmarkFault(b *testing.B) {
	m, name := mapFile(b, 4*os.Getpagesize())
	if err := os.Truncate(name, 0); err != nil {
		b.Fatal(err)
	}
	var err error
	for range b.N {
		sum(m.Bytes(), &err)
	}
	if err == nil {
		b.Fatal(fmt.Errorf("no fault"))
	}
}
