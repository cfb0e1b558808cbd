package cache

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
)

// fill puts an entry of n bytes, all equal to b, into a slot and lets go of it.
func fill(t testing.TB, f *File, slot, n int, b byte) bool {
	t.Helper()
	h := f.Reserve(n)
	if !h.Held() {
		return false
	}
	for i := range h.Bytes() {
		h.Bytes()[i] = b
	}
	f.Publish(slot, h)
	h.Release()
	return true
}

func has(f *File, slot int) bool {
	h := f.Get(slot)
	defer h.Release()
	return h.Held()
}

func TestHitAndMiss(t *testing.T) {
	c := New(1 << 20)
	f := c.NewFile(10)
	if has(f, 3) {
		t.Fatal("empty slot hits")
	}
	fill(t, f, 3, 100, 7)
	h := f.Get(3)
	if !h.Held() || len(h.Bytes()) != 100 || h.Bytes()[99] != 7 {
		t.Fatal("entry lost")
	}
	f.Close()
	f.Close()
	if h.Bytes()[50] != 7 {
		t.Fatal("a held entry changed when its file was closed")
	}
	if has(f, 3) {
		t.Fatal("a closed file hits")
	}
	if s := c.Stats(); s.Entries != 0 || s.Used == 0 {
		t.Fatalf("%+v", s)
	}
	h.Release()
	h.Release() // a zero Handle
	if s := c.Stats(); s.Used != 0 || s.Charged != 0 {
		t.Fatalf("%+v", s)
	}
	c.Close()
	if s := c.Stats(); s.Mapped != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestCapacityHolds(t *testing.T) {
	const capacity = 1 << 20
	c := New(capacity)
	f := c.NewFile(10000)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 10000 {
		fill(t, f, i, 1+r.IntN(20000), byte(i))
		if s := c.Stats(); s.Used > capacity {
			t.Fatalf("entry %d: %+v", i, s)
		}
		if i > 100 {
			if h := f.Get(i - 1); h.Held() {
				if h.Bytes()[0] != byte(i-1) {
					t.Fatalf("slot %d holds another's bytes", i-1)
				}
				h.Release()
			}
		}
	}
	if s := c.Stats(); s.Evictions == 0 || s.Mapped > 2*capacity {
		t.Fatalf("%+v", s)
	}
	c.Charge(capacity / 2)
	if s := c.Stats(); s.Used > capacity || s.Entries == 0 {
		t.Fatalf("after a charge: %+v", s)
	}
	c.Charge(-capacity / 2)
	c.Resize(1 << 18)
	if s := c.Stats(); s.Used > 1<<18 {
		t.Fatalf("after a resize: %+v", s)
	}
	f.Close()
	c.Close()
}

// TestHeldEntriesStay: what is held is neither reused nor counted as free; when everything is held nothing is admitted.
func TestHeldEntriesStay(t *testing.T) {
	c := New(128 << 10)
	f := c.NewFile(100)
	var held []Handle
	for i := range 100 {
		h := f.Reserve(8000)
		if !h.Held() {
			break
		}
		h.Bytes()[0] = byte(i)
		f.Publish(i, h)
		held = append(held, h)
	}
	if len(held) < 10 || len(held) == 100 {
		t.Fatalf("%d entries held", len(held))
	}
	for i, h := range held {
		if h.Bytes()[0] != byte(i) || !has(f, i) {
			t.Fatalf("entry %d lost", i)
		}
	}
	if c.Stats().Refused == 0 {
		t.Error("refusal not counted")
	}
	for i := range held {
		held[i].Release()
	}
	if !fill(t, f, 99, 8000, 1) {
		t.Error("nothing can be evicted after all was released")
	}
	if big := f.Reserve(64 << 10); big.Held() {
		t.Error("an entry of half the cache was admitted")
	}
	f.Close()
	c.Close()
}

// TestScanSparesWhatIsUsed: entries that are hit survive a scan of ten times the capacity.
func TestScanSparesWhatIsUsed(t *testing.T) {
	c := New(1 << 20)
	f := c.NewFile(20000)
	const hot = 100 // 400 KiB
	for i := range hot {
		fill(t, f, i, 4096, 1)
	}
	kept := 0
	for i := hot; i < hot+2500; i++ {
		fill(t, f, i, 4096, 2)
		for j := range 4 { // hot entries are hit now and then while the scan goes on
			has(f, (i*4+j)%hot)
		}
	}
	for i := range hot {
		if has(f, i) {
			kept++
		}
	}
	if kept < hot*95/100 {
		t.Errorf("%d of %d hot entries survived the scan", kept, hot)
	}
	f.Close()
	c.Close()
}

func TestSlotTaken(t *testing.T) {
	c := New(1 << 20)
	f := c.NewFile(1)
	a, b := f.Reserve(10), f.Reserve(10)
	a.Bytes()[0], b.Bytes()[0] = 1, 2
	f.Publish(0, a)
	f.Publish(0, b)
	h := f.Get(0)
	if h.Bytes()[0] != 1 || b.Bytes()[0] != 2 {
		t.Error("the second entry took the slot")
	}
	h.Release()
	a.Release()
	b.Release()
	if c.Stats().Entries != 1 {
		t.Error("entries", c.Stats().Entries)
	}
	f.Close()
	c.Close()
	if s := c.Stats(); s.Used != 0 || s.Mapped != 0 {
		t.Errorf("%+v", s)
	}
}

// TestConcurrent runs readers, writers and closing files against each other; the race detector and the bytes are the check.
func TestConcurrent(t *testing.T) {
	c := New(256 << 10)
	const slots = 200
	var wg sync.WaitGroup
	for file := range 3 {
		f := c.NewFile(slots)
		var users sync.WaitGroup
		for w := range 3 {
			users.Add(1)
			go func() {
				defer users.Done()
				r := rand.New(rand.NewPCG(uint64(file), uint64(w)))
				for range 3000 {
					s := r.IntN(slots)
					h := f.Get(s)
					if !h.Held() {
						if h = f.Reserve(200 + 37*s); !h.Held() {
							continue
						}
						binary.LittleEndian.PutUint64(h.Bytes(), uint64(s))
						f.Publish(s, h)
					}
					if binary.LittleEndian.Uint64(h.Bytes()) != uint64(s) || len(h.Bytes()) != 200+37*s {
						t.Errorf("slot %d holds another's bytes", s)
					}
					h.Release()
				}
			}()
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			users.Wait()
			f.Close()
		}()
	}
	wg.Wait()
	if s := c.Stats(); s.Used != 0 || s.Entries != 0 {
		t.Errorf("%+v", s)
	}
	c.Close()
}

func TestSizeClasses(t *testing.T) {
	for n := int64(1); n <= slabMax/4; n++ {
		c := classOf(n)
		if size := classSize(c); size < n || c > 0 && classSize(c-1) >= n || n > 512 && size > n+n/8+1 {
			t.Fatalf("%d bytes: class %d of %d", n, c, size)
		}
		if c >= classes {
			t.Fatalf("%d bytes: class %d", n, c)
		}
	}
}

func TestHitsAllocateNothing(t *testing.T) {
	c := New(1 << 20)
	f := c.NewFile(1)
	fill(t, f, 0, 100, 1)
	if n := testing.AllocsPerRun(100, func() { h := f.Get(0); h.Release() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	f.Close()
	c.Close()
}

func BenchmarkHit(b *testing.B) {
	c := New(64 << 20)
	const slots = 3000
	f := c.NewFile(slots)
	for i := range slots {
		fill(b, f, i, 16<<10, 1)
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i, sum := rand.IntN(slots), byte(0)
		for pb.Next() {
			i = (i + 7919) % slots
			h := f.Get(i)
			sum += h.Bytes()[100]
			h.Release()
		}
		_ = sum
	})
	f.Close()
	c.Close()
}

func BenchmarkMissAndFill(b *testing.B) {
	c := New(4 << 20)
	const slots = 10000
	f := c.NewFile(slots)
	i := 0
	for b.Loop() {
		i = (i + 1) % slots
		h := f.Reserve(8 << 10)
		f.Publish(i, h)
		h.Release()
	}
	f.Close()
	c.Close()
}

// Those who pass over entries neither keep them from being evicted nor evict any.
func TestPassingLeavesTheCacheAsItIs(t *testing.T) {
	c := New(1 << 20)
	defer c.Close()
	f := c.NewFile(100)
	defer f.Close()
	for slot := range 100 {
		h := f.ReserveSpare(16 << 10)
		if !h.Held() {
			break
		}
		f.Publish(slot, h)
		h.Release()
	}
	s := c.Stats()
	if s.Evictions > 0 || s.Used > s.Capacity-s.Capacity/16 || s.Used < s.Capacity/2 {
		t.Fatalf("spare room was filled to %d of %d with %d evictions", s.Used, s.Capacity, s.Evictions)
	}
	if !f.Ask(0) || f.Ask(99) {
		t.Fatal("Ask does not know what is there")
	}
	h := f.Peek(0) // the oldest
	if !h.Held() || f.Peek(99).Held() {
		t.Fatal("Peek does not find what is there")
	}
	h.Release()
	for slot := 99; c.Stats().Evictions == 0; slot-- {
		fill(t, f, slot, 16<<10, 1)
	}
	if has(f, 0) {
		t.Error("an entry that was passed over stayed longer than its elders")
	}
}
