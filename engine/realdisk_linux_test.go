package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rowandb/rowan/gc"
)

// volume mounts a file system of its own, of so many bytes.
func volume(t *testing.T, kind string, size int64) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	dir := t.TempDir()
	at := filepath.Join(dir, "volume")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if kind == "tmpfs" {
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
			t.Skipf("no file system can be mounted here: %v", err)
		}
	} else {
		image := filepath.Join(dir, "image")
		f, err := os.Create(image)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mkfs."+kind, "-q", image).CombinedOutput(); err != nil {
			t.Skipf("no file system can be made here: %v %s", err, out)
		}
		if out, err := exec.Command("mount", "-o", "loop", image, at).CombinedOutput(); err != nil {
			t.Skipf("no file system can be mounted here: %v %s", err, out)
		}
	}
	t.Cleanup(func() {
		for range 50 {
			if err := unix.Unmount(at, 0); err == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Error("the volume cannot be unmounted: something is open on it")
	})
	return at
}

// Real volumes filled to the end with rows of 1 KiB: a write returns an error that says so, the process lives, reads go on, the
// store opens on the full volume, and comes back when something else gives its space back
// (dgraph-io/badger #1199, #1682, #1801; syslog-ng/syslog-ng #716; netdata/netdata #2727).
func TestRealVolumeFillsUp(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		for _, floor := range []int64{-1, 2 << 20} {
			t.Run(fmt.Sprint(kind, " floor ", floor), func(t *testing.T) {
				at := volume(t, kind, 24<<20)
				o := Options{FreeFloor: floor, MemtableBytes: 512 << 10, TableFileBytes: 512 << 10, LevelBytes: 2 << 20, CacheBytes: 1 << 20}
				ballast := filepath.Join(at, "ballast")
				if err := os.WriteFile(ballast, make([]byte, 6<<20), 0o644); err != nil {
					t.Fatal(err)
				}
				db := openDisk(t, filepath.Join(at, "store"), o)
				tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
				acked := 0
				put := func() error {
					row := fmt.Sprintf("%06d", acked*7919%1_000_003)
					err := tb.Apply(ctx, row, set("f", "q", 1, noise(row)), NoSync)
					if err == nil {
						acked++
					}
					return err
				}
				check := func() {
					t.Helper()
					n := 0
					if err := tb.ReadRows(ctx, AllRows(), func(Row) bool { n++; return true }); err != nil || n != acked {
						t.Fatalf("%d rows of %d acknowledged, %v", n, acked, err)
					}
				}
				var err error
				for err == nil && acked < 100_000 {
					err = put()
				}
				if !errors.Is(err, ErrDiskFull) || errors.Is(err, ErrFailed) || acked < 3000 {
					t.Fatalf("after %d rows: %v; %+v", acked, err, db.Health())
				}
				check()
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				db = openDisk(t, filepath.Join(at, "store"), o)
				defer func() { db.Close() }()
				tb = db.Table("t")
				check()
				if err := os.Remove(ballast); err != nil {
					t.Fatal(err)
				}
				before := acked
				for i := 0; ; i++ {
					if err := put(); err == nil {
						break
					} else if !errors.Is(err, ErrDiskFull) || i > 2000 {
						t.Fatalf("with 6 MiB more: %v; %+v", err, db.Health())
					}
					time.Sleep(5 * time.Millisecond)
				}
				if err := db.Sync(ctx); err != nil || acked == before {
					t.Fatal(err)
				}
				check()
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
