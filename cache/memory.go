package cache

import "math/bits"

const (
	slabMin = 16 << 10
	slabMax = hugePage
	classes = 105
	spare   = 4 // empty slabs kept for the next class that needs one
)

// hugePage is what one entry of the processor's translation cache can speak for at best. Random hits in a cache of some hundred MiB
// miss that cache nearly every time otherwise.
const hugePage = 2 << 20

// slabLenFor keeps the slabs of all classes together small against the cache.
func slabLenFor(capacity int64) int {
	if capacity/128 >= hugePage {
		return hugePage
	}
	return int(min(max(capacity/64&^4095, slabMin), 256<<10))
}

// memory is room handed out by the allocator: its place and the bytes that it counts for.
type memory struct {
	buf  []byte
	size int64
	slab *slab
	nth  int
}

// slab is a stretch of memory cut into pieces of one size.
type slab struct {
	mem   []byte
	class int
	free  []uint16 // pieces not in use
	owner []*entry // of each piece; nil when free
	total int
	at    int // index in allocator.open[class], -1 when full
}

// allocator hands out pieces in size classes a twelfth to an eighth apart. Not safe for concurrent use.
type allocator struct {
	open   [classes][]*slab // slabs with free pieces
	empty  []*slab
	mapped int64

	slabLen  int
	smallMax int64 // larger entries get a mapping of their own
}

func newAllocator(capacity int64) allocator {
	n := slabLenFor(capacity)
	return allocator{slabLen: n, smallMax: int64(n) / 4}
}

// classOf returns the smallest class whose pieces hold n bytes: eight classes per doubling, from 64 bytes on.
func classOf(n int64) int {
	if n <= 64 {
		return 0
	}
	shift := bits.Len64(uint64(n-1)) - 4
	return (shift-3)*8 + int(uint64(n-1)>>shift) - 8 + 1
}

// classSize is the size of the pieces of class c.
func classSize(c int) int64 {
	if c == 0 {
		return 64
	}
	c--
	shift := c/8 + 3
	return int64(c%8+8+1) << shift
}

// roundUp is what n bytes count for.
func (a *allocator) roundUp(n int64) int64 {
	if n > a.smallMax {
		return (n + 4095) &^ 4095
	}
	return classSize(classOf(n))
}

func (a *allocator) alloc(n int64) (memory, bool) {
	if n > a.smallMax {
		size := a.roundUp(n)
		buf, err := mapMemory(int(size))
		if err != nil {
			return memory{}, false
		}
		a.mapped += size
		return memory{buf: buf, size: size}, true
	}
	c := classOf(n)
	if len(a.open[c]) == 0 && !a.newSlab(c) {
		return memory{}, false
	}
	s := a.open[c][len(a.open[c])-1]
	i := int(s.free[len(s.free)-1])
	s.free = s.free[:len(s.free)-1]
	if len(s.free) == 0 {
		a.close(s)
	}
	size := int(classSize(c))
	return memory{buf: s.mem[i*size : (i+1)*size : (i+1)*size], size: int64(size), slab: s, nth: i}, true
}

func (a *allocator) newSlab(c int) bool {
	var s *slab
	if n := len(a.empty); n > 0 {
		s = a.empty[n-1]
		a.empty = a.empty[:n-1]
	} else {
		mem, err := mapMemory(a.slabLen)
		if err != nil {
			return false
		}
		a.mapped += int64(a.slabLen)
		s = &slab{mem: mem}
	}
	s.class, s.total = c, a.slabLen/int(classSize(c))
	s.owner = make([]*entry, s.total)
	s.free = s.free[:0]
	for i := s.total - 1; i >= 0; i-- {
		s.free = append(s.free, uint16(i))
	}
	s.at = len(a.open[c])
	a.open[c] = append(a.open[c], s)
	return true
}

// close takes s off the list of its class.
func (a *allocator) close(s *slab) {
	l := a.open[s.class]
	last := l[len(l)-1]
	l[s.at], last.at = last, s.at
	l[len(l)-1] = nil
	a.open[s.class] = l[:len(l)-1]
	s.at = -1
}

func (a *allocator) free(m memory) {
	if m.slab == nil {
		if m.buf != nil {
			a.mapped -= m.size
			unmapMemory(m.buf)
		}
		return
	}
	s := m.slab
	s.owner[m.nth] = nil
	s.free = append(s.free, uint16(m.nth))
	if s.at < 0 {
		s.at = len(a.open[s.class])
		a.open[s.class] = append(a.open[s.class], s)
	}
	if len(s.free) == s.total {
		a.close(s)
		a.empty = append(a.empty, s)
		a.trim(spare)
	}
}

// trim returns empty slabs to the operating system until keep are left.
func (a *allocator) trim(keep int) {
	for len(a.empty) > keep {
		n := len(a.empty) - 1
		unmapMemory(a.empty[n].mem)
		a.empty[n] = nil
		a.empty = a.empty[:n]
		a.mapped -= int64(a.slabLen)
	}
}

// wants reports whether room for n bytes takes new memory from the operating system.
func (a *allocator) wants(n int64) bool {
	return n > a.smallMax || len(a.open[classOf(n)]) == 0 && len(a.empty) == 0
}

// sparsest returns the slab with the largest share of free pieces, nil if there is none with any.
func (a *allocator) sparsest() *slab {
	var best *slab
	for _, l := range a.open {
		for _, s := range l {
			if best == nil || len(s.free)*best.total > len(best.free)*s.total {
				best = s
			}
		}
	}
	return best
}
