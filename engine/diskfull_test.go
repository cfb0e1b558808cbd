package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowandb/rowan/engine/internal/executor"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// smallDisk is a store on a file system of so many bytes, with a ballast file that takes what is to be taken.
type smallDisk struct {
	*testStore
	tb   *Table
	mem  *vfs.Mem
	log  logLines
	want map[string]bool // rows that were acknowledged
}

func newSmallDisk(t *testing.T, capacity, floor int64, change func(*Options)) *smallDisk {
	d := &smallDisk{want: map[string]bool{}}
	d.testStore = newStore(t, func(o *Options) {
		d.mem = vfs.NewMem(vfs.MemOptions{Capacity: capacity, NoCrash: true})
		o.FS, o.FreeFloor, o.Logger = d.mem, floor, slog.New(slog.NewTextHandler(&d.log, nil))
		if change != nil {
			change(o)
		}
	})
	d.tb = d.table("t", map[string]gc.Rule{"f": {}})
	return d
}

// noise is a KiB that no codec makes smaller.
func noise(seed string) string {
	b := make([]byte, 1024)
	r := rand.New(rand.NewPCG(crc64.Checksum([]byte(seed), crc64.MakeTable(crc64.ISO)), 1))
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return string(b)
}

func (d *smallDisk) free() int64 {
	d.t.Helper()
	n, err := d.mem.Free("/store")
	d.must(err)
	return n
}

// ballast makes the ballast leave so many bytes free.
func (d *smallDisk) ballast(leave int64) {
	d.t.Helper()
	_ = d.mem.Remove("/ballast")
	f, err := d.mem.Open("/ballast", vfs.How{Create: true})
	d.must(err)
	d.must(f.Truncate(max(d.free()-leave, 0)))
	d.must(f.Close())
}

func (d *smallDisk) put(row string) error {
	err := d.tb.Apply(ctx, row, set("f", "q", 1, noise(row)), NoSync)
	if err == nil {
		d.want[row] = true
	}
	return err
}

// fill writes until the store refuses.
func (d *smallDisk) fill() (n int) {
	d.t.Helper()
	for i := range 1 << 20 {
		err := d.put(fmt.Sprintf("%06d", (i*7919)%1_000_003))
		if err != nil {
			if !errors.Is(err, ErrDiskFull) || errors.Is(err, ErrFailed) || errors.Is(err, ErrUnknownOutcome) {
				d.t.Fatalf("after %d rows: %v", i, err)
			}
			return i
		}
	}
	d.t.Fatal("never full")
	return 0
}

func (d *smallDisk) check() {
	d.t.Helper()
	got := map[string]bool{}
	d.must(d.tb.ReadRows(ctx, AllRows(), func(r Row) bool {
		got[r.Key] = true
		return true
	}))
	if len(got) != len(d.want) {
		d.t.Fatalf("%d rows, %d were acknowledged", len(got), len(d.want))
	}
	for r := range d.want {
		if !got[r] {
			d.t.Fatalf("row %s is missing", r)
		}
	}
}

