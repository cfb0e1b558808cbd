// Command bench runs the same work on Rowan and on the engines that its users would pick instead, one process for each engine and
// workload, and prints rates and their ratio to the best of the others.
package main

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
)

// store is what a workload needs of an engine. Keys are unique; values are copied by the engine.
type store interface {
	// put writes a batch of pairs, durable at once if sync.
	put(keys, values [][]byte, sync bool) error
	// get calls fn with the value of a key, valid during the call; false if there is none.
	get(key []byte, fn func(value []byte)) (bool, error)
	// scan calls fn for up to n pairs from start on (nil: the first), in order or in reverse.
	scan(start []byte, n int, reverse bool, fn func(key, value []byte)) error
	// settle waits until background work owes nothing.
	settle() error
	close() error
}

// engines by name, in the order of the table. Each has 64 MiB of write buffer, 512 MiB of cache, 10 bits of bloom filter per
// key and a Snappy-class codec, where it has these.
var engines = []struct {
	name string
	open func(dir string) (store, error)
}{
	{"rowan", openRowan},
	{"pebble", openPebble},
	{"bbolt", openBbolt},
	{"goleveldb", openGoleveldb},
}

// pair is the i-th key and value of a data set: 16-byte keys in hashed order, values half random, half repeat.
func pair(i uint64, key, value []byte) {
	binary.BigEndian.PutUint64(key, i*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(key[8:], i)
	x := i*0xbf58476d1ce4e5b9 + 1
	for j := 0; j+8 <= len(value)/2; j += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(value[j:], x)
	}
}

// sum is a running check of what was read: every byte counts.
type sum struct{ n, h uint64 }

func (s *sum) add(key, value []byte) {
	h := fnv.New64a()
	h.Write(key)
	h.Write(value)
	s.h += h.Sum64()
	s.n++
}

func (s *sum) equal(o sum) error {
	if *s != o {
		return fmt.Errorf("read %d entries with sum %x, expected %d with %x", s.n, s.h, o.n, o.h)
	}
	return nil
}
