package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/compact"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/io/direct"
	"github.com/rowandb/rowan/io/mapped"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// compact carries out a plan; whole says that somebody waits for that and nothing else.
func (db *DB) compact(plan *levels.Plan, whole bool) (err error) {
	defer mapped.Leave(mapped.Enter(), &err)
	whole = whole || db.clock.idle()
	st, asOf := db.beginCollect()
	defer st.unref()
	tree, table := st.version.Trees[plan.Tree], st.tableOf(plan.Tree)
	if tree == nil || table == nil {
		return nil // dropped meanwhile
	}
	edit := &levels.Edit{}
	for _, in := range plan.Inputs {
		edit.Deleted = append(edit.Deleted, levels.DeletedFile{Tree: plan.Tree, Level: in.Level, Num: in.File.Num})
	}
	if plan.Move {
		edit.Added = append(edit.Added, levels.AddedFile{Tree: plan.Tree, Level: plan.Output, File: plan.Inputs[0].File})
		if err := db.install(edit, nil, nil); err != nil {
			return err
		}
		db.stats.moves.Add(1)
		return nil
	}
	edit.EngineTime = asOf
	g := table.group(plan.Tree)
	n, ok := g.standing.Fit(tree, plan, st.oldestMem(plan.Tree))
	if !ok {
		return errOutrun // a change came between choosing and beginning
	}
	settled, layers := table.through(g, n)
	db.logger.Debug("compaction begins", "table", table.Name, "files", len(plan.Inputs), "output", plan.Output, "why", plan.Why)
	job := &compact.Job{
		Older: olderFiles(tree, plan, plan.Output).overlap, FileBytes: db.opts.TableFileBytes, Check: db.jobs.check,
		Settled: settled,
	}
	if plan.Output == 0 || plan.Split {
		job.Cuts = db.cuts(st, plan.Tree, plan.Output, plan.Bytes(), plan)
	}
	for _, in := range plan.Inputs {
		job.Ranges = job.Ranges || in.File.Ranges > 0
		job.Deletes = job.Deletes || in.File.Deletes > 0
		if job.FirstSeq == 0 || in.File.FirstSeq < job.FirstSeq {
			job.FirstSeq = in.File.FirstSeq
		}
		job.LastSeq = max(job.LastSeq, in.File.LastSeq)
	}
	hull := plan.Bounds()
	job.Hull = &hull
	mems := st.trees[plan.Tree]
	cfg := merge.Config{Families: table.families, AsOf: asOf, MayRank: db.holesIn(st, plan.Tree, mems.sealed, plan)}
	cuts, err := db.parts(plan, whole)
	if err != nil {
		return err
	}
	var jobs []*compact.Job
	for i := range len(cuts) + 1 {
		part := *job
		part.Merge = merge.New(cfg, db.inputs(plan, g, layers))
		defer part.Merge.Close()
		if i > 0 {
			part.From = cuts[i-1]
		}
		if i < len(cuts) {
			part.To = cuts[i]
		}
		jobs = append(jobs, &part)
	}
	res, err := db.write(table, plan.Tree, jobs, plan.Output, plan.Bytes())
	if err != nil {
		return fmt.Errorf("compact %d files into level %d of table %q (%s): %w", len(plan.Inputs), plan.Output, table.Name, plan.Why, err)
	}
	for _, f := range res.Files {
		edit.Added = append(edit.Added, levels.AddedFile{Tree: plan.Tree, Level: plan.Output, File: f})
	}
	if res.Collected > 0 {
		edit.Collected = append(edit.Collected, levels.Collected{Tree: plan.Tree, Time: asOf})
	}
	if err := db.installJob(edit, res.Files, table, nil); err != nil {
		return err
	}
	db.stats.compactions.Add(1)
	db.logger.Debug("compaction ends", "table", table.Name, "files", len(res.Files), "bytes", res.BytesWritten)
	db.stats.count(&res)
	for _, in := range plan.Inputs {
		db.stats.bytesCompacted.Add(uint64(in.File.Size))
	}
	return nil
}

// inputs returns a plan's files as sources, newest first. What is behind the first layers of changes of rules comes as one
// source, seen through them.
func (db *DB) inputs(plan *levels.Plan, g *group, layers int) []cell.Iter {
	var older []cell.Iter
	for i := range layers {
		in := append(db.inputsOf(plan, g, func(f *levels.File) bool { return g.class(f) == i }), older...)
		if older = in; len(in) > 0 {
			older = []cell.Iter{merge.NewNested(merge.New(merge.Config{Families: g.layers[i].families}, in))}
		}
	}
	return append(db.inputsOf(plan, g, func(f *levels.File) bool { return layers == 0 || g.class(f) >= layers }), older...)
}

