package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowandb/rowan/cache"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/executor"
	"github.com/rowandb/rowan/engine/internal/memtable"
	"github.com/rowandb/rowan/engine/internal/wal"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

const lockName = "lock"

// Open opens the store in dir, and creates it if the directory is missing or empty, unless the options say otherwise. A
// directory with anything else in it is refused with ErrNotStore, a store that is open anywhere else with ErrLocked. What
// the log holds is replayed first.
func Open(dir string, o Options) (*DB, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.FS == nil {
		o.FS = vfs.OS()
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Background == nil {
		o.Background = new(executor.Goroutines)
	}
	if o.Random == nil {
		o.Random = randomID
	} else {
		o.Random = oneAtATime(o.Random)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	db := &DB{dir: dir, opts: o, fs: o.FS, logger: o.Logger, exec: o.Background, partBytes: partBytes}
	db.clock.wall, db.clock.mono = o.Clock, o.Monotonic
	db.clock.told = func(leaped bool, wall, engine time.Time) {
		if leaped {
			o.Logger.Warn("the clock has leapt ahead and is not followed until it is confirmed", "clock", wall, "engine time", engine)
		}
	}
	db.health.log, db.health.now = o.Logger, o.Clock
	db.life.idle, db.life.stop, db.life.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	db.jobs.init(db)
	db.space.init(db)
	db.arenas = memtable.NewPool(o.MemtableBytes + o.MemtableBytes/8) // what one has: while it is filled another one is flushed
	db.blocks = cache.New(o.CacheBytes)
	db.files = files{fs: o.FS, dir: dir, mode: o.Reads, cache: db.blocks}
	if err := db.open(); err != nil {
		db.abandon()
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	return db, nil
}

// oneAtATime keeps jobs that run side by side from meeting in a host's source of randomness.
func oneAtATime(draw func() uint64) func() uint64 {
	var mu sync.Mutex
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return draw()
	}
}

// randomID is never 0.
func randomID() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}

func (db *DB) open() error {
	began := db.opts.Clock()
	created, err := db.prepareDir()
	if err != nil {
		return err
	}
	lock, err := db.fs.Lock(path.Join(db.dir, lockName))
	if err != nil {
		return err
	}
	db.unlock = lock.Close
	loaded, err := levels.Load(db.fs, db.dir, db.obsolete)
	fresh := errors.Is(err, levels.ErrNoManifest)
	switch {
	case fresh:
		if err := db.mayCreate(); err != nil {
			return err
		}
		if err := db.syncParents(); err != nil {
			return err
		}
		loaded.Version = levels.NewVersion(db.obsolete)
		loaded.Version.StoreID = db.opts.Random()
	case err != nil:
		return err
	case db.opts.CreateOnly:
		return fmt.Errorf("%w", ErrExists)
	}
	for _, bad := range loaded.Bad {
		db.logger.Warn("one copy of the manifest is damaged, the other one is used", "cause", bad)
	}
	v := loaded.Version
	manifestNum := loaded.Newest + 1 // an unborn manifest keeps its name
	if fresh {
		manifestNum = 1 // mayCreate has cleared the way
	}
	db.nextFile.Store(v.NextFile)
	db.firstState(v)
	if err := db.checkFiles(v); err != nil {
		return err
	}
	rec, err := db.recover(v, fresh)
	if err != nil {
		return err
	}
	db.logger.Info("recovered", "manifest edits", loaded.Edits, "manifest bytes ignored", loaded.Ignored, "log records", db.stats.replayedBatches.Load(),
		"log bytes ignored", rec.Ignored, "last sequence", db.nextSeq-1)
	if db.opts.ReadOnly {
		db.recovered = rec
		db.scrubs.start(db, db.opts.ScrubEvery)
		db.logger.Info("open", "dir", db.dir, "read only", true, "took", db.opts.Clock().Sub(began))
		return nil
	}
	if err := db.startWriting(v, manifestNum, rec); err != nil {
		return err
	}
	db.logger.Info("open", "dir", db.dir, "created", created || fresh, "store", fmt.Sprintf("%016x", v.StoreID), "took", db.opts.Clock().Sub(began))
	db.jobs.kick()
	db.scrubs.start(db, db.opts.ScrubEvery)
	return nil
}

// prepareDir makes the directory if that is wanted.
func (db *DB) prepareDir() (created bool, err error) {
	_, err = db.fs.List(db.dir)
	switch {
	case err == nil:
		return false, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	case db.opts.MustExist || db.opts.ReadOnly:
		return false, fmt.Errorf("%w", ErrNotExist)
	}
	return true, db.fs.MkdirAll(db.dir)
}

// syncParents makes the way to the directory durable before anything in it is. An earlier attempt may have made some of it, so
// all of it is synced; what may not be opened was not made by us.
func (db *DB) syncParents() error {
	for dir := path.Clean(db.dir); ; {
		parent := path.Dir(dir)
		if parent == dir {
			return nil
		}
		if err := db.fs.SyncDir(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		dir = parent
	}
}

// mayCreate allows a new store only where nothing is, or where a crash cut the creation of one short.
func (db *DB) mayCreate() error {
	list, err := db.fs.List(db.dir)
	if err != nil {
		return err
	}
	manifest := false
	for _, e := range list {
		n, _, isManifest := levels.ParseManifestName(e.Name)
		switch {
		case e.Name == lockName || e.Name == "lost+found":
		case isManifest && n == 1:
			manifest = true
		case isManifest || ours(e.Name):
			return damage.New("store", -1, "no whole manifest beside %s", e.Name)
		default:
			return fmt.Errorf("%w: it has no manifest, and holds %q", ErrNotStore, e.Name)
		}
	}
	if db.opts.MustExist || db.opts.ReadOnly {
		return fmt.Errorf("%w", ErrNotExist)
	}
	if manifest {
		return levels.RemoveManifest(db.fs, db.dir, 1)
	}
	return nil
}

// ours reports whether a file name is one that stores use.
func ours(name string) bool {
	_, table := levels.ParseTableName(name)
	_, slot := record.ParseSlotName(name)
	return table || slot || levels.IsReserve(name)
}

// checkFiles sets aside the files of the version that are not there, or not with their size.
func (db *DB) checkFiles(v *levels.Version) error {
	list, err := db.fs.List(db.dir)
	if err != nil {
		return err
	}
	sizes := make(map[string]int64, len(list))
	for _, e := range list {
		sizes[e.Name] = e.Size
	}
	v.Live(func(_ uint64, _ int, f *levels.File) {
		name := levels.TableName(f.Num)
		size, ok := sizes[name]
		switch {
		case !ok:
			db.setAside(v, f.Num, missing(path.Join(db.dir, name)))
		case size != f.Size:
			db.setAside(v, f.Num, &damage.Error{
				File: path.Join(db.dir, name), Part: "table file", Offset: -1, Detail: fmt.Sprintf("%d bytes, the manifest says %d", size, f.Size),
			})
		}
	})
	return nil
}

// firstState makes the state that replay fills.
func (db *DB) firstState(v *levels.Version) {
	st := &state{in: &db.states, version: v, trees: map[uint64]*memtree{}, tables: tablesOf(v.Schema, nil)}
	for id := range v.Trees {
		m := db.newMem()
		m.refs.Store(1)
		st.trees[id] = &memtree{active: m}
	}
	st.pins.Add(0, 1)
	db.states.cur.Store(st)
}

func (db *DB) newMem() *mem {
	return &mem{Table: memtable.New(memtable.Options{Pool: db.arenas})}
}

func (db *DB) logOptions(v *levels.Version) wal.Options {
	return wal.Options{
		FS: db.fs, Dir: db.dir, SlotSize: db.opts.LogSegmentBytes, OpenCount: v.OpenCount + 1, StoreID: v.StoreID,
		NoDirect: db.opts.Buffered, Now: db.opts.Clock, Logger: db.logger, Manual: db.inline(), KeepFree: db.space.floor,
		OnIOError: func(err error) { db.fail("write the log", err) }, OnNoSpace: db.space.short, OnSlot: db.logGrew,
	}
}

// inline reports whether background work runs in the callers. Then the log has no goroutine either, so that with one caller
// everything happens in a fixed order.
func (db *DB) inline() bool {
	x, ok := db.exec.(interface{ Inline() bool })
	return ok && x.Inline()
}

// recover replays the log into the memtables.
func (db *DB) recover(v *levels.Version, fresh bool) (wal.Recovered, error) {
	db.clock.raise(v.EngineTime)
	if db.clock.hold(v.EngineTime) {
		db.logger.Warn("the clock is far ahead of the store's last life: nothing is collected until it is confirmed or an hour has passed",
			"clock", db.opts.Clock(), "collected as of", time.UnixMicro(v.EngineTime))
	}
	db.raiseStamp(v.Stamp)
	last := v.LastSeq
	var rec wal.Recovered
	if !fresh {
		st := db.states.cur.Load()
		var err error
		rec, err = wal.Recover(context.Background(), db.logOptions(v), v.LogStart, func(b []byte) error {
			end, err := db.replay(st, b)
			last = max(last, end)
			return err
		})
		if err != nil {
			return rec, err
		}
		// Only the creation of a store, before anything else, can have a manifest and no log.
		if !rec.Any && (v.OpenCount > 1 || v.LastTable > 0) {
			return rec, &damage.Error{File: db.dir, Part: "log", Offset: -1, Detail: "no slot-*.log is there"}
		}
		if err := inspect.LogReaches(max(rec.LastSeq, rec.DurableSeq), v); rec.Any && err != nil {
			return rec, damage.At(err, rec.EndFile, 0)
		}
	}
	for _, t := range db.states.cur.Load().tables {
		for i := range t.groups {
			db.split(db.states.cur.Load(), &t.groups[i], math.MaxUint64)
		}
	}
	if v.LoweredAt == 0 {
		db.clock.raise(rec.EngineTime)
	}
	db.raiseStamp(rec.Stamp)
	for _, t := range v.Trees {
		last = max(last, t.FlushedThrough)
	}
	rec.LastSeq = max(rec.LastSeq, last) // what is in files is durable, though the log may have forgotten it
	db.stampFloor = db.stamp.Load() + 1
	db.nextSeq = last + 1
	db.logDue = db.opts.LogBytes
	db.publisher.Start(last)
	return rec, nil
}

// replay applies one record of the log. Entries that table files hold already, and those of dropped tables, are skipped.
func (db *DB) replay(st *state, b []byte) (last uint64, err error) {
	r, err := cell.ReadRecord(b)
	if err != nil {
		return 0, err
	}
	h := r.Header
	if h.FirstSeq > st.version.LoweredAt {
		db.clock.raise(h.EngineTime)
	}
	db.raiseStamp(h.Stamp)
	last = h.FirstSeq + uint64(h.Count) - 1
	var unknown error
	applied := uint64(0)
	err = applyRecord(b, func(tree uint64, row []byte, seq uint64, size int) *mem {
		t := st.version.Trees[tree]
		if t == nil {
			if tree > st.version.LastTree && unknown == nil {
				unknown = damage.New("batch record", -1, "entry %d is for tree %d, the highest ever made is %d", seq, tree, st.version.LastTree)
			}
			return nil
		}
		if seq <= t.FlushedThrough {
			return nil
		}
		g := st.tableOf(tree).group(tree)
		if g.dropped(row, seq) {
			return nil
		}
		db.split(st, g, seq)
		m := st.trees[tree].active
		if m.first == 0 {
			m.first = seq
		}
		m.last = last
		m.grow(size, 1)
		applied++
		return m
	}, func(tree uint64, col []byte) cell.Fold {
		if t := st.tableOf(tree); t != nil {
			return t.families.Fold(col)
		}
		return cell.FoldNone
	})
	if applied > 0 {
		db.stats.replayedBatches.Add(1)
		db.stats.replayedChanges.Add(applied)
	}
	return last, errors.Join(err, unknown)
}

// dropped reports whether an entry is of rows that were dropped after it.
func (g *group) dropped(row []byte, seq uint64) bool {
	for _, c := range g.rows {
		if seq <= c.Seq && c.Has(row) {
			return true
		}
	}
	return false
}

// split seals the active memtable of a tree where a change of rules was made before sequence seq, as it was sealed then.
func (db *DB) split(st *state, g *group, seq uint64) {
	t := st.trees[g.tree]
	if t.active.first == 0 || len(g.layers) == 0 || g.classOfMem(t.active.last) == g.classOfMem(seq) {
		return
	}
	m := db.newMem()
	m.refs.Store(1)
	st.trees[g.tree] = &memtree{active: m, sealed: append(t.sealed, t.active)}
}

// startWriting begins a fresh manifest and a fresh log slot, and clears away what no longer counts.
func (db *DB) startWriting(v *levels.Version, manifestNum uint64, rec wal.Recovered) error {
	if v.CheckpointOf != 0 {
		return db.renew(v, manifestNum, rec)
	}
	e := &levels.Edit{
		Num: v.EditNum + 1, OpenCount: v.OpenCount + 1, StoreID: v.StoreID, EngineTime: db.clock.collected(), Stamp: db.stamp.Load(),
		NextFile: v.NextFile,
	}
	e.PutTables = v.Schema.Tables() // so that what they need not stand for any more is forgotten
	next, err := db.applyEdit(v, e)
	if err != nil {
		return err
	}
	// An output of an interrupted job may have a number above the manifest's: never use it again while the file is there.
	stale, err := db.staleFiles(next, manifestNum)
	if err != nil {
		return err
	}
	next.NextFile = pastAll(stale, next.NextFile)
	db.nextFile.Store(next.NextFile)
	db.states.change(db.opts.Clock(), func(st *state) {
		st.version = next
		st.tables = tablesOf(next.Schema, st.tables)
	})
	if err := db.space.open(); err != nil {
		return err
	}
	db.manifest, err = levels.CreateManifest(db.fs, db.dir, manifestNum, next)
	if errors.Is(err, levels.ErrNotWritten) { // outputs that no manifest names may go before
		db.logger.Warn("disk full: what no manifest names is removed before a new one is made", "cause", err)
		if err := db.removeStale(tableFiles(stale)); err != nil {
			return err
		}
		db.manifest, err = levels.CreateManifest(db.fs, db.dir, manifestNum, next)
	}
	if err != nil {
		return diskFull(err)
	}
	o := db.logOptions(v)
	o.Tight = db.space.tight()
	if db.log, err = wal.Open(o, rec); err != nil {
		return diskFull(err)
	}
	// Only now does nothing depend on the old manifest any more.
	if err := db.removeStale(stale); err != nil {
		return err
	}
	if err := db.space.begin(); err != nil {
		return err
	}
	db.logger.Info("I/O", "log", db.log.Stats().Mode, "table files direct", !db.opts.Buffered, "reads", db.opts.Reads.String())
	return nil
}

// staleFiles lists our files that the version does not need: outputs of jobs that never ended, dead files whose removal a
// crash cut short, old manifests.
func (db *DB) staleFiles(v *levels.Version, manifestNum uint64) ([]string, error) {
	list, err := db.fs.List(db.dir)
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	v.Live(func(_ uint64, _ int, f *levels.File) { live[levels.TableName(f.Num)] = true })
	var stale []string
	for _, e := range list {
		if _, ok := levels.ParseTableName(e.Name); ok && !live[e.Name] {
			stale = append(stale, e.Name)
		}
		if n, _, ok := levels.ParseManifestName(e.Name); ok && n < manifestNum {
			stale = append(stale, e.Name)
		}
	}
	slices.SortFunc(stale, strings.Compare)
	return stale, nil
}

// obsolete is called when no version lists a file any more.
func (db *DB) obsolete(f *levels.File) {
	if err := db.files.close(f); err != nil {
		db.logger.Warn("cannot close a dead table file", "file", db.files.path(f.Num), "cause", err)
	}
	// A store that failed removes nothing: what the manifest says is not known.
	if db.opts.ReadOnly || db.life.keepFiles.Load() || db.health.failed() != nil {
		return
	}
	if err := db.fs.Remove(db.files.path(f.Num)); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have been missing
		db.logger.Warn("cannot remove a dead table file; the next open will", "file", db.files.path(f.Num), "cause", err)
	}
}

// Close ends the store: calls at work end with ErrClosed or their result, background work stops, the log is made durable.
// Reads that run are waited for. Memtables are not flushed; the next Open replays them from the log. Snapshots that are still
// open are told to the logger and show nothing any more. It may be called again and returns the same: why the store failed, or
// why the last background work did, if that was not made up for; a full disk is no error, since nothing is lost.
func (db *DB) Close() error {
	if db.life.closed.Swap(true) {
		<-db.life.ended
		return db.life.err
	}
	close(db.life.stop)
	db.jobs.stop()
	db.space.stop()
	db.scrubs.stop()
	db.jobs.wake()
	db.exec.Wait()
	db.life.drain()
	db.exec.Wait()
	var errs []error
	if db.log != nil {
		if err := db.log.Close(); err != nil && db.health.failed() == nil {
			errs = append(errs, fmt.Errorf("close the log: %w", err))
		}
	}
	if err := db.health.unsettled(); err != nil && db.anySealed() {
		errs = append(errs, err)
	}
	if err := db.sealManifest(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, db.letGo()...)
	db.life.err = errors.Join(errs...)
	db.logger.Info("closed", "dir", db.dir, "error", db.life.err)
	close(db.life.ended)
	return db.life.err
}

// sealManifest ends the manifest with an edit that changes nothing but the engine time. After it no damage to an edit that
// counts can pass as an append cut short by a crash. It returns why the store failed, if it did.
func (db *DB) sealManifest() error {
	if err := db.health.failed(); err != nil || db.manifest == nil {
		return err
	}
	v := db.states.cur.Load().version
	e := &levels.Edit{Num: v.EditNum + 1, EngineTime: db.clock.collected(), Stamp: db.stamp.Load()}
	if db.log != nil {
		e.Logged = db.log.Told()
	}
	err := db.manifest.Append(e)
	if errors.Is(err, levels.ErrNotWritten) {
		db.logger.Warn("no space to end the manifest; everything in it counts all the same", "cause", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("end the manifest: %w", err)
	}
	// What is open can be written after its name is gone, and then nobody will find it.
	if _, err := db.fs.Stat(path.Join(db.dir, levels.ManifestName(db.manifest.Num()))); err != nil {
		return fmt.Errorf("the store was moved or removed while it was open: %w", err)
	}
	return nil
}

// letGo releases everything but the log.
func (db *DB) letGo() (errs []error) {
	db.snaps.mu.Lock()
	left := len(db.snaps.open)
	db.snaps.mu.Unlock()
	if left > 0 {
		db.logger.Warn("snapshots are still open; their files stay open until they are closed", "snapshots", left)
	}
	db.life.keepFiles.Store(true) // versions let go of files now that are not dead
	if st := db.states.cur.Load(); st != nil {
		st.replaced.Store(true) // by nothing: those who still hold it are the last
		st.unref()
	}
	if db.manifest != nil {
		errs = append(errs, db.manifest.Close())
	}
	errs = append(errs, db.arenas.Close())
	db.blocks.Close()
	if db.unlock != nil {
		errs = append(errs, db.unlock())
	}
	return errs
}

// abandon undoes what a failed open has done.
func (db *DB) abandon() {
	db.life.closed.Store(true)
	db.jobs.stop()
	db.space.stop()
	db.scrubs.stop()
	if db.log != nil {
		_ = db.log.Close() // the error that ended the open is the one to tell
	}
	_ = errors.Join(db.letGo()...)
}
