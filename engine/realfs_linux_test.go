package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rowandb/rowan/gc"
)

// An ext4 volume of 64 MiB is filled to its last block beside the store, and gets 1 MiB, then 8 MiB back: the store opens and reads
// each time, tells that the disk is full, takes drops, and goes on by itself when there is room (cockroachdb/cockroach #8473, #22235,
// #22387; ClickHouse/ClickHouse #87555: what was freed did not bring a full node back, since compactions need room first).
func TestSmallVolumeFillsAndComesBack(t *testing.T) {
	at := volume(t, "ext4", 64<<20)
	dir := filepath.Join(at, "store")
	o := Options{FreeFloor: 2 << 20, MemtableBytes: 512 << 10, TableFileBytes: 512 << 10, LevelBytes: 2 << 20, CacheBytes: 1 << 20}
	db := openDisk(t, dir, o)
	defer func() { db.Close() }()
	tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
	rows := map[string]bool{}
	put := func(i int) error {
		row := fmt.Sprintf("%06d", i*7919%1_000_003)
		err := tb.Apply(ctx, row, set("f", "q", 1, noise(row)), NoSync)
		if err == nil {
			rows[row] = true
		}
		return err
	}
	check := func() {
		t.Helper()
		n := 0
		err := tb.ReadRows(ctx, AllRows(), func(r Row) bool {
			if !rows[r.Key] || string(r.Cells[0].Value) != noise(r.Key) {
				t.Errorf("row %s was never acknowledged, or has another value", r.Key)
			}
			n++
			return !t.Failed()
		})
		if err != nil || n != len(rows) {
			t.Fatalf("%d rows of %d acknowledged, %v", n, len(rows), err)
		}
	}
	for i := range 6000 {
		if err := put(i); err != nil {
			t.Fatal(err)
		}
	}
	ballast := filepath.Join(at, "ballast")
	fill := func() {
		t.Helper()
		f, err := os.OpenFile(ballast, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		for size := 1 << 20; size >= 512; {
			if _, err = f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
				size /= 2
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	next := 6000
	full := func() {
		t.Helper()
		for ; ; next++ {
			if err := put(next); errors.Is(err, ErrDiskFull) && !errors.Is(err, ErrFailed) {
				break
			} else if err != nil {
				t.Fatalf("on a full disk: %v", err)
			} else if next > 200_000 {
				t.Fatal("the disk does not fill")
			}
		}
		check()
	}
	reopen := func() {
		t.Helper()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = openDisk(t, dir, o)
		tb = db.Table("t")
		check()
	}
	fill()
	full()
	// With not one block free it may not open for writing, but then says why, harms nothing, and opens for reading.
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	ro := o
	ro.ReadOnly = true
	db = openDisk(t, dir, ro)
	tb = db.Table("t")
	check()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir, o)
	if err == nil {
		db, tb = again, again.Table("t")
		check()
	} else if !errors.Is(err, ErrDiskFull) {
		t.Fatalf("open on a full disk: %v", err)
	}
	t.Logf("open with nothing free: %v", err)
	for _, free := range []int64{1 << 20, 8 << 20} {
		info, err := os.Stat(ballast)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(ballast, info.Size()-free); err != nil {
			t.Fatal(err)
		}
		reopen()
		fill()
		full()
	}
	// Half of the rows go; what they took is given back by merges, and writing goes on without being opened again.
	half := fmt.Sprintf("%06d", 500_000)
	if err := tb.DropRowRange(ctx, NewRange("", half)); err != nil {
		t.Fatalf("a drop on a full disk: %v", err)
	}
	for row := range rows {
		if row < half {
			delete(rows, row)
		}
	}
	check()
	deadline := time.Now().Add(60 * time.Second)
	for goneOn := 0; goneOn < 500; next++ {
		switch err := put(next); {
		case err == nil:
			goneOn++
		case !errors.Is(err, ErrDiskFull) || time.Now().After(deadline):
			t.Fatalf("after half of the rows was dropped: %v; %+v", err, db.Health())
		default:
			time.Sleep(5 * time.Millisecond)
		}
	}
	check()
	reopen()
}

// The store lives on every file system, with direct I/O where it is granted and without elsewhere, and tells which: what one wrote
// the other reads (facebook/rocksdb #1265, #3539; facebook/mysql-5.6 #778; dragonflydb/dragonfly #1084; tursodatabase/turso #129:
// "invalid argument" where there is no direct I/O).
func TestStoreOnOtherFileSystems(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4", "overlay"} {
		t.Run(kind, func(t *testing.T) {
			at := ""
			if kind == "overlay" {
				base := volume(t, "tmpfs", 32<<20)
				for _, d := range []string{"lower", "upper", "work", "at"} {
					if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				at = filepath.Join(base, "at")
				if err := unix.Mount("overlay", at, "overlay", 0, fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", base, base, base)); err != nil {
					t.Skipf("no overlay can be mounted here: %v", err)
				}
				t.Cleanup(func() {
					if err := unix.Unmount(at, 0); err != nil {
						t.Error(err)
					}
				})
			} else {
				at = volume(t, kind, 32<<20)
			}
			var modes []string
			for round, reads := range []ReadMode{ReadMapped, ReadPositional, ReadDirect} {
				o := diskOptions()
				o.Reads, o.Buffered = reads, round == 1
				db := openDisk(t, filepath.Join(at, "store"), o)
				if round == 0 {
					create(t, db, "t", map[string]gc.Rule{"f": {}})
				}
				tb := db.Table("t")
				for i := range 200 {
					if err := tb.Apply(ctx, fmt.Sprintf("r%03d", i), set("f", "q", Timestamp(round+1), noise(fmt.Sprint(i, round))), NoSync); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(db.Flush(ctx), db.Compact(ctx), db.Sync(ctx)); err != nil {
					t.Fatal(err)
				}
				n := 0
				err := tb.ReadRows(ctx, AllRows(), func(r Row) bool {
					for k, c := range r.Cells {
						if string(c.Value) != noise(fmt.Sprint(n, round-k)) {
							t.Errorf("row %s, version %d is wrong", r.Key, k)
						}
					}
					if len(r.Cells) != round+1 {
						t.Errorf("row %s has %d versions", r.Key, len(r.Cells))
					}
					n++
					return !t.Failed()
				})
				if err != nil || n != 200 {
					t.Fatalf("%d rows, %v", n, err)
				}
				m := db.Metrics()
				modes = append(modes, fmt.Sprintf("log direct %t, tables direct %t", m.Log.Direct, m.TablesDirect))
				if o.Buffered && (m.Log.Direct || m.TablesDirect) {
					t.Errorf("buffered was asked for: %s", modes[round])
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
			t.Log(strings.Join(modes, "; "))
			if kind == "ext4" && !strings.HasPrefix(modes[0], "log direct true, tables direct true") {
				t.Errorf("no direct I/O on ext4: %s", modes[0])
			}
		})
	}
}