// inputsOf returns the chosen ones of a plan's files: each file of L0 by itself, each other level as a run.
func (db *DB) inputsOf(plan *levels.Plan, g *group, chosen func(*levels.File) bool) []cell.Iter {
	open := g.opener(db.files.opener(cell.IterOptions{NoFill: true}))
	var src []cell.Iter
	var run []*levels.File
	level := 0
	flush := func() {
		slices.SortFunc(run, func(a, b *levels.File) int {
			if a.Bounds.Before(b.Bounds) {
				return -1
			}
			return 1
		})
		if len(run) > 0 {
			src = append(src, merge.NewRun(run, open))
		}
		run = nil
	}
	for _, in := range plan.Inputs {
		if !chosen(in.File) {
			continue
		}
		if in.Level == 0 {
			src = append(src, merge.NewRun([]*levels.File{in.File}, open))
			continue
		}
		if in.Level != level {
			flush()
			level = in.Level
		}
		run = append(run, in.File)
	}
	flush()
	return src
}

// createTable makes the next table file of a job.
func (db *DB) createTable(table *rtable, tree uint64, level int, expect int64) (*compact.Output, error) {
	num := db.nextFile.Add(1) - 1
	id := db.opts.Random()
	expect = min(expect, db.opts.TableFileBytes, 64<<20)
	if db.space.low.Load() {
		expect = 0 // what is reserved beyond need may be all that is left
	}
	sink, err := direct.Create(db.fs, db.files.path(num), direct.Options{NoDirect: db.opts.Buffered, Expect: expect})
	if err != nil {
		return nil, db.gone(fmt.Errorf("create table file: %w", err))
	}
	o := table.Options
	return &compact.Output{Num: num, ID: id, Sink: sink, Opts: sstable.WriterOptions{
		ID: id, Tree: tree, TreeName: table.treeName(tree), Level: level, Rules: rulesText(table.Table),
		BlockSize: int(o.BlockSize), Codec: Codec(o.Codec).block(), BloomBits: int(o.BloomBits), ColumnFilter: o.ColumnFilter,
	}}, nil
}

// treeName is what people know a tree of the table by.
func (t *rtable) treeName(tree uint64) string {
	for _, g := range t.Groups {
		if g.Tree == tree && g.Name != "" {
			return t.Name + "/" + g.Name
		}
	}
	return t.Name
}

func rulesText(t *levels.Table) string {
	var b bytes.Buffer
	for i, f := range t.Families {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %s", f.Name, f.Rule)
	}
	return b.String()
}

// fileRuns are runs of disjoint files, to be asked whether any of them speaks for a place.
type fileRuns [][]*levels.File

func (rs fileRuns) overlap(row []byte, cols cell.Range) bool {
	b := cell.Bounds{LoRow: row, LoCol: cols.From, HiRow: row, HiCol: cols.To}
	for _, run := range rs {
		if len(levels.Overlapping(run, b)) > 0 {
			return true
		}
	}
	return false
}

// olderFiles returns the files of a tree that may hold something older than the output of a plan into level output: all that
// is at or below that level and no input. For output to L0, and for a flush (no plan), that is every file.
func olderFiles(t *levels.Tree, plan *levels.Plan, output int) fileRuns {
	var out fileRuns
	add := func(files []*levels.File) {
		var run []*levels.File
		for _, f := range files {
			if plan == nil || !plan.Has(f.Num) {
				run = append(run, f)
			}
		}
		if len(run) > 0 {
			out = append(out, run)
		}
	}
	if output == 0 {
		for _, sub := range t.Sub {
			add(sub)
		}
	}
	for l := max(output, 1); l < levels.Depth; l++ {
		add(t.Files[l])
	}
	return out
}

// holesIn returns the question that a merge of some sources of a tree asks before it drops versions of a column by rank: does
// a newer source delete single versions there? nil when no newer source has any, so that ranks can be trusted.
//
// Newer are the memtables given together with the active one, and the files at or above the inputs' levels.
func (db *DB) holesIn(st *state, tree uint64, sealed []*mem, plan *levels.Plan) func(row, col []byte) (bool, error) {
	var mems []*mem
	for _, m := range append(sealed[:len(sealed):len(sealed)], st.trees[tree].active) {
		if m.HasHoles() {
			mems = append(mems, m)
		}
	}
	var files []*levels.File
	if plan != nil {
		bounds := plan.Bounds()
		deepest := 0
		for _, in := range plan.Inputs {
			deepest = max(deepest, in.Level)
		}
		for l := 0; l <= deepest; l++ {
			for _, f := range st.version.Trees[tree].Files[l] {
				if f.Holes > 0 && !plan.Has(f.Num) && f.Bounds.Overlaps(bounds) {
					files = append(files, f)
				}
			}
		}
	}
	if len(mems) == 0 && len(files) == 0 {
		return nil
	}
	return func(row, col []byte) (bool, error) {
		for _, m := range mems {
			if m.Holes(row, col) {
				return false, nil
			}
		}
		for _, f := range files {
			if !f.Bounds.ContainsRow(row) {
				continue
			}
			has, err := db.fileHasHole(f, row, col)
			if errors.Is(err, ErrDamaged) {
				return false, nil // it may have one, and must not take the good inputs down with it
			}
			if has || err != nil {
				return false, err
			}
		}
		return true, nil
	}
}

