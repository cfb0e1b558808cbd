package wal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

func openNew(t testing.TB, o Options) *Log {
	t.Helper()
	_, r := replayAll(t, o, 0)
	o.OpenCount = r.OpenCount + 1
	l, err := Open(o, r)
	must(t, err)
	return l
}

func count(from, to uint64) (s []uint64) {
	for ; from <= to; from++ {
		s = append(s, from)
	}
	return s
}

// Writers of all kinds at once, on real files and in memory; everything acknowledged is there afterwards, in order.
func TestConcurrent(t *testing.T) {
	before := runtime.NumGoroutine()
	dir := t.TempDir()
	for name, o := range map[string]Options{
		"os":          {FS: vfs.OS(), Dir: dir + "/d"},
		"osBuffered":  {FS: vfs.OS(), Dir: dir + "/b", NoDirect: true},
		"mem":         {FS: vfs.NewMem(), Dir: "w", UnsyncedMax: 3000},
		"memRefused":  {FS: vfs.NewMem(vfs.MemOptions{NoDirect: true}), Dir: "w", SlotSize: 64 << 10},
		"firstWrite":  {FS: faultfs.New(vfs.NewMem(), faultfs.Options{RefuseWrite: true}), Dir: "w", SlotSize: 64 << 10},
		"align64K":    {FS: vfs.NewMem(vfs.MemOptions{Align: 64 << 10}), Dir: "w", SlotSize: 128 << 10},
		"alignTooBig": {FS: vfs.NewMem(vfs.MemOptions{Align: 128 << 10}), Dir: "w"},
	} {
		t.Run(name, func(t *testing.T) {
			o.StoreID = 3
			l := openNew(t, o)
			var mu sync.Mutex
			seq := uint64(0)
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					for i := range 60 {
						if err := l.Throttle(ctx); err != nil {
							t.Error(err)
						}
						mu.Lock()
						seq++
						s := seq
						err := place(l, recOf(s, 20+i*g), s, 1, 1)
						mu.Unlock()
						if err == nil && (i+g)%3 != 0 {
							err = l.Wait(ctx, s)
							if l.Durable() < s {
								t.Error("not durable after Wait")
							}
						}
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			must(t, l.Sync(ctx))
			st := l.Stats()
			wantDirect := name == "mem" || name == "align64K"
			if st.Records != 480 || st.Unsynced != 0 || (st.Mode == "direct") != wantDirect && name != "os" {
				t.Fatalf("%+v", st)
			}
			must(t, l.Close())
			must(t, l.Close())
			if err := place(l, recOf(500, 9), 500, 1, 1); !errors.Is(err, ErrClosed) {
				t.Fatal(err)
			}
			seqs, r := replayAll(t, o, 0)
			if !slices.Equal(seqs, count(1, 480)) || r.Ignored != 0 {
				t.Fatal(len(seqs), r)
			}
		})
	}
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i > 2000 {
			t.Fatal("goroutines left")
		}
		time.Sleep(time.Millisecond)
	}
}

// A file that is used again never gives back a record of its former life (cockroachdb/pebble #567, #580: old records came back from a
// recycled log).
func TestNoFormerLife(t *testing.T) {
	m := vfs.NewMem()
	o := Options{FS: m, Dir: "w", StoreID: 3, SlotSize: 64 << 10, Manual: true}
	l := openNew(t, o)
	seq := uint64(0)
	put := func(n int) {
		for range n {
			seq++
			must(t, place(l, recOf(seq, 100), seq, 1, 1))
		}
		must(t, l.Sync(ctx))
	}
	start, flushed := uint64(0), uint64(0)
	for range 40 {
		put(200)
		flushed = seq
		start = l.OldestSlotFor(seq)
		must(t, l.Release(seq))
	}
	if st := l.Stats(); st.Recycled < 5 || st.Created > 4 {
		t.Fatalf("%+v", st)
	}
	put(3)
	c := m.CrashClone(1, 0)
	o.FS = c
	seqs, _ := replayAll(t, o, start)
	if last := seqs[len(seqs)-1]; last != seq {
		t.Fatal(last, seq)
	}
	for i, s := range seqs {
		if s != seqs[0]+uint64(i) || seqs[0] > flushed+1 {
			t.Fatal(seqs)
		}
	}
}

