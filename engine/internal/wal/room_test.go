package wal

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

// What was placed has its room: with a disk that is full from the n-th call on, every record that was placed becomes durable, and
// is there after a power cut; the log never fails.
func TestPlacedRecordsNeverMeetAFullDisk(t *testing.T) {
	for _, manual := range []bool{true, false} {
		for from := 1; from < 60; from++ {
			mem := vfs.NewMem()
			fsys := faultfs.New(mem, faultfs.Options{})
			o := Options{FS: fsys, Dir: "/log", SlotSize: 64 << 10, OpenCount: 1, StoreID: 7, Manual: manual}
			l := openNew(t, o)
			n := 0
			fsys.SetRules(func(op faultfs.Op) error {
				// What needs space: files are made and grow. The slots in use are there already.
				if op.Kind == faultfs.Create || op.Kind == faultfs.Preallocate {
					if n++; n >= from {
						return syscall.ENOSPC
					}
				}
				return nil
			})
			placed, refused := uint64(0), 0
			for s := uint64(1); s <= 400; s++ {
				err := place(l, recOf(placed+1, 1000+int(s%7)*300), placed+1, 1, 1)
				switch {
				case vfs.NoSpace(err):
					refused++
				case err != nil:
					t.Fatalf("full from call %d on, record %d: %v", from, s, err)
				default:
					placed++
				}
				if s%16 == 0 {
					must(t, l.Sync(ctx))
				}
			}
			must(t, l.Sync(ctx))
			if l.Durable() != placed || l.Err() != nil {
				t.Fatalf("full from call %d on: %d placed, durable through %d, %v", from, placed, l.Durable(), l.Err())
			}
			if from < 4 && refused == 0 {
				t.Fatalf("full from call %d on: no record was refused", from)
			}
			image := mem.CrashClone(uint64(from), 0)
			must(t, l.Close()) // the mark may be left out
			o.FS = image
			if seqs, _ := replayAll(t, o, 0); uint64(len(seqs)) != placed {
				t.Fatalf("full from call %d on: %d of %d records after a power cut", from, len(seqs), placed)
			}
		}
	}
}

// Space comes back, and so do writers that were refused; slots made while it was short are small.
func TestSlotsShrinkWhileSpaceIsShort(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{Capacity: 3 << 20})
	l := openNew(t, Options{FS: mem, Dir: "/log", SlotSize: 1 << 20, OpenCount: 1, StoreID: 7, Manual: true})
	defer l.Close()
	seq := uint64(0)
	fill := func() (n int) {
		for {
			err := place(l, recOf(seq+1, 4000), seq+1, 1, 1)
			if vfs.NoSpace(err) {
				return n
			}
			must(t, err)
			seq++
			n++
		}
	}
	if n := fill(); n*4000 < 2<<20 {
		t.Fatalf("%d records of 4000 bytes on 3 MiB", n)
	}
	free, err := mem.Free("/log")
	must(t, err)
	if free >= slotSizeSmall+maxAlign {
		t.Errorf("refused with %d bytes free", free)
	}
	must(t, l.Sync(ctx))
	must(t, l.ReleaseFrom(seq, l.OldestSlotFor(seq)))
	if n := fill(); n == 0 {
		t.Fatal("nothing can be written after slots were released")
	}
	must(t, l.Sync(ctx))
}

// Prepare leaves what is to stay free alone.
func TestPrepareKeepsSpaceFree(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{Capacity: 4 << 20})
	told := 0
	l := openNew(t, Options{FS: mem, Dir: "/log", SlotSize: 256 << 10, OpenCount: 1, StoreID: 7, Manual: true, OnNoSpace: func(error) { told++ }})
	defer l.Close()
	err := l.Prepare(ctx, 3<<20, 2<<20)
	free, _ := mem.Free("/log")
	if !vfs.NoSpace(err) || free < 2<<20 || told != 1 || l.Err() != nil {
		t.Fatalf("%v; %d bytes free, told %d times, log: %v", err, free, told, l.Err())
	}
	must(t, l.Prepare(ctx, 3<<20, 0))
	must(t, l.Append(recOf(1, 3<<20), 1, 1, 1))
	must(t, l.Sync(ctx))
}

