package work

import (
	"fmt"
	"slices"

	"github.com/rowandb/rowan/bench/store"
)

// shape is what a set of pairs looks like.
type shape struct {
	n     uint64
	value int // bytes of a value
	seq   bool
}

func (d shape) key(i uint64, key []byte) {
	if d.seq {
		SeqKey(i, key)
	} else {
		Key(i, key)
	}
}

func (d shape) pairBytes() int64 { return int64(KeyBytes + d.value) }

// sum is that of the pairs from..to, each with its first value.
func (d shape) sum(from, to, stride uint64) Sum {
	var s Sum
	key, value := scratch(KeyBytes), make([]byte, d.value)
	for i := from; i < to; i += stride {
		d.key(i, key)
		Value(i, 0, value)
		s.Add(key, value)
	}
	return s
}

// block is the memory for the pairs of a batch.
type block struct {
	keys, values [][]byte
}

func newBlock(n, value int) *block {
	b := &block{make([][]byte, n), make([][]byte, n)}
	keys, values := scratch(n*KeyBytes), scratch(n*value)
	for i := range n {
		b.keys[i] = keys[i*KeyBytes : (i+1)*KeyBytes : (i+1)*KeyBytes]
		b.values[i] = values[i*value : (i+1)*value : (i+1)*value]
	}
	return b
}

// load writes the pairs of a data set, in key order where the engine wants that, and settles.
func load(s store.Store, e store.Engine, d shape) error {
	c, err := s.Session()
	if err != nil {
		return err
	}
	var order []uint64
	if e.Sorted && !d.seq {
		order = sorted(d.n)
	}
	const batch = 1000
	b := newBlock(max(1, min(batch, 4<<20/d.value)), d.value)
	for i := uint64(0); i < d.n; {
		k := 0
		for ; k < len(b.keys) && i < d.n; k++ {
			at := i
			if order != nil {
				at = order[i]
			}
			d.key(at, b.keys[k])
			Value(at, 0, b.values[k])
			i++
		}
		if err := c.Put(b.keys[:k], b.values[:k], false); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	if err := c.Close(); err != nil {
		return err
	}
	return s.Settle()
}

// sorted lists 0..n-1 in the order of Key.
func sorted(n uint64) []uint64 {
	order := make([]uint64, n)
	for i := range order {
		order[i] = mix(uint64(i))
	}
	slices.Sort(order)
	for i, h := range order {
		order[i] = unmix(h)
	}
	return order
}

// unmix is the inverse of mix.
func unmix(x uint64) uint64 {
	x ^= x>>31 ^ x>>62
	x *= 0x319642b2d24d8ec3
	x ^= x>>27 ^ x>>54
	x *= 0x96de1b173f119089
	x ^= x>>30 ^ x>>60
	return x - 0x9e3779b97f4a7c15
}

// make loads the set into an empty store.
func (d shape) make(r *Run) error {
	d.n = r.amount(d.n, d.value)
	return r.pairs(func(s store.Store) error {
		if err := load(s, r.Engine, d); err != nil {
			return err
		}
		return r.holds(s, d.sum(0, d.n, 1))
	})
}
