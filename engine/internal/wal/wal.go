// Package wal is the write-ahead log: numbered, prewritten, recycled slots written with direct I/O, group commit with one write
// in flight. The bytes are package record's.
//
// Records are placed in order by Append, which does no I/O, and become durable in order: Wait waits for that and does the
// writing itself if nobody else does, for all that is queued. What nobody waits for is written by a background goroutine
// after a short delay or when much is queued, so unsynced records never cost a system call each.
//
// Locks: Log.mu protects the queue, the groups and the list of slots; it is held for moves in memory, never across I/O. The
// write path (builder, file handle) belongs to the leader, the goroutine that set Log.writing.
package wal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/bits"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/io/direct"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

var (
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("log is closed")
	// ErrRecord: an empty record, one above record.PayloadMax, or one out of order.
	ErrRecord = errors.New("record refused by the log")
)

// Defaults and limits of Options.
const (
	SlotSizeDefault = 16 << 20
	slotSizeFirst   = 256 << 10 // slots double from here to SlotSize
	slotSizeMin     = 2 * record.BlockSize
	NoSyncDelay     = 10 * time.Millisecond
	NoSyncBytes     = 256 << 10
	UnsyncedMax     = 16 << 20
	quiet           = time.Second // without records, before the header-only block
	bufferFirst     = 64 << 10
	bufferMax       = 4 * direct.BufferSize // a write that is durable when it returns makes others wait: of many bytes a few long ones
	spareMax        = 5                     // free slots kept for reuse: what the flush of a usual memtable frees
)

// Options of a log. FS, Dir and StoreID must be the same in every call for one store.
type Options struct {
	FS  vfs.FS
	Dir string // made if missing; may hold other files
	// SlotSize is what the sizes of slots grow to, in bytes; 0 means 16 MiB. Below 256 KiB all slots have this size.
	SlotSize int64
	// OpenCount must be higher at each opening for writing and must be durable elsewhere before Open: it keeps the records of
	// two lives apart.
	OpenCount uint64
	StoreID   uint64
	NoDirect  bool // never try direct I/O
	// KeepFree is how many bytes stay free in the file system when slots are prepared ahead of need; Prepare has its own figure.
	KeepFree int64
	// Tight is how short space is when the log is opened, see Log.Tight.
	Tight bool
	// OnNoSpace is called, without locks held, when a slot could not be prepared for want of space. May be nil.
	OnNoSpace func(error)
	// OnSlot is called likewise when a slot was made. May be nil.
	OnSlot func()

	NoSyncDelay time.Duration // longest wait of a record that nobody waits for; 0 = 10 ms
	NoSyncBytes int           // queued bytes that are written at once; 0 = 256 KiB
	UnsyncedMax int64         // placed bytes that are not durable, above which Throttle waits; 0 = 16 MiB

	// Manual starts no goroutine: nothing is written unless Wait, Sync, Throttle, Tick or Close is called.
	Manual bool
	// Now is the clock of the delays; nil means time.Now.
	Now func() time.Time

	Logger    *slog.Logger // nil: silent
	OnIOError func(error)  // called once with the first failure, from the goroutine that met it, without locks held
}

