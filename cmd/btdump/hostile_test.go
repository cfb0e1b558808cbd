package main

import (
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"testing"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// tinyStore has one small file of each kind.
func tinyStore(t *testing.T) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem(vfs.MemOptions{NoCrash: true})
	db, err := engine.Open("/s", engine.Options{FS: fs, LogSegmentBytes: 8 << 10, FreeFloor: -1})
	must(t, err)
	tb, err := db.CreateTable(ctx, "t", engine.TableSpec{BlockBytes: 512, Families: map[string]engine.FamilySpec{"f": {}}})
	must(t, err)
	for i := range 30 {
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
	return fs
}

// allocated runs f and returns the bytes that it allocated.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Whatever byte of a table, log or manifest is flipped, and wherever it is cut: each command ends with an exit code, and with a message
// that names the file if it is not 0; it allocates no more than it does for the undamaged file, about. (facebook/rocksdb #123,
// #624; yugabyte/yugabyte-db #14716; google/leveldb #223; scylladb/scylladb #2532: the tool crashed on the damaged file that it was meant to explain.)
func TestDumpOfEveryDamage(t *testing.T) {
	fs := tinyStore(t)
	table := tables(t, fs)[0]
	slot := slotsOf(t, fs)[0]
	manifest := path.Join("/s", levels.ManifestName(1))
	full := os.Getenv("ROWAN_SWEEP") == "full"
	runs := 0
	for _, c := range []struct {
		name     string
		commands [][]string
		most     int // bytes of the file that are of interest
	}{
		{table, [][]string{{"cells", "/s"}, {"verify", "/s"}, {"export", table}, {"repair", "/s", "/new"}}, 1 << 20},
		{slot, [][]string{{"verify", "/s"}, {"repair", "/s", "/new"}}, 3000},
		{manifest, [][]string{{"files", "/s"}, {"verify", "/s"}, {"repair", "/s", "/new"}}, 1 << 20},
	} {
		whole := read(t, fs, c.name)
		look := func(what string, n int) {
			for i, args := range c.commands {
				if !full && (n+i)%len(c.commands) != 0 {
					continue
				}
				runs++
				var code int
				var out, errs string
				bytes := allocated(func() { code, out, errs = dump(fs, args...) })
				said := out + errs
				if code < 0 || code > 2 || code != 0 && !strings.Contains(said, path.Base(c.name)) && !strings.Contains(said, "manifest") && !strings.Contains(said, "log") {
					t.Fatalf("%s, %v: exit %d\n%s", what, args, code, said)
				}
				if code == 1 && !strings.Contains(said, "offset") && !strings.Contains(said, "no ") && !strings.Contains(said, "bytes, the manifest says") {
					t.Fatalf("%s, %v: exit %d and no offset\n%s", what, args, code, said)
				}
				if bytes > 8<<20 {
					t.Fatalf("%s, %v: %d bytes allocated for a file of %d", what, args, bytes, len(whole))
				}
				if list, err := fs.List("/new"); err == nil {
					for _, e := range list {
						must(t, fs.Remove(path.Join("/new", e.Name)))
					}
					must(t, fs.Remove("/new"))
				}
			}
		}
		put := func(b []byte) {
			f, err := fs.Open(c.name, vfs.How{Write: true})
			must(t, err)
			must(t, f.Truncate(int64(len(b))))
			_, err = f.WriteAt(b, 0)
			must(t, err)
			must(t, f.Close())
		}
		step := 5
		switch {
		case full:
			step = 1
		case raceEnabled:
			step = 50
		}
		for at := 0; at < min(len(whole), c.most); at += step {
			b := append([]byte{}, whole...)
			b[at] ^= 1 << (at % 8)
			put(b)
			look(fmt.Sprintf("%s, byte %d", c.name, at), at/step)
		}
		for at := 0; at < min(len(whole), c.most); at += 3 * step {
			put(whole[:at])
			look(fmt.Sprintf("%s, cut at %d", c.name, at), at/step)
		}
		put(whole)
	}
	t.Logf("%d runs", runs)
	if code, out, errs := dump(fs, "verify", "/s"); code != 0 {
		t.Fatal(out, errs)
	}
	if runs < 500 && !raceEnabled {
		t.Error("too little was tried")
	}
}
