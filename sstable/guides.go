package sstable

import (
	"sync/atomic"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/bloom"
	"github.com/rowandb/rowan/cache"
)

// guides are those of a file's blocks of cells that point reads have left there, by the number of the block. Their memory is lent by
// the cache, up to a bound for all files together.
type guides struct {
	cache *cache.Cache // nil: without one a block is decoded for each read, and no guide is worth its memory
	of    []atomic.Pointer[block.Guide]
	hand  atomic.Uint32 // the next to give way when no more is lent
	tries atomic.Uint32 // to have one give way
}

func (g *guides) init(c *cache.Cache, blocks int) {
	if g.cache = c; c != nil {
		g.of = make([]atomic.Pointer[block.Guide], blocks)
	}
}

// get returns the guide of a block, or nil.
func (g *guides) get(n int) *block.Guide {
	if n >= len(g.of) {
		return nil
	}
	return g.of[n].Load()
}

// leave makes a guide for a block.
func (g *guides) leave(n int, k *block.Keys) {
	if n >= len(g.of) {
		return
	}
	size := int64(block.GuideBytes(k))
	if size == 0 || !g.cache.Lend(size) && !(g.giveWay() && g.cache.Lend(size)) {
		return
	}
	if !g.of[n].CompareAndSwap(nil, block.NewGuide(k, bloom.HashRow)) {
		g.cache.Lend(-size)
	}
}

// giveWay drops some guide of the file, one time in a few, if there is one near where it looks. Which one does not matter much: what is
// read often comes again. Data that are much larger than the cache have few second reads, and guides are not to be made for each.
func (g *guides) giveWay() bool {
	const seldom, look = 8, 64
	if g.tries.Add(1)%seldom != 0 {
		return false
	}
	for range min(look, len(g.of)) {
		if g.take(int(g.hand.Add(1)) % len(g.of)) {
			return true
		}
	}
	return false
}

func (g *guides) take(n int) bool {
	x := g.of[n].Swap(nil)
	if x == nil {
		return false
	}
	g.cache.Lend(-int64(x.Bytes()))
	return true
}

// drop drops all.
func (g *guides) drop() {
	for n := range g.of {
		g.take(n)
	}
}
