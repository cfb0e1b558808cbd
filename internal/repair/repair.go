// Package repair builds a new store from what still checks of a damaged one, which it only reads: the newest manifest that reads,
// the table files that verify, the good blocks of those that do not, and the log up to its first damage. It says what is lost.
package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// Options say how a repair is done. Random must be set.
type Options struct {
	DropBad bool          // leave damaged table files out as a whole, where the default is to save their good blocks
	Force   bool          // go on though the store is open elsewhere: what is read may change meanwhile
	Random  func() uint64 // draws the identities of the new store and of rewritten files
	// Say, if not nil, is told of each file, a line each.
	Say func(format string, args ...any)
}

// Report is what a repair came to.
type Report struct {
	Kept, Rewritten, Dropped int // table files: taken whole, saved in part or as a whole into a new file, left out
	Records                  int // of the log
	// Lost says, a line each, what is not in the new store, or may not be. Empty: nothing is lost.
	Lost []string
}

var (
	// ErrInUse: the store is open, in this process or another.
	ErrInUse = errors.New("the store is in use")
	// ErrNotEmpty: the new store is made in a directory of its own.
	ErrNotEmpty = vfs.ErrNotEmpty
	// ErrInside: nothing is written into the old store's directory.
	ErrInside = errors.New("it lies inside the store")
)

const lockName = "lock"

// Repair reads the store in from and makes a new one, with an identity of its own, in the directory to, which must be missing or
// empty, in a directory that exists. The new store is verified. Without any manifest there is nothing to begin with:
// levels.ErrNoManifest or the damage of the manifest. After an error what was made is removed.
func Repair(ctx context.Context, fsys vfs.FS, from, to string, o Options) (Report, error) {
	j := &job{fs: fsys, from: from, to: to, o: o}
	if j.o.Say == nil {
		j.o.Say = func(string, ...any) {}
	}
	if err := j.run(ctx); err != nil {
		return Report{}, fmt.Errorf("repair %s: %w", from, errors.Join(err, j.undo()))
	}
	return j.report, nil
}

type job struct {
	fs       vfs.FS
	from, to string
	o        Options
	s        *inspect.Store
	id       uint64 // of the new store
	added    []levels.AddedFile
	next     levels.Num
	logStart uint64
	report   Report
	made     []string
	dir      bool
}

func (j *job) run(ctx context.Context) error {
	unlock, err := j.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if j.s, err = inspect.OpenSome(j.fs, j.from); err != nil {
		return err
	}
	j.manifests()
	if err := j.begin(); err != nil {
		return err
	}
	j.id = j.o.Random()
	j.next = j.s.Version.NextFile
	for _, e := range j.s.Other { // numbers of files that somebody may still want to look at
		if n, ok := levels.ParseTableName(e.Name); ok && n >= j.next {
			j.next = n + 1
		}
	}
	for _, t := range j.s.Tables() {
		if err := j.table(ctx, t); err != nil {
			return err
		}
	}
	if err := j.log(ctx); err != nil {
		return err
	}
	if err := j.manifest(); err != nil {
		return err
	}
	return j.verify(ctx)
}

func (j *job) lose(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	j.report.Lost = append(j.report.Lost, s)
	j.o.Say("LOST: %s", s)
}

// lock keeps others from opening the store meanwhile. One that nobody can have locked, on a disk that takes no lock, may be read.
func (j *job) lock() (unlock func(), err error) {
	name := path.Join(j.from, lockName)
	if _, err := j.fs.Stat(name); err != nil {
		return func() {}, nil
	}
	l, err := j.fs.Lock(name)
	switch {
	case err == nil:
		return func() { _ = l.Close() }, nil
	case errors.Is(err, vfs.ErrLocked) && !j.o.Force:
		return nil, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return func() {}, nil
}

// manifests tells which state was taken.
func (j *job) manifests() {
	v := j.s.Version
	j.o.Say("manifest %d: store %016x, %d edits, the last is %d", j.s.Num, v.StoreID, j.s.Edits, v.EditNum)
	for _, err := range j.s.Bad {
		j.o.Say("manifest, one copy: %v; the other one is used", err)
	}
	if j.s.Cut == nil {
		return
	}
	j.lose("all changes of the list of files after edit %d: %v", v.EditNum, j.s.Cut)
	for _, e := range j.s.Other {
		if _, ok := levels.ParseTableName(e.Name); ok {
			j.lose("table file %s, which that state does not know; btdump export prints what it holds", e.Name)
		}
	}
}

// inside reports whether a directory is another one or lies in it, as far as their names say.
func inside(dir, of string) bool {
	dir, of = whole(dir), whole(of)
	return dir == of || strings.HasPrefix(dir, strings.TrimSuffix(of, "/")+"/")
}

func whole(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = filepath.ToSlash(abs)
	}
	return path.Clean(dir)
}

// begin makes the new directory.
func (j *job) begin() error {
	if inside(j.to, j.from) {
		return fmt.Errorf("%s: %w %s", j.to, ErrInside, j.from)
	}
	var err error
	j.dir, err = vfs.NewDir(j.fs, j.to)
	return err
}

// manifest makes the new directory a store.
func (j *job) manifest() error {
	e := j.s.Version.Snapshot()
	e.Added, e.StoreID, e.CheckpointOf, e.LogStart, e.NextFile = j.added, j.id, 0, j.logStart, j.next
	e.Logged = 0 // the new log ends where the old one's damage begins, and goes on above the old one's sequences
	empty := levels.NewVersion(nil)
	defer empty.Unref()
	v, err := empty.Apply(e)
	if err != nil {
		return err
	}
	defer v.Unref()
	if err := j.fs.SyncDir(j.to); err != nil {
		return err
	}
	for _, name := range levels.ManifestCopies(1) {
		j.made = append(j.made, path.Join(j.to, name))
	}
	m, err := levels.CreateManifest(j.fs, j.to, 1, v)
	if err != nil {
		return err
	}
	return m.Close()
}

// verify holds the new store to what every store must be.
func (j *job) verify(ctx context.Context) error {
	s, err := inspect.Open(j.fs, j.to)
	if err != nil {
		return err
	}
	r, err := s.Verify(ctx, nil)
	if err = errors.Join(append(slices.Concat(r.Errors, s.Bad), err)...); err != nil {
		return fmt.Errorf("the new store: %w", err)
	}
	if r.Records != j.report.Records {
		return fmt.Errorf("the new log has %d records, not %d", r.Records, j.report.Records)
	}
	return nil
}

// undo removes what was made.
func (j *job) undo() error {
	var errs []error
	for _, name := range j.made {
		if err := j.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if j.dir {
		errs = append(errs, j.fs.Remove(j.to))
	}
	return errors.Join(errs...)
}
