//go:build (linux && (amd64 || arm64 || 386)) || darwin

package vfs_test

import (
	"bytes"
	"io/fs"
	"sync"
	"testing"

	"github.com/rowandb/rowan/io/vfs"
)

func exists(t testing.TB, fsys vfs.FS, name string) bool {
	t.Helper()
	_, err := fsys.Stat(name)
	if err != nil {
		wantErr(t, err, fs.ErrNotExist)
	}
	return err == nil
}

// A file sync does not cover the file's directory entry, nor a directory's sync the bytes of its files.
func TestCrashEntries(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("d"))
	create(t, m, "d/synced", "x")
	if exists(t, m.CrashClone(1, 0), "d") {
		t.Fatal("directory survived without a sync of its parent")
	}
	must(t, m.SyncDir(""))
	c := m.CrashClone(1, 0)
	if !exists(t, c, "d") || exists(t, c, "d/synced") {
		t.Fatal("want the directory and not the file")
	}
	must(t, m.SyncDir("d"))
	f, err := m.Open("d/data", vfs.How{Create: true})
	must(t, err)
	must(t, m.SyncDir("d"))
	_, err = f.WriteAt([]byte("bytes"), 0)
	must(t, err)
	c = m.CrashClone(1, 0)
	if read(t, c, "d/synced") != "x" || read(t, c, "d/data") != "" {
		t.Fatal("unsynced bytes survived")
	}
	if read(t, m.CrashClone(1, 1), "d/data") != "bytes" {
		t.Fatal("keep 1 must keep")
	}
	must(t, f.Sync())
	must(t, m.Rename("d/data", "d/synced"))
	must(t, m.Link("d/synced", "d/more"))
	if c = m.CrashClone(1, 0); read(t, c, "d/synced") != "x" || read(t, c, "d/data") != "bytes" || exists(t, c, "d/more") {
		t.Fatal("rename was durable without a sync")
	}
	seen := map[string]bool{}
	for seed := range uint64(50) {
		c := m.CrashClone(seed, 0.5)
		s := read(t, c, "d/synced")
		if exists(t, c, "d/data") == (s == "bytes") && !exists(t, c, "d/more") {
			t.Fatal("a rename is atomic")
		}
		seen[s] = true
	}
	if len(seen) != 2 {
		t.Fatal("only one outcome in 50 seeds")
	}
	must(t, m.SyncDir("d"))
	must(t, m.Remove("d/synced"))
	c = m.CrashClone(1, 0)
	if read(t, c, "d/synced") != "bytes" || exists(t, c, "d/data") {
		t.Fatal("after the sync the rename must stand and the removal must not")
	}
}

func TestCrashSectors(t *testing.T) {
	m := vfs.NewMem()
	f, err := m.Open("f", vfs.How{Create: true})
	must(t, err)
	must(t, m.SyncDir("."))
	old, upd := bytes.Repeat([]byte("o"), 2048), bytes.Repeat([]byte("n"), 3000)
	_, err = f.WriteAt(old, 0)
	must(t, err)
	must(t, f.Sync())
	_, err = f.WriteAt(upd, 100)
	must(t, err)
	mixed, short := 0, 0
	for seed := range uint64(100) {
		got := read(t, m.CrashClone(seed, 0.5), "f")
		if again := read(t, m.CrashClone(seed, 0.5), "f"); got != again {
			t.Fatal("not deterministic")
		}
		if len(got) < 2048 || got[:100] != string(old[:100]) {
			t.Fatal("durable bytes lost")
		}
		if len(got) < 3100 {
			short++
		}
		kinds := 0
		for lo := 0; lo < len(got); lo += 512 { // inside a sector all bytes share one fate
			b := got[max(lo, 100):min(lo+512, len(got), 3100)]
			for _, c := range b {
				if byte(c) != b[0] {
					t.Fatalf("torn sector at %d", lo)
				}
			}
			if lo < 2048 && b[0] == 'n' {
				kinds++
			}
		}
		if kinds > 0 && kinds < 4 {
			mixed++
		}
	}
	if mixed < 50 || short < 20 {
		t.Fatal(mixed, short)
	}
	if got := read(t, m, "f"); got[:100] != string(old[:100]) || got[100:] != string(upd) {
		t.Fatal("live bytes changed")
	}
	must(t, f.Truncate(10))
	must(t, f.Sync())
	if got := read(t, m.CrashClone(3, 0), "f"); got != "oooooooooo" {
		t.Fatalf("%q", got)
	}
	// A crash image is a file system like any other, with everything in it durable.
	c := m.CrashClone(3, 0)
	create(t, c, "g", "g")
	if c2 := c.CrashClone(1, 0); !exists(t, c2, "f") || exists(t, c2, "g") {
		t.Fatal("clone of a clone")
	}
}

