package engine

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// faultyStore is a store whose disk the test can make fail.
func faultyStore(t *testing.T) (*testStore, *faultfs.FS) {
	t.Helper()
	var faulty *faultfs.FS
	s := newStore(t, func(o *Options) {
		faulty = faultfs.New(o.FS, faultfs.Options{})
		o.FS = faulty
	})
	return s, faulty
}

// heal gives the store its disk back and opens it again.
func (s *testStore) heal(faulty *faultfs.FS) {
	s.t.Helper()
	faulty.SetRules()
	s.open()
}

// After a failed log write readers see what is durable and nothing else, in snapshots made before too; writers are refused;
// Close says why; the store opens again.
func TestFailedLogWriteEndsWriting(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC, faultfs.ErrShort} {
		s, faulty := faultyStore(t)
		tb := s.table("t", map[string]gc.Rule{"f": {}})
		other := s.table("u", map[string]gc.Rule{"f": {}})
		s.must(tb.Apply(ctx, "r", set("f", "q", 1, "durable")))
		s.must(tb.Apply(ctx, "r", set("f", "q", 2, "lost"), NoSync))
		s.want(s.scan(tb), "r f:q@2=lost f:q@1=durable\n")
		snap, err := s.Snapshot()
		s.must(err)

		faulty.SetRules(faultfs.FailIf(faultfs.Write, "slot-", cause))
		err = tb.Apply(ctx, "r", set("f", "q", 3, "failed"))
		if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, cause) {
			t.Fatalf("%v: the write gave %v", cause, err)
		}
		for i := range 2 { // the second time with a disk that works again: it stays failed
			s.want(s.scan(tb), "r f:q@1=durable\n")
			s.want(s.scan(tb, AtSnapshot(snap)), "r f:q@1=durable\n")
			for what, err := range map[string]error{
				"sync":     s.Sync(ctx),
				"batch":    tb.Apply(ctx, "r", set("f", "q", 4, "x")),
				"unsynced": other.Apply(ctx, "r", set("f", "q", 4, "x"), NoSync),
				"flush":    s.Flush(ctx),
				"compact":  s.Compact(ctx),
				"create table": func() error {
					_, err := s.CreateTable(ctx, "v", TableSpec{Families: map[string]FamilySpec{"f": {}}})
					return err
				}(),
				"drop table": s.DropTable(ctx, "u"),
			} {
				if !errors.Is(err, ErrFailed) || !errors.Is(err, cause) || errors.Is(err, ErrUnknownOutcome) {
					t.Fatalf("%v, round %d: %s gave %v", cause, i, what, err)
				}
			}
			if h := s.Health(); h.State != StateFailed || !errors.Is(h.Cause, cause) || h.Since.IsZero() {
				t.Fatalf("health: %+v", h)
			}
			faulty.SetRules()
		}
		s.must(snap.Close())
		for range 2 {
			if err := s.Close(); !errors.Is(err, ErrFailed) || !errors.Is(err, cause) {
				t.Fatalf("%v: close gave %v", cause, err)
			}
		}
		s.heal(faulty)
		tb = s.Table("t")
		got := s.scan(tb)
		if !strings.HasSuffix(got, "f:q@1=durable\n") || strings.Contains(got, "x") {
			t.Fatalf("%v: after reopening: %s", cause, got)
		}
		s.must(tb.Apply(ctx, "r", set("f", "q", 5, "new")))
	}
}

// When the sync of an edit fails, the edit may be on disk: the files it names stay, and the outcome of a schema change is
// unknown.
func TestFailedManifestSyncKeepsTheFilesOfItsEdit(t *testing.T) {
	s, faulty := faultyStore(t)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	s.must(tb.Apply(ctx, "r", set("f", "q", 1, "v")))
	faulty.SetRules(faultfs.FailIf(faultfs.Sync, "manifest-", syscall.EIO))
	if err := s.Flush(ctx); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("flush: %v", err)
	}
	_ = s.Close()
	s.heal(faulty)
	s.want(s.scan(s.Table("t")), "r f:q@1=v\n")

	faulty.SetRules(faultfs.FailIf(faultfs.Sync, "manifest-", syscall.EIO))
	_, err := s.CreateTable(ctx, "u", TableSpec{Families: map[string]FamilySpec{"f": {}}})
	if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, ErrFailed) {
		t.Fatalf("create table: %v", err)
	}
	_ = s.Close()
	s.heal(faulty)
}

