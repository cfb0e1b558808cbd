package engine

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowandb/rowan/engine/internal/executor"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// Close ends soon in every state, with writers at work and waiting, and says why the store failed if it did
// (VictoriaMetrics/VictoriaMetrics #2305: after going read-only the process ignored shutdown).
func TestCloseEndsInEveryState(t *testing.T) {
	gone := func(part string, kinds ...faultfs.Kind) func(err error) faultfs.Rule {
		return func(err error) faultfs.Rule {
			return func(o faultfs.Op) error {
				for _, k := range kinds {
					if o.Kind == k && strings.Contains(o.Name, part) {
						return err
					}
				}
				return nil
			}
		}
	}
	tables := gone(".sst", faultfs.Create, faultfs.Write, faultfs.Preallocate)
	for _, c := range []struct {
		name  string
		rule  func(error) faultfs.Rule
		cause error
		state State
		close error // what Close returns
	}{
		{"ok", nil, nil, StateOK, nil},
		{"flushes find no space", tables, syscall.ENOSPC, StateReadOnly, nil},
		{"flushes fail", tables, syscall.EIO, StateDegraded, syscall.EIO},
		{"log", gone("slot-", faultfs.Write), syscall.EIO, StateFailed, syscall.EIO},
		{"manifest", gone("manifest-", faultfs.Write), syscall.EIO, StateFailed, syscall.EIO},
		{"directory", gone(".sst", faultfs.Create), syscall.ENOENT, StateFailed, syscall.ENOENT},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewMem()
			faulty := faultfs.New(mem, faultfs.Options{})
			o := Options{FS: faulty, Background: new(executor.Goroutines), MemtableBytes: 32 << 10, TableFileBytes: 64 << 10, LevelBytes: 256 << 10, CacheBytes: 1 << 20}
			db, err := Open("/store", o)
			if err != nil {
				t.Fatal(err)
			}
			tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
			if c.rule != nil {
				faulty.SetRules(c.rule(c.cause))
			}
			var wg sync.WaitGroup
			var mu sync.Mutex
			acked := map[string]bool{}
			var errs, done atomic.Int64
			for id := range 4 {
				wg.Go(func() {
					for i := 0; ; i++ {
						row := fmt.Sprint(id, "-", i)
						err := tb.Apply(ctx, row, set("f", "q", 1, noise(row)))
						switch {
						case err == nil:
							mu.Lock()
							acked[row] = true
							mu.Unlock()
							done.Add(1)
						case errors.Is(err, ErrClosed):
							return
						case errors.Is(err, ErrDiskFull) || errors.Is(err, ErrFailed) || errors.Is(err, ErrUnknownOutcome):
							errs.Add(1)
							time.Sleep(time.Millisecond)
						default:
							t.Error(err)
							return
						}
					}
				})
			}
			for range 2000 { // until the state is reached and, where they do, the writers wait
				if h := db.Health(); h.State == c.state && (c.state != StateOK || done.Load() > 50) && (c.state != StateDegraded || db.Metrics().Stalls > 0) {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			h := db.Health()
			if h.State != c.state || c.cause != nil && (!errors.Is(h.Cause, c.cause) || h.Advice == "" || h.Since.IsZero()) {
				t.Errorf("health: %+v", h)
			}
			began := time.Now()
			err = db.Close()
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("closing took %v", took)
			}
			if c.close == nil && err != nil || c.close != nil && !errors.Is(err, c.close) {
				t.Errorf("close: %v", err)
			}
			wg.Wait()
			faulty.SetRules()
			o.FS = mem.CrashClone(1, 0)
			if db, err = Open("/store", o); err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			tb = db.Table("t")
			for row := range acked {
				if r, err := tb.ReadRow(ctx, row); err != nil || len(r.Cells) != 1 {
					t.Fatalf("row %s was acknowledged: %v, %v", row, r, err)
				}
			}
		})
	}
}

// forgetful is a disk that loses what a failed sync was to make durable, and calls the file clean from then on, as kernels do.
type forgetful struct {
	vfs.FS
	part string
	n, k int // syncs of files with that part in their name, and the one that fails
}

type forgetfulFile struct {
	vfs.File
	fs   *forgetful
	lost bool
}

func (f *forgetful) Open(name string, how vfs.How) (vfs.File, error) {
	file, err := f.FS.Open(name, how)
	if err != nil || !strings.Contains(path.Base(name), f.part) || f.part == "" {
		return file, err
	}
	return &forgetfulFile{File: file, fs: f}, nil
}

