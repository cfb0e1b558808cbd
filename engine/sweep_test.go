package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowandb/rowan/engine/internal/executor"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// The sweeps run one scenario again and again, and disturb it at every call that changes the disk: the call fails, or the
// power is cut there. All work happens in one goroutine, time and identities come from the test, so (scenario, fault, n, seed)
// is the same every time; it heads every failure. ROWAN_SWEEP=full runs all combinations, ROWAN_SWEEP=57 those of call 57
// only; otherwise a part of them runs, the same one every time.
//
// Batch i writes a marker of its own to every table, so that contents tell how many batches they hold: a run without any
// disturbance says what the tables look like after each.

const (
	sweepBatches = 60
	dropAt       = 30 // batches before table c is dropped
)

// sweep is one run of a scenario.
type sweep struct {
	mem  *vfs.Mem
	fs   *faultfs.FS
	db   *DB
	now  time.Time
	opts Options

	// What the caller of the store knows.
	placed    int // batches issued, those included whose outcome is not known
	acked     int // batches that must survive
	schema    int // schema changes issued, by place in sweepSchemas
	schemaOK  int // schema changes that must survive
	errs      []error
	warnings  []string // what the store logged
	unhealthy []error  // what Health told
	dumps     func(n int, contents map[string]string)
	midway    func() // called in life when some batches are durable and some are not
}

// sweepSchemas are the sets of tables after each schema change.
var sweepSchemas = []string{"", "a", "a b", "a b c", "a b", "a b d"}

// dropChange is the schema change that drops c.
const dropChange = 4

func newSweep(mem *vfs.Mem, seed uint64, o faultfs.Options) *sweep {
	s := &sweep{mem: mem, fs: faultfs.New(mem, o), now: time.UnixMicro(1_000_000_000)}
	random := rand.New(rand.NewPCG(seed, 2))
	s.opts = Options{
		FS: s.fs, Random: random.Uint64, Background: new(executor.Inline), Logger: slog.New(s), CacheBytes: 64 << 10,
		MemtableBytes: 16 << 10, TableFileBytes: 8 << 10, LevelBytes: 32 << 10, LogSegmentBytes: 16 << 10, L0Files: 2,
		Clock: func() time.Time { s.now = s.now.Add(time.Millisecond); return s.now },
	}
	return s
}

// Handle makes the run a log handler that keeps what is above Info.
func (s *sweep) Handle(_ context.Context, r slog.Record) error {
	if r.Level > slog.LevelInfo {
		line := r.Message
		r.Attrs(func(a slog.Attr) bool { line += fmt.Sprint(" ", a); return true })
		s.warnings = append(s.warnings, line)
	}
	return nil
}

func (s *sweep) Enabled(_ context.Context, l slog.Level) bool { return l > slog.LevelInfo }
func (s *sweep) WithAttrs([]slog.Attr) slog.Handler           { return s }
func (s *sweep) WithGroup(string) slog.Handler                { return s }

// note records how a call ended and whether the store says that it is well.
func (s *sweep) note(what string, err error) bool {
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("%s: %w", what, err))
	}
	if s.db != nil {
		if h := s.db.Health(); h.State != StateOK {
			s.unhealthy = append(s.unhealthy, h.Cause)
		}
	}
	return err == nil
}

func (s *sweep) failed() bool { return s.db == nil || s.db.Health().State == StateFailed }

// open opens the store; an open that fails is tried once more, as after a restart.
func (s *sweep) open() bool {
	for range 2 {
		db, err := Open("/store", s.opts)
		if s.note("open", err) {
			s.db = db
			return true
		}
	}
	return false
}

// schemaChange issues the next change of sweepSchemas.
func (s *sweep) schemaChange(change func() error) {
	if s.failed() {
		return
	}
	s.schema++
	err := change()
	switch {
	case s.note("schema change", err):
		s.schemaOK = s.schema
		if s.schema == dropChange {
			s.acked = s.placed
		}
	case !errors.Is(err, ErrUnknownOutcome):
		s.schema-- // nothing was written
	}
}

