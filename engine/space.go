package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

const (
	defaultFloor = 16 << 20
	reserveMax   = 8 << 20
	openReserve  = 384 << 10
	spaceFirst   = 100 * time.Millisecond // between looks while space is short, doubling up to
	spaceMax     = 5 * time.Second
)

// space watches the room in the file system. Below a floor, and after any failure for want of space, batches that add data are
// refused until there is room again; what removes data goes on, with what lies under the floor and with a reserve: a file that
// holds some room and is given up then. Nothing that was accepted depends on space that is not there: the log places a record
// only where slots are written through.
type space struct {
	db      *DB
	floor   int64 // -1: none
	reserve int64 // size of the reserve
	low     atomic.Bool

	mu      sync.Mutex // guards what follows; a file system call may be made under it, no other lock is taken
	cause   error      // why it is low
	starved error      // a piece of work failed for want of space, and none has succeeded since
	since   time.Time
	told    bool // that there is no room for one of the reserves
	held    bool // the reserve is there
	opening bool // the reserve for the next opening is there
	// openBytes is the size of that one. It is kept because others may write the manifest when the reserve is made again.
	openBytes int64
	unable    bool // the file system cannot reserve room
	stuck     bool // its removal failed, which was told
	neededAt  time.Time
	needed    int64 // bytes that the smallest compaction that waits for space takes; 0 if none waits
	nextAt    time.Time
	pause     time.Duration
	timer     *time.Timer
	stopped   bool
}

func (s *space) init(db *DB) {
	s.db = db
	if s.floor = db.opts.FreeFloor; s.floor >= 0 {
		s.reserve = min(reserveMax, s.floor/2, db.opts.MemtableBytes)
	}
}

func (s *space) path(name string) string { return path.Join(s.db.dir, name) }

// open gives up the reserves of an earlier life, so that a store on a full disk has room to open.
func (s *space) open() error {
	for _, name := range []string{levels.ReserveName, levels.OpenReserveName} {
		if err := s.db.fs.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the reserve: %w", err)
		}
	}
	return nil
}

// begin makes the reserves and looks for the first time. That for the next opening comes first, whatever is free: it is room that
// this opening found.
func (s *space) begin() error {
	s.mu.Lock()
	s.openBytes = openReserve + 4*s.db.manifest.Size()
	s.mu.Unlock()
	if err := s.holdForOpening(); err != nil {
		return err
	}
	s.look()
	if s.low.Load() {
		return nil
	}
	return s.hold()
}

// tight reports whether an opening should leave what is free to the reserve for the next one.
func (s *space) tight() bool {
	free, ok := s.free()
	return ok && free < max(s.floor, 0)+2*openReserve
}

// holdForOpening makes the reserve that only the next opening gives up, where no floor leaves room for one. It is for two copies of a
// manifest that has grown by then, with what they reserve, and for the log slots of some openings with nothing freed between them.
// If there is no room for all of it a part is better than nothing.
func (s *space) holdForOpening() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.floor >= 0 || s.opening || s.unable || s.stopped {
		return nil
	}
	var err error
	size := s.openBytes
	for least := size / 4; size >= least && !s.opening && !s.unable && err == nil; size -= least / 2 {
		s.opening, err = s.holdFile(levels.OpenReserveName, size)
	}
	return err
}

// hold makes the reserve, if there is room for it beside the floor.
func (s *space) hold() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held || s.reserve <= 0 || s.unable || s.stopped {
		return nil
	}
	if free, ok := s.free(); ok && free < s.floor+s.floor/4+s.reserve {
		return nil
	}
	var err error
	s.held, err = s.holdFile(levels.ReserveName, s.reserve)
	return err
}

// holdFile makes a file that holds so many bytes, and reports whether there was room for it. Holds mu.
func (s *space) holdFile(name string, bytes int64) (held bool, err error) {
	f, err := s.db.fs.Open(s.path(name), vfs.How{Create: true})
	if err != nil {
		return false, fmt.Errorf("make the reserve: %w", err)
	}
	if err = f.Preallocate(bytes); err == nil {
		held = true // its size stays 0: nobody reads or copies it
	} else if !vfs.NoSpace(err) {
		s.db.logger.Info("no reserve: the file system cannot reserve room", "file", name, "cause", err)
		s.unable, err = true, nil
	}
	if err = errors.Join(err, f.Close()); err != nil || !held {
		held, err = false, errors.Join(err, s.db.fs.Remove(s.path(name)))
	}
	if vfs.NoSpace(err) {
		if !s.told {
			s.told = true
			s.db.logger.Warn("no reserve for a full disk could be made yet", "file", name, "bytes", bytes, "cause", err)
		}
		return false, nil // tried again when there is room
	}
	return held, err
}

