package main

import (
	"crypto/sha256"
	"fmt"
	"path"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// damagedStore is a store to be damaged: 600 rows in files of twenty blocks and more, an L0 file with deletes, and a log of
// several slots with rows of its own.
func damagedStore(t *testing.T, close bool) (*vfs.Mem, *engine.DB) {
	t.Helper()
	fs := vfs.NewMem(vfs.MemOptions{NoCrash: true})
	db, err := engine.Open("/s", engine.Options{FS: fs, LogSegmentBytes: 16 << 10, LogBytes: 1 << 20, FreeFloor: -1})
	must(t, err)
	tb, err := db.CreateTable(ctx, "t", engine.TableSpec{BlockBytes: 1024, Codec: engine.CodecNone, Families: map[string]engine.FamilySpec{"f": {}, "g": {}}})
	must(t, err)
	put := func(from, to int) {
		for i := from; i < to; i++ {
			m := engine.NewMutation()
			m.Set("f", "q", 1, fmt.Appendf(nil, "%d%s", i, strings.Repeat("v", 100)))
			must(t, tb.Apply(ctx, fmt.Sprintf("r%04d", i), m, engine.NoSync))
		}
	}
	put(0, 600)
	must(t, db.Compact(ctx))
	m := engine.NewMutation()
	m.DeleteCellsInFamily("f")
	must(t, tb.Apply(ctx, "r0003", m))
	put(600, 620)
	must(t, db.Flush(ctx))
	put(1000, 1400)
	must(t, db.Sync(ctx))
	if close {
		must(t, db.Close())
	}
	return fs, db
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rowsOf opens a store with the engine, has it verified, and lists its rows.
func rowsOf(t *testing.T, fs vfs.FS, dir string) (rows []string) {
	t.Helper()
	if code, out, errs := dump(fs, "verify", dir); code != 0 {
		t.Fatalf("verify: %s%s", out, errs)
	}
	db, err := engine.Open(dir, engine.Options{FS: fs, FreeFloor: -1})
	must(t, err)
	must(t, db.Table("t").ReadRows(ctx, engine.AllRows(), func(r engine.Row) bool {
		rows = append(rows, r.Key)
		if want := strings.TrimLeft(r.Key, "r0"); !strings.HasPrefix(string(r.Cells[0].Value), want) {
			t.Errorf("row %s has %s", r.Key, r.Cells[0].Value)
		}
		return true
	}))
	m := engine.NewMutation()
	m.Set("f", "q", 2, []byte("0"))
	must(t, db.Table("t").Apply(ctx, "new", m))
	must(t, db.Compact(ctx))
	must(t, db.Close())
	return rows
}

// bytesOf is every byte in a directory.
func bytesOf(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	list, err := fs.List(dir)
	must(t, err)
	var b strings.Builder
	for _, e := range list {
		fmt.Fprintf(&b, "%s %d %x\n", e.Name, e.Size, sha256.Sum256(read(t, fs, path.Join(dir, e.Name))))
	}
	return b.String()
}

func read(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name, vfs.How{})
	must(t, err)
	n, err := f.Size()
	must(t, err)
	b := make([]byte, n)
	if n > 0 {
		_, err = f.ReadAt(b, 0)
		must(t, err)
	}
	must(t, f.Close())
	return b
}

func flip(t *testing.T, fs vfs.FS, name string, at int64) {
	t.Helper()
	f, err := fs.Open(name, vfs.How{Write: true})
	must(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	must(t, err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], at)
	must(t, err)
	must(t, f.Close())
}

// tables are the names of the table files, the largest first.
func tables(t *testing.T, fs vfs.FS) (names []string) {
	t.Helper()
	s, err := inspect.Open(fs, "/s")
	must(t, err)
	ts := s.Tables()
	sort.Slice(ts, func(i, j int) bool { return ts[i].File.Size > ts[j].File.Size })
	for _, x := range ts {
		names = append(names, path.Join("/s", levels.TableName(x.File.Num)))
	}
	return names
}

// slotsOf are the names of the log's files by slot number.
func slotsOf(t *testing.T, fs vfs.FS) (names []string) {
	t.Helper()
	s, err := inspect.Open(fs, "/s")
	must(t, err)
	found, err := record.FindSlots(fs, "/s", s.Version.StoreID)
	must(t, err)
	sort.Slice(found, func(i, j int) bool { return found[i].First.Slot < found[j].First.Slot })
	for _, f := range found {
		must(t, f.File.Close())
		if f.Begun && f.First.Slot >= s.Version.LogStart {
			names = append(names, f.Name)
		}
	}
	return names
}

// mended repairs /s into /new, checks the exit code and that /s is what it was, and returns what was said and the rows.
func mended(t *testing.T, fs vfs.FS, code int, args ...string) (said string, rows []string) {
	t.Helper()
	before := bytesOf(t, fs, "/s")
	got, out, errs := dump(fs, append(append([]string{"repair"}, args...), "/s", "/new")...)
	if got != code {
		t.Fatalf("exit %d, wanted %d\n%s%s", got, code, out, errs)
	}
	if bytesOf(t, fs, "/s") != before {
		t.Fatal("the old store was changed")
	}
	if code == 1 {
		if _, err := fs.List("/new"); err == nil {
			t.Fatal("something was left of a repair that failed")
		}
		return out + errs, nil
	}
	return out + errs, rowsOf(t, fs, "/new")
}

const allRows = 600 - 1 + 20 + 400 // one is deleted

// The four cases of docs/repair.md (syndtr/goleveldb #53, #184; basho/eleveldb #128; google/leveldb #1097: a repair lost keys or refused, and there was no guide).
func TestRepairWithOneManifestCopyGone(t *testing.T) {
	for i, name := range levels.ManifestCopies(1) {
		fs, _ := damagedStore(t, true)
		if i == 0 {
			must(t, fs.Remove(path.Join("/s", name)))
		} else {
			flip(t, fs, path.Join("/s", name), 50)
		}
		said, rows := mended(t, fs, 0)
		if len(rows) != allRows || !strings.Contains(said, "nothing is lost") || !strings.Contains(said, "the other one is used") {
			t.Errorf("%d rows\n%s", len(rows), said)
		}
	}
}

func TestRepairWithBothManifestCopiesGone(t *testing.T) {
	for _, gone := range []bool{true, false} {
		fs, _ := damagedStore(t, true)
		names := tables(t, fs)
		for _, name := range levels.ManifestCopies(1) {
			if gone {
				must(t, fs.Remove(path.Join("/s", name)))
			} else {
				flip(t, fs, path.Join("/s", name), 3)
			}
		}
		if said, _ := mended(t, fs, 1); !strings.Contains(said, "btdump export") || !strings.Contains(said, "manifest") {
			t.Error(said)
		}
		code, out, errs := dump(fs, "export", names[0])
		if code != 0 || !strings.Contains(out, `"r0599" f/1:"q" @1 = "599v`) || !strings.Contains(out, "600 rows") || !strings.Contains(out, "not known") {
			t.Errorf("exit %d\n%.500s%s", code, out, errs)
		}
		if code, out, _ = dump(fs, "export", names[1]); code != 0 || !strings.Contains(out, `"r0003" delete columns "f\x00" .. "f\x01"`) {
			t.Errorf("exit %d\n%.500s", code, out)
		}
	}
}

func TestRepairWithOneTableFileGone(t *testing.T) {
	fs, _ := damagedStore(t, true)
	must(t, fs.Remove(tables(t, fs)[0]))
	said, rows := mended(t, fs, 2)
	if len(rows) != 420 || !strings.Contains(said, `LOST: table file `) || !strings.Contains(said, `rows "r0000" to "r0599"`) || !strings.Contains(said, "no deletes were in it") {
		t.Errorf("%d rows\n%s", len(rows), said)
	}
}

func TestRepairWithOneLogSlotGone(t *testing.T) {
	for i := range 3 {
		fs, _ := damagedStore(t, true)
		slots := slotsOf(t, fs)
		if len(slots) < 3 {
			t.Fatal("too few slots")
		}
		must(t, fs.Remove(slots[i]))
		said, rows := mended(t, fs, 2)
		logged := len(rows) - (allRows - 400)
		if logged < 0 || logged >= 400 || (logged == 0) != (i == 0) || !strings.Contains(said, "LOST: the batches in the log after sequence") {
			t.Errorf("slot %d of %d: %d rows of the log\n%s", i, len(slots), logged, said)
		}
		for k, row := range rows[len(rows)-logged:] { // a prefix
			if row != fmt.Sprintf("r%04d", 1000+k) {
				t.Fatalf("slot %d: row %s is in the place of %d", i, row, 1000+k)
			}
		}
	}
}

// One bad block costs its rows and nothing else, they are told, and the file can be left out on purpose
// (facebook/rocksdb #6678, #6955).
func TestRepairSavesTheGoodBlocksOfABadTable(t *testing.T) {
	fs, _ := damagedStore(t, true)
	bad := tables(t, fs)[0]
	flip(t, fs, bad, 30000)
	said, rows := mended(t, fs, 2)
	if lost := allRows - len(rows); lost < 1 || lost > 20 || !strings.Contains(said, "good blocks") || !strings.Contains(said, `rows "r0`) {
		t.Errorf("%d rows are lost\n%s", lost, said)
	}

	fs, _ = damagedStore(t, true)
	flip(t, fs, bad, 30000)
	said, rows = mended(t, fs, 2, "-drop-bad")
	if len(rows) != 420 || !strings.Contains(said, "all of it") {
		t.Errorf("%d rows\n%s", len(rows), said)
	}

	// Damage beside the contents loses nothing: the file is written anew.
	fs, _ = damagedStore(t, true)
	flip(t, fs, bad, int64(len(read(t, fs, bad))-10))
	if said, rows = mended(t, fs, 0); len(rows) != allRows || !strings.Contains(said, "1 rewritten") {
		t.Errorf("%d rows\n%s", len(rows), said)
	}

	// Deletes that are lost are told, since what they deleted can be seen again.
	fs, _ = damagedStore(t, true)
	must(t, fs.Remove(tables(t, fs)[1]))
	if said, rows = mended(t, fs, 2); len(rows) != allRows-20+1 || !strings.Contains(said, "1 wide and 0 narrow deletes: what they deleted") {
		t.Errorf("%d rows\n%s", len(rows), said)
	}
}

// A log with a damaged record gives the records before it.
func TestRepairTakesTheLogUpToItsDamage(t *testing.T) {
	fs, _ := damagedStore(t, true)
	slots := slotsOf(t, fs)
	flip(t, fs, slots[1], 9000)
	said, rows := mended(t, fs, 2)
	if logged := len(rows) - (allRows - 400); logged < 20 || logged > 300 || !strings.Contains(said, slots[1]) || !strings.Contains(said, "durable") {
		t.Errorf("%d rows of the log\n%s", logged, said)
	}
}

// A manifest that is damaged in the middle of both copies gives a state that the store once had.
func TestRepairFromPartOfAManifest(t *testing.T) {
	fs, _ := damagedStore(t, true)
	end := int64(len(read(t, fs, path.Join("/s", levels.ManifestName(1)))))
	for _, name := range levels.ManifestCopies(1) {
		flip(t, fs, path.Join("/s", name), end-60)
	}
	code, out, errs := dump(fs, "repair", "/s", "/new")
	if code != 2 || !strings.Contains(out, "LOST: all changes of the list of files after edit") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	rowsOf(t, fs, "/new")
}

// A running store is noticed. With -force it is copied all the same; the result is a store, verified, or there is none.
func TestRepairOfAStoreInUse(t *testing.T) {
	fs, db := damagedStore(t, false)
	code, out, errs := dump(fs, "repair", "/s", "/new")
	if code != 1 || !strings.Contains(errs, "in use") || !strings.Contains(errs, "-force") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	if code, out, errs = dump(fs, "repair", "-force", "/s", "/new"); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	must(t, db.Close())
	if rows := rowsOf(t, fs, "/new"); len(rows) != allRows {
		t.Fatalf("%d rows", len(rows))
	}
}

func TestRepairBadInput(t *testing.T) {
	fs, _ := damagedStore(t, true)
	must(t, fs.MkdirAll("/full/of"))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"repair"}, 2, "usage"}, {[]string{"repair", "/s"}, 2, "usage"}, {[]string{"repair", "-shred", "/s", "/n"}, 2, "usage"},
		{[]string{"repair", "/nowhere", "/n"}, 1, "/nowhere"}, {[]string{"repair", "/s", "/full"}, 1, "not empty"},
		{[]string{"repair", "/s", "/s"}, 1, "inside"}, {[]string{"repair", "/s", "/s/new"}, 1, "inside"}, {[]string{"repair", "/s", "/no/parent"}, 1, "/no"},
		{[]string{"export"}, 2, "usage"}, {[]string{"export", "/s/lock"}, 1, "identity"}, {[]string{"export", "/s/lock", "xyz"}, 2, "usage"},
		{[]string{"export", "/s/none.sst"}, 1, "none.sst"},
	} {
		code, out, errs := dump(fs, c.args...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%v: exit %d\n%s%s", c.args, code, out, errs)
		}
	}
}

