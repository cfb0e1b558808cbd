package levels

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// twins is a directory with a manifest of several edits, and the bytes of its copies.
type twins struct {
	t    *testing.T
	fs   *vfs.Mem
	want string // the state
	b    []byte
	ends []int // of the frames
}

func newTwins(t *testing.T) *twins {
	t.Helper()
	w := &twins{t: t, fs: vfs.NewMem()}
	if err := w.fs.MkdirAll("/m"); err != nil {
		t.Fatal(err)
	}
	v, err := NewVersion(nil).Apply(&Edit{Num: 1, StoreID: 5, OpenCount: 1})
	if err != nil {
		t.Fatal(err)
	}
	m, err := CreateManifest(w.fs, "/m", 3, v)
	if err != nil {
		t.Fatal(err)
	}
	w.ends = append(w.ends, int(m.off))
	for i := range 4 {
		e := &Edit{Num: v.EditNum + 1, PutTables: []*Table{{
			ID: uint64(i + 1), Name: fmt.Sprint("t", i), HighestLife: 1,
			Groups: []Group{{Tree: uint64(i + 1)}}, Families: []Family{{Name: "f", Life: 1}},
		}}}
		if v, err = v.Apply(e); err != nil {
			t.Fatal(err)
		}
		if err := m.Append(e); err != nil {
			t.Fatal(err)
		}
		w.ends = append(w.ends, int(m.off))
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	w.want = string(v.Snapshot().Append(nil))
	copies := ManifestCopies(3)
	w.b = w.read(copies[0])
	if !bytes.Equal(w.b, w.read(copies[1])) {
		t.Fatal("the copies differ")
	}
	return w
}

func (w *twins) read(name string) []byte {
	w.t.Helper()
	b, err := readAll(w.fs, "/m/"+name)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// put replaces a copy; nil removes it.
func (w *twins) put(i int, b []byte) {
	w.t.Helper()
	name := "/m/" + ManifestCopies(3)[i]
	if err := w.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	if b == nil {
		return
	}
	f, err := w.fs.Open(name, vfs.How{Create: true})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		w.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// load returns the number of edits, and of complaints about a copy.
func (w *twins) load() (edits, bad int, err error) {
	l, err := Load(w.fs, "/m", nil)
	if err != nil {
		return 0, 0, err
	}
	if l.Edits == len(w.ends) && string(l.Version.Snapshot().Append(nil)) != w.want {
		w.t.Fatal("another state")
	}
	return l.Edits, len(l.Bad), nil
}

func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 4
	return b
}

// Whatever happens to one copy of the manifest, nothing is lost, and it is told.
func TestOneCopyOfTheManifestIsEnough(t *testing.T) {
	w := newTwins(t)
	all, last := len(w.ends), w.ends[len(w.ends)-2]
	for i := range 2 {
		for at := range w.b {
			w.put(i, flipped(w.b, at))
			edits, bad, err := w.load()
			if err != nil || edits != all {
				t.Fatalf("copy %d, byte %d flipped: %d edits, %v", i, at, edits, err)
			}
			// The last edit of the second copy may be one that a crash cut short.
			if bad == 0 && !(i == 1 && at >= last) {
				t.Fatalf("copy %d, byte %d flipped: not told", i, at)
			}
			w.put(i, w.b[:at])
			if edits, bad, err = w.load(); err != nil || edits != all {
				t.Fatalf("copy %d cut to %d bytes: %d edits, %v", i, at, edits, err)
			}
			if bad == 0 && !(i == 1 && at >= last) {
				t.Fatalf("copy %d cut to %d bytes: not told", i, at)
			}
		}
		w.put(i, nil)
		if edits, bad, err := w.load(); err != nil || edits != all || bad == 0 {
			t.Fatalf("copy %d gone: %d edits, %d complaints, %v", i, edits, bad, err)
		}
		w.put(i, w.b)
	}
	if edits, bad, err := w.load(); err != nil || edits != all || bad != 0 {
		t.Fatal(edits, bad, err)
	}
}

// Two damaged copies are read together as long as no frame is bad in both; else it is damage, but for the last frame, which
// a crash may have cut short in both.
func TestDamagedCopiesOfTheManifestHelpEachOther(t *testing.T) {
	w := newTwins(t)
	all := len(w.ends)
	for i, end := range w.ends {
		for j, other := range w.ends {
			w.put(0, flipped(w.b, end-1))
			w.put(1, flipped(w.b, other-1))
			edits, _, err := w.load()
			switch {
			case i != j:
				if err != nil || edits != all {
					t.Fatalf("frames %d and %d: %d edits, %v", i, j, edits, err)
				}
			case i == all-1:
				if err != nil || edits != all-1 {
					t.Fatalf("last frame: %d edits, %v", edits, err)
				}
			default:
				if !errors.Is(err, damage.Err) {
					t.Fatalf("frame %d is bad in both copies: %v", i, err)
				}
			}
		}
	}
}

// A crash leaves the second copy one edit behind; that edit counts, for what it says may have been seen.
func TestEditInOneCopyCounts(t *testing.T) {
	w := newTwins(t)
	w.put(1, w.b[:w.ends[len(w.ends)-2]])
	if edits, bad, err := w.load(); err != nil || edits != len(w.ends) || bad != 0 {
		t.Fatal(edits, bad, err)
	}
	w.put(1, nil)
	w.put(0, w.b[:w.ends[0]]) // a crash between the creations of the two
	if edits, bad, err := w.load(); err != nil || edits != 1 || bad != 0 {
		t.Fatal(edits, bad, err)
	}
	w.put(0, w.b[:w.ends[0]-1])
	if _, _, err := w.load(); !errors.Is(err, ErrNoManifest) {
		t.Fatal(err)
	}
}

// A full disk is told before anything is written, and the manifest goes on when there is space again.
func TestFullDiskDoesNotEndAManifest(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/m"); err != nil {
		t.Fatal(err)
	}
	fsys := faultfs.New(mem, faultfs.Options{})
	v, err := NewVersion(nil).Apply(&Edit{Num: 1, StoreID: 5, OpenCount: 1})
	if err != nil {
		t.Fatal(err)
	}
	fsys.SetRules(faultfs.FailIf(faultfs.Preallocate, ".b", syscall.ENOSPC))
	if _, err := CreateManifest(fsys, "/m", 1, v); !errors.Is(err, ErrNotWritten) || !vfs.NoSpace(err) {
		t.Fatal(err)
	}
	if list, err := mem.List("/m"); err != nil || len(list) > 0 {
		t.Fatalf("left behind: %v, %v", list, err)
	}
	fsys.SetRules()
	m, err := CreateManifest(fsys, "/m", 1, v)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fsys.SetRules(faultfs.FailIf(faultfs.Preallocate, "", syscall.ENOSPC))
	e := &Edit{Num: 2, PutTables: []*Table{{
		ID: 1, Name: "t", HighestLife: 1, Groups: []Group{{Tree: 1}}, Families: []Family{{Name: "f", Life: 1}},
	}}}
	n := 0
	for ; err == nil && n < 1<<20; n++ {
		err = m.Append(e)
		e.Num++
	}
	if !errors.Is(err, ErrNotWritten) || !vfs.NoSpace(err) {
		t.Fatal(err)
	}
	if m.off < room/2 || n < 100 {
		t.Fatalf("only %d edits found room", n)
	}
	e.Num--
	fsys.SetRules()
	if err := m.Append(e); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(mem, "/m", nil); err != nil {
		t.Fatal(err)
	}
}
