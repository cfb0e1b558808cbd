package engine

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// Limits of one call.
const (
	BatchBytesMax = 256 << 20 // bytes of a batch in the log
	BatchCellsMax = 1 << 20   // changes in a batch
	TableNameMax  = 255       // bytes
)

// Options configure a store. The zero value works. Nothing here is stored: a store may be opened with other options next
// time.
type Options struct {
	// Logger gets one line each for open, recovery, I/O mode, stalls, failures and close. Nil: nothing is logged.
	Logger *slog.Logger

	// MustExist refuses to create a store; CreateOnly refuses to open one.
	MustExist, CreateOnly bool
	// ReadOnly changes nothing on disk, the lock file aside; what the log holds is replayed in memory.
	ReadOnly bool

	// MemtableBytes is the size at which a table's memtable is flushed. Default 64 MiB. Small values cost write
	// amplification, large ones memory (up to three of them per busy table) and recovery time.
	MemtableBytes int64
	// CacheBytes bounds the cache of decoded blocks. Default 256 MiB. Too small costs a decode per read.
	CacheBytes int64
	// TableFileBytes is the size at which a table file is cut. Default 64 MiB.
	TableFileBytes int64
	// LevelBytes is the target size of the first level below L0. Default 256 MiB.
	LevelBytes int64
	// L0Files is the number of overlapping flushes that starts a compaction. Default 6. Writers are slowed from twice this
	// on and wait at five times this.
	L0Files int
	// Compactions is how many compactions run at once. Default 2.
	Compactions int
	// LogBytes bounds the write-ahead log: above it the oldest memtables are flushed early. Default 4 x MemtableBytes.
	LogBytes int64
	// LogSegmentBytes is the size of one log slot. Default: grows from 1 MiB to 64 MiB with the store.
	LogSegmentBytes int64
	// FreeFloor is how many bytes stay free in the file system: with less, batches that add data are refused with ErrDiskFull
	// until there is a quarter more than that, while deletes and drops go on below it, and so do the flushes and compactions
	// that free space. Default 16 MiB; negative: none, and only failures for want of space refuse batches. Up to half of it,
	// at most 8 MiB, is held by a file named reserve and given up when the disk is full; without a floor one of about half a MiB, named
	// reserve-open, is given up by the next opening alone. Too small a floor leaves no room to
	// compact, so that a full store needs others to free space; one above what the volume has left refuses every batch.
	FreeFloor int64
	// RowBytesMax bounds the rows that ReadRow and ReadRows return as copies. Default 256 MiB.
	RowBytesMax int64
	// ScrubEvery is the time between two scrubs (see DB.Scrub) that run by themselves, ScrubBytesPerSecond fast. 0: none do. With an
	// executor that works in its callers none do either.
	ScrubEvery time.Duration

	// Reads chooses how table files are read. Default ReadMapped.
	Reads ReadMode
	// Buffered turns direct I/O off for logs and new table files. They use it wherever the file system allows it otherwise.
	Buffered bool

	// For tests and hosts with their own: file system (default the operating system's), clock (default time.Now) and
	// background work (default goroutines).
	FS         vfs.FS
	Clock      func() time.Time
	Background Executor
	// Monotonic is a clock that only ever runs on, to tell a leap of Clock from time that has passed. Default: the monotonic
	// reading of Clock's times; with a Clock whose times have none, as made by tests, every leap passes for time.
	Monotonic func() time.Duration
	// Random draws the identities of stores and files; one call at a time. Default: the operating system's randomness.
	Random func() uint64
}

// Executor runs the store's background work. Go must not run fn before it returns. Help runs queued work in the caller, if
// this executor works that way, and reports whether it did. Wait returns when all work has ended. If an executor has a method
// Inline() bool that returns true, the store starts no goroutine of its own, so that with one caller everything happens in a
// fixed order; records applied with NoSync then reach the disk only with what waits for the log.
type Executor interface {
	Go(fn func())
	Help() bool
	Wait()
}

// ReadMode says how table files are read.
type ReadMode = sstable.ReadMode

// The read modes. A mapping that is refused falls back to positional reads; Metrics tells.
const (
	ReadMapped     = sstable.Mapped
	ReadPositional = sstable.Positional
	ReadDirect     = sstable.Direct
)

// Codec compresses the blocks of a table.
type Codec uint8

// The codecs. A block is stored raw where its codec saves less than an eighth.
const (
	CodecDefault Codec = iota // S2
	CodecNone
	CodecS2
	CodecZstd
)

// String is "default", "none", "s2" or "zstd".
func (c Codec) String() string {
	if c > CodecZstd {
		return fmt.Sprintf("codec(%d)", uint8(c))
	}
	return [...]string{"default", "none", "s2", "zstd"}[c]
}

func (c Codec) block() block.Codec {
	switch c {
	case CodecNone:
		return block.CodecNone
	case CodecZstd:
		return block.CodecZstd
	}
	return block.CodecS2
}