// The last, unacknowledged batch of a prewritten slot loses a sector or a block; it is absent as a whole and the store opens
// (etcd-io/etcd #5230, #5250, #6515: a checksum error at the end of a preallocated log kept the node down).
func TestTornTail(t *testing.T) {
	for _, hole := range []struct{ off, n int64 }{{512, 512}, {4096, 4096}} {
		m := vfs.NewMem()
		o := Options{FS: m, Dir: "w", StoreID: 3, Manual: true}
		l := openNew(t, o)
		for s := range uint64(5) {
			must(t, place(l, recOf(s+1, 1000), s+1, 1, 1))
			must(t, l.Sync(ctx))
		}
		at := l.b.Pos().Off
		must(t, place(l, recOf(6, 5000), 6, 1, 1))
		must(t, l.Sync(ctx)) // on disk, though nobody is to believe it
		f, err := m.Open("w/slot-0001.log", vfs.How{Write: true})
		must(t, err)
		_, err = f.WriteAt(make([]byte, hole.n), (at+hole.off)/hole.n*hole.n)
		must(t, err)
		seqs, r := replayAll(t, o, 0)
		if !slices.Equal(seqs, count(1, 5)) || r.Ignored < 1000 {
			t.Fatal(seqs, r)
		}
		// Once the log has gone on, the same hole in an acknowledged record is damage and says where.
		must(t, place(l, recOf(7, 5000), 7, 1, 1))
		must(t, l.Sync(ctx))
		_, err = f.WriteAt(make([]byte, 10), at+100)
		must(t, err)
		_, err = Recover(ctx, o, 0, func([]byte) error { return nil })
		var d *damage.Error
		if !errors.As(err, &d) || d.File != "w/slot-0001.log" || d.Offset != at {
			t.Fatal(err)
		}
	}
}

// Opened and killed again and again, with nothing or one record written.
func TestOpenKillLoop(t *testing.T) {
	m := vfs.NewMem()
	want := uint64(0)
	for i := range 50 {
		o := Options{FS: m, Dir: "w", StoreID: 3, Manual: true}
		l := openNew(t, o)
		if i%3 == 0 {
			want++
			must(t, place(l, recOf(want, 10), want, 1, 1))
			must(t, l.Sync(ctx))
		} else if i%3 == 1 {
			must(t, place(l, recOf(1000, 10), 1000, 1, 1)) // never leaves the process
		}
		m = m.CrashClone(uint64(i), 0.5)
	}
	seqs, _ := replayAll(t, Options{FS: m, Dir: "w", StoreID: 3}, 0)
	if !slices.Equal(seqs, count(1, want)) {
		t.Fatal(seqs)
	}
}

// A process dies between write and sync: the next one reads the record from the page cache and builds on it, so it must be
// durable before anything newer is.
func TestKilledBeforeSync(t *testing.T) {
	m := vfs.NewMem()
	f := faultfs.New(m, faultfs.Options{})
	o := Options{FS: f, Dir: "w", StoreID: 3, Manual: true, NoDirect: true}
	l := openNew(t, o)
	must(t, place(l, recOf(1, 100), 1, 1, 1))
	f.SetRules(faultfs.FailIf(faultfs.Sync, "slot", syscall.EIO))
	if err := l.Sync(ctx); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	f.SetRules()
	l = openNew(t, o)
	must(t, place(l, recOf(2, 100), 2, 1, 1))
	must(t, l.Sync(ctx))
	o.FS = m.CrashClone(1, 0)
	if seqs, _ := replayAll(t, o, 0); !slices.Equal(seqs, count(1, 2)) {
		t.Fatal(seqs)
	}
}