// A volume that is full to the last byte: the store opens, reads, takes deletes, says what it needs, and once some bytes are freed
// and half of the rows are deleted it comes back by itself, with compactions that fit into what there is
// (cockroachdb/cockroach #8473, #22235, #22387; ClickHouse/ClickHouse #87555: freeing 1-2 GiB did not bring a full node back).
func TestFullDiskComesBack(t *testing.T) {
	d := newSmallDisk(t, 8<<20, 512<<10, nil)
	n := d.fill()
	if n < 2500 {
		t.Fatalf("full after %d rows of 1 KiB on 8 MiB", n)
	}
	if h := d.Health(); h.State != StateReadOnly || !errors.Is(h.Cause, ErrDiskFull) || h.Since.IsZero() || h.Advice == "" {
		t.Fatalf("health: %+v", h)
	}
	d.check()
	for _, leave := range []int64{0, 128 << 10, 1 << 20} {
		d.ballast(leave)
		d.now = d.now.Add(time.Minute)
		d.must(d.Close())
		d.open()
		d.tb = d.Table("t")
		d.check()
		if err := d.put("new"); leave < 512<<10 && !errors.Is(err, ErrDiskFull) {
			t.Fatalf("%d bytes free: a write gave %v", d.free(), err)
		}
		if h := d.Health(); leave < 512<<10 && h.State != StateReadOnly {
			t.Fatalf("%d bytes free: %+v", leave, h)
		}
	}
	d.ballast(128 << 10)
	_ = d.put("again")
	i, refused := 0, error(nil)
	for _, row := range slices.Sorted(maps.Keys(d.want)) {
		if i++; i%2 == 0 {
			continue
		}
		if err := d.tb.Apply(ctx, row, mut(func(m *Mutation) { m.DeleteRow() }), NoSync); err != nil {
			refused = err
			break
		}
		delete(d.want, row)
		if i%50 == 0 {
			d.now = d.now.Add(time.Second)
			_ = d.put("again")
		}
	}
	comesBack := func() bool {
		for range 100 {
			d.now = d.now.Add(time.Minute)
			if d.put("again") == nil {
				return true
			}
			d.exec.Help()
		}
		return false
	}
	if refused != nil {
		t.Fatal(refused)
	}
	back := comesBack()
	h := d.Health()
	t.Logf("full after %d rows; half of them deleted: %d bytes free, health %v, needs %d", n, d.free(), h.State, h.SpaceNeeded)
	if !back {
		if h.State != StateReadOnly || h.SpaceNeeded == 0 || h.SpaceNeeded > 512<<10 {
			t.Fatalf("it neither comes back nor says what it needs: %+v", h)
		}
		d.ballast(h.SpaceNeeded + 128<<10)
		if !comesBack() {
			t.Fatalf("with %d bytes more: %+v", h.SpaceNeeded, d.Health())
		}
	}
	if h := d.Health(); h.State != StateOK || h.SpaceNeeded != 0 {
		t.Fatalf("after deleting half of the rows: %+v", h)
	}
	d.check()
	if err := d.Compact(ctx); !errors.Is(err, ErrDiskFull) { // all at once does not fit
		t.Fatalf("compacting everything with %d bytes free: %v", d.free(), err)
	}
	d.must(d.Close())
	d.open()
	d.tb = d.Table("t")
	d.check()
}

// Crossing the floor both ways under load, and closing below it: a distinct error, reads, one log line for each change, an
// automatic return, a clean and quick close (VictoriaMetrics/VictoriaMetrics #269, #1727, #2305, #2762: a panic instead of a
// read-only mode, and a process that ignored shutdown after it).
func TestFloorIsCrossedBothWaysUnderLoad(t *testing.T) {
	d := newSmallDisk(t, 32<<20, 4<<20, func(o *Options) {
		o.Background, o.Clock, o.Random = new(executor.Goroutines), time.Now, nil
	})
	var mu sync.Mutex
	load := func(id int, stop <-chan struct{}) (acked, refused int) {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return acked, refused
			default:
			}
			row := fmt.Sprintf("%d-%06d", id, i%500)
			err := d.tb.Apply(ctx, row, set("f", "q", 1, noise(row)), NoSync)
			switch {
			case err == nil:
				acked++
				mu.Lock()
				d.want[row] = true
				mu.Unlock()
			case errors.Is(err, ErrDiskFull):
				refused++
				time.Sleep(time.Millisecond)
			default:
				t.Error(err)
				return acked, refused
			}
		}
	}
	until := func(state State) {
		t.Helper()
		for range 1000 {
			if d.Health().State == state {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("health stays %+v", d.Health())
	}
	for range 2 {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		total := make([]int, 2)
		for id := range 2 {
			wg.Go(func() { _, total[id] = load(id, stop) })
		}
		time.Sleep(20 * time.Millisecond)
		d.ballast(2 << 20)
		until(StateReadOnly)
		time.Sleep(20 * time.Millisecond)
		if _, err := d.tb.ReadRow(ctx, "0-000000"); err != nil {
			t.Fatal(err)
		}
		d.must(d.mem.Remove("/ballast"))
		until(StateOK)
		close(stop)
		wg.Wait()
		if total[0]+total[1] == 0 {
			t.Error("no write was refused")
		}
	}
	d.check()
	if n, m := d.log.count("batches that add data are refused"), d.log.count("batches are accepted again"); n != 2 || m != 2 {
		t.Errorf("%d and %d log lines for two crossings each way", n, m)
	}
	d.ballast(0)
	d.space.look()
	until(StateReadOnly)
	began := time.Now()
	d.must(d.Close())
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("closing took %v", took)
	}
	d.must(d.mem.Remove("/ballast"))
	d.open()
	d.tb = d.Table("t")
	d.check()
}

