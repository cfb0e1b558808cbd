package repair_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/internal/repair"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

var ctx = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files are those of a small store, by name, with what each holds.
func files(t testing.TB) (names []string, bytes map[string][]byte) {
	t.Helper()
	fs := vfs.NewMem(vfs.MemOptions{NoCrash: true})
	seed := rand.New(rand.NewPCG(1, 2))
	db, err := engine.Open("/s", engine.Options{FS: fs, LogSegmentBytes: 8 << 10, FreeFloor: -1, Random: seed.Uint64})
	must(t, err)
	tb, err := db.CreateTable(ctx, "t", engine.TableSpec{BlockBytes: 512, Families: map[string]engine.FamilySpec{"f": {}}})
	must(t, err)
	for i := range 40 {
		m := engine.NewMutation()
		m.Set("f", "q", 1, fmt.Appendf(nil, "%d%s", i, strings.Repeat("v", i)))
		m.DeleteTimestampRange("f", "gone", 2, 9)
		if i == 9 {
			m.DeleteCellsInFamily("f")
		}
		must(t, tb.Apply(ctx, fmt.Sprintf("r%02d", i), m, engine.NoSync))
		if i == 20 {
			must(t, db.Flush(ctx))
		}
	}
	must(t, db.Close())
	list, err := fs.List("/s")
	must(t, err)
	bytes = map[string][]byte{}
	for _, e := range list {
		f, err := fs.Open(path.Join("/s", e.Name), vfs.How{})
		must(t, err)
		b := make([]byte, e.Size)
		if e.Size > 0 {
			_, err = f.ReadAt(b, 0)
			must(t, err)
		}
		must(t, f.Close())
		names = append(names, e.Name)
		bytes[e.Name] = b
	}
	return names, bytes
}

func put(t testing.TB, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Open(name, vfs.How{Create: true})
	must(t, err)
	if len(b) > 0 {
		_, err = f.WriteAt(b, 0)
		must(t, err)
	}
	must(t, f.Close())
}

// Whatever is written over a part of a file, and over the same part of its copy: the repair gives a store that opens, or names the
// damage; a loss is told if rows are missing.
func FuzzRepair(f *testing.F) {
	names, bytes := files(f)
	for i := range names {
		f.Add(uint8(i), uint16(40), []byte("garbage"))
		f.Add(uint8(i), uint16(0), []byte{})
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint16, over []byte) {
		name := names[int(which)%len(names)]
		fs := vfs.NewMem(vfs.MemOptions{NoCrash: true})
		must(t, fs.MkdirAll("/s"))
		for _, n := range names {
			b := append([]byte{}, bytes[n]...)
			_, _, manifest := levels.ParseManifestName(n)
			_, _, both := levels.ParseManifestName(name)
			if n == name || manifest && both && len(over)%2 == 1 {
				if len(over) == 0 {
					b = b[:min(int(at), len(b))]
				} else if int(at) < len(b) {
					copy(b[at:], over)
				}
			}
			put(t, fs, path.Join("/s", n), b)
		}
		id := uint64(99)
		r, err := repair.Repair(ctx, fs, "/s", "/new", repair.Options{Random: func() uint64 { id++; return id }})
		if err != nil {
			if !errors.Is(err, damage.Err) && !errors.Is(err, levels.ErrNoManifest) && !errors.Is(err, damage.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		db, err := engine.Open("/new", engine.Options{FS: fs, ReadOnly: true})
		must(t, err)
		rows := 0
		if tb := db.Table("t"); tb != nil {
			err := tb.ReadRows(ctx, engine.AllRows(), func(engine.Row) bool { rows++; return true })
			if err != nil && !errors.Is(err, engine.ErrNoTable) {
				t.Fatal(err)
			}
		}
		must(t, db.Close())
		if rows != 39 && len(r.Lost) == 0 {
			t.Fatalf("%d of 39 rows and nothing is said to be lost: %+v", rows, r)
		}
	})
}

// A repair never writes into the old store, not even a directory.
func TestRepairIntoTheOldStoreIsRefused(t *testing.T) {
	names, bytes := files(t)
	for _, to := range []string{"/s", "/s/", "/s/new", "/s/a/../new", "/t/../s/new"} {
		fs := vfs.NewMem(vfs.MemOptions{NoCrash: true})
		must(t, fs.MkdirAll("/s"))
		must(t, fs.MkdirAll("/t"))
		for _, n := range names {
			put(t, fs, path.Join("/s", n), bytes[n])
		}
		before, err := fs.List("/s")
		must(t, err)
		if _, err := repair.Repair(ctx, fs, "/s", to, repair.Options{Random: func() uint64 { return 7 }}); !errors.Is(err, repair.ErrInside) {
			t.Errorf("%s: %v", to, err)
		}
		after, err := fs.List("/s")
		must(t, err)
		if len(after) != len(before) {
			t.Errorf("%s: %d files, %d before", to, len(after), len(before))
		}
	}
}
