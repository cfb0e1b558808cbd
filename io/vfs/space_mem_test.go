//go:build (linux && (amd64 || arm64 || 386)) || darwin

package vfs_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/io/vfs"
)

func wantFree(t *testing.T, m *vfs.Mem, want int64) {
	t.Helper()
	if n, err := m.Free("."); n != want || err != nil {
		t.Fatalf("%d bytes are free, want %d; %v", n, want, err)
	}
}

// A full disk takes what fits of a write, in whole sectors, and says so; space comes back with the last name and the last
// handle or mapping.
func TestMemFullDisk(t *testing.T) {
	m := vfs.NewMem(vfs.MemOptions{Capacity: 5000})
	f, err := m.Open("f", vfs.How{Create: true, DSync: true})
	must(t, err)
	must(t, m.SyncDir("."))
	_, err = f.WriteAt(make([]byte, 1000), 0)
	must(t, err)
	n, err := f.WriteAt([]byte(strings.Repeat("x", 6000)), 1000)
	if n != 9*512-1000 || !errors.Is(err, syscall.ENOSPC) || !vfs.NoSpace(err) {
		t.Fatal(n, err)
	}
	wantFree(t, m, 5000-9*512)
	if s := read(t, m.CrashClone(1, 0), "f"); len(s) != 9*512 || !strings.HasSuffix(s, "xxx") {
		t.Fatalf("%d bytes are durable", len(s))
	}
	if n, err = f.WriteAt(make([]byte, 500), 9*512); n != 0 || !vfs.NoSpace(err) {
		t.Fatal(n, err)
	}
	if err := f.Truncate(6000); !vfs.NoSpace(err) {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, 1000), 0) // overwriting needs nothing
	must(t, err)
	m.SetCapacity(10000)
	_, err = f.WriteAt(make([]byte, 500), 9*512)
	must(t, err)
	m.SetCapacity(4000) // filled from outside
	wantFree(t, m, 0)
	m.SetCapacity(10000)
	mp, err := f.Map(100)
	must(t, err)
	must(t, m.Remove("f"))
	must(t, f.Close())
	if m.Used() == 0 {
		t.Fatal("a mapped file takes no space")
	}
	must(t, mp.Close())
	wantFree(t, m, 10000)
}

// What is reserved is charged, a write inside it never meets a full disk, and Truncate and Remove give it back.
func TestMemReservedSpace(t *testing.T) {
	m := vfs.NewMem(vfs.MemOptions{Capacity: 100 << 10})
	f, err := m.Open("f", vfs.How{Create: true})
	must(t, err)
	must(t, f.Preallocate(64<<10))
	wantFree(t, m, 36<<10)
	if n, err := f.Size(); n != 0 || err != nil {
		t.Fatal("reserving changed the size", n, err)
	}
	if err := f.Preallocate(101 << 10); !vfs.NoSpace(err) {
		t.Fatal(err)
	}
	create(t, m, "other", strings.Repeat("o", 36<<10))
	wantFree(t, m, 0)
	must(t, m.SyncDir("."))
	c := m.CrashClone(1, 0)
	if c.Used() != 36<<10 {
		t.Fatal("what was reserved and not synced survived", c.Used())
	}
	_, err = f.WriteAt(make([]byte, 64<<10), 0)
	must(t, err)
	if n, err := f.WriteAt(make([]byte, 512), 64<<10); n != 0 || !vfs.NoSpace(err) {
		t.Fatal(n, err)
	}
	must(t, f.Sync())
	if c = m.CrashClone(1, 0); c.Used() != 100<<10 {
		t.Fatal("after a crash", c.Used())
	}
	must(t, f.Truncate(10))
	wantFree(t, m, 64<<10-10)
	must(t, f.Preallocate(1<<10))
	must(t, f.Truncate(20)) // growing keeps what is reserved
	wantFree(t, m, 63<<10)
	must(t, f.Close())
	must(t, m.Remove("f"))
	wantFree(t, m, 64<<10)
}

// Some systems do not let go of files that are in use.
func TestMemHoldsOpenFiles(t *testing.T) {
	m := vfs.NewMem(vfs.MemOptions{HoldOpen: true})
	create(t, m, "new", "x")
	f, err := m.Open("new", vfs.How{})
	must(t, err)
	create(t, m, "other", "y")
	wantErr(t, m.Remove("new"), syscall.EBUSY)
	wantErr(t, m.Rename("other", "new"), syscall.EBUSY)
	must(t, m.Rename("new", "renamed"))
	mp, err := f.Map(1)
	must(t, err)
	must(t, f.Close())
	wantErr(t, m.Remove("renamed"), syscall.EBUSY)
	must(t, mp.Close())
	must(t, m.Remove("renamed"))
}

// After a sync that lost what it should have written, the next sync proves nothing: what was lost is read as before, and is
// gone after a crash.
func TestMemLostWrites(t *testing.T) {
	m := vfs.NewMem()
	f, err := m.Open("f", vfs.How{Create: true})
	must(t, err)
	must(t, m.SyncDir("."))
	_, err = f.WriteAt([]byte("aaaa"), 0)
	must(t, err)
	must(t, f.Sync())
	_, err = f.WriteAt([]byte("bbbbbb"), 0)
	must(t, err)
	f.(interface{ LoseUnsynced() }).LoseUnsynced()
	must(t, f.Sync())
	_, err = f.WriteAt([]byte("c"), 1)
	must(t, err)
	must(t, f.Sync())
	if now, then := read(t, m, "f"), read(t, m.CrashClone(1, 1), "f"); now != "bcbbbb" || then != "acaa" {
		t.Fatal(now, then)
	}
}
