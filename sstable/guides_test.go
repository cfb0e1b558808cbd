package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/rowandb/rowan/bloom"
	"github.com/rowandb/rowan/cache"
	"github.com/rowandb/rowan/cell"
)

// Point reads find each row and no other, again and again and side by side, with the guides that earlier ones left and without; and
// guides take no more of the cache than they may.
func TestPointReadsByGuides(t *testing.T) {
	guided := 0
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 17))
		s := randShape(r)
		s.rows = 1 + r.IntN(3000)
		s.valueMax, s.wide, s.colsMax = min(s.valueMax, 20), 0, 1+r.IntN(3)
		tab := randTable(r, s)
		b, _ := write(t, tab, randOptions(r))
		rd := open(t, r, b)
		rd.f.(*byteFile).shared = true
		var wg sync.WaitGroup
		for g := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, g))
			wg.Go(func() {
				var it Iter
				for range min(2*len(tab), 1500) {
					at := r.IntN(len(tab))
					rd.Init(&it, cell.IterOptions{Point: true, KeysOnly: r.IntN(4) == 0})
					key := tab[at].key
					if r.IntN(4) == 0 {
						key = append(bytes.Clone(key), byte(r.IntN(2)))
						at = tab.search(key)
					}
					var spot Spot
					if r.IntN(2) == 0 {
						spot = rd.Locate(key)
					}
					found := it.SeekRow(key, bloom.HashRow(key), spot)
					if want := at < len(tab) && bytes.Equal(tab[at].key, key); found != want {
						t.Errorf("seed %d: row %q: %v, want %v, %v", seed, key, found, want, it.Err())
					} else if found {
						if got, want := rowText(&it), cellsText(tab[at].cells, it.o.KeysOnly); got != want {
							t.Errorf("seed %d: row %q:\n got %s\nwant %s", seed, key, got, want)
						}
					}
					if it.Close() != nil || t.Failed() {
						return
					}
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		bytes := 0
		for n := range rd.guides.of {
			if g := rd.guides.get(n); g != nil {
				guided++
				bytes += g.Bytes()
			}
		}
		if rd.cache != nil && int64(bytes) > rd.cache.Stats().Capacity/8 {
			t.Errorf("seed %d: %d bytes of guides in a cache of %d", seed, bytes, rd.cache.Stats().Capacity)
		}
	}
	if guided < 100 {
		t.Errorf("%d guides in all", guided)
	}
}

func rowText(it *Iter) string {
	var all []cell.Cell
	for buf := make([]cell.Cell, 0, 7); ; {
		cells := it.Cells(buf)
		if len(cells) == 0 {
			return cellsText(all, false)
		}
		for _, c := range cells {
			c.Col, c.Value = bytes.Clone(c.Col), bytes.Clone(c.Value)
			all = append(all, c)
		}
	}
}

func cellsText(cells []cell.Cell, keysOnly bool) (s string) {
	for _, c := range cells {
		if keysOnly {
			c.Value = nil
		}
		s += fmt.Sprintf("%q@%d=%x ", c.Col, c.TS, c.Value)
	}
	return s
}

// When the cache lends no more memory, guides of a file give way to those of blocks that are read now.
func TestGuidesGiveWay(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 17))
	tab := randTable(r, shape{rows: 4000, colsMax: 1, versionsMax: 1, valueMax: 30, tsSpread: 9, fixed: true})
	b, _ := write(t, tab, WriterOptions{ID: 9, Tree: 4, BlockSize: 1024})
	c := cache.New(64 << 10)
	defer c.Close()
	rd, err := Open(&byteFile{b: b}, ReaderOptions{Cache: c})
	must(t, err)
	read := func(at int) {
		it := rd.NewIter(cell.IterOptions{Point: true})
		if key := tab[at].key; !it.SeekRow(key, bloom.HashRow(key), Spot{}) {
			t.Fatalf("row %q is not found", key)
		}
		must(t, it.Close())
	}
	count := func() (n int) {
		for i := range rd.guides.of {
			if rd.guides.get(i) != nil {
				n++
			}
		}
		return n
	}
	for at := range tab {
		read(at)
	}
	full, last := count(), len(rd.guides.of)-1
	if full < 4 || full > last/4 || rd.guides.get(last) != nil {
		t.Fatalf("%d guides of %d blocks; the last has one: %v", full, last+1, rd.guides.get(last) != nil)
	}
	for range 400 {
		read(len(tab) - 1)
	}
	if rd.guides.get(last) == nil || count() > full {
		t.Errorf("a block that is read again and again has no guide, or there are more: %d, then %d", full, count())
	}
	must(t, rd.Close())
	if s := c.Stats(); s.Charged != 0 {
		t.Errorf("%d bytes are charged after the last file was closed", s.Charged)
	}
}
