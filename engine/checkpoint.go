package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowandb/rowan/engine/internal/wal"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// CheckpointInfo says what a checkpoint or a restored store holds.
type CheckpointInfo struct {
	Seq        uint64 // every batch up to this place in the order of writes is in it
	Tables     int    // table files
	TableBytes int64
	Linked     int   // of the table files, those that are second names of the store's; the others are copies
	LogBytes   int64 // of the log, which is always copied
}

// CheckpointOption changes how a checkpoint is made.
type CheckpointOption uint8

// VerifyBlocks has every block of every table file of the checkpoint read and checked, which takes as long as reading them.
// Without it the files' sizes, identities, footers and indexes are checked, and every record of the log.
const VerifyBlocks CheckpointOption = 1

// Checkpoint makes a copy of the store as it is now in dir, which must be missing or empty, in a directory that exists. Every
// batch applied before the call is in it, durable, and so are all that came before any that is in it. Table files are hard
// links where the file system allows it; the log is copied. Reads, writes, flushes and compactions go on meanwhile.
//
// A checkpoint is verified before Checkpoint returns, and until its last step Open does not take dir for a store. When it
// fails, or ctx ends, what was made of it is removed. What a crash leaves of one is refused by Open, and dir must be removed.
//
// A checkpoint opens with Options.ReadOnly unchanged. The first time it is opened for writing it becomes a store of its own. See
// docs/backup.md.
func (db *DB) Checkpoint(ctx context.Context, dir string, opts ...CheckpointOption) (CheckpointInfo, error) {
	if err := db.enter(); err != nil {
		return CheckpointInfo{}, err
	}
	defer db.leave()
	began := db.opts.Clock()
	info, err := db.checkpoint(whileOpen{ctx, db}, dir, opts)
	if err != nil {
		return CheckpointInfo{}, fmt.Errorf("checkpoint in %s: %w", dir, err)
	}
	db.logger.Info("checkpoint", "dir", dir, "sequence", info.Seq, "table files", info.Tables, "linked", info.Linked,
		"table bytes", info.TableBytes, "log bytes", info.LogBytes, "took", db.opts.Clock().Sub(began))
	return info, nil
}

func (db *DB) checkpoint(ctx context.Context, dir string, opts []CheckpointOption) (CheckpointInfo, error) {
	c := copying{fs: db.fs, from: db.dir, to: dir, link: true}
	for _, o := range opts {
		if o != VerifyBlocks {
			return CheckpointInfo{}, fmt.Errorf("%w: checkpoint option %d", ErrOption, o)
		}
		c.deep = true
	}
	if err := db.health.failed(); err != nil {
		return CheckpointInfo{}, err
	}
	if db.log != nil {
		if err := db.log.Wait(ctx, db.publisher.Seq()); err != nil {
			return CheckpointInfo{}, err
		}
	}
	st, pin := db.pinFiles()
	defer st.unref()
	defer pin.Release()
	c.version, c.pin = st.version, pin
	return c.run(ctx)
}

// pinFiles pins a state together with the log that belongs to it: replay of the one on top of the other gives the store as it
// is. Both are taken between two edits of the manifest; what the log is durable through is asked last.
func (db *DB) pinFiles() (*state, *wal.Pin) {
	db.installMu.Lock()
	defer db.installMu.Unlock()
	st := db.states.pin()
	if db.log == nil {
		return st, db.recovered.Pin()
	}
	return st, db.log.Pin(st.version.LogStart)
}

// whileOpen is a context that ends when the store closes, too, for work that asks it now and then.
type whileOpen struct {
	context.Context
	db *DB
}

func (c whileOpen) Err() error {
	if c.db.life.closed.Load() {
		return ErrClosed
	}
	return c.Context.Err()
}

// asCheckpoint is v as a checkpoint's manifest states it. It shares v's files and must be let go of before v is.
func asCheckpoint(v *levels.Version) (*levels.Version, error) {
	e := v.Snapshot()
	e.CheckpointOf = e.StoreID
	empty := levels.NewVersion(nil)
	defer empty.Unref()
	return empty.Apply(e)
}

var (
	// ErrNotEmpty: a checkpoint is made in a directory of its own.
	ErrNotEmpty = vfs.ErrNotEmpty
	// ErrNotCheckpoint: the directory is a store, but no checkpoint, or one that has become a store of its own.
	ErrNotCheckpoint = errors.New("directory is not a checkpoint")
)