func (s *sweep) create(name string) {
	s.schemaChange(func() error {
		_, err := s.db.CreateTable(ctx, name, TableSpec{BlockBytes: 1024, Families: map[string]FamilySpec{
			"f": {GC: gc.MaxVersionsPolicy(2)}, "keep": {},
		}})
		return err
	})
}

func filler(i int) []byte { return []byte(strings.Repeat(string(rune('a'+i%26)), 100+i*37%700)) }

// batch is the i-th batch, over all tables that are there then.
func (s *sweep) batch(i int) *Batch {
	tables := []string{"a", "b"}
	if s.schema == 3 {
		tables = append(tables, "c")
	}
	b := NewBatch()
	for k, name := range tables {
		ts := Timestamp(i + 1)
		row, other := fmt.Sprintf("row%02d", (i*7+k)%17), fmt.Sprintf("row%02d", (i*5+k)%17)
		b.Add(s.db.Table(name), "marker", set("f", "q", ts, fmt.Sprint(i)))
		b.Add(s.db.Table(name), row, mut(func(m *Mutation) {
			m.Set("f", fmt.Sprint("q", i%3), ts, filler(i))
			m.Set("keep", "", ts, []byte{byte(i)})
		}))
		switch i % 6 {
		case 1:
			b.Add(s.db.Table(name), other, mut(func(m *Mutation) { m.DeleteRow() }))
		case 3:
			b.Add(s.db.Table(name), other, mut(func(m *Mutation) { m.DeleteTimestampRange("f", "q1", ts/2, ts) }))
		case 5:
			b.Add(s.db.Table(name), other, mut(func(m *Mutation) { m.DeleteCellsInFamily("keep") }))
		}
	}
	return b
}

// write applies the next n batches, every third one durable when it returns.
func (s *sweep) write(n int) {
	for range n {
		if s.failed() {
			return
		}
		i := s.placed
		var opts []ApplyOption
		if i%3 != 0 {
			opts = append(opts, NoSync)
		}
		b := s.batch(i)
		s.placed++
		err := s.db.Apply(ctx, b, opts...)
		if err != nil && !errors.Is(err, ErrUnknownOutcome) {
			s.placed-- // nothing was written
		}
		if s.note(fmt.Sprint("batch ", i), err) && opts == nil {
			s.acked = s.placed
		}
		if s.dumps != nil {
			s.dumps(s.placed, contents(s.db))
		}
	}
}

// again makes a call that background work may fail; a second try after a while succeeds when the disk does.
func (s *sweep) again(what string, fn func() error) {
	for range 2 {
		if s.failed() {
			return
		}
		placed := s.placed
		if s.note(what, fn()) {
			s.acked = placed
			return
		}
		s.now = s.now.Add(time.Minute)
	}
}

func (s *sweep) flush()   { s.again("flush", func() error { return s.db.Flush(ctx) }) }
func (s *sweep) compact() { s.again("compact", func() error { return s.db.Compact(ctx) }) }

func (s *sweep) quiet() {
	if !s.failed() {
		s.now = s.now.Add(2 * time.Second)
		s.db.log.Tick() // what waits is written
		s.db.log.Tick() // the closing block
	}
}

func (s *sweep) close() {
	if s.db == nil {
		return
	}
	if s.note("close", s.db.Close()) {
		s.acked = s.placed
	}
	s.db = nil
}

// life is a whole store: from an empty disk over flushes, compactions, schema changes, log slots, a new manifest and a
// reopening to its end.
func (s *sweep) life() {
	if !s.open() {
		return
	}
	s.create("a")
	s.create("b")
	s.write(10)
	s.flush()
	s.write(5)
	s.create("c")
	s.write(3)
	var snap *Snapshot
	if s.db != nil {
		var err error
		snap, err = s.db.Snapshot()
		s.note("snapshot", err)
	}
	s.write(6)
	s.compact()
	s.write(dropAt - s.placed)
	s.schemaChange(func() error { return s.db.DropTable(ctx, "c") })
	s.write(4)
	s.quiet()
	s.db.manifest.RollAt = 1 // the next edit starts a new one
	s.flush()
	s.db.manifest.RollAt = 1 << 20
	s.create("d")
	if snap != nil {
		s.note("close snapshot", snap.Close())
	}
	s.write(8)
	if s.midway != nil {
		s.midway()
	}
	s.again("sync", func() error { return s.db.Sync(ctx) })
	failed := s.failed()
	s.close()
	if !failed {
		s.second()
	}
}

