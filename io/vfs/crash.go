package vfs

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
)

// sector is what a disk writes whole.
const sector = 512

// CrashClone returns what a power cut at this moment would leave, as a new file system without locks or open handles. Of
// everything not durable, each 512-byte sector of each write and each change of a directory is kept with probability keep,
// drawn from seed: the same state, seed and keep give the same image. A dropped sector at a file's end sometimes leaves zeros.
// Safe to call at any time, also from MemOptions.InFlight. The clone has the options of m without InFlight.
func (m *Mem) CrashClone(seed uint64, keep float64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.o
	o.InFlight = nil
	c := NewMem(o)
	x := crasher{rng: rand.New(rand.NewPCG(seed, 0x726f77616e)), keep: keep, nodes: map[*memNode]*memNode{}, all: m.o.NoCrash}
	c.root = x.dir(m.root)
	c.limit.Store(m.limit.Load())
	for _, n := range x.nodes {
		c.used.Add(n.space())
	}
	return c
}

type crasher struct {
	rng   *rand.Rand
	keep  float64
	all   bool
	nodes map[*memNode]*memNode
}

func (x *crasher) kept() bool { return x.rng.Float64() < x.keep }

func (x *crasher) dir(d *memDir) *memDir {
	entries := maps.Clone(d.durable)
	if x.all {
		entries = maps.Clone(d.entries)
	}
	for _, c := range d.pending {
		if x.kept() {
			d.apply(entries, c)
		}
	}
	out := newMemDir()
	// In order of name, so that the draws do not depend on the order of a map.
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		if e.dir != nil {
			e.dir = x.dir(e.dir)
		} else {
			e.file = x.file(e.file)
		}
		out.entries[name] = e
	}
	out.durable = maps.Clone(out.entries)
	return out
}

func (x *crasher) file(n *memNode) *memNode {
	if c := x.nodes[n]; c != nil { // a second link
		c.links++
		return c
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var data []byte
	switch {
	case x.all:
		data = bytes.Clone(n.data)
	case n.split:
		data = bytes.Clone(n.durable)
	default:
		data = bytes.Clone(n.data[:n.durLen])
	}
	for _, w := range n.pending {
		data = x.write(data, w)
	}
	c := &memNode{data: data, links: 1, durLen: len(data), room: n.durRoom, durRoom: n.durRoom}
	x.nodes[n] = c
	return c
}

func (x *crasher) write(data []byte, w memWrite) []byte {
	if w.data == nil {
		if w.sure || x.kept() {
			data = w.apply(data)
		}
		return data
	}
	for lo := 0; lo < len(w.data); {
		off := w.off + int64(lo)
		hi := min(len(w.data), lo+sector-int(off%sector))
		switch {
		case w.sure || x.kept():
			data = memWrite{off: off, data: w.data[lo:hi]}.apply(data)
		case int(off)+hi-lo > len(data) && x.rng.IntN(4) == 0:
			data = resize(data, int(off)+hi-lo) // the size was written, the bytes were not
		}
		lo = hi
	}
	return data
}