// Durable-on-return writes, also beside a second handle that never syncs, and the sight of a write in flight.
func TestCrashDSync(t *testing.T) {
	var m *vfs.Mem
	var flights []string
	var images []*vfs.Mem
	m = vfs.NewMem(vfs.MemOptions{InFlight: func(op, name string) {
		flights = append(flights, op+" "+name)
		images = append(images, m.CrashClone(0, 0), m.CrashClone(0, 1))
	}})
	f, err := m.Open("f", vfs.How{Create: true, DSync: true})
	must(t, err)
	must(t, m.SyncDir("."))
	g, err := m.Open("f", vfs.How{Write: true})
	must(t, err)
	_, err = f.WriteAt([]byte("aaaa"), 0)
	must(t, err)
	if s := read(t, images[2], "f") + "," + read(t, images[3], "f"); s != ",aaaa" {
		t.Fatal("in flight: ", s)
	}
	if s := read(t, m.CrashClone(0, 0), "f"); s != "aaaa" {
		t.Fatal("after return: ", s)
	}
	_, err = g.WriteAt([]byte("bbbb"), 0)
	must(t, err)
	_, err = f.WriteAt([]byte("c"), 0)
	must(t, err)
	if s := read(t, m.CrashClone(0, 0), "f") + "," + read(t, m.CrashClone(0, 1), "f"); s != "caaa,cbbb" {
		t.Fatal(s)
	}
	must(t, f.Sync())
	if s := read(t, m.CrashClone(0, 0), "f"); s != "cbbb" {
		t.Fatal(s)
	}
	if len(flights) != 4 || flights[0] != "syncdir ." || flights[1] != "write f" || flights[3] != "sync f" {
		t.Fatal(flights)
	}
}

// Images taken beside writers are one moment: what was durable before another write began is in every image that has it.
func TestCrashConcurrent(t *testing.T) {
	m := vfs.NewMem()
	a, err := m.Open("a", vfs.How{Create: true, DSync: true})
	must(t, err)
	b, err := m.Open("b", vfs.How{Create: true, DSync: true})
	must(t, err)
	must(t, m.SyncDir("."))
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 2000 {
			_, _ = a.WriteAt([]byte{byte(i >> 8), byte(i)}, 0)
			_, _ = b.WriteAt([]byte{byte(i >> 8), byte(i)}, 0)
		}
	})
	for i := range 200 {
		c := m.CrashClone(uint64(i), 0)
		if x, y := read(t, c, "a"), read(t, c, "b"); x < y {
			t.Fatalf("%x after %x", y, x)
		}
	}
	wg.Wait()
}

func BenchmarkMemDSyncRewrite(b *testing.B) {
	m := vfs.NewMem()
	f, err := m.Open("a", vfs.How{Create: true, DSync: true, Direct: true})
	must(b, err)
	p := make([]byte, 4096)
	for i := range b.N {
		_, _ = f.WriteAt(p, int64(i%256)*4096)
	}
}