// second is what happens to a store that is there: it is opened, which recovers it, written to and closed.
func (s *sweep) second() {
	if !s.open() {
		return
	}
	s.write(6)
	s.compact()
	s.write(sweepBatches - s.placed)
	s.close()
}

// contents returns what each table holds.
func contents(db *DB) map[string]string {
	names, err := db.Tables(ctx)
	if err != nil {
		return map[string]string{"tables": err.Error()}
	}
	out := map[string]string{}
	for _, name := range names {
		var rows []Row
		err := db.Table(name).ReadRows(ctx, AllRows(), func(r Row) bool { rows = append(rows, r); return true })
		if out[name] = show(rows...); err != nil {
			out[name] = err.Error()
		}
	}
	return out
}

// sweepWant is what tables hold after each batch, from a run that nothing disturbs.
type sweepWant struct {
	after []map[string]string
	count map[string]int // batches, by the contents of table a
	calls []string
	image *vfs.Mem // what a power cut midway left
}

func undisturbed(t *testing.T) *sweepWant {
	t.Helper()
	w := &sweepWant{after: []map[string]string{{}}, count: map[string]int{"": 0}}
	s := newSweep(vfs.NewMem(), 1, faultfs.Options{Record: true})
	s.dumps = func(n int, c map[string]string) {
		if _, known := w.count[c["a"]]; known || n != len(w.after) {
			t.Fatalf("batch %d: table a looks as it did before", n)
		}
		w.after = append(w.after, c)
		w.count[c["a"]] = n
	}
	s.midway = func() { w.image = s.mem.CrashClone(5, 0.5) }
	s.life()
	if len(s.errs)+len(s.warnings)+len(s.unhealthy) > 0 || s.placed != sweepBatches || s.acked != sweepBatches {
		t.Fatalf("undisturbed: %v, %v, %v; %d batches", s.errs, s.warnings, s.unhealthy, s.placed)
	}
	for _, o := range s.fs.Calls() {
		w.calls = append(w.calls, o.String())
	}
	return w
}

// scenario is what is done to a disk, from a state that is the same every time.
type scenario struct {
	name  string
	image *vfs.Mem // nil: empty
	from  bounds
	seed  uint64
	disk  vfs.MemOptions // of an empty one
}

// scenarios are the life of a store, and what comes after a power cut in the middle of it.
func (w *sweepWant) scenarios(t *testing.T) []scenario {
	t.Helper()
	b := bounds{acked: 0, placed: sweepBatches, schemaOK: 5, schema: 5}
	n, err := w.reopen(w.image.CrashClone(1, 1), b, 1)
	if err != nil {
		t.Fatal(err)
	}
	return []scenario{
		{name: "life", seed: 1},
		{name: "recovery", image: w.image, from: bounds{n, n, 5, 5}, seed: 2},
		{name: "life without direct I/O and maps", seed: 3, disk: vfs.MemOptions{NoDirect: true, NoMap: true}},
	}
}

func (sc *scenario) begin(o faultfs.Options) *sweep {
	mem := vfs.NewMem(sc.disk)
	if sc.image != nil {
		mem = sc.image.CrashClone(1, 1)
	}
	s := newSweep(mem, sc.seed, o)
	s.acked, s.placed, s.schemaOK, s.schema = sc.from.acked, sc.from.placed, sc.from.schemaOK, sc.from.schema
	return s
}

func (sc *scenario) run(s *sweep) {
	if sc.image == nil {
		s.life()
	} else {
		s.second()
	}
}