// giveUp gives the reserve up and reports whether there was one. Holds mu.
func (s *space) giveUp() bool {
	if !s.held {
		return false
	}
	if err := s.db.fs.Remove(s.path(levels.ReserveName)); err != nil {
		if !s.stuck { // it is tried again whenever room is needed
			s.stuck = true
			s.db.logger.Warn("cannot remove the reserve", "cause", err)
		}
		return false
	}
	s.held, s.stuck = false, false
	s.db.logger.Info("the disk is full: the reserve was given up", "bytes", s.reserve)
	return true
}

// giveUpNow gives the reserve up for something that cannot wait, and reports whether there was one.
func (s *space) giveUpNow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.giveUp()
}

// free is the room in the file system; ok is false where that is not known.
func (s *space) free() (n int64, ok bool) {
	n, err := s.db.fs.Free(s.db.dir)
	return n, err == nil
}

// look compares the room with the floor.
func (s *space) look() {
	free, ok := s.free()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge(free, ok)
}

// judge sets the state. Holds mu.
func (s *space) judge(free int64, known bool) {
	was := s.low.Load()
	var cause error
	switch {
	case s.starved != nil:
		cause = s.starved
	case s.floor < 0 || !known:
	case free < s.floor:
		cause = fmt.Errorf("%d bytes are free, the floor is %d", free, s.floor)
	case was && free < s.floor+s.floor/4:
		cause = fmt.Errorf("%d bytes are free, writing goes on at %d", free, s.floor+s.floor/4)
	}
	now := s.db.opts.Clock()
	switch {
	case cause != nil && !was:
		s.since, s.pause = now, 0
		s.db.logger.Warn("disk full: batches that add data are refused", "cause", cause)
	case cause == nil && was:
		s.db.logger.Info("disk no longer full: batches are accepted again", "free", free, "after", now.Sub(s.since))
	}
	if cause != nil {
		s.cause = fmt.Errorf("%w: %w", ErrDiskFull, cause)
	} else {
		s.cause = nil
	}
	s.low.Store(cause != nil)
	if log := s.db.log; log != nil {
		log.Tight(cause != nil)
	}
	if cause != nil && !was {
		s.schedule()
	}
}

