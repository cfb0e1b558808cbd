package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/wal"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// copying makes a checkpoint in a new directory: of an open store, or of another checkpoint. The order is in docs/backup.md.
type copying struct {
	fs       vfs.FS
	from, to string
	version  *levels.Version // held by the caller until run has returned
	pin      *wal.Pin        // likewise
	link     bool            // table files may become links
	deep     bool            // every block is verified

	made map[string]bool // names in to that are ours; whatever else is there is not touched
	dir  bool            // to was made too
	info CheckpointInfo
}

func (c *copying) run(ctx context.Context) (CheckpointInfo, error) {
	c.made = map[string]bool{}
	var err error
	c.dir, err = vfs.NewDir(c.fs, c.to)
	if err == nil {
		err = c.files(ctx)
	}
	if err == nil {
		err = c.manifest()
	}
	if err == nil {
		err = c.verify(ctx)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return CheckpointInfo{}, errors.Join(err, c.undo())
	}
	return c.info, nil
}

// files links or copies table files and copies the log. All is durable when it returns, names too.
func (c *copying) files(ctx context.Context) error {
	var err error
	c.version.Live(func(_ uint64, _ int, f *levels.File) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = c.table(ctx, f)
		}
	})
	if err != nil {
		return err
	}
	for _, s := range c.pin.Slots {
		n := s.Size
		if s.Num == c.pin.End.Slot {
			n = c.pin.End.Off
		}
		if err := c.slot(ctx, s, n); err != nil {
			return err
		}
	}
	return c.fs.SyncDir(c.to)
}

func (c *copying) table(ctx context.Context, f *levels.File) error {
	name := levels.TableName(f.Num)
	from, to := path.Join(c.from, name), path.Join(c.to, name)
	linked, err := false, error(nil)
	if c.link {
		linked, err = vfs.LinkOrCopy(ctx, c.fs, from, to, f.Size)
	} else {
		err = vfs.Copy(ctx, c.fs, from, to, f.Size)
	}
	if err != nil {
		return fmt.Errorf("table file: %w", err)
	}
	c.made[name] = true
	c.info.Tables++
	c.info.TableBytes += f.Size
	if linked {
		c.info.Linked++
	}
	return nil
}

// slot copies the first n bytes of a slot. What follows in its last block is zero in the copy, which ends with that block.
func (c *copying) slot(ctx context.Context, s wal.SlotRef, n int64) error {
	name := record.SlotName(s.File)
	to := path.Join(c.to, name)
	if err := vfs.Copy(ctx, c.fs, path.Join(c.from, name), to, n); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	c.made[name] = true
	c.info.LogBytes += n
	if n%record.BlockSize == 0 {
		return nil
	}
	f, err := c.fs.Open(to, vfs.How{Write: true})
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	err = f.Truncate(n + record.BlockSize - n%record.BlockSize)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	return nil
}

// manifest makes the directory a checkpoint: before it, it is none.
func (c *copying) manifest() error {
	v, err := asCheckpoint(c.version)
	if err != nil {
		return err
	}
	defer v.Unref()
	for _, name := range levels.ManifestCopies(1) {
		c.made[name] = true
	}
	m, err := levels.CreateManifest(c.fs, c.to, 1, v)
	if err != nil {
		return err
	}
	return m.Close()
}

// verify looks at the copy as an opening would, and closer.
func (c *copying) verify(ctx context.Context) error {
	s, err := inspect.Open(c.fs, c.to)
	if err != nil {
		return err
	}
	if err := errors.Join(s.Bad...); err != nil {
		return err
	}
	if s.Version.CheckpointOf != c.version.StoreID {
		return damage.New("manifest", -1, "checkpoint of store %016x, wanted %016x", s.Version.CheckpointOf, c.version.StoreID)
	}
	if c.deep {
		r, err := s.Verify(ctx, nil)
		if err = errors.Join(append(r.Errors, err)...); err != nil {
			return err
		}
	} else {
		for _, t := range s.Tables() {
			if err := ctx.Err(); err != nil {
				return err
			}
			r, err := s.OpenTable(t.File)
			if err != nil {
				return err
			}
			if err := r.Close(); err != nil {
				return err
			}
		}
	}
	o := wal.Options{FS: c.fs, Dir: c.to, StoreID: s.Version.StoreID}
	rec, err := wal.Recover(ctx, o, s.Version.LogStart, func(b []byte) error {
		r, err := cell.ReadRecord(b)
		if err != nil {
			return err
		}
		for e, ok := r.Next(); ok; e, ok = r.Next() {
			if e.Tree > s.Version.LastTree {
				return damage.New("batch record", -1, "an entry is for tree %d, the highest ever made is %d", e.Tree, s.Version.LastTree)
			}
		}
		return r.Err()
	})
	if err != nil {
		return err
	}
	c.info.Seq = max(rec.LastSeq, rec.DurableSeq, s.Version.LastSeq)
	if c.info.Seq < c.pin.Seq {
		return &damage.Error{File: c.to, Part: "log", Offset: -1, Detail: fmt.Sprintf("ends at sequence %d, but %d was durable", c.info.Seq, c.pin.Seq)}
	}
	return nil
}

// undo removes what was made.
func (c *copying) undo() error {
	list, err := c.fs.List(c.to)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var errs []error
	rest := 0
	for _, e := range list {
		if !c.made[e.Name] {
			rest++
			continue
		}
		errs = append(errs, c.fs.Remove(path.Join(c.to, e.Name)))
	}
	if c.dir && rest == 0 {
		errs = append(errs, c.fs.Remove(c.to))
	}
	return errors.Join(errs...)
}
