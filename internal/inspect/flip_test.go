package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

var ctx = context.Background()

const dir = "/store"

// smallStore is a closed store with table files in two levels, deletes of every kind, and batches in the log.
func smallStore(t *testing.T) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem()
	rng := rand.New(rand.NewPCG(1, 1))
	db, err := engine.Open(dir, engine.Options{
		FS: fs, LogSegmentBytes: 16 << 10, MemtableBytes: 16 << 10, Random: rng.Uint64, Clock: func() time.Time { return time.UnixMicro(1e9) },
	})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	tb, err := db.CreateTable(ctx, "t", engine.TableSpec{Families: map[string]engine.FamilySpec{"f": {GC: gc.MaxVersionsPolicy(2)}, "g": {}}})
	check(err)
	load := func(from int) {
		for i := from; i < from+20; i++ {
			m := engine.NewMutation()
			m.Set("f", fmt.Sprint("q", i%3), engine.Timestamp(i), []byte(strings.Repeat(fmt.Sprint(i), 20)))
			m.Set("g", "", engine.Timestamp(i), nil)
			switch i % 5 {
			case 0:
				m.DeleteCellsInColumn("g", "x")
			case 1:
				m.DeleteTimestampRange("g", "", 3, 5)
			case 2:
				m.DeleteCellsInFamily("g")
			}
			check(tb.Apply(ctx, fmt.Sprint("row", i%13), m))
		}
	}
	load(0)
	check(db.Compact(ctx))
	load(20)
	check(db.Flush(ctx))
	load(40)
	check(db.Close())
	return fs
}

// replayed sums up what recovery would read from the log.
func replayed(fs vfs.FS) (uint64, error) {
	s, err := inspect.Open(fs, dir)
	if err != nil {
		return 0, err
	}
	h := xxhash.New()
	var ignored int64
	err = s.Records(ctx, func(rec []byte) error { _, err := h.Write(rec); return err }, &ignored)
	return h.Sum64(), err
}

// state is what the manifest says, without what its closing edit alone says: that edit has a number and two clock readings,
// which repeat what matters of them in the edits that depend on it.
func state(fs vfs.FS) (string, error) {
	s, err := inspect.Open(fs, dir)
	if err != nil {
		return "", err
	}
	e := s.Version.Snapshot()
	e.Num, e.EngineTime, e.Stamp = 1, 0, 0
	return string(e.Append(nil)), nil
}

// Every byte of every file of a store, padding included, is flipped. Each flip is found, with file and offset, or does not
// matter, which is proven: recovery reads the same records and the same state. Such bytes are, in the log, the unused rest of
// slots, spare slots, and blocks before the start of replay; in the manifest the closing edit, which carries no data.
func TestEveryFlippedByteIsFound(t *testing.T) {
	fs := smallStore(t)
	want, err := replayed(fs)
	if err != nil {
		t.Fatal(err)
	}
	wantState, err := state(fs)
	if err != nil {
		t.Fatal(err)
	}
	list, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	step := int64(1)
	if raceEnabled {
		step = 13 // one goroutine, so that the detector has nothing to find; every byte is flipped without it
	}
	found, harmless := map[string]int{}, map[string]int{}
	for _, e := range list {
		if levels.IsReserve(e.Name) {
			continue // its bytes mean nothing
		}
		kind, _, _ := strings.Cut(strings.TrimLeft(e.Name, "0123456789"), "-")
		f, err := fs.Open(dir+"/"+e.Name, vfs.How{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		for off := int64(0); off < e.Size; off += step {
			var b [1]byte
			if _, err := f.ReadAt(b[:], off); err != nil {
				t.Fatal(err)
			}
			old := b[0]
			b[0] ^= 1 << (off % 8)
			write(t, f, b[0], off)
			err := verify(fs)
			switch {
			case errors.Is(err, damage.Err) || errors.Is(err, damage.ErrFormat):
				if !strings.Contains(err.Error(), e.Name) && kind != "slot" && kind != "manifest" {
					t.Fatalf("%s, byte %d: the error does not name the file: %v", e.Name, off, err)
				}
				found[kind]++
			case err != nil:
				t.Fatalf("%s, byte %d: %v", e.Name, off, err)
			case kind == "manifest":
				if got, err := state(fs); err != nil || got != wantState {
					t.Fatalf("%s, byte %d: the state differs: %v", e.Name, off, err)
				}
				harmless[kind]++
			case kind != "slot":
				t.Fatalf("%s, byte %d: not found", e.Name, off)
			default:
				if got, err := replayed(fs); err != nil || got != want {
					t.Fatalf("%s, byte %d: the log replays differently: %v", e.Name, off, err)
				}
				harmless[kind]++
			}
			write(t, f, old, off)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("found %v, harmless %v", found, harmless)
	if err := verify(fs); err != nil {
		t.Fatal(err)
	}
	if harmless["manifest"] > 60 {
		t.Fatalf("%d bytes of the manifest do not matter, the closing edit is smaller", harmless["manifest"])
	}
	if n := int(step); found["manifest"] < 300/n || found[".sst"] < 1000/n || found["slot"] < 1000/n {
		t.Fatalf("too little was flipped: found %v", found)
	}
}

func write(t *testing.T, f vfs.File, b byte, off int64) {
	t.Helper()
	if _, err := f.WriteAt([]byte{b}, off); err != nil {
		t.Fatal(err)
	}
}

func verify(fs vfs.FS) error {
	s, err := inspect.Open(fs, dir)
	if err != nil {
		return err
	}
	r, err := s.Verify(ctx, nil)
	return errors.Join(append(r.Errors, err)...)
}