// bounds are what a store may hold: from the last promise to the last attempt.
type bounds struct{ acked, placed, schemaOK, schema int }

func (s *sweep) bounds() bounds { return bounds{s.acked, s.placed, s.schemaOK, s.schema} }

// check returns how many batches a store holds: an acknowledged prefix, the same one in every table.
func (w *sweepWant) check(db *DB, b bounds) (int, error) {
	got := contents(db)
	names, err := db.Tables(ctx)
	if err != nil {
		return 0, err
	}
	set, schema := strings.Join(names, " "), -1
	for i := b.schemaOK; i <= b.schema; i++ {
		if sweepSchemas[i] == set {
			schema = i
		}
	}
	if schema < 0 {
		return 0, fmt.Errorf("tables %q, schema changes %d to %d are possible", set, b.schemaOK, b.schema)
	}
	n, ok := w.count[got["a"]]
	if !ok {
		return 0, fmt.Errorf("table a holds no prefix:\n%s", got["a"])
	}
	if n < b.acked || n > b.placed {
		return n, fmt.Errorf("%d batches, %d were acknowledged and %d issued", n, b.acked, b.placed)
	}
	if schema >= dropChange && n < dropAt {
		return n, fmt.Errorf("table c is dropped, but of the %d batches before only %d are there", dropAt, n)
	}
	for name, c := range got {
		want := w.after[n][name]
		if name == "c" && n < len(w.after)-1 && w.after[n]["c"] == "" {
			want = ""
		}
		if c != want {
			return n, fmt.Errorf("table a holds %d batches, table %s something else:\n%swant\n%s", n, name, c, want)
		}
	}
	return n, nil
}

// reopen opens what is left, by itself and by inspection, and checks it; then the store must work.
func (w *sweepWant) reopen(mem *vfs.Mem, b bounds, seed uint64) (int, error) {
	s := newSweep(mem, seed+1000, faultfs.Options{})
	db, err := Open("/store", s.opts)
	if err != nil {
		return 0, fmt.Errorf("reopen: %w", err)
	}
	n, err := w.check(db, b)
	if err == nil && db.Table("a").Apply(ctx, "zz", set("keep", "", 1, "more")) != nil && b.schemaOK > 0 {
		err = errors.New("the reopened store takes no batch")
	}
	if h := db.Health(); err == nil && h.State != StateOK {
		err = h.Cause
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return n, err
	}
	return n, intact(mem)
}

// intact looks at every byte of a store.
func intact(mem *vfs.Mem) error {
	st, err := inspect.Open(mem, "/store")
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	r, err := st.Verify(ctx, nil)
	if err = errors.Join(append(r.Errors, err)...); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if len(st.Other) > 0 {
		return fmt.Errorf("inspect: files that nobody knows: %v", st.Other)
	}
	return nil
}

// chosen says whether call n is disturbed: in the short form, or always, or because it is the one asked for.
func chosen(n int, short bool) bool {
	switch v := os.Getenv("ROWAN_SWEEP"); v {
	case "":
		return short && (!raceEnabled || n/6%5 == 0) // the race detector makes it ten times as slow
	case "full":
		return true
	default:
		only, err := strconv.Atoi(v)
		return err == nil && n == only
	}
}

// The same run makes the same calls.
func TestSweepRepeats(t *testing.T) {
	a, b := undisturbed(t), undisturbed(t)
	if !slices.Equal(a.calls, b.calls) {
		for i := range min(len(a.calls), len(b.calls)) {
			if a.calls[i] != b.calls[i] {
				t.Fatalf("call %d of %d: %s, then %s", i, len(a.calls), a.calls[i], b.calls[i])
			}
		}
		t.Fatalf("%d calls, then %d", len(a.calls), len(b.calls))
	}
}