func (db *DB) fileHasHole(f *levels.File, row, col []byte) (has bool, err error) {
	t, err := db.files.table(f)
	if err != nil {
		return false, err
	}
	it := t.NewIter(cell.IterOptions{NoFill: true})
	defer closeInto(it, &err)
	if !it.SeekGE(row) || !bytes.Equal(it.Row(), row) {
		return false, it.Err()
	}
	it.SeekDelete(col)
	buf := make([]cell.Delete, 0, 8)
	for {
		buf = it.Deletes(buf[:0])
		if len(buf) == 0 {
			return false, it.Err()
		}
		for _, d := range buf {
			if !bytes.Equal(d.Col, col) {
				return false, nil
			}
			if d.Lo > 0 {
				return true, nil
			}
		}
	}
}

// Flush writes everything in memtables to table files and returns when that is done.
func (db *DB) Flush(ctx context.Context) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	return db.flushAll(ctx, nil)
}

// flushAll seals and flushes the trees chosen, all of them if trees is nil.
func (db *DB) flushAll(ctx context.Context, only *rtable) error {
	if err := db.writable(); err != nil {
		return err
	}
	db.placeMu.Lock()
	seq := db.nextSeq - 1
	for id := range db.states.cur.Load().trees {
		if only == nil || only.HasTree(id) {
			db.seal(id)
		}
	}
	db.placeMu.Unlock()
	before := db.jobs.retryNow()
	return db.jobs.wait(ctx, func() (bool, error) {
		if err := db.health.failed(); err != nil {
			return false, err
		}
		st := db.states.pin()
		defer st.unref()
		for id, t := range st.trees {
			if (only == nil || only.HasTree(id)) && len(t.sealed) > 0 && t.sealed[0].first <= seq {
				return false, diskFull(db.health.failedSince(before))
			}
		}
		return true, nil
	})
}

// Compact merges all files of the table that overlap rows, after a flush, into one level: every delete and every cell that
// rules no longer keep is gone from disk when it returns, older snapshots aside. Files of which that is true already stay as they
// are. It needs as much free space as what it merges. Background compaction does the same by and by; nobody needs to call this.
func (t *Table) Compact(ctx context.Context, rows RowRange) error {
	db := t.db
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	spans, err := rows.spans(nil)
	if err != nil {
		return err
	}
	if len(spans) == 0 {
		return nil
	}
	st := db.states.pin()
	table := st.tables[t.name]
	st.unref()
	if table == nil {
		return fmt.Errorf("%w: %q", ErrNoTable, t.name)
	}
	if err := db.flushAll(ctx, table); err != nil {
		return err
	}
	for _, g := range table.Groups {
		if err := db.compactRange(ctx, g.Tree, spans[0]); err != nil {
			return err
		}
	}
	return nil
}

// Compact compacts every table whole, see Table.Compact.
func (db *DB) Compact(ctx context.Context) error {
	names, err := db.Tables(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		err := db.Table(name).Compact(ctx, AllRows())
		if err != nil && !errors.Is(err, ErrNoTable) { // dropped since
			return fmt.Errorf("table %q: %w", name, err)
		}
	}
	return nil
}

func (db *DB) compactRange(ctx context.Context, tree uint64, s span) error {
	var bounds *cell.Bounds
	if len(s.lo) > 0 || s.hi != nil {
		bounds = &cell.Bounds{LoRow: s.lo, HiRow: s.hi}
		if s.hi == nil {
			bounds.HiRow = bytes.Repeat([]byte{0xff}, cell.RowKeyMax)
		}
	}
	ended := make(chan error, 1)
	started := false
	j := &db.jobs
	known := db.propertiesIn(tree, bounds)
	j.mu.Lock()
	j.manual++
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		j.manual--
		j.mu.Unlock()
		j.kick() // the others have stood back
	}()
	return j.wait(ctx, func() (bool, error) {
		select {
		case err := <-ended:
			switch {
			case errors.Is(err, errTreeGone):
				return true, nil // nothing is left to do
			case !errors.Is(err, errOutrun):
				return true, diskFull(err)
			}
			started = false
		default:
		}
		if started {
			return false, nil
		}
		if err := j.check(); err != nil {
			return false, err
		}
		j.mu.Lock()
		st := db.states.pin() // under mu, see kick
		defer st.unref()
		defer j.mu.Unlock()
		t := st.version.Trees[tree]
		if t == nil {
			return true, nil // dropped
		}
		plan, ok := levels.PlanRange(t, &j.busy, bounds, st.standing(tree), db.done(st.tableOf(tree), known))
		switch {
		case ok && len(plan.Inputs) == 0:
			return true, nil
		case ok && plan.Bytes() > j.db.space.room(j.claimed) && !plan.Move:
			if j.running > 0 {
				return false, nil // they give space back, perhaps
			}
			return false, fmt.Errorf("compact: %w: it takes %d bytes beside what is there", ErrDiskFull, plan.Bytes())
		case ok && !j.db.fits(st, t, &plan):
			return false, nil // a flush comes first
		case ok:
			started = true
			j.startCompaction(plan, func(err error) { ended <- err })
		case j.running == 0 && j.dropping == 0:
			return false, fmt.Errorf("compact: a damaged file is in the way: %w", db.Health().Cause)
		}
		return false, nil
	})
}
