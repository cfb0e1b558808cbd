package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowandb/rowan/engine/internal/wal"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// RestoreOptions say how Restore works. The zero value is fine.
type RestoreOptions struct {
	FS vfs.FS // default the operating system's
	// Copy copies table files, where the default is to link them: what strikes the one directory's disk blocks then spares the
	// other's.
	Copy bool
	// VerifyBlocks has every block checked, as for a checkpoint.
	VerifyBlocks bool
}

// Restore makes a new directory, which must be missing or empty, from a checkpoint, which it leaves as it is. The result is
// verified, is a checkpoint itself, and becomes a store of its own when it is opened for writing. Nobody may open the
// checkpoint for writing meanwhile. When it fails, or ctx ends, what was made is removed.
func Restore(ctx context.Context, from, to string, o RestoreOptions) (CheckpointInfo, error) {
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	info, err := restore(ctx, from, to, o)
	if err != nil {
		return CheckpointInfo{}, fmt.Errorf("restore %s to %s: %w", from, to, err)
	}
	return info, nil
}

func restore(ctx context.Context, from, to string, o RestoreOptions) (CheckpointInfo, error) {
	v, err := loadCheckpoint(o.FS, from)
	if err != nil {
		return CheckpointInfo{}, err
	}
	defer v.Unref()
	rec, err := wal.Recover(ctx, wal.Options{FS: o.FS, Dir: from, StoreID: v.StoreID}, v.LogStart, func([]byte) error { return nil })
	if err != nil {
		return CheckpointInfo{}, err
	}
	c := copying{fs: o.FS, from: from, to: to, version: v, pin: rec.Pin(), link: !o.Copy, deep: o.VerifyBlocks}
	return c.run(ctx)
}

// loadCheckpoint reads the manifest of a checkpoint.
func loadCheckpoint(fsys vfs.FS, dir string) (*levels.Version, error) {
	l, err := levels.Load(fsys, dir, nil)
	if errors.Is(err, levels.ErrNoManifest) {
		return nil, fmt.Errorf("%w: %w", ErrNotStore, err)
	}
	if err != nil {
		return nil, err
	}
	if l.Version.CheckpointOf == 0 {
		l.Version.Unref()
		return nil, fmt.Errorf("%s: %w", dir, ErrNotCheckpoint)
	}
	return l.Version, nil
}