// A directory whose sync failed once is not trusted again: the log has failed (cockroachdb/pebble #1159; cberner/redb #450: a
// failed sync is retried, succeeds, and data is gone).
func TestFailedSyncOfTheDirectoryFailsTheLog(t *testing.T) {
	for _, kind := range []faultfs.Kind{faultfs.SyncDir, faultfs.Sync} {
		fsys := faultfs.New(vfs.NewMem(), faultfs.Options{})
		l := openNew(t, Options{FS: fsys, Dir: "/log", SlotSize: 64 << 10, OpenCount: 1, StoreID: 7, Manual: true})
		n := 0
		fsys.SetRules(func(op faultfs.Op) error {
			if op.Kind == kind {
				if n++; n == 1 {
					return syscall.EIO
				}
			}
			return nil
		})
		var err error
		seq := uint64(0)
		for err == nil && seq < 200 {
			if err = place(l, recOf(seq+1, 1000), seq+1, 1, 1); err == nil {
				seq++
			}
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("%v: %v after %d records", kind, err, seq)
		}
		if err := place(l, recOf(seq+1, 10), seq+1, 1, 1); !errors.Is(err, syscall.EIO) || l.Wait(ctx, seq) == nil && l.Durable() < seq {
			t.Fatalf("%v: then %v", kind, err)
		}
		_ = l.Close()
	}
}

// The accounts of room are exact: whatever the sizes of records, marks between them included, the slots are filled to the last
// block before one is refused.
func TestRoomIsExact(t *testing.T) {
	for _, size := range []int{1, 100, 2000, 4016, 4096 - record.HeaderSize - record.FrameSize, 5000, 30000} {
		size = len(recOf(1, size))
		now := time.Unix(1, 0)
		l := openNew(t, Options{FS: vfs.NewMem(), Dir: "/log", SlotSize: 256 << 10, OpenCount: 1, StoreID: 7, Manual: true, Now: func() time.Time { return now }})
		seq, marks := uint64(0), int64(0)
		for {
			err := l.Append(recOf(seq+1, size), seq+1, 1, 1)
			if errors.Is(err, ErrRoom) {
				break
			}
			must(t, err)
			seq++
			if seq%50 == 0 && l.b.Left() > 2*record.BlockSize { // a mark at the end would make another slot
				must(t, l.Sync(ctx))
				now = now.Add(time.Minute)
				before := l.room
				l.Tick()
				marks += before - l.room
			}
		}
		must(t, l.Sync(ctx))
		if left := roomIn(256<<10) - marks - int64(seq)*need(size); left != l.room || left >= need(size) {
			t.Errorf("records of %d bytes: %d fit, %d bytes are left by count and %d by the log", size, seq, left, l.room)
		}
		if blocks := l.b.Left() / record.BlockSize; blocks*blockRoom > l.room {
			t.Errorf("records of %d bytes: %d whole blocks are free, room is %d", size, blocks, l.room)
		}
		must(t, l.Close())
	}
}

// Many writers at once, each of which makes room for itself where there is none.
func TestWritersMakeRoomSideBySide(t *testing.T) {
	mem := vfs.NewMem()
	l := openNew(t, Options{FS: mem, Dir: "/log", SlotSize: 64 << 10, OpenCount: 1, StoreID: 7})
	var mu sync.Mutex // stands for the engine's lock on the order
	seq := uint64(0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				for {
					mu.Lock()
					s := seq + 1
					rec := recOf(s, 500+i*20)
					err := l.Append(rec, s, 1, 1)
					if err == nil {
						seq = s
					}
					mu.Unlock()
					if err == nil {
						if i%10 == 0 {
							err = l.Wait(ctx, s)
						}
					} else if errors.Is(err, ErrRoom) {
						if err = l.Prepare(ctx, len(rec), 0); err == nil {
							continue
						}
					}
					if err != nil {
						t.Error(err)
					}
					break
				}
			}
		})
	}
	wg.Wait()
	must(t, l.Close())
	if seqs, _ := replayAll(t, Options{FS: mem, Dir: "/log", StoreID: 7}, 0); len(seqs) != 1600 {
		t.Fatal(fmt.Sprint(len(seqs), " records"))
	}
}