// Every mutating call of a life fails in turn: the failure is reported, sticks, and what was acknowledged survives a crash.
func TestFailNth(t *testing.T) {
	for _, inject := range []error{syscall.EIO, faultfs.ErrShort} {
		for n := 1; ; n++ {
			m := vfs.NewMem()
			f := faultfs.New(m, faultfs.Options{Rules: []faultfs.Rule{faultfs.FailAt(n, inject)}})
			var told atomic.Int32
			o := Options{FS: f, Dir: "w", StoreID: 3, SlotSize: 16 << 10, Manual: true, OpenCount: 1, OnIOError: func(error) { told.Add(1) }}
			acked, flushed, start := uint64(0), uint64(0), uint64(0)
			err := func() error {
				l, err := Open(o, Recovered{})
				if err != nil {
					return err
				}
				for s := uint64(1); s < 40; s++ {
					if err = place(l, recOf(s, 2000), s, 1, 1); err != nil {
						break
					}
					if s%3 == 0 {
						if err = l.Wait(ctx, s); err != nil {
							break
						}
						acked = s
					}
					if s%10 == 0 {
						start, flushed = l.OldestSlotFor(acked), acked
						if err := l.Release(acked); err != nil && !errors.Is(err, inject) {
							return err
						}
					}
				}
				if err != nil && l.Err() != nil {
					if place(l, recOf(100, 9), 100, 1, 1) == nil || l.Wait(ctx, 60) == nil || told.Load() != 1 || l.Durable() < acked {
						t.Fatal("the failure did not stick")
					}
				}
				cerr := l.Close()
				if cerr == nil {
					acked = 39
				}
				return errors.Join(err, cerr)
			}()
			if f.Fired() == 0 {
				if err != nil || n < 20 {
					t.Fatal(n, err)
				}
				break
			}
			if err != nil && !errors.Is(err, inject) {
				t.Fatal(err)
			}
			o.FS = m.CrashClone(uint64(n), 0.5)
			if _, err := o.FS.Stat("w"); err != nil && acked == 0 {
				continue
			}
			seqs, r := replayAll(t, o, start)
			if max(r.LastSeq, flushed) < acked {
				t.Fatalf("fault %d: %v, acknowledged %d", n, seqs, acked)
			}
		}
	}
}

// Waiters of a group that fails all return the failure, those that were queued behind it too.
func TestFailureWakesAll(t *testing.T) {
	f := faultfs.New(vfs.NewMem(), faultfs.Options{})
	l := openNew(t, Options{FS: f, Dir: "w", StoreID: 3, Manual: true})
	f.SetRules(faultfs.Delay(faultfs.Write, 5*time.Millisecond), faultfs.FailIf(faultfs.Write, "", syscall.EIO))
	var wg sync.WaitGroup
	for s := uint64(1); s <= 20; s++ {
		must(t, ignoreEIO(place(l, recOf(s, 10), s, 1, 1)))
		wg.Go(func() {
			if err := l.Wait(ctx, s); !errors.Is(err, syscall.EIO) {
				t.Error(err)
			}
		})
		if s == 10 {
			runtime.Gosched()
		}
	}
	wg.Wait()
	if err := l.Close(); !errors.Is(err, syscall.EIO) || l.Durable() != 0 {
		t.Fatal(err)
	}
}

func ignoreEIO(err error) error {
	if errors.Is(err, syscall.EIO) {
		return nil
	}
	return err
}

