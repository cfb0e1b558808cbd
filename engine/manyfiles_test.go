package engine

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// countingFS counts the table files that are opened, and lists files that are not there.
type countingFS struct {
	vfs.FS
	ghosts []vfs.Info
	opened atomic.Int64
}

func (f *countingFS) Open(name string, how vfs.How) (vfs.File, error) {
	if path.Ext(name) == ".sst" && !how.Create {
		f.opened.Add(1)
	}
	return f.FS.Open(name, how)
}

func (f *countingFS) List(dir string) ([]vfs.Info, error) {
	list, err := f.FS.List(dir)
	return append(list, f.ghosts...), err
}

// A store of 50,000 table files opens without opening one of them, in memory that is bounded by what the manifest says of them,
// and a read opens the files that it needs (dgraph-io/badger #517, #790, #1304; spacejam/sled #1410; filecoin-project/lotus #4930:
// gigabytes and half a minute to open, since all indexes or filters are loaded).
func TestOpenWithFiftyThousandFiles(t *testing.T) {
	const many = 50_000
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	s.table("u", map[string]gc.Rule{"f": {}})
	s.must(tb.Apply(ctx, "r", set("f", "q", 1, "v")))
	s.must(s.Flush(ctx))
	s.must(s.Close())
	loaded, err := levels.Load(s.fs, "/store", nil)
	s.must(err)
	v := loaded.Version
	tree := v.Schema.Table("u").Groups[0].Tree
	fs := &countingFS{FS: s.fs}
	e := &levels.Edit{Num: v.EditNum + 1, NextFile: v.NextFile + many}
	for i := range many {
		row := fmt.Appendf(nil, "row %08d", i)
		f := &levels.File{
			Num: v.NextFile + levels.Num(i), ID: uint64(i + 1), Size: 64 << 20, Bounds: cell.Bounds{LoRow: row, HiRow: row}, FirstSeq: 1, LastSeq: 1,
			Rows: 1, Cells: 1, Lives: 1, MinTS: 1, MaxTS: 1, LogicalBytes: 1,
		}
		e.Added = append(e.Added, levels.AddedFile{Tree: tree, Level: levels.Depth - 1, File: f})
		fs.ghosts = append(fs.ghosts, vfs.Info{Name: levels.TableName(f.Num), Size: f.Size})
	}
	next, err := v.Apply(e)
	s.must(err)
	m, err := levels.CreateManifest(s.fs, "/store", loaded.Newest+1, next)
	s.must(err)
	s.must(m.Close())
	e, next, loaded, v = nil, nil, levels.Loaded{}, nil

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s.opts.FS = fs
	s.open()
	runtime.ReadMemStats(&after)
	if n := fs.opened.Load(); n != 0 {
		t.Errorf("%d table files were opened", n)
	}
	allocated := after.TotalAlloc - before.TotalAlloc
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("open allocated %d MiB, %d MiB of them stay", allocated>>20, held>>20)
	if held > 64<<20 || allocated > 512<<20 {
		t.Errorf("opening %d files took %d MiB, %d MiB stay", many, allocated>>20, held>>20)
	}
	if h := s.Health(); h.State != StateOK || len(h.SetAside) > 0 {
		t.Errorf("%v, %v, %d set aside", h.State, h.Cause, len(h.SetAside))
	}
	got, err := s.rows(s.Table("t"), AllRows())
	s.must(err)
	if got != "r " || fs.opened.Load() != 1 {
		t.Errorf("%q with %d files opened", got, fs.opened.Load())
	}
	if files := s.Metrics().Levels[levels.Depth-1].Files; files != many {
		t.Errorf("%d files", files)
	}
	if _, err := s.Table("u").ReadRow(ctx, "row 00000007"); err == nil || fs.opened.Load() != 2 {
		t.Errorf("a row of one file that is not there: %v, %d files opened", err, fs.opened.Load())
	}
	s.must(s.DropTable(ctx, "u"))
	fs.ghosts = nil
	list, err := s.fs.List("/store")
	s.must(err)
	if n := len(slices.DeleteFunc(list, func(i vfs.Info) bool { return !strings.HasSuffix(i.Name, ".sst") })); n != 1 {
		t.Errorf("%d table files after the drop", n)
	}
}
