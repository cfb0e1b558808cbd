package fuzz

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/sstable"
)

// Counts is what happened in runs: operations, events, and the modes that were in force. Add sums up.
type Counts struct {
	N                  map[string]int
	Mapped, Positional int
	DirectLog          bool
	CacheHits          uint64
	CacheMisses        uint64
	SlotsReused        uint64
	Filtered           uint64
	Levels             int // most levels in use at once
}

// Get is the count of an operation or event.
func (c *Counts) Get(name string) int { return c.N[name] }

func (c *Counts) add(name string, n int) {
	if c.N == nil {
		c.N = map[string]int{}
	}
	c.N[name] += n
}

// Add adds o to c.
func (c *Counts) Add(o *Counts) {
	for k, n := range o.N {
		c.add(k, n)
	}
	c.Mapped, c.Positional = max(c.Mapped, o.Mapped), max(c.Positional, o.Positional)
	c.DirectLog = c.DirectLog || o.DirectLog
	c.CacheHits += o.CacheHits
	c.CacheMisses += o.CacheMisses
	c.SlotsReused += o.SlotsReused
	c.Filtered += o.Filtered
	c.Levels = max(c.Levels, o.Levels)
}

// Failure is the first difference between store and model.
type Failure struct {
	Step int // index of the operation, len(ops) for the end
	Op   Op
	Err  error
}

func (f *Failure) Error() string { return fmt.Sprintf("step %d, %s: %v", f.Step, f.Op, f.Err) }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Run runs a list on a new store of the set and compares it with a model after every step. The error is a *Failure, or says
// that the store could not even be made. Panics come as failures too.
func Run(s *Config, ops []Op, counts *Counts) (err error) {
	r := &runner{set: s, counts: counts, model: NewModel(Start), snaps: map[int64]*snap{}, exec: new(inline), r: rand.New(rand.NewPCG(1, 2))}
	if s.Disk {
		dir, err := os.MkdirTemp("", "rowan-oracle-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		r.fs, r.dir = vfs.OS(), path.Join(dir, "store")
	} else {
		r.setMem(vfs.NewMem(s.Mem))
		r.dir = "/store"
	}
	at := -1
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		var o Op
		if at >= 0 && at < len(ops) {
			o = ops[at]
		}
		if r.db != nil {
			if e := r.db.Close(); err == nil && e != nil {
				err = e
			}
		}
		if err != nil {
			err = &Failure{at, o, err}
		}
	}()
	if err := r.open(); err != nil {
		return err
	}
	for i, o := range ops {
		at = i
		r.model.Now += StepMicros
		r.counts.add(o.Kind.String(), 1)
		before := r.before()
		if err := r.step(o); err != nil {
			return err
		}
		if err := r.crash(o, before); err != nil {
			return err
		}
		if i%64 == 63 {
			if err := r.compareAll(r.model, 0); err != nil {
				return err
			}
		}
	}
	at = len(ops)
	if err := r.compareAll(r.model, 0); err != nil {
		return err
	}
	return r.close()
}

type runner struct {
	set    *Config
	counts *Counts
	fs     vfs.FS
	mem    *vfs.Mem
	dir    string
	db     *engine.DB
	model  *Model
	snaps  map[int64]*snap
	exec   *inline
	r      *rand.Rand
	lost   []undo // batches that a power cut may take, oldest first
	cut    cut
	back   int64 // how far the wall clock is behind engine time
	cutAt  int64 // engine time of the last power cut
}

// cut is a power cut that is to happen inside an operation.
type cut struct {
	mu    sync.Mutex
	in    int64 // calls that make something durable until then; 0 = none planned
	image *vfs.Mem
}

func (r *runner) setMem(m *vfs.Mem) {
	r.mem, r.fs = m, m
	m.SetInFlight(func(string, string) {
		r.cut.mu.Lock()
		defer r.cut.mu.Unlock()
		if r.cut.in > 0 {
			if r.cut.in--; r.cut.in == 0 {
				r.cut.image = m.CrashClone(uint64(r.model.Now), 0.5)
			}
		}
	})
}

// before keeps what a power cut inside the next operation may lead back to, if one is planned.
func (r *runner) before() *memory {
	r.cut.mu.Lock()
	defer r.cut.mu.Unlock()
	if r.cut.in == 0 && r.cut.image == nil {
		return nil
	}
	return &memory{r.model.Clone(), slices.Clone(r.lost)}
}

// memory is a model, and the batches in it that a power cut may take.
type memory struct {
	model *Model
	lost  []undo
}

