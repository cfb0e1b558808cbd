package record

import (
	"bytes"
	"testing"
)

// A slot serves again, and the first write of its new life is torn: behind the new records the sectors of the old life are still
// there, with a whole record at just the place where the next one would start, and even its sequence would fit. It is not read,
// since the checksum of a record is bound to the life of its slot. (cockroachdb/pebble #567, #580: a log file that was used again
// gave back records of its former life.)
func TestWholeRecordOfAFormerLifeIsNotRead(t *testing.T) {
	life := func(slot, open uint64, sizes []int, seqs []uint64) (*image, []int64) {
		m := &image{slots: map[uint64][]byte{}, size: 6 * BlockSize}
		b, err := NewBuilder(testStore, make([]byte, 4*BlockSize), BlockSize)
		if err != nil {
			t.Fatal(err)
		}
		b.Reset(slot, open, m.size, false, Pos{})
		var ends []int64
		for i, n := range sizes {
			b.Start(seqs[i], bytes.Repeat([]byte{byte(seqs[i])}, n))
			if !b.Fill() {
				t.Fatal("the records do not fit")
			}
			ends = append(ends, b.Pos().Off)
		}
		p, off := b.Pending()
		m.write(slot, p, off)
		return m, ends
	}
	old, was := life(1, 1, []int{500, 700}, []uint64{10, 90})
	for name, now := range map[string][2]uint64{"another number": {2, 1}, "another opening": {1, 2}} {
		m, ends := life(now[0], now[1], []int{500}, []uint64{50})
		if ends[0] != was[0] {
			t.Fatal("the records do not start at one place")
		}
		copy(m.slots[now[0]][ends[0]:BlockSize], old.slots[1][ends[0]:])
		es, _, err := m.read(now[0])
		if err != nil || len(es) != 1 || es[0].seq != 50 {
			t.Errorf("%s: %d records, %v", name, len(es), err)
		}
	}
}