// A repair that fails at any call says so, leaves nothing, and has not touched the old store.
func TestFailureOfEveryCallOfARepair(t *testing.T) {
	fs, _ := damagedStore(t, true)
	flip(t, fs, tables(t, fs)[0], 30000)
	before := bytesOf(t, fs, "/s")
	for n := 1; ; n++ {
		if raceEnabled && n%7 != 1 {
			continue
		}
		faulty := faultfs.New(fs, faultfs.Options{Rules: []faultfs.Rule{faultfs.FailAt(n, syscall.EIO)}})
		code, out, errs := dump(faulty, "repair", "/s", "/new")
		if faulty.Fired() == 0 {
			if code != 2 || n < 20 {
				t.Fatalf("exit %d after %d calls\n%s%s", code, n-1, out, errs)
			}
			break
		}
		if bytesOf(t, fs, "/s") != before {
			t.Fatalf("call %d: the old store was changed", n)
		}
		if code == 2 && !strings.Contains(errs, "input/output") { // space is reserved as an offer
			list, err := fs.List("/new")
			must(t, err)
			for _, f := range list {
				must(t, fs.Remove(path.Join("/new", f.Name)))
			}
			must(t, fs.Remove("/new"))
			continue
		}
		if code != 1 || !strings.Contains(errs, "input/output") {
			t.Fatalf("call %d: exit %d\n%s%s", n, code, out, errs)
		}
		if list, err := fs.List("/new"); err == nil {
			t.Fatalf("call %d: left: %v", n, list)
		}
	}
}