// crash goes on from the image of a power cut during operation o, if there was one.
func (r *runner) crash(o Op, before *memory) error {
	r.cut.mu.Lock()
	image := r.cut.image
	r.cut.image = nil
	r.cut.mu.Unlock()
	if image == nil {
		return nil
	}
	if before == nil {
		before = &memory{r.model.Clone(), r.lost} // the call was still under way when the cut was planned
	}
	r.counts.add("power cut during "+o.Kind.String(), 1)
	before.model.Now = r.model.Now
	// What the operation did is there, or it is not and as much as may be lost before it.
	return r.restart(image, []*memory{{r.model, r.lost}, before})
}

type snap struct {
	s *engine.Snapshot
	m *Model
}

// undo is what rows looked like before a batch.
type undo []oldRow

type oldRow struct {
	table, key string
	row        *ModelRow
}

var ctx = context.Background()

func (r *runner) open() error {
	o := base(r.set.Options)
	o.FS, o.Background, o.Random = r.fs, r.exec, r.r.Uint64
	o.Clock = func() time.Time { return time.UnixMicro(r.model.Now - r.back) }
	db, err := engine.Open(r.dir, o)
	if err != nil {
		return err
	}
	r.db = db
	return nil
}

// close closes the store, counts what it did, and verifies every file it leaves.
func (r *runner) close() error {
	for n, s := range r.snaps {
		if err := s.s.Close(); err != nil {
			return err
		}
		delete(r.snaps, n)
	}
	r.countEvents()
	db := r.db
	r.db = nil
	if err := db.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	r.lost = nil
	return r.verify()
}

func (r *runner) countEvents() {
	m := r.db.Metrics()
	c := r.counts
	c.add("flushed", int(m.Flushes))
	c.add("merge", int(m.Compactions))
	c.add("move", int(m.Moves))
	c.add("collected cells", int(m.CollectedCells))
	c.add("forgotten deletes", int(m.ForgottenDeletes))
	c.add("replay", int(m.ReplayedBatches))
	c.Mapped, c.Positional = max(c.Mapped, m.MappedFiles), max(c.Positional, m.PositionalFiles)
	c.DirectLog = c.DirectLog || m.Log.Direct
	c.CacheHits += m.CacheHits
	c.CacheMisses += m.CacheMisses
	c.SlotsReused += m.Log.SlotsReused
	c.Filtered += m.FilteredFiles
	n := 0
	for _, l := range m.Levels {
		if l.Files > 0 {
			n++
		}
	}
	c.Levels = max(c.Levels, n)
}

func (r *runner) verify() error {
	list, err := r.fs.List(r.dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if !strings.HasSuffix(e.Name, ".sst") {
			continue
		}
		if err := verifyTable(r.fs, path.Join(r.dir, e.Name)); err != nil {
			return err
		}
		r.counts.add("file verified", 1)
	}
	return nil
}

func verifyTable(fs vfs.FS, name string) error {
	f, err := fs.Open(name, vfs.How{})
	if err != nil {
		return err
	}
	t, err := sstable.Open(f, sstable.ReaderOptions{Mode: sstable.Positional})
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(t.Verify(ctx, nil), t.Close())
}

func (r *runner) step(o Op) error {
	// A shrunk list may speak of tables and snapshots that are not there: such a step does nothing.
	switch o.Kind {
	case OpGet, OpScan, OpStream, OpPages:
		if s := r.snaps[o.Read.Snapshot]; o.Read.Snapshot != 0 && (s == nil || s.m.Tables[o.Table] == nil) {
			return nil
		}
	}
	if o.Table != "" && o.Kind != OpCreate && o.Read.Snapshot == 0 && r.model.Tables[o.Table] == nil {
		return nil
	}
	switch o.Kind {
	case OpApply:
		return r.apply(o)
	case OpRefused:
		return r.refused(o)
	case OpGet, OpScan, OpStream, OpPages:
		return r.read(o)
	case OpAlter:
		return r.alter(o)
	case OpDropRows:
		err := r.db.Table(o.Table).DropRowRange(ctx, rowRange(o.Read.Rows[0]))
		if err != nil {
			return err
		}
		r.model.DropRows(o.Table, o.Read.Rows[0])
		r.lost = nil
		return r.compareAll(r.model, 0)
	case OpBack:
		// Engine time stands still meanwhile: nothing that is hidden shows again.
		if err := r.compareAll(r.model, 0); err != nil {
			return err
		}
		r.back = o.N
		defer func() { r.back = 0 }()
		if err := r.compareAll(r.model, 0); err != nil {
			return err
		}
		r.exec.run(1)
		return r.compareAll(r.model, 0)
	case OpFlush:
		if err := r.db.Flush(ctx); err != nil {
			return err
		}
		r.lost = nil
		return r.compareAll(r.model, 4)
	case OpCompact:
		if err := r.db.Table(o.Table).Compact(ctx, rowRange(o.Read.Rows[0])); err != nil {
			return err
		}
		return r.compareAll(r.model, 4)
	case OpWork:
		r.exec.run(int(o.N))
	case OpTick:
		r.model.Now += o.N
	case OpSync:
		r.lost = nil
		return r.db.Sync(ctx)
	case OpSnapshot:
		if r.snaps[o.N] != nil {
			return nil
		}
		s, err := r.db.Snapshot()
		if err != nil {
			return err
		}
		r.snaps[o.N] = &snap{s, r.model.Clone()}
	case OpForget:
		if s := r.snaps[o.N]; s != nil {
			delete(r.snaps, o.N)
			return errors.Join(r.compareSnap(s), s.s.Close())
		}
	case OpCreate:
		return r.create(o.Table)
	case OpDrop:
		delete(r.model.Tables, o.Table)
		r.lost = nil
		return r.db.DropTable(ctx, o.Table)
	case OpReopen:
		if err := r.close(); err != nil {
			return err
		}
		if err := r.open(); err != nil {
			return err
		}
		return r.compareAll(r.model, 0)
	case OpKill:
		return r.kill(o)
	case OpKillIn:
		if r.mem != nil {
			r.cut.mu.Lock()
			r.cut.in = o.N
			r.cut.mu.Unlock()
		}
	case OpRawCheck:
		return r.rawCheck()
	}
	return nil
}

