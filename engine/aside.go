package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/levels"
)

// SetAsideFile is a table file that is damaged or missing. Reads that need it fail with its error, as long as they are not told
// to leave it out (LeaveOutDamaged); compactions leave it alone, and what it may hold counts as present for what they drop, so
// that nothing comes back when it is repaired. It is set aside until no version of the store lists it any more: until its rows,
// or its table, are dropped, or the store is replaced by a repaired or restored one.
type SetAsideFile struct {
	File     string // path
	Table    string
	Level    int
	From, To string // first and last row that it may hold
	Bytes    int64
	Cause    error // what is wrong; errors.Is(Cause, ErrDamaged)
	Since    time.Time
	num      levels.Num
}

// asides are the files that are set aside.
type asides struct {
	any atomic.Bool // there are some

	mu    sync.Mutex // guards what follows; nothing else is locked under it
	files map[levels.Num]SetAsideFile
}

// list returns them by table and rows.
func (a *asides) list() []SetAsideFile {
	if !a.any.Load() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []SetAsideFile
	for _, f := range a.files {
		out = append(out, f)
	}
	slices.SortFunc(out, func(x, y SetAsideFile) int {
		return cmp.Or(cmp.Compare(x.Table, y.Table), cmp.Compare(x.From, y.From), cmp.Compare(x.num, y.num))
	})
	return out
}

// cause tells when the first file was set aside, and joins the causes.
func (a *asides) cause() (since time.Time, err error) {
	var errs []error
	for _, f := range a.list() {
		errs = append(errs, f.Cause)
		if since.IsZero() || f.Since.Before(since) {
			since = f.Since
		}
	}
	return since, errors.Join(errs...)
}

// of is why a file is set aside, nil if it is not.
func (a *asides) of(num levels.Num) error {
	if !a.any.Load() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.files[num].Cause
}

// setAside sets a file of a version aside, once: it is named in Health, and no job takes it any more.
func (db *DB) setAside(v *levels.Version, num levels.Num, cause error) {
	found := false
	var file SetAsideFile
	v.Live(func(tree uint64, level int, f *levels.File) {
		if f.Num != num {
			return
		}
		found = true
		file = SetAsideFile{
			File: db.files.path(num), Level: level, From: string(f.Bounds.LoRow), To: string(f.Bounds.HiRow), Bytes: f.Size,
			Cause: cause, Since: db.opts.Clock(), num: num,
		}
		if t := v.Schema.TableOfTree(tree); t != nil {
			file.Table = t.Name
		}
	})
	if !found {
		return // gone meanwhile
	}
	a := &db.aside
	a.mu.Lock()
	if _, has := a.files[num]; has {
		a.mu.Unlock()
		return
	}
	if a.files == nil {
		a.files = map[levels.Num]SetAsideFile{}
	}
	a.files[num] = file
	a.any.Store(true)
	a.mu.Unlock()
	db.jobs.mu.Lock()
	db.jobs.busy.SetAside(num)
	db.jobs.mu.Unlock()
	db.logger.Error("damaged table file set aside: reads of its rows fail, compactions leave it alone", "file", file.File, "table", file.Table,
		"level", file.Level, "from", file.From, "to", file.To, "cause", cause)
	// The file may have been dropped since v was current, and then no later edit may come to say so.
	st := db.states.pin()
	defer st.unref()
	db.forgetAside(st.version)
}

// forgetAside ends the state of files that the version no longer lists.
func (db *DB) forgetAside(v *levels.Version) {
	if !db.aside.any.Load() {
		return
	}
	live := map[levels.Num]bool{}
	v.Live(func(_ uint64, _ int, f *levels.File) { live[f.Num] = true })
	a := &db.aside
	var gone []levels.Num
	a.mu.Lock()
	for num, f := range a.files {
		if !live[num] {
			gone = append(gone, num)
			delete(a.files, num)
			db.logger.Info("a file that was set aside is gone", "file", f.File, "table", f.Table)
		}
	}
	a.any.Store(len(a.files) > 0)
	a.mu.Unlock()
	db.jobs.mu.Lock()
	defer db.jobs.mu.Unlock()
	for _, num := range gone {
		db.jobs.busy.Return(num)
	}
}

// met sets the file aside that a read's error names as damaged, if it is one of the current state.
func (db *DB) met(err error) {
	if err == nil || !errors.Is(err, ErrDamaged) {
		return
	}
	var d *damage.Error
	if !errors.As(err, &d) {
		return
	}
	num, ok := levels.ParseTableName(path.Base(d.File))
	if !ok || db.aside.of(num) != nil {
		return
	}
	st := db.states.pin()
	defer st.unref()
	db.setAside(st.version, num, err)
}

// noted is met for the error of a call that ends, and adds to it what the file holds; to be deferred before the guard against faults
// is.
func (db *DB) noted(err *error) {
	if *err != nil {
		db.met(*err)
		*err = db.whereabouts(*err)
	}
}

// inFile is an error of a table file that is set aside, with what the file holds.
type inFile struct {
	err  error
	file SetAsideFile
}

func (e *inFile) Error() string {
	return fmt.Sprintf("%v (table %q, level %d, rows %.64q to %.64q)", e.err, e.file.Table, e.file.Level, e.file.From, e.file.To)
}

func (e *inFile) Unwrap() error { return e.err }

// whereabouts adds to the error of a file that is set aside which table, level and rows it is of: who reads it should not have to
// search for what is lost.
func (db *DB) whereabouts(err error) error {
	var d *damage.Error
	var have *inFile
	if !db.aside.any.Load() || !errors.As(err, &d) || errors.As(err, &have) {
		return err
	}
	num, ok := levels.ParseTableName(path.Base(d.File))
	if !ok {
		return err
	}
	a := &db.aside
	a.mu.Lock()
	defer a.mu.Unlock()
	if f, ok := a.files[num]; ok {
		return &inFile{err, f}
	}
	return err
}

// missing is the error of a table file that is not there.
func missing(name string) error {
	return &damage.Error{File: name, Part: "table file", Offset: -1, Detail: "missing", Cause: fs.ErrNotExist}
}
