package wal

import (
	"fmt"
	"testing"

	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

// While slots are pinned their bytes before the pin's end stay what they are, whatever is released and written; afterwards they
// serve again. (facebook/rocksdb #7787: a log that a backup had listed was gone when it came to copying it.)
func TestPinnedSlotsAreNotReused(t *testing.T) {
	fs := vfs.NewMem()
	o := Options{FS: fs, Dir: "/log", SlotSize: 2 * record.BlockSize, OpenCount: 1, StoreID: 7, Manual: true}
	l, err := Open(o, Recovered{})
	must(t, err)
	seq := uint64(0)
	write := func(n int) {
		t.Helper()
		for range n {
			seq++

			must(t, place(l, recOf(seq, 1000), seq, 1, 1))
			must(t, l.Wait(ctx, seq))
		}
	}
	free := func() {
		t.Helper()
		l.OldestSlotFor(seq)
		must(t, l.Release(seq))
	}
	write(30)
	p := l.Pin(l.OldestSlot())
	if len(p.Slots) < 3 || p.Seq != seq || p.End.Slot != p.Slots[len(p.Slots)-1].Num {
		t.Fatalf("%+v", p)
	}
	read := func() (out string) {
		for _, s := range p.Slots {
			b := make([]byte, s.Size)
			if s.Num == p.End.Slot {
				b = b[:p.End.Off]
			}
			f, err := fs.Open(slotName("/log", s.File), vfs.How{})
			must(t, err)
			_, err = f.ReadAt(b, 0)
			must(t, err)
			must(t, f.Close())
			out += fmt.Sprintf("%d %x\n", s.Num, b)
		}
		return out
	}
	before := read()
	for range 5 {
		free()
		write(20)
	}
	if read() != before {
		t.Fatal("pinned slots changed")
	}
	recycled := l.Stats().Recycled + l.Stats().Removed
	p.Release()
	p.Release()
	free()
	write(20)
	if st := l.Stats(); st.Recycled+st.Removed <= recycled || st.Slots > 12 {
		t.Fatalf("nothing was given back: %+v", st)
	}
	must(t, l.Close())
}