func (r *runner) create(name string) error {
	s := r.set.Spec
	s.Families = map[string]engine.FamilySpec{}
	for name, f := range Families {
		s.Families[name] = spec(name, f.Rule, r.set.Grouped)
	}
	_, err := r.db.CreateTable(ctx, name, s)
	if r.model.Tables[name] != nil {
		if !errors.Is(err, engine.ErrTableExists) {
			return fmt.Errorf("create of a table that exists: %v", err)
		}
		return nil
	}
	r.model.Tables[name] = &ModelTable{Rules: rulesOf(), Rows: map[string]*ModelRow{}}
	if err == nil {
		r.lost = nil // a durable table stands on everything written before it
	}
	return err
}

func (r *runner) batch(items []Item) (b *engine.Batch, results []*engine.Row) {
	b = engine.NewBatch()
	for _, it := range items {
		if row := it.addTo(b, r.db.Table(it.Table)); row != nil {
			results = append(results, row)
		}
	}
	return b, results
}

func (r *runner) apply(o Op) error {
	var u undo
	for _, it := range o.Items {
		if r.model.Tables[it.Table] == nil {
			return nil
		}
		u = append(u, oldRow{it.Table, it.Row, r.model.Tables[it.Table].Rows[it.Row]})
	}
	var opts []engine.ApplyOption
	if o.NoSync {
		opts = append(opts, engine.NoSync)
	}
	b, results := r.batch(o.Items)
	matched := false
	if n := conds(o.Items); n == 1 {
		opts = append(opts, engine.GetCondMutationResult(&matched))
	}
	err := r.db.Apply(ctx, b, opts...)
	want, wrote, refused := r.model.Apply(o.Items)
	if refused != nil {
		r.counts.add("batch refused", 1)
		if !errors.Is(err, refused) || errors.Is(err, engine.ErrUnknownOutcome) {
			return fmt.Errorf("a batch to be refused with %q gave %v", refused, err)
		}
		return r.compareRows(o.Items)
	}
	if err != nil {
		return err
	}
	if r.lost = append(r.lost, u); wrote && !o.NoSync { // a batch that writes nothing has nothing to wait for
		r.lost = nil
	}
	for i, row := range results {
		r.counts.add("read-modify-write", 1)
		if err := diff([]Row{fromEngine(*row)}, want[i:i+1]); err != nil {
			return fmt.Errorf("result of a read-modify-write: %w", err)
		}
	}
	for _, it := range o.Items {
		switch it.Kind {
		case ItemIf:
			r.counts.add("condition", 1)
		case ItemRequire:
			r.counts.add("precondition", 1)
		}
	}
	return r.compareRows(o.Items)
}

func conds(items []Item) (n int) {
	for _, it := range items {
		if it.Kind == ItemIf {
			n++
		}
	}
	return n
}

// alter changes families on both sides.
func (r *runner) alter(o Op) error {
	var changes []engine.FamilyChange
	for _, a := range o.Alters {
		changes = append(changes, a.engine(r.set.Grouped))
	}
	err := r.db.Table(o.Table).ModifyFamilies(ctx, changes...)
	if errors.Is(err, engine.ErrRuleChangePending) {
		r.counts.add("rule change pending", 1)
		return r.compareAll(r.model, 0)
	}
	if want := r.model.Alter(o.Table, o.Alters); want != nil {
		if !errors.Is(err, want) {
			return fmt.Errorf("want %q, got %v", want, err)
		}
		return r.compareAll(r.model, 0)
	}
	if err != nil {
		return err
	}
	for _, a := range o.Alters {
		r.counts.add([]string{"family added", "family dropped", "rule changed"}[a.Kind], 1)
	}
	r.lost = nil
	return r.compareAll(r.model, 0)
}