// faults are the ways in which the n-th mutating call can fail. In the short form every call fails in one of them.
var faults = []struct {
	name  string
	short func(n int) bool
	rule  func(n int) faultfs.Rule
	want  error
}{
	{"EIO", func(n int) bool { return n%2 == 0 }, func(n int) faultfs.Rule { return faultfs.FailAt(n, syscall.EIO) }, syscall.EIO},
	{"ENOSPC", func(n int) bool { return n%6 == 1 }, func(n int) faultfs.Rule { return faultfs.FailAt(n, syscall.ENOSPC) }, syscall.ENOSPC},
	{"short write", func(n int) bool { return n%6 == 3 }, func(n int) faultfs.Rule { return faultfs.FailAt(n, faultfs.ErrShort) }, faultfs.ErrShort},
	{"EINTR", func(n int) bool { return n%6 == 2 }, func(n int) faultfs.Rule { return faultfs.FailAt(n, syscall.EINTR) }, syscall.EINTR},
	{"done, but failed", func(n int) bool { return n%6 == 4 }, func(n int) faultfs.Rule { return faultfs.FailAt(n, faultfs.ErrDone) }, faultfs.ErrDone},
	{"sync lost data", func(n int) bool { return n%6 == 0 }, syncLost, faultfs.ErrLost},
	{lasting, func(n int) bool { return n%6 == 5 }, func(n int) faultfs.Rule { return faultfs.FailFrom(n, syscall.EIO) }, syscall.EIO},
}

const lasting = "EIO from then on"

// syncLost fails the first sync of a file from call n on, and what should have been written is gone (the kernel takes the pages for
// clean: cockroachdb/pebble #1159, cberner/redb #450, wiredtiger/wiredtiger #4072).
func syncLost(n int) faultfs.Rule {
	var fired atomic.Bool
	return func(o faultfs.Op) error {
		if o.N >= n && o.Kind == faultfs.Sync && !fired.Swap(true) {
			return faultfs.ErrLost
		}
		return nil
	}
}

// Every mutating call fails once, in every way. The failure is told; nothing that was acknowledged is lost; the store opens
// again on what is left and holds whole batches, in order, the same in every table.
func TestFailureOfEveryCall(t *testing.T) {
	t.Parallel()
	w := undisturbed(t)
	fired := map[string]int{}
	for _, sc := range w.scenarios(t) {
		whole := sc.begin(faultfs.Options{})
		sc.run(whole)
		for _, f := range faults {
			for n := 1; ; n++ {
				if n <= whole.fs.Mutations() && !chosen(n, f.short(n) && (!sc.disk.NoDirect || n/6%3 == 0)) {
					continue
				}
				s := sc.begin(faultfs.Options{Record: true, Rules: []faultfs.Rule{f.rule(n)}})
				sc.run(s)
				if s.fs.Fired() == 0 {
					break
				}
				fired[sc.name+" "+f.name]++
				if err := w.afterFault(s, n, f.want, f.name == lasting); err != nil {
					t.Fatalf("%s, %s at call %d (%s), seed %d: %v\nerrors %v\nhealth %v\nwarnings %v", sc.name, f.name, n, nthCall(s.fs, n), sc.seed,
						err, s.errs, s.unhealthy, s.warnings)
				}
			}
		}
		t.Logf("%s: %d mutating calls", sc.name, whole.fs.Mutations())
	}
	t.Logf("faults reached: %v", fired)
	if os.Getenv("ROWAN_SWEEP") == "" && !raceEnabled && (fired["life EIO"] < 120 || fired["recovery EIO"] < 30) {
		t.Errorf("the scenarios are too short: %v", fired)
	}
}

// A file system that does not remove or replace files that are open or mapped is no obstacle, and nothing is left behind.
func TestStoreWhereOpenFilesCannotBeRemoved(t *testing.T) {
	t.Parallel()
	s := newSweep(vfs.NewMem(vfs.MemOptions{HoldOpen: true}), 1, faultfs.Options{})
	s.life()
	if len(s.errs)+len(s.warnings)+len(s.unhealthy) > 0 {
		t.Fatal(s.errs, s.warnings, s.unhealthy)
	}
	if err := intact(s.mem); err != nil {
		t.Fatal(err)
	}
}