func (f *forgetful) SyncDir(dir string) error {
	if f.part == "" {
		if f.n++; f.n == f.k {
			return syscall.EIO
		}
	}
	return f.FS.SyncDir(dir)
}

func (f *forgetfulFile) Sync() error {
	if f.lost {
		return nil
	}
	if f.fs.n++; f.fs.n == f.fs.k {
		f.lost = true
		return syscall.EIO
	}
	return f.File.Sync()
}

// The k-th sync of the log, of a table, the manifest or the directory fails and later ones succeed, though what the failed one was
// for is gone: after a power cut everything that was acknowledged is there, since a failed sync is never taken for made up for by
// a later one (cockroachdb/pebble #1159; cberner/redb #450; wiredtiger/wiredtiger #4072; facebook/mysql-5.6 #816).
func TestFailedSyncThenSuccessThenPowerCut(t *testing.T) {
	for _, part := range []string{"slot-", ".sst", "manifest-", ""} {
		reached := 0
		for k := 1; ; k++ {
			mem := vfs.NewMem()
			disk := &forgetful{FS: mem, part: part}
			s := newStore(t, func(o *Options) { o.FS, o.Buffered, o.FreeFloor = disk, true, -1 })
			tb := s.table("t", map[string]gc.Rule{"f": {}})
			disk.n, disk.k = 0, k
			acked, failed := 0, false
			for i := range 120 {
				err := tb.Apply(ctx, fmt.Sprintf("r%03d", i), set("f", "q", 1, noise(fmt.Sprint(i))))
				if err == nil && failed {
					t.Fatalf("sync %d of %q: a write was acknowledged after the store had failed", k, part)
				}
				if err == nil {
					acked = i + 1
				}
				failed = failed || errors.Is(err, ErrFailed)
				if i%40 == 39 {
					_ = s.Flush(ctx)
					s.now = s.now.Add(time.Minute)
				}
			}
			fired := disk.n >= k
			failed = failed || s.Health().State == StateFailed
			if fired && (part == "slot-" || part == "manifest-") && !failed {
				t.Fatalf("sync %d of %q failed, and the store takes writes", k, part)
			}
			image := mem.CrashClone(uint64(k), 0)
			_ = s.Close()
			o := s.opts
			o.FS = image
			db, err := Open("/store", o)
			if err != nil {
				t.Fatalf("sync %d of %q: %v", k, part, err)
			}
			for i := range acked {
				if r, err := db.Table("t").ReadRow(ctx, fmt.Sprintf("r%03d", i)); err != nil || len(r.Cells) != 1 {
					t.Fatalf("sync %d of %q: row %d of %d acknowledged: %v, %v", k, part, i, acked, r, err)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			s.opts.FS = vfs.NewMem() // for the cleanup
			s.DB, err = Open("/store", s.opts)
			s.must(err)
			if !fired {
				break
			}
			reached++
			if k > 20 {
				k += 6
			}
		}
		if reached < 2 {
			t.Errorf("%d syncs of %q", reached, part)
		}
	}
}

// The directory is removed, or renamed, under a running store: at the latest the next file that is to be made fails, Health says
// so, and so does Close (vorot93/libmdbx-rs #36: every operation still "succeeds").
func TestDirectoryRemovedUnderARunningStore(t *testing.T) {
	for _, how := range []string{"remove", "rename"} {
		dir := filepath.Join(t.TempDir(), "store")
		db := openDisk(t, dir, Options{FreeFloor: -1})
		tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
		if err := tb.Apply(ctx, "r", set("f", "q", 1, "v")); err != nil {
			t.Fatal(err)
		}
		if how == "remove" {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Rename(dir, dir+"-elsewhere"); err != nil {
			t.Fatal(err)
		}
		_ = tb.Apply(ctx, "r2", set("f", "q", 1, "v")) // the log's file is open
		if err := db.Flush(ctx); !errors.Is(err, ErrFailed) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: flush: %v", how, err)
		}
		if h := db.Health(); h.State != StateFailed || !strings.Contains(h.Cause.Error(), dir) {
			t.Errorf("%s: %+v", how, h)
		}
		if err := tb.Apply(ctx, "r3", set("f", "q", 1, "v")); !errors.Is(err, ErrFailed) {
			t.Errorf("%s: a write gave %v", how, err)
		}
		if err := db.Close(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: close: %v", how, err)
		}
	}
}