// Rows of 1 KiB until a volume is full, without a floor: a write returns an error, the process lives, reads go on
// (dgraph-io/badger #1199, #1682, #1801; syslog-ng/syslog-ng #716; netdata/netdata #2727: a bus error when the volume fills).
func TestVolumeFillsWithoutAFloor(t *testing.T) {
	for _, files := range []int64{64 << 10, 1 << 20} {
		mib := int64(20)
		if raceEnabled {
			mib = 6
		}
		d := newSmallDisk(t, mib<<20, -1, func(o *Options) { o.TableFileBytes, o.MemtableBytes = files, files })
		n := d.fill()
		if int64(n) < 500*mib-1500 {
			t.Errorf("full after %d rows", n)
		}
		d.check()
		if h := d.Health(); h.State == StateFailed {
			t.Fatalf("%+v", h)
		}
		d.must(d.Close())
		d.open()
		d.tb = d.Table("t")
		d.check()
		d.must(d.DropTable(ctx, "t"))
		d.now = d.now.Add(time.Hour)
		_, err := d.CreateTable(ctx, "u", TableSpec{Families: map[string]FamilySpec{"f": {}}})
		d.must(err)
		d.tb, d.want = d.Table("u"), map[string]bool{}
		d.must(d.put("r"))
		if h := d.Health(); h.State != StateOK {
			t.Fatalf("after the drop: %+v", h)
		}
	}
}

// Not one byte is free when a store without a floor is closed: it opens for writing all the same, again and again, with the room that
// the opening before has kept for it, takes deletes, and goes on when there is room.
func TestOpensWithNothingFree(t *testing.T) {
	d := newSmallDisk(t, 6<<20, -1, nil)
	for i := range 100 {
		d.must(d.put(fmt.Sprintf("%06d", i)))
	}
	for i := range 8 {
		if err := d.Flush(ctx); err != nil && !errors.Is(err, ErrDiskFull) {
			t.Fatal(err)
		}
		d.must(d.Close())
		d.mem.SetCapacity(d.mem.Used())
		d.open()
		d.tb = d.Table("t")
		d.check()
		if err := d.put("r"); err != nil && !errors.Is(err, ErrDiskFull) {
			t.Fatal(err)
		}
		row := fmt.Sprintf("%06d", i)
		d.must(d.tb.Apply(ctx, row, mut(func(m *Mutation) { m.DeleteRow() })))
		delete(d.want, row)
		d.check()
	}
	d.mem.SetCapacity(6 << 20)
	d.reopen()
	d.tb = d.Table("t")
	d.must(d.put("later"))
	d.check()
}

// The reserve for the next opening is made again by whoever finds that there is room, while others write the manifest.
func TestReserveForOpeningsIsMadeUnderLoad(t *testing.T) {
	d := newSmallDisk(t, 6<<20, -1, func(o *Options) { o.Background, o.Clock = nil, nil })
	for i := range 50 {
		d.must(d.put(fmt.Sprintf("%06d", i)))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 200 {
			if err := d.tb.ModifyFamilies(ctx, SetGCRule("f", gc.MaxVersionsPolicy(1000-i))); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for range 2000 {
			d.space.mu.Lock()
			d.space.opening = false // as if there had been no room
			d.space.mu.Unlock()
			d.space.recovered()
		}
	})
	wg.Wait()
}

