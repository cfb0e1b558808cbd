package wal

import (
	"testing"
	"time"

	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

// Two flushes make their edits at a time. What the later one was told as the start of replay must not free what the earlier one,
// which alone is durable, still names.
func TestReleaseKeepsTheStartOfTheDurableEdit(t *testing.T) {
	now := time.Unix(1000, 0)
	o := Options{FS: vfs.NewMem(vfs.MemOptions{NoCrash: true}), Dir: "w", StoreID: 3, SlotSize: 64 << 10, Manual: true,
		Now: func() time.Time { return now }}
	l := openNew(t, o)
	seq := uint64(0)
	put := func() {
		seq++
		must(t, place(l, recOf(seq, 500), seq, 1, 1))
		must(t, l.Sync(ctx))
	}
	for l.b.Left() > record.BlockSize {
		put()
	}
	flushed := seq
	durable := l.OldestSlotFor(flushed)
	now = now.Add(2 * time.Second)
	l.Tick() // the mark opens the next slot
	if next := l.OldestSlotFor(flushed); next != durable+1 {
		t.Fatalf("the mark opened no slot: start %d, then %d", durable, next)
	}
	must(t, l.ReleaseFrom(flushed, durable))
	for range 300 {
		put()
	}
	must(t, l.Close())
	seqs, _ := replayAll(t, o, durable)
	if len(seqs) == 0 || seqs[len(seqs)-1] != seq {
		t.Fatalf("%d records, want all through %d", len(seqs), seq)
	}
}
