package engine

import (
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/compact"
	"github.com/rowandb/rowan/internal/stripe"
	"github.com/rowandb/rowan/io/direct"
	"github.com/rowandb/rowan/levels"
)

// counters are the store's running totals.
type counters struct {
	batches, changes, bytesIn        atomic.Uint64
	rowReads, scans, runs, filtered  stripe.Counter
	flushes, compactions, moves      atomic.Uint64
	collected, forgotten             atomic.Uint64
	bytesWritten, bytesCompacted     atomic.Uint64
	stalls, stallNanos, slowNanos    atomic.Uint64
	replayedBatches, replayedChanges atomic.Uint64
	tableMode                        atomic.Uint32
	reads                            cell.ReadStats
}

func (c *counters) count(r *compact.Result) {
	c.collected.Add(r.Collected)
	c.forgotten.Add(r.Forgotten)
	c.bytesWritten.Add(uint64(r.BytesWritten))
	if len(r.Files) > 0 {
		c.tableMode.Store(uint32(r.Mode))
	}
}

// Metrics is a picture of the store. Counters run from Open.
type Metrics struct {
	Health Health

	Batches, Changes, BytesIn uint64 // applied; bytes as logged
	RowReads, Scans           uint64
	// Work of reads on table files: blocks looked at, blocks left out because of what their index says of families and times,
	// parts of blocks of which values were looked at.
	BlocksRead, BlocksLeftOut, ValuePartsRead uint64
	FilteredFiles                             uint64 // files that a row filter spared a point read

	Flushes, Compactions, Moves uint64
	CollectedCells              uint64 // cells that rules removed from disk or never let there
	ForgottenDeletes            uint64 // deletes that had nothing left to delete
	TableBytesWritten           uint64 // by flushes and compactions
	TableBytesCompacted         uint64 // read and replaced by compactions
	ReplayedBatches             uint64 // taken from the log at open
	ReplayedChanges             uint64

	Stalls    uint64        // times a writer had to wait
	StallTime time.Duration // in total, over all writers
	SlowTime  time.Duration // by which writers were slowed on top
	Pressure  int           // 0 none .. 1000 writers wait
	DebtBytes int64         // that compactions still have to rewrite

	Log struct {
		Direct                 bool  // direct I/O in force
		Bytes                  int64 // of all slots, spare ones included
		Records, Groups        uint64
		WriteCalls, Syncs      uint64
		SlotsMade, SlotsReused uint64
		DurableSeq             uint64
	}
	TablesDirect    bool // the last table file was written with direct I/O
	MappedFiles     int  // open table files by read mode
	PositionalFiles int
	MappedBytes     int64 // of the mapped ones; the system keeps in memory as much of them as it likes, and counts it against limits
	MemtableBytes   int64 // active and sealed
	SealedMemtables int
	CacheBytes      int64
	CacheHits       uint64
	CacheMisses     uint64

	Levels    [levels.Depth]LevelMetrics // over all tables
	DiskBytes int64                      // of table files
	// NewestCell is the highest timestamp in table files, 0 if there are none. Cells from the future are allowed and count as the
	// newest of their column; one far beyond the present tells of a writer whose clock or unit is wrong. btdump files says where.
	NewestCell     Timestamp
	Snapshots      int
	OldestSnapshot time.Duration
	VisibleSeq     uint64
	// What only snapshots and running reads still hold, of table files and of memtables, and for how long the oldest of it has
	// been out of date. A read runs until its function or loop ends, so one that was forgotten shows here.
	PinnedBytes, PinnedMemtableBytes int64
	OldestPin                        time.Duration

	// StandingChanges counts drops of rows and families and changes of rules that are in force, while something that was written before
	// them still waits to be rewritten: BehindFiles with BehindBytes, and sealed memtables. All are 0 when that is done.
	StandingChanges int
	BehindFiles     int
	BehindBytes     int64

	Scrub ScrubMetrics
}

// LevelMetrics is one level over all tables.
type LevelMetrics struct {
	Files     int
	Bytes     int64
	Cells     uint64
	Deletes   uint64 // narrow and wide
	Sublevels int    // of L0: the most in any table
}

