package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// checkpointed is a small store on disk, with entries in files and in the log, closed; and, if asked for, a checkpoint of it in
// /backup.
func checkpointed(t *testing.T, also bool) (mem *vfs.Mem, want string) {
	t.Helper()
	s := newSweep(vfs.NewMem(), 1, faultfs.Options{})
	if !s.open() {
		t.Fatal(s.errs)
	}
	tb, err := s.db.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"f": {GC: gc.MaxVersionsPolicy(2)}, "far": {Group: "g"}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		m := set("f", "q", Timestamp(i), fmt.Sprint(i, strings.Repeat("x", 600)))
		m.Set("far", "q", Timestamp(i), []byte("y"))
		if i%9 == 4 {
			m.DeleteCellsInColumn("far", "q")
		}
		if err := tb.Apply(ctx, fmt.Sprint("r", i%15), m); err != nil {
			t.Fatal(err)
		}
		if i == 15 || i == 30 {
			if err := s.db.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := s.db.Metrics(); n.Levels[0].Files+n.Levels[6].Files < 2 || n.MemtableBytes == 0 {
		t.Fatalf("%+v", n.Levels)
	}
	if also {
		if _, err := s.db.Checkpoint(ctx, "/backup"); err != nil {
			t.Fatal(err)
		}
	}
	want = wholeStore(t, s.db)
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	return s.mem, want
}

// looksLike opens a directory with a fault-free store, compares, writes, closes and inspects it.
func looksLike(t *testing.T, mem *vfs.Mem, dir, want string) error {
	t.Helper()
	s := newSweep(mem, 77, faultfs.Options{})
	db, err := Open(dir, s.opts)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	got := wholeStore(t, db)
	err = db.Table("t").Apply(ctx, "zz", set("f", "q", 1, "more"))
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("it shows\n%.3000s\nwanted\n%.3000s", got, want)
	}
	st, err := inspect.Open(mem, dir)
	if err != nil {
		return err
	}
	r, err := st.Verify(ctx, nil)
	if len(st.Other) > 0 {
		err = errors.Join(err, fmt.Errorf("files that nobody knows: %v", st.Other))
	}
	return errors.Join(append(r.Errors, err)...)
}

// disturb runs f on a copy of an image again and again: each mutating call that f makes fails once in one way.
func disturb(t *testing.T, mem *vfs.Mem, f func(s *sweep) error, after func(s *sweep, err error, call string) error) {
	t.Helper()
	for n := 1; ; n++ {
		if raceEnabled && n%4 != 1 {
			continue
		}
		s := newSweep(mem.CrashClone(1, 1), 3, faultfs.Options{Record: true})
		cause := []error{syscall.EIO, syscall.ENOSPC, faultfs.ErrShort}[n%3]
		s.fs.SetRules(faultfs.FailAt(n, cause))
		err := f(s)
		if s.fs.Fired() == 0 {
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d calls failed", n-1)
			if n < 10 {
				t.Error("too few")
			}
			return
		}
		call := nthCall(s.fs, n)
		s.fs.SetRules()
		if err == nil && !strings.HasPrefix(call, "preallocate") && !strings.HasPrefix(call, "remove") && !s.warned(cause) {
			t.Fatalf("call %d (%s) failed and nobody was told", n, call)
		}
		if err := after(s, err, call); err != nil {
			t.Fatalf("%v at call %d (%s): %v", cause, n, call, err)
		}
	}
}

// cutPower runs f on a copy of an image and looks at what a power cut at each mutating call leaves.
func cutPower(t *testing.T, mem *vfs.Mem, f func(s *sweep) error, look func(image *vfs.Mem) error) {
	t.Helper()
	s := newSweep(mem.CrashClone(1, 1), 3, faultfs.Options{Record: true})
	images := 0
	cut := func(where string, n int) {
		for i, keep := range []float64{0, 0.5, 1, 0.25, 0.75} {
			if os.Getenv("ROWAN_SWEEP") == "" && ((n+i)%3 != 0 || raceEnabled && n%4 != 0) {
				continue
			}
			images++
			if err := look(s.mem.CrashClone(uint64(n*10+i), keep)); err != nil {
				t.Fatalf("power cut %s call %d (%s), keep %v: %v", where, n, nthCall(s.fs, n), keep, err)
			}
		}
	}
	s.fs.SetRules(func(o faultfs.Op) error {
		if o.N > 0 {
			cut("before", o.N)
		}
		return nil
	})
	s.mem.SetInFlight(func(string, string) { cut("inside", s.fs.Mutations()) })
	if err := f(s); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d images", images)
	if images < 30 && !raceEnabled {
		t.Error("too few")
	}
}

func takeCheckpoint(s *sweep) error {
	if !s.open() || len(s.errs) > 0 {
		return errors.Join(s.errs...)
	}
	_, err := s.db.Checkpoint(ctx, "/backup")
	return err
}

