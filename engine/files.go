package engine

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"sync"

	"github.com/rowandb/rowan/cache"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// files opens table files when they are first needed and closes them when no version lists them any more.
type files struct {
	fs    vfs.FS
	dir   string
	mode  ReadMode
	cache *cache.Cache
	mu    sync.Mutex // guards what follows
	// opening are the files that are being opened, each with a channel that is closed when that is over.
	opening    map[*levels.File]chan struct{}
	open       int
	mapped     int // how many are read which way
	mappedSize int64
	positional int
}

func (fs *files) path(num levels.Num) string { return path.Join(fs.dir, levels.TableName(num)) }

// table returns the reader of a file that the caller's version lists. It stays open while that version is held.
func (fs *files) table(f *levels.File) (*sstable.Reader, error) {
	if r, ok := f.Slot().Load().(*sstable.Reader); ok {
		return r, nil
	}
	// A file is opened once, and no other waits for it: it may take reads of a slow disk.
	fs.mu.Lock()
	for {
		if r, ok := f.Slot().Load().(*sstable.Reader); ok {
			fs.mu.Unlock()
			return r, nil
		}
		opened, under := fs.opening[f]
		if !under {
			break
		}
		fs.mu.Unlock()
		<-opened
		fs.mu.Lock()
	}
	opened := make(chan struct{})
	if fs.opening == nil {
		fs.opening = map[*levels.File]chan struct{}{}
	}
	fs.opening[f] = opened
	fs.mu.Unlock()
	var r *sstable.Reader
	defer func() { // also when the file cannot be read under its mapping
		fs.mu.Lock()
		defer fs.mu.Unlock()
		delete(fs.opening, f)
		close(opened)
		if r == nil {
			return
		}
		f.Slot().Store(r)
		fs.open++
		if r.Mode() == ReadMapped {
			fs.mapped++
			fs.mappedSize += r.Size()
		} else {
			fs.positional++
		}
	}()
	r, err := fs.openTable(f)
	return r, err
}

func (fs *files) openTable(f *levels.File) (*sstable.Reader, error) {
	name := fs.path(f.Num)
	h, err := fs.fs.Open(name, vfs.How{Direct: fs.mode == ReadDirect})
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, fmt.Errorf("open table file: %w", missing(name))
	}
	if err != nil {
		return nil, fmt.Errorf("open table file: %w", err)
	}
	r, err := sstable.Open(h, sstable.ReaderOptions{Name: name, ID: f.ID, Size: f.Size, Cache: fs.cache, Mode: fs.mode})
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("open table file: %w", err)
	}
	return r, nil
}

// close closes the reader of a file that nobody uses any more.
func (fs *files) close(f *levels.File) error {
	r, ok := f.Slot().Load().(*sstable.Reader)
	if !ok {
		return nil
	}
	fs.mu.Lock()
	fs.open--
	if r.Mode() == ReadMapped {
		fs.mapped--
		fs.mappedSize -= r.Size()
	} else {
		fs.positional--
	}
	fs.mu.Unlock()
	return r.Close()
}

// opener returns the function that a merge.Run opens its files with.
func (fs *files) opener(o cell.IterOptions) func(*levels.File) (cell.Iter, error) {
	return func(f *levels.File) (cell.Iter, error) {
		r, err := fs.table(f)
		if err != nil {
			return nil, err
		}
		return r.NewIter(o), nil
	}
}