func TestContext(t *testing.T) {
	f := faultfs.New(vfs.NewMem(), faultfs.Options{})
	l := openNew(t, Options{FS: f, Dir: "w", StoreID: 3, Manual: true, UnsyncedMax: 100})
	gone, cancel := context.WithCancel(ctx)
	cancel()
	must(t, place(l, recOf(1, 1000), 1, 1, 1))
	if err := l.Wait(gone, 1); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := l.Wait(ctx, 2); !errors.Is(err, ErrRecord) {
		t.Fatal(err)
	}
	must(t, l.Throttle(ctx))
	if l.Durable() != 1 {
		t.Fatal("Throttle did not write")
	}
	must(t, l.Wait(gone, 1)) // it is durable
	must(t, l.Close())
	_, err := Recover(gone, l.o, 0, func([]byte) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	if _, err = Recover(ctx, l.o, 0, func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
}

func TestRefusedRecords(t *testing.T) {
	o := Options{FS: vfs.NewMem(), Dir: "w", StoreID: 3, Manual: true}
	l := openNew(t, o)
	must(t, place(l, recOf(7, 10), 7, 1, 1))
	for _, err := range []error{place(l, nil, 8, 1, 1), place(l, recOf(7, 10), 7, 1, 1), place(l, make([]byte, record.PayloadMax+1), 9, 1, 1)} {
		if !errors.Is(err, ErrRecord) {
			t.Fatal(err)
		}
	}
	must(t, l.Close())
	o.OpenCount = 1
	_, r := replayAll(t, o, 0)
	if _, err := Open(o, r); err == nil {
		t.Fatal("opened under an open count that was in use")
	}
	if _, err := Recover(ctx, o, 2, func([]byte) error { return nil }); !errors.Is(err, damage.Err) {
		t.Fatal("a start that is not there:", err)
	}
}

// A record much larger than a slot, with others around it; what lies in the middle of it counts as its.
func TestLargeRecord(t *testing.T) {
	o := Options{FS: vfs.NewMem(vfs.MemOptions{NoCrash: true}), Dir: "w", StoreID: 3, SlotSize: 128 << 10, Manual: true}
	l := openNew(t, o)
	for s, size := range []int{50, 3 << 20, 50} {
		must(t, place(l, recOf(uint64(s+1), size), uint64(s+1), 1, 1))
	}
	must(t, l.Sync(ctx))
	if l.OldestSlotFor(1) != 1 || l.OldestSlotFor(2) < 20 {
		t.Fatal(l.OldestSlotFor(1), l.OldestSlotFor(2))
	}
	start := l.OldestSlotFor(2)
	must(t, l.Release(2))
	must(t, place(l, recOf(4, 500<<10), 4, 1, 1))
	must(t, l.Close())
	seqs, r := replayAll(t, o, start)
	if !slices.Equal(seqs, []uint64{3, 4}) || r.Ignored != 0 {
		t.Fatal(seqs, r)
	}
}

// Nothing is recycled that a durable edit has not freed; with it, a log of any length lives in a few files.
func TestRelease(t *testing.T) {
	m := vfs.NewMem(vfs.MemOptions{NoCrash: true})
	o := Options{FS: m, Dir: "w", StoreID: 3, SlotSize: 64 << 10, Manual: true}
	l := openNew(t, o)
	seq := uint64(0)
	put := func() {
		for range 100 {
			seq++
			must(t, place(l, recOf(seq, 1000), seq, 1, 1))
		}
		must(t, l.Sync(ctx))
	}
	for range 4 {
		put()
		must(t, l.Release(seq)) // no start of replay was ever asked for
	}
	if seqs, _ := replayAll(t, o, 0); len(seqs) != 400 {
		t.Fatal(len(seqs))
	}
	for range 30 { // as an engine does that records OldestSlot in the edit before
		put()
		l.OldestSlot()
		must(t, l.Release(seq))
	}
	if n := l.Size(); n > 12*64<<10 {
		t.Fatal(n)
	}
	st := l.Stats()
	if st.Removed+uint64(st.Slots+st.Spare) != st.Created {
		t.Fatalf("%+v", st)
	}
	ls, err := m.List("w")
	if err != nil || len(ls) != st.Slots+st.Spare {
		t.Fatal(ls, err)
	}
	must(t, l.Close())
}

// After a second of quiet, and at close, a header-only block makes later damage to the last record visible.
func TestQuietMark(t *testing.T) {
	m := vfs.NewMem()
	now := time.Unix(50, 0)
	o := Options{FS: m, Dir: "w", StoreID: 3, Manual: true, Now: func() time.Time { return now }}
	l := openNew(t, o)
	must(t, place(l, recOf(1, 100), 1, 17, 18))
	if d := l.Tick(); d != NoSyncDelay || l.Durable() != 0 {
		t.Fatal(d)
	}
	now = now.Add(NoSyncDelay)
	l.Tick()
	if l.Durable() != 1 {
		t.Fatal("not written after its delay")
	}
	if d := l.Tick(); d != quiet {
		t.Fatal(d)
	}
	writes := l.Stats().Writes
	now = now.Add(quiet)
	if d := l.Tick(); d != 0 || l.Stats().Writes != writes+1 {
		t.Fatal(d, l.Stats())
	}
	if l.Tick(); l.Stats().Writes != writes+1 {
		t.Fatal("a second mark")
	}
	_, r := replayAll(t, o, 0)
	if r.EngineTime != 17 || r.Stamp != 18 || r.DurableSeq != 1 {
		t.Fatalf("%+v", r)
	}
	f, err := m.Open("w/slot-0001.log", vfs.How{Write: true})
	must(t, err)
	_, err = f.WriteAt([]byte{1}, record.BlockSize+record.HeaderSize+50) // block 0 is the header of the opening
	must(t, err)
	_, err = f.WriteAt([]byte{1}, record.HeaderSize+50)
	must(t, err)
	if _, err := Recover(ctx, o, 0, func([]byte) error { return nil }); !errors.Is(err, damage.Err) {
		t.Fatal(err)
	}
}

// A million records that nobody waits for make few write calls.
func TestNoSyncWriteCalls(t *testing.T) {
	n, most := uint64(1_000_000), int64(2000)
	if raceEnabled {
		n, most = 100_000, 400
	}
	f := faultfs.New(vfs.NewMem(vfs.MemOptions{NoCrash: true}), faultfs.Options{})
	l := openNew(t, Options{FS: f, Dir: "w", StoreID: 3, NoSyncDelay: time.Hour})
	rec := recOf(1, 60)
	for s := uint64(1); s <= n; s++ {
		if s%1000 == 0 {
			must(t, l.Throttle(ctx))
			l.OldestSlotFor(l.Durable())
			must(t, l.Release(l.Durable()))
		}
		must(t, place(l, rec, s, 1, 1))
	}
	must(t, l.Sync(ctx))
	must(t, l.Close())
	if calls := f.Count(faultfs.Write); calls > most || l.Stats().Records != n {
		t.Fatalf("%d write calls, %+v", calls, l.Stats())
	}
}

// Placing a record allocates nothing once the queue has its size.
func TestAppendAllocs(t *testing.T) {
	l := openNew(t, Options{FS: vfs.NewMem(), Dir: "w", StoreID: 3, Manual: true})
	rec, seq := recOf(1, 100), uint64(0)
	put := func() {
		for range 100 {
			seq++
			must(t, place(l, rec, seq, 1, 1))
		}
		must(t, l.Sync(ctx))
	}
	put()
	put()
	if n := testing.AllocsPerRun(50, put); n > 20 {
		t.Fatal(n, "allocations for 100 records")
	}
	must(t, l.Close())
}

func TestSlotNames(t *testing.T) {
	for name, n := range map[string]int{"slot-0001.log": 1, "slot-12345.log": 12345, "slot-1.log": 0, "slot-0000.log": 0, "slot-00a1.log": 0, "x": 0,
		"slot-.log": 0, "slot-0001.logx": 0} {
		if got, ok := record.ParseSlotName(name); got != n || ok != (n > 0) {
			t.Error(name, got, ok)
		}
	}
	if s := fmt.Sprint(pow2(1), pow2(2), pow2(3), pow2(4096), pow2(4097)); s != "1 2 4 4096 8192" {
		t.Fatal(s)
	}
}