// Every call of a checkpoint fails once: it is told, nothing is left of the checkpoint, and the store is as well as before.
func TestFailureOfEveryCallOfACheckpoint(t *testing.T) {
	t.Parallel()
	mem, want := checkpointed(t, false)
	disturb(t, mem, takeCheckpoint, func(s *sweep, err error, _ string) error {
		if len(s.errs) > 0 {
			return looksLike(t, s.mem.CrashClone(1, 1), "/store", want) // the opening failed
		}
		if err == nil { // what was asked for is not needed
			return errors.Join(s.db.Close(), looksLike(t, s.mem, "/store", want), looksLike(t, s.mem, "/backup", want))
		}
		if list, err := s.mem.List("/backup"); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("left: %v", list)
		}
		if h := s.db.Health(); h.State != StateOK {
			return h.Cause
		}
		if _, err := s.db.Checkpoint(ctx, "/backup"); err != nil {
			return err
		}
		if err := s.db.Close(); err != nil {
			return err
		}
		return errors.Join(looksLike(t, s.mem, "/store", want), looksLike(t, s.mem, "/backup", want))
	})
}

// The power is cut at every call of a checkpoint: it is a whole checkpoint, or none that could be taken for a store, and the store
// has lost nothing.
func TestPowerCutInACheckpoint(t *testing.T) {
	t.Parallel()
	mem, want := checkpointed(t, false)
	whole := 0
	cutPower(t, mem, takeCheckpoint, func(image *vfs.Mem) error {
		if err := looksLike(t, image, "/store", want); err != nil {
			return err
		}
		list, err := image.List("/backup")
		if errors.Is(err, fs.ErrNotExist) || len(list) == 0 {
			return nil
		}
		if err = looksLike(t, image, "/backup", want); err == nil {
			whole++
		} else if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "no whole manifest") {
			return err
		}
		return nil
	})
	if whole == 0 {
		t.Error("no image held a whole checkpoint")
	}
}

// A checkpoint that was made, and a directory that was restored, survive a power cut that keeps nothing but what is durable.
func TestCheckpointsAreDurable(t *testing.T) {
	mem, want := checkpointed(t, false)
	s := newSweep(mem, 3, faultfs.Options{})
	if err := takeCheckpoint(s); err != nil {
		t.Fatal(err)
	}
	if err := looksLike(t, mem.CrashClone(1, 0), "/backup", want); err != nil {
		t.Error(err)
	}
	for dir, o := range map[string]RestoreOptions{"/linked": {FS: s.mem}, "/copied": {FS: s.mem, Copy: true}} {
		if _, err := Restore(ctx, "/backup", dir, o); err != nil {
			t.Fatal(err)
		}
		if err := looksLike(t, mem.CrashClone(1, 0), dir, want); err != nil {
			t.Error(err)
		}
	}
	if err := s.db.Close(); err != nil {
		t.Error(err)
	}
}

func openCheckpoint(s *sweep) error {
	db, err := Open("/backup", s.opts)
	if err != nil {
		return err
	}
	s.db = db
	if err := db.Table("t").Apply(ctx, "zz", set("f", "q", 1, "more")); err != nil {
		return err
	}
	return db.Close()
}

// Every call of the opening that makes a checkpoint a store of its own fails once, or the power is cut there: the next opening
// finds all of it.
func TestCheckpointBecomesAStoreInOneStep(t *testing.T) {
	t.Parallel()
	mem, want := checkpointed(t, true)
	more := want + "zz f:q@1=more\n"
	either := func(image *vfs.Mem) error {
		err := looksLike(t, image.CrashClone(1, 1), "/backup", want)
		if err != nil && looksLike(t, image, "/backup", more) == nil {
			return nil
		}
		return err
	}
	disturb(t, mem, openCheckpoint, func(s *sweep, _ error, _ string) error {
		return errors.Join(either(s.mem.CrashClone(1, 0)), either(s.mem.CrashClone(1, 1)), looksLike(t, s.mem.CrashClone(1, 1), "/store", want))
	})
	cutPower(t, mem, openCheckpoint, either)
}

// Every call of a restoring fails once: it is told, nothing is left, and the checkpoint is what it was.
func TestFailureOfEveryCallOfARestore(t *testing.T) {
	t.Parallel()
	mem, want := checkpointed(t, true)
	for _, o := range []RestoreOptions{{}, {Copy: true, VerifyBlocks: true}} {
		disturb(t, mem, func(s *sweep) error {
			o.FS = s.fs
			_, err := Restore(ctx, "/backup", "/back", o)
			return err
		}, func(s *sweep, err error, _ string) error {
			if err != nil {
				if list, err := s.mem.List("/back"); !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("left: %v", list)
				}
				o.FS = s.mem
				if _, err := Restore(ctx, "/backup", "/back", o); err != nil {
					return err
				}
			}
			return errors.Join(looksLike(t, s.mem, "/back", want), looksLike(t, s.mem, "/backup", want))
		})
	}
}
