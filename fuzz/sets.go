package fuzz

import (
	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/io/vfs"
)

// Config is one way to configure a store. All sets must give the same answers.
type Config struct {
	Name    string
	Options engine.Options
	Spec    engine.TableSpec // its families are set by the runner
	Mem     vfs.MemOptions
	Grouped bool // families are kept in several locality groups
	Disk    bool // on the real file system, else in memory; power cuts need memory
	// Used reports whether what the set is about has happened, from the counts of all runs.
	Used func(c *Counts) bool
}

// Sets are the option sets of the oracle. The options that are zero are the small ones of base.
var Sets = []Config{
	{Name: "mapped", Used: func(c *Counts) bool { return c.Mapped > 0 && c.Get("merge") > 0 }},
	{Name: "positional, tiny blocks", Grouped: true,
		Options: engine.Options{Reads: engine.ReadPositional},
		Spec:    engine.TableSpec{BlockBytes: 512, Codec: engine.CodecNone},
		Used:    func(c *Counts) bool { return c.Positional > 0 && c.Mapped == 0 }},
	{Name: "direct reads, zstd",
		Options: engine.Options{Reads: engine.ReadDirect},
		Spec:    engine.TableSpec{Codec: engine.CodecZstd, BlockBytes: 4096},
		Used:    func(c *Counts) bool { return c.Positional > 0 && c.DirectLog }},
	{Name: "tiny memtables and files", Grouped: true,
		Options: engine.Options{MemtableBytes: 16 << 10, TableFileBytes: 4 << 10, LevelBytes: 8 << 10, L0Files: 2},
		Spec:    engine.TableSpec{BlockBytes: 1024},
		Used:    func(c *Counts) bool { return c.Get("move") > 0 && c.Get("flush") > 20 && c.Levels >= 3 }},
	{Name: "tiny cache, no map",
		Options: engine.Options{CacheBytes: 8 << 10},
		Mem:     vfs.MemOptions{NoMap: true},
		Spec:    engine.TableSpec{BlockBytes: 1024},
		Used:    func(c *Counts) bool { return c.Positional > 0 && c.Mapped == 0 && c.CacheMisses > c.CacheHits/50 }},
	{Name: "column filters, small log", Grouped: true,
		Options: engine.Options{LogSegmentBytes: 16 << 10, LogBytes: 32 << 10},
		Spec:    engine.TableSpec{ColumnFilter: true, BloomBits: 2},
		Used:    func(c *Counts) bool { return c.SlotsReused > 0 && c.Filtered > 0 }},
	{Name: "buffered, no direct I/O",
		Options: engine.Options{Buffered: true, MemtableBytes: 128 << 10},
		Mem:     vfs.MemOptions{NoDirect: true},
		Used:    func(c *Counts) bool { return !c.DirectLog }},
	{Name: "one memtable for all", Grouped: true,
		Options: engine.Options{MemtableBytes: 64 << 20, LogSegmentBytes: 1 << 20},
		Used:    func(c *Counts) bool { return c.Get("replay") > 0 }},
	{Name: "disk",
		Disk:    true,
		Options: engine.Options{MemtableBytes: 32 << 10, L0Files: 3},
		Used:    func(c *Counts) bool { return c.Mapped > 0 }},
}

// base are the sizes of sets that do not say otherwise: small enough for every path in a short list.
func base(o engine.Options) engine.Options {
	for _, d := range []struct {
		v   *int64
		def int64
	}{
		{&o.MemtableBytes, 24 << 10}, {&o.TableFileBytes, 16 << 10}, {&o.LevelBytes, 32 << 10}, {&o.CacheBytes, 256 << 10},
		{&o.LogSegmentBytes, 64 << 10},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if o.L0Files == 0 {
		o.L0Files = 2
	}
	return o
}