func (o Options) withDefaults() Options {
	if o.SlotSize == 0 {
		o.SlotSize = SlotSizeDefault
	}
	o.SlotSize = min(max(o.SlotSize, slotSizeMin), record.SlotMax)
	if o.SlotSize -= o.SlotSize % record.BlockSize; o.SlotSize > maxAlign {
		o.SlotSize -= o.SlotSize % maxAlign // so that any alignment fits
	}
	if o.NoSyncDelay == 0 {
		o.NoSyncDelay = NoSyncDelay
	}
	if o.NoSyncBytes == 0 {
		o.NoSyncBytes = NoSyncBytes
	}
	if o.UnsyncedMax == 0 {
		o.UnsyncedMax = UnsyncedMax
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Log is an open log. Append is called by one goroutine at a time; everything else is safe for concurrent use.
type Log struct {
	o Options

	durable atomic.Uint64 // last durable sequence
	failed  atomic.Pointer[error]

	mu       sync.Mutex
	writing  bool   // somebody leads
	taken    bool   // ... and has taken the queue
	queue    *batch // placed, not taken by a leader
	spareQ   *batch // an emptied one for reuse
	chunks   chunkPool
	next     *group       // waiters for what is queued
	now      *group       // waiters for what is being written
	placed   uint64       // last sequence
	unsynced atomic.Int64 // bytes placed and not durable; changed under mu
	lastSize int          // records of the last group
	lastPut  time.Time
	marked   bool   // the tail is a header-only block, or none fits
	told     uint64 // the sequence that the last such block calls durable; 0 if none fitted
	closed   bool
	active   bool      // the background goroutine is awake or has a timer set
	relaxed  bool      // ... but only for the quiet mark
	crowd    int       // records of the last group, and those that came while it was written
	missed   int       // times in a row that the crowd did not come
	wasSlow  time.Time // end of the last slow yield
	noYield  time.Time // no yields before

	// Slots, under mu.
	slots    []slot // in use, ascending, the last is being written
	free     []slotFile
	names    map[int]bool // file numbers in use
	released uint64       // sequence through which nothing is needed
	handed   uint64       // highest slot number told as a start of replay
	recorded uint64       // highest that a durable edit recorded
	size     int64        // the size of the next slot
	wroteTo  record.Pos   // end of what is durable, as an offset in the file, see Pin
	pins     map[*Pin]uint64
	made     chan struct{} // not nil while a slot is being prepared; closed when that is over
	room     int64         // of what is prepared, not promised to records yet; see room.go
	half     int64         // half of the current slot's size
	wanted   int64         // room that a caller of Prepare is about to use
	aheadAt  time.Time     // before that no spare is prepared

	// Of the leader.
	b         *record.Builder
	f         vfs.File
	slotSize  int64
	direct    bool          // f is a direct handle
	wrote     bool          // something was written to this slot
	writeTook time.Duration // of the last group
	cur       uint64        // last sequence of the record that is being laid out

	wantDirect atomic.Bool // until it was refused
	tight      atomic.Bool // see Tight

	kick  chan struct{}
	quit  chan struct{}
	wg    sync.WaitGroup
	stats counters
}

type counters struct {
	records, groups, writes, bytes, syncs atomic.Uint64
	created, recycled, removed, slowYield atomic.Uint64
}

// group is the waiters of one write.
type group struct {
	done chan struct{} // closed when it is over
	lead chan struct{} // one token: whoever gets it should lead
}

func newGroup() *group { return &group{done: make(chan struct{}), lead: make(chan struct{}, 1)} }

// Open starts the log in a fresh slot whose first header names the end that recovery found; a slot that was read is never
// appended to. It makes what recovery read durable first, since a later recovery must find the same.
func Open(o Options, after Recovered) (*Log, error) {
	o = o.withDefaults()
	if o.OpenCount <= after.OpenCount {
		return nil, fmt.Errorf("open log: open count %d, but %d was in use", o.OpenCount, after.OpenCount)
	}
	l := &Log{
		o: o, queue: &batch{}, spareQ: &batch{}, next: newGroup(), now: newGroup(),
		placed: after.through(), names: map[int]bool{}, slots: after.slots, free: after.free, marked: true,
		size: min(slotSizeFirst, o.SlotSize), kick: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	l.wantDirect.Store(!o.NoDirect)
	l.tight.Store(o.Tight)
	l.durable.Store(after.through())
	if err := l.prepareDir(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	for _, n := range after.names {
		l.names[n] = true
	}
	for _, f := range l.free {
		l.room += roomIn(f.size)
	}
	for _, n := range after.fresh {
		// A process that was killed, or whose sync failed, while it made the file leaves it like this; a power cut may still cut it
		// short, after it has been written in.
		if err := o.FS.Remove(l.path(n)); err == nil || errors.Is(err, fs.ErrNotExist) {
			delete(l.names, n)
		} else {
			o.Logger.Warn("cannot remove a log slot that was never used", "file", l.path(n), "cause", err) // its name stays taken
		}
	}
	for _, s := range after.slots {
		l.size = max(l.size, min(s.size, o.SlotSize))
		from, to := after.unproven(s)
		if err := rewrite(o.FS, l.path(s.file), from, to); err != nil {
			return nil, fmt.Errorf("open log: make slot %d durable: %w", s.num, err)
		}
	}
	l.cur = after.through()
	err := l.begin(after)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	o.Logger.Info("log opened", "dir", o.Dir, "slot", l.slots[len(l.slots)-1].num, "mode", l.mode(), "records", after.Records,
		"ignoredBytes", after.Ignored)
	if !o.Manual {
		l.wg.Go(l.background)
	}
	return l, nil
}

// prepareDir makes the log's directory and its entry durable.
func (l *Log) prepareDir() error {
	if _, err := l.o.FS.Stat(l.o.Dir); err == nil {
		return nil
	}
	if err := l.o.FS.MkdirAll(l.o.Dir); err != nil {
		return err
	}
	return l.o.FS.SyncDir(path.Dir(l.o.Dir))
}

// unproven is the part of a slot that was read and that no header calls durable, in whole blocks.
func (r *Recovered) unproven(s slot) (from, to int64) {
	switch {
	case s.num < r.durable.Slot || s.num > r.End.Slot:
		return 0, 0
	case s.num == r.durable.Slot:
		from = min(r.durable.Off, s.size) / record.BlockSize * record.BlockSize
	}
	if to = s.size; s.num == r.End.Slot {
		to = min((r.End.Off+record.BlockSize-1)/record.BlockSize*record.BlockSize, s.size)
	}
	return from, max(to, from)
}

// rewrite makes a file durable whose bytes from..to may be in the page cache alone and pass for clean there, because a sync failed
// in an earlier life: a sync alone would prove nothing. They are written again as they are, so that a crash meanwhile changes nothing.
func rewrite(fsys vfs.FS, name string, from, to int64) error {
	f, err := fsys.Open(name, vfs.How{Write: true})
	if err != nil {
		return err
	}
	b := make([]byte, min(to-from, 1<<20))
	for ; err == nil && from < to; from += int64(len(b)) {
		b = b[:min(to-from, int64(len(b)))]
		if _, err = f.ReadAt(b, from); err == nil || errors.Is(err, io.EOF) {
			_, err = f.WriteAt(b, from)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// begin opens the first slot of this life of the log and writes its first header.
func (l *Log) begin(after Recovered) error {
	num := after.maxSlot + 1
	b, err := record.NewBuilder(l.o.StoreID, direct.Buffer(bufferFirst, maxAlign), record.BlockSize)
	if err != nil {
		return err
	}
	l.b = b
	b.State = record.State{Durable: after.End, DurableSeq: after.through(), EngineTime: after.EngineTime, Stamp: after.Stamp}
	if err := l.switchSlot(num, after.Any, after.End); err != nil {
		return err
	}
	b.Mark()
	err = l.writeOut()
	if err != nil {
		_ = l.f.Close()
	}
	l.told = after.through()
	return err
}

// Told is, of a closed log, the sequence that its last block calls durable, so that whoever reads any of it to its end meets that: 0
// if there was no room for such a block.
func (l *Log) Told() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// Append places a record: from now on it becomes durable before any record that is placed later. lastSeq is the record's last
// sequence and must ascend; engineTime and stamp go into the headers of blocks, in microseconds. rec is copied. Append does
// no I/O and never waits for any. What it places has its room in slots that are written through already; where there is none it
// places nothing and returns ErrRoom: call Prepare and try again. After a failure of the log nothing is placed and the failure is
// returned.
func (l *Log) Append(rec []byte, lastSeq uint64, engineTime, stamp int64) error {
	if len(rec) == 0 || len(rec) > record.PayloadMax {
		return fmt.Errorf("%w: %d bytes", ErrRecord, len(rec))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	if l.closed {
		return ErrClosed
	}
	if lastSeq <= l.placed {
		return fmt.Errorf("%w: sequence %d after %d", ErrRecord, lastSeq, l.placed)
	}
	if l.room < need(len(rec)) {
		return ErrRoom
	}
	q := l.queue
	if q.n == 0 {
		q.since = l.o.Now()
		if !l.active || l.relaxed {
			l.wake()
		}
	}
	before := q.bytes
	q.add(&l.chunks, rec, lastSeq)
	q.state.EngineTime = max(q.state.EngineTime, engineTime)
	q.state.Stamp = max(q.state.Stamp, stamp)
	l.room -= need(len(rec))
	if l.room < l.half {
		l.ahead()
	}
	if l.wanted > 0 && need(len(rec)) >= l.wanted {
		l.wanted = 0
	}
	l.placed = lastSeq
	l.unsynced.Add(int64(len(rec)))
	if before < l.o.NoSyncBytes && q.bytes >= l.o.NoSyncBytes {
		l.wake()
	}
	return nil
}

// Durable is the last sequence that is durable. It never goes back.
func (l *Log) Durable() uint64 { return l.durable.Load() }

// Err is the first failure of the log, or nil. After it nothing is ever acknowledged.
func (l *Log) Err() error {
	if p := l.failed.Load(); p != nil {
		return *p
	}
	return nil
}

func (l *Log) fail(err error) {
	if l.failed.CompareAndSwap(nil, &err) {
		l.o.Logger.Error("log failed", "dir", l.o.Dir, "err", err)
		if l.o.OnIOError != nil {
			l.o.OnIOError(err)
		}
	}
}

func (l *Log) mode() string {
	if l.wantDirect.Load() {
		return "direct"
	}
	return "buffered"
}

// Stats are counts since Open.
type Stats struct {
	Records  uint64 // durable
	Groups   uint64 // writes of what was queued; each is one or more calls
	Writes   uint64 // write calls to slots in use; preparing a slot is not counted
	Bytes    uint64 // by those calls, padding included
	Syncs    uint64 // separate sync calls; none with direct I/O
	Created  uint64 // slots newly made
	Recycled uint64 // slots taken over
	Removed  uint64 // slots removed
	// SlowYields counts how often giving way to other writers took long; repeated, it is not done for a second.
	SlowYields uint64
	Slots      int   // in use
	Spare      int   // ready for use
	Unsynced   int64 // bytes placed and not durable
	Mode       string
}

// Stats returns counts; they may be from slightly different moments.
func (l *Log) Stats() Stats {
	c := &l.stats
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Records: c.records.Load(), Groups: c.groups.Load(), Writes: c.writes.Load(), Bytes: c.bytes.Load(), Syncs: c.syncs.Load(),
		Created: c.created.Load(), Recycled: c.recycled.Load(), Removed: c.removed.Load(), SlowYields: c.slowYield.Load(),
		Slots: len(l.slots), Spare: len(l.free), Unsynced: l.unsynced.Load(), Mode: l.mode(),
	}
}

// Size is the size of all slots, spare ones included, in bytes.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int64(0)
	for _, s := range l.slots {
		n += s.size
	}
	for _, f := range l.free {
		n += f.size
	}
	return n
}

// pow2 returns the smallest power of two that is at least n.
func pow2(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }
