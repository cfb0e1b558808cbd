// Package engine is an embedded storage engine with Bigtable's data model: tables of rows, a row's cells addressed by
// family, qualifier and timestamp, rows changed atomically, old versions collected by rules per family.
package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/rowandb/rowan/cache"
	"github.com/rowandb/rowan/engine/internal/commit"
	"github.com/rowandb/rowan/engine/internal/memtable"
	"github.com/rowandb/rowan/engine/internal/wal"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// DB is an open store. Safe for concurrent use.
type DB struct {
	dir    string
	opts   Options
	fs     vfs.FS
	logger *slog.Logger
	exec   Executor
	clock  clock
	health health
	unlock func() error

	life lifecycle

	states    states
	files     files
	arenas    *memtable.Pool
	blocks    *cache.Cache
	log       *wal.Log
	recovered wal.Recovered // of a store that is open for reading only
	manifest  *levels.Manifest
	// installMu serialises manifest edits. Held across the manifest's write and sync; never taken with placeMu held.
	installMu sync.Mutex
	schemaMu  sync.Mutex    // serialises schema changes; taken before gates
	nextFile  atomic.Uint64 // number of the next table file
	partBytes int64         // see the constant; smaller in tests

	latches    commit.Latches
	publisher  commit.Publisher
	epochs     commit.Epochs
	stamp      atomic.Int64 // highest ServerTime stamp given
	stampFloor int64        // highest stamp of earlier lives of the store, + 1
	// placeMu orders batches: it guards nextSeq, the order of log records, the first and last of active memtables, and
	// sealing. Held for memory work only.
	placeMu sync.Mutex
	nextSeq uint64
	logged  int64 // bytes of all records placed since Open; guarded by placeMu
	logDue  int64 // value of logged at which some memtable may hold the log back beyond its bound; guarded by placeMu

	space  space
	aside  asides
	jobs   jobs
	snaps  snapshots
	stats  counters
	scrubs scrubber
}

// visible is the last sequence that readers may see: published, and once the log has failed also durable.
func (db *DB) visible() uint64 {
	seq := db.publisher.Seq()
	if db.health.failed() != nil && db.log != nil {
		seq = min(seq, db.log.Durable())
	}
	return seq
}

func (db *DB) raiseStamp(t int64) {
	for {
		m := db.stamp.Load()
		if t <= m || db.stamp.CompareAndSwap(m, t) {
			return
		}
	}
}

// Sync returns when every batch applied so far, NoSync ones too, is durable.
func (db *DB) Sync(ctx context.Context) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	if err := db.writable(); err != nil {
		return err
	}
	if seq := db.publisher.Seq(); seq > 0 {
		return db.log.Wait(ctx, seq)
	}
	return nil
}
