package engine

import (
	"fmt"
	"path"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
)

// heldFS holds reads of table files up.
type heldFS struct {
	vfs.FS
	hold   atomic.Pointer[chan struct{}]
	inside atomic.Int64
}

type heldFile struct {
	vfs.File
	fs *heldFS
}

func (f *heldFS) Open(name string, how vfs.How) (vfs.File, error) {
	file, err := f.FS.Open(name, how)
	if err != nil || path.Ext(name) != ".sst" {
		return file, err
	}
	return &heldFile{file, f}, nil
}

func (f *heldFile) ReadAt(p []byte, off int64) (int, error) {
	if hold := f.fs.hold.Load(); hold != nil {
		f.fs.inside.Add(1)
		<-*hold
	}
	return f.File.ReadAt(p, off)
}

// Cold reads hold up nobody but themselves: while 64 readers wait for the disk, all at the same time, in files that are open and in
// files that are not yet, others read what is in memory, write, and open other files (thanos-io/thanos #6070; erigontech/erigon
// #23815; couchbase/moss #31; VictoriaMetrics/VictoriaMetrics #9850: a few cold reads freeze all goroutines, which page faults do
// and positional reads do not).
func TestColdReadsHoldUpNobodyElse(t *testing.T) {
	for _, open := range []bool{true, false} {
		fs := &heldFS{}
		s := newStore(t, func(o *Options) {
			fs.FS = o.FS
			o.FS, o.Reads, o.CacheBytes = fs, ReadPositional, 1
		})
		const readers = 64
		var tables []*Table
		for i := range readers + 1 {
			tb := s.table(fmt.Sprint("t", i), map[string]gc.Rule{"f": {}})
			s.must(tb.Apply(ctx, "r", set("f", "q", 1, noise(fmt.Sprint(i)))))
			tables = append(tables, tb)
		}
		s.must(s.Flush(ctx))
		s.reopen()
		for i := range tables {
			tables[i] = s.Table(tables[i].name)
			if open || i == readers {
				if _, err := tables[i].ReadRow(ctx, "r"); err != nil {
					t.Fatal(err)
				}
			}
		}
		hold := make(chan struct{})
		fs.hold.Store(&hold)
		var wg sync.WaitGroup
		for i := range readers {
			wg.Go(func() {
				if r, err := tables[i].ReadRow(ctx, "r"); err != nil || len(r.Cells) != 1 {
					t.Error(r, err)
				}
			})
		}
		// All of them are inside at once, or this does not end: reads that took turns would wait for each other.
		for fs.inside.Load() < readers {
			runtime.Gosched()
		}
		for i := range 1000 { // the ticker
			s.must(tables[i%readers].Apply(ctx, "another", set("f", "q", 1, "v"), NoSync))
			if r, err := tables[readers].ReadRow(ctx, "not there"); err != nil || len(r.Cells) > 0 {
				t.Fatal(r, err)
			}
		}
		fs.hold.Store(nil)
		close(hold)
		wg.Wait()
	}
}
