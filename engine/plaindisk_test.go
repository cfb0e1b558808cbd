package engine

import (
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// Where direct I/O is refused, as the file is opened or not before the first write, the store writes buffered and syncs; it says so in
// one line for the log, and its metrics tell the mode in force (facebook/rocksdb #1265, #3539; facebook/mysql-5.6 #778;
// risinglightdb/risinglight #378; dragonflydb/dragonfly #1084; tursodatabase/turso #129: "invalid argument" on tmpfs and others,
// sometimes only at first use). What was acknowledged is durable all the same.
func TestStoreWhereDirectIOIsRefused(t *testing.T) {
	for name, fault := range map[string]faultfs.Options{"at open": {RefuseOpen: true}, "at the first write": {RefuseWrite: true}} {
		var lines logLines
		s := newStore(t, func(o *Options) {
			o.FS, o.Logger = faultfs.New(o.FS, fault), slog.New(slog.NewTextHandler(&lines, nil))
		})
		tb := s.table("t", map[string]gc.Rule{"f": {}})
		want := ""
		for i := range 30 {
			row := fmt.Sprintf("r%02d", i)
			s.must(tb.Apply(ctx, row, set("f", "q", 1, "v")))
			want += row + " f:q@1=v\n"
			if i == 20 {
				s.must(s.Flush(ctx))
			}
		}
		s.want(s.scan(tb), want)
		if m := s.Metrics(); m.Log.Direct || m.TablesDirect {
			t.Errorf("refused %s: the metrics tell of direct I/O: log %t, tables %t", name, m.Log.Direct, m.TablesDirect)
		}
		if n := lines.count("direct I/O refused, writing buffered"); n != 1 {
			t.Errorf("refused %s: told %d times", name, n)
		}
		opts := s.opts
		opts.FS = s.fs.CrashClone(1, 0)
		db, err := Open("/store", opts)
		s.must(err)
		s.want((&testStore{t: t, DB: db}).scan(db.Table("t")), want)
		s.must(db.Close())
	}
}

// Without direct I/O, as on macOS, every acknowledged batch was followed by a sync of the log that reaches the medium, or was
// written by one that does (facebook/rocksdb #9356; cockroachdb/pebble #1851; tursodatabase/turso #4760: a sync that stops at
// the drive's cache). There is no weaker mode by default, and NoSync is the way to have fewer of them.
func TestEveryAcknowledgedBatchIsSyncedWithoutDirectIO(t *testing.T) {
	var calls *faultfs.FS
	mem := vfs.NewMem(vfs.MemOptions{NoDirect: true})
	s := newStore(t, func(o *Options) {
		calls = faultfs.New(mem, faultfs.Options{Record: true})
		o.FS = calls
	})
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	from := len(calls.Calls())
	for i := range 10 {
		s.must(tb.Apply(ctx, fmt.Sprint(i), set("f", "q", 1, "v")))
		opts := s.opts
		opts.FS = mem.CrashClone(uint64(i), 0)
		db, err := Open("/store", opts)
		s.must(err)
		if got := (&testStore{t: t, DB: db}).scan(db.Table("t")); strings.Count(got, "\n") != i+1 {
			t.Fatalf("%d batches acknowledged, a power cut leaves\n%s", i+1, got)
		}
		s.must(db.Close())
	}
	writes, syncs := 0, 0
	for _, c := range calls.Calls()[from:] {
		if strings.Contains(c.Name, "slot-") {
			switch c.Kind {
			case faultfs.Write:
				writes++
			case faultfs.Sync:
				syncs++
			}
		}
	}
	if syncs < 10 || syncs > writes {
		t.Errorf("10 synced batches made %d writes and %d syncs of the log", writes, syncs)
	}
	for i := range 10 {
		s.must(tb.Apply(ctx, fmt.Sprint("u", i), set("f", "q", 1, "v"), NoSync))
	}
	for _, c := range calls.Calls()[from:] {
		if strings.Contains(c.Name, "slot-") && c.Kind == faultfs.Sync {
			syncs--
		}
	}
	if syncs != 0 {
		t.Errorf("10 batches that need none made %d syncs of the log", -syncs)
	}
}

// A system that has no room for a mapping, or no mappings, is read by calls instead (boltdb/bolt #282; etcd-io/etcd #4715: on 32 bits
// the mapping ran out of address space and the process panicked).
func TestStoreReadsWhereMappingsAreRefused(t *testing.T) {
	for _, cause := range []error{syscall.ENOMEM, syscall.EINVAL, syscall.ENODEV} {
		s := newStore(t, func(o *Options) { o.FS = faultfs.New(o.FS, faultfs.Options{RefuseMap: true, MapError: cause}) })
		tb := s.table("t", map[string]gc.Rule{"f": {}})
		s.must(tb.Apply(ctx, "r", set("f", "q", 1, "v")))
		s.everywhere(func(where string) {
			s.want(where+" "+s.scan(s.Table("t")), where+" r f:q@1=v\n")
			if h := s.Health(); h.State != StateOK || len(h.SetAside) > 0 {
				t.Errorf("%v, %s: %+v", cause, where, h)
			}
		})
	}
}