func nthCall(fs *faultfs.FS, n int) string {
	for _, o := range fs.Calls() {
		if o.N == n {
			return o.String()
		}
	}
	return "?"
}

// warned reports whether a line of the log says that a failure was met and lived with.
func (s *sweep) warned(cause error) bool {
	for _, line := range s.warnings {
		for _, what := range []string{"background work fails", "disk full", "log slot made smaller", "no reserve", "old one goes on"} {
			if strings.Contains(line, what) && strings.Contains(line, cause.Error()) {
				return true
			}
		}
	}
	return false
}

// afterFault judges a run in which call n failed.
func (w *sweepWant) afterFault(s *sweep, n int, want error, lasting bool) error {
	told := false
	for _, err := range append(s.errs, s.unhealthy...) {
		told = told || errors.Is(err, want)
	}
	told = told || s.warned(want) // Health told, but not any more when the call ended
	call := nthCall(s.fs, n)
	if !told {
		switch kind, _, _ := strings.Cut(call, " "); {
		case kind == "preallocate" && (want != syscall.ENOSPC || strings.Contains(call, "manifest-")): // reserving, or reserving ahead, is an offer
		case kind == "remove" && errors.Is(want, faultfs.ErrDone): // it is removed, or was not there
		case kind == "remove" && len(s.warnings) > 0: // nothing is lost; the next open removes it
		default:
			return errors.New("the failure was not told")
		}
	}
	if lasting && s.db != nil {
		return errors.New("a dead disk went unnoticed")
	}
	if !lasting && s.placed < sweepBatches && s.db != nil && !s.failed() {
		return errors.New("the run did not get to its end")
	}
	if _, err := w.reopen(s.mem.CrashClone(1, 0), s.bounds(), 1); err != nil {
		return fmt.Errorf("after a power cut: %w", err)
	}
	if _, err := w.reopen(s.mem, s.bounds(), 1); err != nil {
		return err
	}
	return nil
}

// The power is cut at every mutating call, before it and in the middle of those that make something durable. What is left,
// with none, some or all of what was under way, opens again, is undamaged, and holds every acknowledged batch (google/leveldb #74,
// #189, #195; facebook/rocksdb #8682, #10573: a manifest that is empty or not there; google/leveldb #333; dgraph-io/badger #1645;
// facebook/rocksdb #5287: a table file that is, though the manifest names it).
func TestPowerCutAtEveryCall(t *testing.T) {
	t.Parallel()
	w := undisturbed(t)
	short := os.Getenv("ROWAN_SWEEP") == ""
	images, kept := 0, map[int]int{}
	for _, sc := range w.scenarios(t) {
		var s *sweep
		look := func(where string, n int) {
			if !chosen(n, true) {
				return
			}
			for i, keep := range []float64{0, 0.5, 1, 0.5, 0.5, 0.25, 0.75} {
				if short && (i > 2 || (n+i)%3 != 0) {
					continue
				}
				images++
				seed := uint64(n*10 + i)
				got, err := w.reopen(s.mem.CrashClone(seed, keep), s.bounds(), seed)
				if err != nil {
					t.Fatalf("%s, power cut %s call %d (%s), keep %v, seed %d: %v", sc.name, where, n, nthCall(s.fs, n), keep, seed, err)
				}
				kept[got]++
			}
		}
		s = sc.begin(faultfs.Options{Record: true, Rules: []faultfs.Rule{func(o faultfs.Op) error {
			if o.N > 0 {
				look("before", o.N)
			}
			return nil
		}}})
		s.mem.SetInFlight(func(string, string) { look("inside", s.fs.Mutations()) })
		sc.run(s)
		t.Logf("%s: %d mutating calls", sc.name, s.fs.Mutations())
		if len(s.errs) > 0 {
			t.Fatal(s.errs)
		}
	}
	t.Logf("%d images of power cuts, which held %d different numbers of batches", images, len(kept))
	if short && !raceEnabled && (images < 500 || len(kept) < 20) {
		t.Errorf("too little was tried: %d images, %v", images, kept)
	}
}