// TableSpec describes a new table.
type TableSpec struct {
	// Families by name, at least one.
	Families map[string]FamilySpec
	// Codec of the table's blocks. Default S2.
	Codec Codec
	// BlockBytes is the uncompressed size of a block. Default 32 KiB; smaller serves cold random reads, larger scans.
	BlockBytes int
	// BloomBits per row in the row filter. Default 10 (about 1 % false positives); 0 means the default.
	BloomBits int
	// ColumnFilter adds a filter on (row, column): worth its memory where single columns of rows are often asked for and
	// missing.
	ColumnFilter bool
}

// FamilySpec describes a column family.
type FamilySpec struct {
	// GC says which versions stay. The zero rule keeps all.
	GC gc.Rule
	// Aggregate makes the family fold: its cells take only Adds. The zero value is a plain family. Fixed at creation.
	Aggregate Aggregate
	// Group names the locality group whose files hold the family, "" for the default one. Families that are read together
	// belong together: each further group costs a memtable and files of its own, and a read of several groups merges them.
	// Fixed at creation.
	Group string
}

// Aggregate says how the Adds to one cell (row, column, timestamp) of a family fold into its value, an int64 of 8 bytes,
// big-endian.
type Aggregate uint8

// NoAggregate is a plain family, whose cells are set. Of the others each takes only Adds.
const (
	NoAggregate Aggregate = Aggregate(levels.FoldNone)
	Sum         Aggregate = Aggregate(levels.FoldSum) // wraps on overflow, as Go's int64 does
	Min         Aggregate = Aggregate(levels.FoldMin)
	Max         Aggregate = Aggregate(levels.FoldMax)
)

// String is "none", "sum", "min" or "max".
func (a Aggregate) String() string {
	switch a {
	case NoAggregate:
		return "none"
	case Sum:
		return "sum"
	case Min:
		return "min"
	case Max:
		return "max"
	}
	return fmt.Sprintf("aggregate(%d)", uint8(a))
}

const (
	defaultMemtable   = 64 << 20
	defaultCache      = 256 << 20
	defaultTableFile  = 64 << 20
	defaultLevel      = 256 << 20
	defaultL0         = 6
	defaultJobs       = 2
	defaultRowBytes   = 256 << 20
	memtableMin       = 16 << 10
	tableFileMin      = 4 << 10
	blockBytesMin     = 512
	blockBytesMax     = 1 << 20
	bloomBitsMax      = 32
	slowdownL0Factor  = 2
	stopL0Factor      = 5
	sealedMemtableMax = 2 // sealed memtables of one tree before writers wait
)

func (o Options) withDefaults() (Options, error) {
	for _, c := range []struct {
		name string
		v    *int64
		def  int64
		min  int64
	}{
		{"MemtableBytes", &o.MemtableBytes, defaultMemtable, memtableMin},
		{"CacheBytes", &o.CacheBytes, defaultCache, 0},
		{"TableFileBytes", &o.TableFileBytes, defaultTableFile, tableFileMin},
		{"LevelBytes", &o.LevelBytes, defaultLevel, tableFileMin},
		{"LogSegmentBytes", &o.LogSegmentBytes, 0, 0},
		{"RowBytesMax", &o.RowBytesMax, defaultRowBytes, 1},
	} {
		if *c.v == 0 {
			*c.v = c.def
		}
		if *c.v < c.min {
			return o, fmt.Errorf("%w: %s is %d, the least is %d", ErrOption, c.name, *c.v, c.min)
		}
	}
	if o.LogBytes == 0 {
		o.LogBytes = 4 * o.MemtableBytes
	}
	if o.LogBytes < 0 || o.L0Files < 0 || o.Compactions < 0 {
		return o, fmt.Errorf("%w: LogBytes %d, L0Files %d and Compactions %d must not be negative", ErrOption, o.LogBytes, o.L0Files, o.Compactions)
	}
	if o.FreeFloor == 0 {
		o.FreeFloor = defaultFloor
	}
	o.FreeFloor = max(o.FreeFloor, -1)
	if o.L0Files == 0 {
		o.L0Files = defaultL0
	}
	if o.Compactions == 0 {
		o.Compactions = defaultJobs
	}
	if o.ScrubEvery < 0 {
		return o, fmt.Errorf("%w: ScrubEvery is %v", ErrOption, o.ScrubEvery)
	}
	if o.MustExist && o.CreateOnly {
		return o, fmt.Errorf("%w: MustExist and CreateOnly exclude each other", ErrOption)
	}
	if o.ReadOnly && o.CreateOnly {
		return o, fmt.Errorf("%w: ReadOnly and CreateOnly exclude each other", ErrOption)
	}
	switch o.Reads {
	case ReadMapped, ReadPositional, ReadDirect:
	default:
		return o, fmt.Errorf("%w: Reads is %d", ErrOption, o.Reads)
	}
	return o, nil
}