// schedule has space looked for again after a pause. Holds mu.
func (s *space) schedule() {
	s.pause = min(max(2*s.pause, spaceFirst), spaceMax)
	s.nextAt = s.db.opts.Clock().Add(s.pause)
	if s.stopped || s.db.inline() {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(s.pause, func() {
		if s.db.enter() == nil {
			s.tick()
			s.db.leave()
		}
	})
}

// full notes that a flush or compaction failed for want of space.
func (s *space) full(err error) {
	s.giveUpNow()
	s.short(err)
}

// short notes that there is no space for something, which may be the floor's doing.
func (s *space) short(err error) {
	s.mu.Lock()
	s.starved = err
	s.judge(0, false)
	s.mu.Unlock()
	s.db.jobs.wake() // who waits for work that cannot be done now
}

// fed notes that a piece of work that takes space succeeded.
func (s *space) fed() {
	if !s.low.Load() {
		return
	}
	free, ok := s.free()
	s.mu.Lock()
	s.starved = nil
	s.judge(free, ok)
	s.mu.Unlock()
	s.recovered()
}

// recovered makes the reserve again once space is back.
func (s *space) recovered() {
	if s.low.Load() {
		return
	}
	if err := errors.Join(s.holdForOpening(), s.hold()); err != nil {
		s.db.health.background(err)
	}
}

// tick looks for space, and has what may free some done: memtables with deletes are flushed, and jobs tried again.
func (s *space) tick() {
	if !s.low.Load() {
		return
	}
	db := s.db
	if err := db.log.ReleaseFrom(0, 0); err != nil { // spare slots
		db.fail("recycle the log", err)
	}
	db.sealDeletes()
	db.jobs.retryNow()
	idle := db.jobs.kick()
	free, ok := s.free()
	s.mu.Lock()
	if idle && !db.anySealed() {
		s.starved = nil // nothing is left that wants space
	}
	s.judge(free, ok)
	if s.low.Load() {
		s.schedule()
	}
	s.mu.Unlock()
	s.recovered()
	db.jobs.wake()
}

// admit returns ErrDiskFull while space is short, for a batch or a change that adds data.
func (s *space) admit() error {
	if !s.low.Load() {
		return nil
	}
	if s.db.inline() { // nobody else looks
		s.mu.Lock()
		due := !s.db.opts.Clock().Before(s.nextAt)
		s.mu.Unlock()
		if due {
			s.tick()
		} else {
			s.look()
			s.recovered()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.low.Load() {
		return nil
	}
	return s.cause
}

// err is why space is short, nil if it is not; starved says that work has failed for it.
func (s *space) err() (cause error, starved bool) {
	if !s.low.Load() {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause, s.starved != nil
}

// stop ends looking.
func (s *space) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// room is how many bytes a compaction may fill while others have claimed some; no bound where nothing is known.
func (s *space) room(claimed int64) int64 {
	free, ok := s.free()
	if !ok {
		return math.MaxInt64
	}
	return max(free-claimed-max(s.floor, 0)/16, 0) // the last of it is for the log
}

// wants notes what the smallest compaction that waits for space takes, 0 for none.
func (s *space) wants(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.needed == 0 {
		s.neededAt = s.db.opts.Clock()
		s.db.logger.Warn("compactions wait for disk space", "needed", n)
	}
	s.needed = n
}

// waiting is how many bytes the smallest compaction that waits for space takes, 0 for none.
func (s *space) waiting() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.needed
}

func (s *space) neededSince() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.neededAt
}

func (s *space) sinceWhen() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

// makeRoom prepares the log for a record of n bytes. A batch that adds data leaves the floor alone; others may use what lies under
// it, and the reserve.
func (db *DB) makeRoom(ctx context.Context, n int, adds bool) error {
	keep := int64(-1)
	if adds {
		keep = db.space.floor
	}
	err := db.log.Prepare(ctx, n, keep)
	if vfs.NoSpace(err) && !adds && db.space.giveUpNow() {
		err = db.log.Prepare(ctx, n, keep)
	}
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case vfs.NoSpace(err):
		return diskFull(err) // space has been told
	}
	return db.fail("write the log", err)
}

// diskFull makes an error that stems from want of space an ErrDiskFull.
func diskFull(err error) error {
	if vfs.NoSpace(err) && !errors.Is(err, ErrDiskFull) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}

// logGrew is told by the log that it made a slot. What is only in the log must find room for its table files beside it: when there
// would be less, memtables are flushed before they are full, and the log is recycled instead of growing.
func (db *DB) logGrew() {
	free, ok := db.space.free()
	if !ok || db.log == nil {
		return
	}
	db.placeMu.Lock()
	var trees []uint64
	unflushed := int64(0)
	for id, t := range db.states.cur.Load().trees {
		for _, m := range t.sealed {
			unflushed += m.size.Load()
		}
		if t.active.first != 0 {
			unflushed += t.active.size.Load()
			trees = append(trees, id)
		}
	}
	if free-max(db.space.floor, 0) >= unflushed {
		trees = nil
	}
	db.seal(trees...)
	db.placeMu.Unlock()
	if len(trees) > 0 {
		db.jobs.kick()
	}
}

// anySealed reports whether a memtable waits to be flushed.
func (db *DB) anySealed() bool {
	for _, t := range db.states.cur.Load().trees {
		if len(t.sealed) > 0 {
			return true
		}
	}
	return false
}

// sealDeletes seals the memtables that have deletes, so that what they delete can go.
func (db *DB) sealDeletes() {
	db.placeMu.Lock()
	defer db.placeMu.Unlock()
	var trees []uint64
	for id, t := range db.states.cur.Load().trees {
		if st := t.active.Stats(); t.active.first != 0 && len(t.sealed) == 0 && (st.Deletes > 0 || st.Ranges > 0) {
			trees = append(trees, id)
		}
	}
	db.seal(trees...)
}

// adds reports whether a batch may add data; one of deletes alone does not.
func (b *Batch) adds() bool {
	for i := range b.items {
		it := &b.items[i]
		switch {
		case it.more != nil && !it.more.require:
			return true
		case it.mut == nil:
		case it.mut.cond != nil:
			if it.mut.cond.branch(true).adds() || it.mut.cond.branch(false).adds() {
				return true
			}
		case it.mut.adds():
			return true
		}
	}
	return false
}

func (m *Mutation) adds() bool {
	for i := range m.ops {
		if k := m.ops[i].kind; k == opSet || k == opAdd {
			return true
		}
	}
	return false
}

// gone says that the directory was taken away under the store, if that is why a file could not be made in it.
func (db *DB) gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return db.fail("make a file", fmt.Errorf("the directory %s is gone: %w", db.dir, err))
	}
	return err
}
