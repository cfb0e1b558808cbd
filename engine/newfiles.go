package engine

import (
	"fmt"

	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// BackupFile is a file of a checkpoint.
type BackupFile struct {
	Name string // in the checkpoint's directory
	Size int64  // bytes
}

// BackupFiles are the files of a checkpoint, as an incremental backup sees them. Together they are all of it.
type BackupFiles struct {
	New    []BackupFile // table files that the older checkpoint does not have
	Shared []BackupFile // table files that it has, under the same names
	Whole  []BackupFile // manifest and log, to be copied with every backup: small, and never the same
}

// NewFilesSince says what makes the checkpoint in newer out of the one in older, both of one store: a directory with Whole and New from
// newer and Shared from either is the newer checkpoint. fsys is nil for the operating system's file system. Table files are told
// apart by number and identity. Checkpoints of different stores share nothing.
func NewFilesSince(older, newer string, fsys vfs.FS) (BackupFiles, error) {
	var out BackupFiles
	if fsys == nil {
		fsys = vfs.OS()
	}
	old, err := loadCheckpoint(fsys, older)
	if err != nil {
		return out, fmt.Errorf("older checkpoint: %w", err)
	}
	defer old.Unref()
	v, err := loadCheckpoint(fsys, newer)
	if err != nil {
		return out, fmt.Errorf("newer checkpoint: %w", err)
	}
	defer v.Unref()
	have := map[levels.Num]*levels.File{}
	if old.StoreID == v.StoreID {
		old.Live(func(_ uint64, _ int, f *levels.File) { have[f.Num] = f })
	}
	v.Live(func(_ uint64, _ int, f *levels.File) {
		b := BackupFile{levels.TableName(f.Num), f.Size}
		if o := have[f.Num]; o != nil && o.ID == f.ID && o.Size == f.Size {
			out.Shared = append(out.Shared, b)
		} else {
			out.New = append(out.New, b)
		}
	})
	list, err := fsys.List(newer)
	if err != nil {
		return BackupFiles{}, fmt.Errorf("newer checkpoint: %w", err)
	}
	for _, e := range list {
		_, slot := record.ParseSlotName(e.Name)
		_, _, manifest := levels.ParseManifestName(e.Name)
		if slot || manifest {
			out.Whole = append(out.Whole, BackupFile{e.Name, e.Size})
		}
	}
	return out, nil
}