func (r *runner) refused(o Op) error {
	b, _ := r.batch(o.Items)
	err := r.db.Apply(ctx, b, engine.NoSync)
	for _, want := range []error{engine.ErrNoTable, engine.ErrNoFamily, engine.ErrRowKey, engine.ErrTimestamp, engine.ErrTimeRange} {
		if errors.Is(err, want) && !errors.Is(err, engine.ErrUnknownOutcome) {
			return r.compareRows(o.Items)
		}
	}
	return fmt.Errorf("an invalid batch gave %v", err)
}

// compareRows reads the rows of a batch back.
func (r *runner) compareRows(items []Item) error {
	for _, it := range items {
		if r.model.Tables[it.Table] == nil || it.Row == "" {
			continue
		}
		o := Op{Kind: OpGet, Table: it.Table, Read: Read{Row: it.Row}}
		if err := r.read(o); err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
	}
	return nil
}

// kill cuts the power: what was promised to be durable must be there, of the rest a prefix.
func (r *runner) kill(o Op) error {
	if r.mem == nil {
		return r.step(Op{Kind: OpReopen})
	}
	keep := []float64{0, 0.5, 1}
	return r.restart(r.mem.CrashClone(uint64(o.N), keep[o.N%3]), []*memory{{r.model, r.lost}})
}

// restart opens what a power cut left. It must be one of the memories without a suffix of what may be lost; the model
// becomes that.
func (r *runner) restart(image *vfs.Mem, memories []*memory) error {
	now := r.model.Now
	r.cutAt = now
	r.cut.mu.Lock()
	r.cut.in, r.cut.image = 0, nil
	r.cut.mu.Unlock()
	if err := r.close(); err != nil { // the old store goes on on the old file system, and does not matter any more
		return err
	}
	r.setMem(image)
	if err := r.open(); err != nil {
		return fmt.Errorf("after a power cut: %w", err)
	}
	var first error
	for _, m := range memories {
		for n := len(m.lost); n >= 0; n-- {
			r.model = m.model
			r.model.Now = now
			err := r.compareAll(r.model, 0)
			if err == nil {
				switch {
				case n == len(m.lost):
				case n == 0:
					r.counts.add("all that could be lost", 1)
				default:
					r.counts.add("a prefix kept", 1)
				}
				return r.verify()
			}
			if first == nil {
				first = err
			}
			if n > 0 {
				m.model.undo(m.lost[n-1])
			}
		}
	}
	return fmt.Errorf("after a power cut the store is at no moment that it may be at: the latest: %w", first)
}

func (m *Model) undo(u undo) {
	for i := len(u) - 1; i >= 0; i-- {
		t := m.Tables[u[i].table]
		if t == nil {
			continue // dropped since
		}
		if u[i].row == nil {
			delete(t.Rows, u[i].key)
		} else {
			t.Rows[u[i].key] = u[i].row
		}
	}
}

// rawCheck compacts everything and looks whether anything is left on disk that no read shows.
func (r *runner) rawCheck() error {
	for n, s := range r.snaps {
		delete(r.snaps, n)
		if err := errors.Join(r.compareSnap(s), s.s.Close()); err != nil {
			return err
		}
	}
	if err := r.db.Compact(ctx); err != nil {
		return err
	}
	r.lost = nil
	if m := r.db.Metrics(); m.Levels[0].Files > 0 {
		return fmt.Errorf("%d files in L0 after a compaction of everything", m.Levels[0].Files)
	}
	return errors.Join(r.compareAll(r.model, 0, engine.Raw()), r.compareAll(r.model, 0))
}

// inline runs background work when it is told to, in a fixed order.
type inline struct {
	mu      sync.Mutex
	queue   []func()
	running bool
}

// Go implements engine.Executor.
func (x *inline) Go(fn func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.queue = append(x.queue, fn)
}

// Inline tells the store to start no goroutine of its own, so that a list always does the same.
func (x *inline) Inline() bool { return true }

// Help implements engine.Executor.
func (x *inline) Help() bool { return x.run(0) }

// run runs n queued functions, all and what they queue if n is 0.
func (x *inline) run(n int) (ran bool) {
	for ; ; n-- {
		x.mu.Lock()
		if x.running || len(x.queue) == 0 || ran && n == 0 {
			x.mu.Unlock()
			return ran
		}
		fn := x.queue[0]
		x.queue, x.running, ran = x.queue[1:], true, true
		x.mu.Unlock()
		fn()
		x.mu.Lock()
		x.running = false
		x.mu.Unlock()
	}
}

// Wait implements engine.Executor.
func (x *inline) Wait() { x.Help() }