// Metrics returns a picture of the store; after Close what is left of it.
func (db *DB) Metrics() Metrics {
	c := &db.stats
	m := Metrics{
		Health:  db.Health(),
		Batches: c.batches.Load(), Changes: c.changes.Load(), BytesIn: c.bytesIn.Load(),
		RowReads: uint64(c.rowReads.Load()), Scans: uint64(c.scans.Load()), FilteredFiles: uint64(c.filtered.Load()),
		BlocksRead: uint64(c.reads.Blocks.Load()), BlocksLeftOut: uint64(c.reads.LeftOut.Load()),
		ValuePartsRead: uint64(c.reads.ValueParts.Load()),
		Flushes:        c.flushes.Load(), Compactions: c.compactions.Load(), Moves: c.moves.Load(),
		CollectedCells: c.collected.Load(), ForgottenDeletes: c.forgotten.Load(),
		TableBytesWritten: c.bytesWritten.Load(), TableBytesCompacted: c.bytesCompacted.Load(),
		ReplayedBatches: c.replayedBatches.Load(), ReplayedChanges: c.replayedChanges.Load(),
		Stalls: c.stalls.Load(), StallTime: time.Duration(c.stallNanos.Load()), SlowTime: time.Duration(c.slowNanos.Load()),
		TablesDirect: c.tableMode.Load() == uint32(direct.Direct),
	}
	if db.enter() != nil {
		return m
	}
	defer db.leave()
	m.Pressure = int(db.jobs.pressure.Load())
	m.VisibleSeq = db.visible()
	m.Scrub = db.scrubs.metrics()
	if db.log != nil {
		db.logMetrics(&m)
	}
	db.files.mu.Lock()
	m.MappedFiles, m.PositionalFiles, m.MappedBytes = db.files.mapped, db.files.positional, db.files.mappedSize
	db.files.mu.Unlock()
	cs := db.blocks.Stats()
	m.CacheBytes, m.CacheHits, m.CacheMisses = cs.Used, cs.Hits, cs.Misses
	st := db.states.pin()
	defer st.unref()
	for _, t := range st.trees {
		m.MemtableBytes += t.active.Bytes()
		m.SealedMemtables += len(t.sealed)
		for _, s := range t.sealed {
			m.MemtableBytes += s.Bytes()
		}
	}
	for id, t := range st.version.Trees {
		o := db.pickOptions(st, id)
		m.DebtBytes += levels.Debt(t, o)
		files, bytes := o.Changes.Left(t)
		m.BehindFiles += files
		m.BehindBytes += bytes
		m.Levels[0].Sublevels = max(m.Levels[0].Sublevels, len(t.Sub))
	}
	st.version.Live(func(_ uint64, level int, f *levels.File) {
		l := &m.Levels[level]
		l.Files++
		l.Bytes += f.Size
		l.Cells += f.Cells
		l.Deletes += f.Ranges + f.Deletes
		m.DiskBytes += f.Size
		if f.MinTS <= f.MaxTS {
			m.NewestCell = max(m.NewestCell, Timestamp(f.MaxTS))
		}
	})
	for _, t := range st.tables {
		m.StandingChanges += len(t.Changes)
	}
	m.pin(db, st)
	db.snaps.mu.Lock()
	defer db.snaps.mu.Unlock()
	m.Snapshots = len(db.snaps.open)
	for s := range db.snaps.open {
		m.OldestSnapshot = max(m.OldestSnapshot, db.opts.Clock().Sub(s.made))
	}
	return m
}

// pin sums up what snapshots and reads hold that st, the current state, does not.
func (m *Metrics) pin(db *DB, st *state) {
	old := db.states.outdated()
	if len(old) == 0 {
		return
	}
	now := db.opts.Clock()
	files, mems := map[levels.Num]bool{}, map[*mem]bool{}
	look := func(st *state, add bool) {
		st.version.Live(func(_ uint64, _ int, f *levels.File) {
			if add && !files[f.Num] {
				m.PinnedBytes += f.Size
			}
			files[f.Num] = true
		})
		for _, t := range st.trees {
			for i := -1; i < len(t.sealed); i++ {
				x := t.active
				if i >= 0 {
					x = t.sealed[i]
				}
				if add && !mems[x] {
					m.PinnedMemtableBytes += x.Bytes()
				}
				mems[x] = true
			}
		}
	}
	look(st, false)
	for _, o := range old {
		look(o, true)
		m.OldestPin = max(m.OldestPin, now.Sub(o.since))
		o.unref()
	}
}

// behind sums up what flushing and compacting owe, for the log.
func (db *DB) behind() map[string]any {
	st := db.states.pin()
	defer st.unref()
	sealed, subs := 0, 0
	for id, t := range st.trees {
		sealed = max(sealed, len(t.sealed))
		if tree := st.version.Trees[id]; tree != nil {
			subs = max(subs, len(tree.Sub))
		}
	}
	return map[string]any{"sealed memtables": sealed, "L0 sublevels": subs}
}

func (db *DB) logMetrics(m *Metrics) {
	s := db.log.Stats()
	m.Log.Direct = s.Mode == direct.Direct.String()
	m.Log.Bytes = db.log.Size()
	m.Log.Records, m.Log.Groups = s.Records, s.Groups
	m.Log.WriteCalls, m.Log.Syncs = s.Writes, s.Syncs
	m.Log.SlotsMade, m.Log.SlotsReused = s.Created, s.Recycled
	m.Log.DurableSeq = db.log.Durable()
}
