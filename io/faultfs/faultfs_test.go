package faultfs_test

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// scenario makes 10 mutating calls and joins their errors.
func scenario(fsys vfs.FS) error {
	errs := []error{fsys.MkdirAll("d")}
	f, err := fsys.Open("d/a", vfs.How{Create: true})
	errs = append(errs, err)
	if err == nil {
		_, err = f.WriteAt([]byte("0123456789"), 0)
		errs = append(errs, err, f.Preallocate(100), f.Truncate(8), f.Sync())
		_, err = f.ReadAt(make([]byte, 4), 2)
		errs = append(errs, err, f.Close())
	}
	errs = append(errs, fsys.SyncDir("d"), fsys.Link("d/a", "d/b"), fsys.Rename("d/b", "d/c"), fsys.Remove("d/a"))
	_, err = fsys.List("d")
	errs = append(errs, err)
	_, err = fsys.Stat("d/c")
	errs = append(errs, err)
	_, err = fsys.Free("d")
	errs = append(errs, err)
	l, err := fsys.Lock("d/l")
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

func TestSweep(t *testing.T) {
	n := 1
	for ; ; n++ {
		f := faultfs.New(vfs.NewMem(), faultfs.Options{Rules: []faultfs.Rule{faultfs.FailAt(n, syscall.EIO)}})
		err := scenario(f)
		if f.Fired() == 0 {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatal(n, err)
		}
	}
	if n != 11 {
		t.Fatal(n)
	}
}

func TestRecordAndCount(t *testing.T) {
	f := faultfs.New(vfs.NewMem(), faultfs.Options{Record: true})
	if err := scenario(f); err != nil {
		t.Fatal(err)
	}
	s := ""
	for _, o := range f.Calls()[:8] {
		s += o.String() + "; "
	}
	want := "mkdir d; create d/a; write d/a 0+10; preallocate d/a 100; truncate d/a 8; sync d/a; read d/a 2+4; close d/a; "
	if s != want {
		t.Fatal(s)
	}
	if f.Count(faultfs.Write) != 1 || f.Bytes(faultfs.Write) != 10 || f.Mutations() != 10 || f.Counts()["rename"] != 1 {
		t.Fatal(f.Counts(), f.Mutations())
	}
}

func TestRefusals(t *testing.T) {
	f := faultfs.New(vfs.NewMem(), faultfs.Options{RefuseOpen: true, RefuseMap: true})
	if _, err := f.Open("a", vfs.How{Create: true, Direct: true}); !errors.Is(err, vfs.ErrDirect) {
		t.Fatal(err)
	}
	h, err := f.Open("a", vfs.How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Map(0); !errors.Is(err, vfs.ErrMap) {
		t.Fatal(err)
	}
	f = faultfs.New(vfs.NewMem(), faultfs.Options{RefuseWrite: true, Align: 16384})
	if h, err = f.Open("a", vfs.How{Create: true, Direct: true}); err != nil || h.Align() != 16384 {
		t.Fatal(err)
	}
	if _, err := h.WriteAt(make([]byte, 4096), 0); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	if _, err := h.WriteAt(make([]byte, 16384), 0); !errors.Is(err, vfs.ErrDirect) {
		t.Fatal(err)
	}
}

func TestRules(t *testing.T) {
	f := faultfs.New(vfs.NewMem(), faultfs.Options{})
	h, err := f.Open("a", vfs.How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	f.SetRules(faultfs.FailIf(faultfs.Write, "a", faultfs.ErrShort), faultfs.Delay(faultfs.Sync, time.Millisecond))
	if n, err := h.WriteAt([]byte("0123456789"), 0); n != 5 || !errors.Is(err, io.ErrShortWrite) {
		t.Fatal(n, err)
	}
	if err := h.Sync(); err != nil {
		t.Fatal(err)
	}
	f.SetRules(faultfs.FailFrom(f.Mutations()+2, syscall.ENOSPC))
	_, e1 := h.WriteAt([]byte("x"), 0)
	_, e2 := h.WriteAt([]byte("x"), 0)
	e3 := h.Sync()
	if e1 != nil || !errors.Is(e2, syscall.ENOSPC) || !errors.Is(e3, syscall.ENOSPC) {
		t.Fatal(e1, e2, e3)
	}
	if s := fmt.Sprint(faultfs.Op{Kind: faultfs.Truncate, Name: "x", Off: 5}); s != "truncate x 5" {
		t.Fatal(s)
	}
}

// A call can do its work and fail; a sync can fail and lose what it should have written, and the next one proves nothing.
func TestFailuresThatLeaveSomething(t *testing.T) {
	mem := vfs.NewMem()
	f := faultfs.New(mem, faultfs.Options{})
	h, err := f.Open("a", vfs.How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	durable := func() string {
		c, err := mem.CrashClone(1, 0).Open("a", vfs.How{})
		if err != nil {
			return "gone"
		}
		b := make([]byte, 10)
		n, _ := c.ReadAt(b, 0)
		return string(b[:n])
	}
	f.SetRules(faultfs.FailIf(faultfs.SyncDir, "", faultfs.ErrDone))
	if err := f.SyncDir("."); !errors.Is(err, faultfs.ErrDone) || durable() != "" {
		t.Fatal(err, durable())
	}
	f.SetRules(faultfs.FailIf(faultfs.Write, "", faultfs.ErrDone), faultfs.FailIf(faultfs.Sync, "", faultfs.ErrDone))
	if n, err := h.WriteAt([]byte("abc"), 0); n != 3 || !errors.Is(err, faultfs.ErrDone) || durable() == "abc" {
		t.Fatal(n, err, durable())
	}
	if err := h.Sync(); !errors.Is(err, faultfs.ErrDone) || durable() != "abc" {
		t.Fatal(err, durable())
	}
	f.SetRules(faultfs.FailIf(faultfs.Sync, "", faultfs.ErrLost))
	if _, err := h.WriteAt([]byte("xyz"), 0); err != nil {
		t.Fatal(err)
	}
	if err := h.Sync(); !errors.Is(err, faultfs.ErrLost) {
		t.Fatal(err)
	}
	f.SetRules()
	if err := h.Sync(); err != nil || durable() != "abc" {
		t.Fatal(err, durable())
	}
	b := make([]byte, 3)
	if _, err := h.ReadAt(b, 0); err != nil || string(b) != "xyz" {
		t.Fatalf("%q, %v", b, err)
	}
	f.SetRules(faultfs.FailIf(faultfs.Read, "", faultfs.ErrFlipped))
	if _, err := h.ReadAt(b, 0); err != nil || string(b) == "xyz" {
		t.Fatalf("%q, %v", b, err)
	}
	f.SetRules(faultfs.FailIf(faultfs.Remove, "", faultfs.ErrDone), faultfs.FailIf(faultfs.Create, "", faultfs.ErrDone))
	if err := f.Remove("a"); !errors.Is(err, faultfs.ErrDone) {
		t.Fatal(err)
	}
	if _, err := f.Open("b", vfs.How{Create: true}); !errors.Is(err, faultfs.ErrDone) {
		t.Fatal(err)
	}
	if list, err := mem.List("."); err != nil || len(list) != 1 || list[0].Name != "b" {
		t.Fatal(list, err)
	}
}

// Why a map is refused is told.
func TestRefusedMaps(t *testing.T) {
	for _, why := range []error{syscall.EINVAL, syscall.ENODEV, syscall.ENOMEM} {
		f := faultfs.New(vfs.NewMem(), faultfs.Options{RefuseMap: true, MapError: why})
		h, err := f.Open("a", vfs.How{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Map(0); !errors.Is(err, vfs.ErrMap) || !errors.Is(err, why) {
			t.Fatal(err)
		}
	}
}