// A file system that cannot reserve room is asked once, and told of once.
func TestNoReserveWhereNoneCanBeMade(t *testing.T) {
	var log logLines
	s, faulty := faultyStore(t)
	s.must(s.Close())
	faulty.SetRules(faultfs.FailIf(faultfs.Preallocate, "reserve", syscall.EOPNOTSUPP))
	s.opts.FreeFloor, s.opts.Logger = -1, slog.New(slog.NewTextHandler(&log, nil))
	s.open()
	if n := log.count("cannot reserve room"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if _, err := s.fs.Stat("/store/reserve-open"); err == nil {
		t.Error("an empty reserve is left")
	}
}

// What is refused and what is not while the disk is full.
func TestDeletesAndDropsAreAcceptedOnAFullDisk(t *testing.T) {
	d := newSmallDisk(t, 4<<20, 512<<10, nil)
	other := d.table("u", map[string]gc.Rule{"f": {}, "g": {}})
	d.fill()
	refused := map[string]func() error{
		"set": func() error { return d.tb.Apply(ctx, "r", set("f", "q", 1, "v")) },
		"mixed": func() error {
			return d.tb.Apply(ctx, "r", mut(func(m *Mutation) { m.DeleteRow(); m.Set("f", "q", 1, nil) }))
		},
		"either": func() error {
			return d.tb.Apply(ctx, "r", NewCondMutation(nil, mut(func(m *Mutation) { m.DeleteRow() }), set("f", "q", 1, "v")))
		},
		"rmw": func() error {
			m := NewReadModifyWrite()
			m.Increment("f", "n", 1)
			_, err := d.tb.ReadModifyWrite(ctx, "r", m)
			return err
		},
		"table": func() error {
			_, err := d.CreateTable(ctx, "v", TableSpec{Families: map[string]FamilySpec{"f": {}}})
			return err
		},
		"family": func() error { return d.tb.ModifyFamilies(ctx, AddFamily("h", FamilySpec{})) },
	}
	for what, call := range refused {
		if err := call(); !errors.Is(err, ErrDiskFull) {
			t.Errorf("%s: %v", what, err)
		}
	}
	del := mut(func(m *Mutation) { m.DeleteRow() })
	for i, call := range []func() error{
		func() error { return d.tb.Apply(ctx, "000000", del) },
		func() error { return d.tb.Apply(ctx, "007919", NewCondMutation(nil, del, nil)) },
		func() error { return d.tb.DropRowRange(ctx, NewRange("015", "016")) },
		func() error { return other.ModifyFamilies(ctx, DropFamily("g")) },
		func() error { return d.DropTable(ctx, "u") },
	} {
		if err := call(); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// A manifest that finds no space takes nothing down: the change is refused, with nothing of it written, flushes wait, and both go
// on when there is space.
func TestManifestWithoutSpaceTakesNothingDown(t *testing.T) {
	s, faulty := faultyStore(t)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	s.must(tb.Apply(ctx, "r", set("f", "q", 1, "v")))
	faulty.SetRules(faultfs.FailIf(faultfs.Preallocate, "manifest-", syscall.ENOSPC))
	made := 0
	var err error
	for ; err == nil && made < 5000; made++ {
		_, err = s.CreateTable(ctx, fmt.Sprintf("%0200d", made), TableSpec{Families: map[string]FamilySpec{"f": {}}})
	}
	made--
	if !errors.Is(err, ErrDiskFull) || errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrFailed) {
		t.Fatalf("after %d tables: %v", made, err)
	}
	for i := 0; err == nil || i < 2; i++ { // an edit that is smaller may still fit
		s.must(tb.Apply(ctx, "r", set("f", "q", Timestamp(i+2), "v")))
		if err = s.Flush(ctx); err != nil && (!errors.Is(err, ErrDiskFull) || errors.Is(err, ErrFailed)) {
			t.Fatalf("flush: %v", err)
		}
		s.now = s.now.Add(time.Minute)
	}
	if h := s.Health(); h.State != StateReadOnly {
		t.Fatalf("%+v", h)
	}
	faulty.SetRules()
	s.now = s.now.Add(time.Minute)
	s.must(s.Flush(ctx))
	s.must(tb.Apply(ctx, "r2", set("f", "q", 1, "v")))
	if h := s.Health(); h.State != StateOK {
		t.Fatalf("%+v", h)
	}
	s.reopen()
	names, err := s.Tables(ctx)
	if err != nil || len(names) != made+1 {
		t.Fatalf("%d tables of %d, %v", len(names), made+1, err)
	}
	got, err := s.rows(s.Table("t"), AllRows())
	s.must(err)
	s.want(got, "r r2 ")
}

// A volume that is small against the memtables: what is only in the log finds room for its table files all the same, since
// memtables are flushed before they are full; the volume fills with tables, not with log, and deletes bring it back.
func TestSmallVolumeWithLargeMemtables(t *testing.T) {
	d := newSmallDisk(t, 16<<20, 4<<20, func(o *Options) {
		o.MemtableBytes, o.LogSegmentBytes, o.TableFileBytes, o.LevelBytes = 16<<20, 4<<20, 16<<20, 64<<20
	})
	n := d.fill()
	m := d.Metrics()
	t.Logf("full after %d rows: %d bytes in tables, %d of log, %d free", n, m.DiskBytes, m.Log.Bytes, d.free())
	if m.Flushes == 0 || n < 6000 {
		t.Errorf("%d rows, %d flushes", n, m.Flushes)
	}
	if h := d.Health(); h.State != StateReadOnly {
		t.Fatalf("%+v", h)
	}
	d.check()
	for i, row := range slices.Sorted(maps.Keys(d.want)) {
		if i%4 != 0 {
			d.must(d.tb.Apply(ctx, row, mut(func(m *Mutation) { m.DeleteRow() }), NoSync))
			delete(d.want, row)
		}
	}
	back := false
	for range 100 {
		d.now = d.now.Add(time.Minute)
		if back = d.put("again") == nil; back {
			break
		}
		d.exec.Help()
	}
	if h := d.Health(); !back || h.State != StateOK {
		m := d.Metrics()
		t.Errorf("back: %v, %+v; %d bytes in tables, %d of log, %d free", back, h, m.DiskBytes, m.Log.Bytes, d.free())
	}
	d.check()
	d.must(d.Close())
	d.open()
	d.tb = d.Table("t")
	d.check()
}