// An open that failed or died may have left the directory without a durable name: the next one makes it durable first.
func TestDirectoryIsDurableBeforeTheStore(t *testing.T) {
	mem := vfs.NewMem()
	faulty := faultfs.New(mem, faultfs.Options{Rules: []faultfs.Rule{faultfs.FailIf(faultfs.SyncDir, "a", syscall.EIO)}})
	o := newStore(t, nil).opts
	o.FS = faulty
	if _, err := Open("/a/b/store", o); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	faulty.SetRules()
	db, err := Open("/a/b/store", o)
	if err != nil {
		t.Fatal(err)
	}
	s := &testStore{t: t, DB: db}
	s.table("t", map[string]gc.Rule{"f": {}})
	s.must(db.Close())
	o.FS = mem.CrashClone(1, 0)
	if db, err = Open("/a/b/store", o); err != nil {
		t.Fatal(err)
	}
	if names, err := db.Tables(ctx); len(names) != 1 || err != nil {
		t.Fatalf("a power cut left tables %v, %v", names, err)
	}
	s.must(db.Close())
}

// A crash between the creation of a manifest and its first edit leaves an unborn one; its name is not used again.
func TestUnbornManifestDoesNotBlockTheNextOpen(t *testing.T) {
	s := newStore(t, nil)
	s.table("t", map[string]gc.Rule{"f": {}})
	for i := range 3 {
		s.must(s.Close())
		f, err := s.fs.Open("/store/"+levels.ManifestName(uint64(2+2*i)), vfs.How{Create: true})
		s.must(err)
		s.must(f.Close())
		s.open()
		if names, err := s.Tables(ctx); len(names) != 1 || err != nil {
			t.Fatalf("tables %v, %v", names, err)
		}
		list, err := s.fs.List("/store")
		s.must(err)
		n := 0
		for _, e := range list {
			if strings.HasPrefix(e.Name, "manifest-") {
				n++
			}
		}
		if n != 2 { // its two copies
			t.Fatalf("%d manifest files: %v", n, list)
		}
	}
}

// A flush that failed is told by Health until it has succeeded, whatever else succeeds meanwhile, and Flush tries again at once.
func TestFailedFlushIsToldUntilItSucceeds(t *testing.T) {
	s, faulty := faultyStore(t)
	a, b := s.table("a", map[string]gc.Rule{"f": {}}), s.table("b", map[string]gc.Rule{"f": {}})
	for i := range 30 {
		for _, tb := range []*Table{a, b} {
			s.must(tb.Apply(ctx, fmt.Sprint("r", i), set("f", "q", 1, strings.Repeat("v", 1000)), NoSync))
		}
	}
	failures := 0
	faulty.SetRules(func(o faultfs.Op) error {
		if o.Kind == faultfs.Create && failures == 0 {
			failures++
			return syscall.ENOSPC
		}
		return nil
	})
	if err := s.Flush(ctx); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("flush: %v", err)
	}
	if h := s.Health(); h.State != StateReadOnly || !errors.Is(h.Cause, syscall.ENOSPC) || s.Metrics().Flushes != 1 {
		t.Fatalf("%+v after %d flushes", h, s.Metrics().Flushes)
	}
	s.must(s.Flush(ctx)) // the clock has not moved
	if h := s.Health(); h.State != StateOK {
		t.Fatalf("health: %+v", h)
	}
	s.now = s.now.Add(time.Hour)
	s.must(s.Compact(ctx))
}
