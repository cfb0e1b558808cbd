package wal

import (
	"context"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

// What a closed log tells of its end is what reading its last slot alone finds, however full that is, with room for the block that
// says so and without: the start of replay may lie there, behind the start of the last record.
func TestToldIsWhatIsReadBack(t *testing.T) {
	silent, told := 0, 0
	for _, full := range []bool{false, true} {
		for last := 3000; last < 16000; last += 237 {
			faulty := faultfs.New(vfs.NewMem(), faultfs.Options{})
			o := Options{FS: faulty, Dir: "/log", SlotSize: 2 * record.BlockSize, OpenCount: 1, StoreID: 7, Manual: true}
			l, err := Open(o, Recovered{})
			must(t, err)
			must(t, place(l, recOf(1, 100), 1, 1, 1))
			must(t, l.Sync(ctx))
			must(t, place(l, recOf(2, last), 2, 1, 1))
			must(t, l.Sync(ctx))
			if full {
				faulty.SetRules(faultfs.FailIf(faultfs.Create, "", syscall.ENOSPC))
			}
			must(t, l.Close())
			start := l.OldestSlotFor(2)
			rec, err := Recover(context.Background(), o, start, func([]byte) error { return nil })
			must(t, err)
			if seen := max(rec.LastSeq, rec.DurableSeq); seen < l.Told() {
				t.Fatalf("full %v, %d bytes: the log tells of %d, from slot %d on %d is read", full, last, l.Told(), start, seen)
			}
			switch l.Told() {
			case 0:
				silent++
			case 2:
				told++
			default:
				t.Fatalf("told %d", l.Told())
			}
		}
	}
	if silent == 0 || told == 0 {
		t.Errorf("told %d times, silent %d times", told, silent)
	}
}
