package wal

import (
	"fmt"
	"testing"

	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

// A process is killed while it makes a slot: the file is there in full and none of it is durable. The next life must not write its
// records into it as it is, since a power cut may then cut it short under them.
func TestSlotsThatWereNotFinishedAreNotUsed(t *testing.T) {
	for seed := range uint64(3) {
		fs := vfs.NewMem()
		o := Options{FS: fs, Dir: "/log", SlotSize: 64 << 10, OpenCount: 1, StoreID: 7, Manual: true}
		l, err := Open(o, Recovered{})
		must(t, err)
		must(t, place(l, recOf(1, 1000), 1, 1, 1))
		must(t, l.Wait(ctx, 1))
		must(t, l.Close())
		for n := 2; n < 5; n++ {
			f, err := fs.Open(fmt.Sprintf("/log/slot-%04d.log", n), vfs.How{Create: true})
			must(t, err)
			_, err = f.WriteAt(make([]byte, 16*record.BlockSize), 0)
			must(t, err)
			must(t, f.Close())
		}
		must(t, fs.SyncDir("/log"))

		rec, err := Recover(ctx, o, 0, func([]byte) error { return nil })
		must(t, err)
		o.OpenCount = 2
		l, err = Open(o, rec)
		must(t, err)
		for seq := uint64(2); seq < 20; seq++ {
			must(t, place(l, recOf(seq, 1000), seq, 1, 1))
			must(t, l.Wait(ctx, seq))
			for _, keep := range []float64{0, 0.5, 1} {
				c := o
				c.FS = fs.CrashClone(seed*100+seq, keep)
				rec, err := Recover(ctx, c, 0, func([]byte) error { return nil })
				if err != nil || rec.LastSeq < seq {
					t.Fatalf("seed %d, keep %v: through %d of %d: %v", seed, keep, rec.LastSeq, seq, err)
				}
			}
		}
		must(t, l.Close())
	}
}

// A sync of the log fails, and the kernel passes what it has lost for clean. The log that is opened then reads it from memory: a power
// cut after that must find it, or what was written later would follow a hole
// (PostgreSQL's fsync reports of 2018: the second sync succeeds and proves nothing).
func TestRecordsThatAFailedSyncLostAreWrittenAgain(t *testing.T) {
	mem := vfs.NewMem()
	fs := faultfs.New(mem, faultfs.Options{})
	o := Options{FS: fs, Dir: "/log", SlotSize: 64 << 10, OpenCount: 1, StoreID: 7, Manual: true, NoDirect: true}
	l, err := Open(o, Recovered{})
	must(t, err)
	for seq := uint64(1); seq < 20; seq++ {
		if seq == 12 {
			fs.SetRules(faultfs.FailIf(faultfs.Sync, "slot-", faultfs.ErrLost))
		}
		must(t, place(l, recOf(seq, 1000), seq, 1, 1))
		if err := l.Wait(ctx, seq); (err != nil) != (seq >= 12) {
			t.Fatalf("sequence %d: %v", seq, err)
		}
		if seq == 12 {
			break
		}
	}
	_ = l.Close() // it has failed
	fs.SetRules()
	rec, err := Recover(ctx, o, 0, func([]byte) error { return nil })
	must(t, err)
	last := rec.LastSeq
	o.OpenCount = 2
	l, err = Open(o, rec)
	must(t, err)
	must(t, place(l, recOf(last+1, 1000), last+1, 1, 1))
	must(t, l.Wait(ctx, last+1))
	for _, keep := range []float64{0, 0.5, 1} {
		c := o
		c.FS = mem.CrashClone(1, keep)
		if rec, err := Recover(ctx, c, 0, func([]byte) error { return nil }); err != nil || rec.LastSeq != last+1 {
			t.Errorf("keep %v: through %d of %d: %v", keep, rec.LastSeq, last+1, err)
		}
	}
	must(t, l.Close())
}
