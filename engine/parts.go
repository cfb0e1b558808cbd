package engine

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/engine/internal/compact"
	"github.com/rowandb/rowan/io/mapped"
	"github.com/rowandb/rowan/levels"
)

const (
	// partBytes is what each part of a merge that is done in parts has of its inputs, at least.
	partBytes = 16 << 20
	// partPieces is how finely an input is looked at to find parts of about the same size.
	partPieces = 64
	// idleAfter is for how long nobody has read or written when a store counts as idle.
	idleAfter = 10 * time.Millisecond
)

// idle reports whether nobody has asked for the time for a while, as reads and writes do.
func (c *clock) idle() bool {
	return c.moment().t.UnixMicro()-c.mark.Load() >= idleAfter.Microseconds()
}

// parts are the rows, ascending, at which a merge is cut into parts that are done side by side: none unless processors would stand idle
// otherwise. While the store is in use a merge takes one of them, and leaves the others to readers and writers.
func (db *DB) parts(plan *levels.Plan, wanted bool) ([][]byte, error) {
	n := min(runtime.GOMAXPROCS(0), db.opts.Compactions, int(plan.Bytes()/db.partBytes))
	if n < 2 || !wanted || plan.Split || db.inline() {
		return nil, nil
	}
	var all []partPiece
	total := int64(0)
	for _, in := range plan.Inputs {
		r, err := db.files.table(in.File)
		if err != nil {
			return nil, err
		}
		from := len(all)
		r.Split(partPieces, func(row []byte, _ int64) { all = append(all, partPiece{row: bytes.Clone(row)}) })
		for i := range all[from:] {
			all[from+i].size = in.File.Size / int64(len(all)-from)
			total += all[from+i].size
		}
	}
	slices.SortStableFunc(all, func(a, b partPiece) int { return bytes.Compare(a.row, b.row) })
	var rows [][]byte
	before := int64(0)
	for _, p := range all {
		if len(rows) < n-1 && before >= total/int64(n)*int64(len(rows)+1) && (len(rows) == 0 || !bytes.Equal(rows[len(rows)-1], p.row)) {
			rows = append(rows, p.row)
		}
		before += p.size
	}
	return rows, nil
}

type partPiece struct {
	row  []byte
	size int64
}

// errPart ends the other parts of a merge when one has failed.
var errPart = errors.New("another part of the merge has failed")

// write runs a job, in parts that are done side by side if there are several, and makes its files durable, directory included. On
// error the files are gone. expect is about how many bytes they will have.
func (db *DB) write(table *rtable, tree uint64, jobs []*compact.Job, level int, expect int64) (compact.Result, error) {
	var mu sync.Mutex
	var made []levels.Num
	var failed atomic.Bool
	results, errs := make([]compact.Result, len(jobs)), make([]error, len(jobs))
	run := func(i int) (err error) {
		defer mapped.Leave(mapped.Enter(), &err)
		job := jobs[i]
		check := job.Check
		job.Check = func() error {
			if failed.Load() {
				return errPart
			}
			return check()
		}
		job.Create = func() (*compact.Output, error) {
			out, err := db.createTable(table, tree, level, expect/int64(len(jobs)))
			if err == nil {
				mu.Lock()
				made = append(made, out.Num)
				mu.Unlock()
			}
			return out, err
		}
		results[i], err = job.Run()
		return err
	}
	var wg sync.WaitGroup
	part := func(i int) {
		if errs[i] = run(i); errs[i] != nil {
			failed.Store(true)
		}
	}
	for i := 1; i < len(jobs); i++ {
		wg.Go(func() { part(i) })
	}
	part(0)
	wg.Wait()
	var res compact.Result
	var err error
	for i := range jobs {
		res.Join(&results[i])
		if errs[i] != nil && (err == nil || errors.Is(err, errPart)) {
			err = errs[i]
		}
	}
	if err == nil && len(res.Files) > 0 {
		if err = db.fs.SyncDir(db.dir); err != nil {
			err = fmt.Errorf("sync directory %s: %w", db.dir, err)
		}
	}
	if err != nil {
		for _, num := range made {
			if e := db.fs.Remove(db.files.path(num)); e != nil {
				db.logger.Warn("cannot remove the output of a job that ended early", "file", db.files.path(num), "cause", e)
			}
		}
	}
	return res, err
}
