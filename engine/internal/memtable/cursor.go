package memtable

// cursor walks the entries of one set of a row in order. It holds a copy of one vector's or leaf's refs: entries that come
// later have later sequences, which its reader does not look at.
type cursor struct {
	t     *Table
	word  uint32 // the set
	n     int    // refs loaded
	at    int
	right uint32 // leaf after the loaded one, 0 = none
	refs  [most]uint32
}

// start chooses the set; the cursor is nowhere until first or seek.
func (c *cursor) start(t *Table, word uint32) {
	c.t, c.word, c.n, c.at, c.right = t, word, 0, 0, 0
}

// ref is the current entry, 0 at the end.
func (c *cursor) ref() uint32 {
	if c.at < c.n {
		return c.refs[c.at&(most-1)]
	}
	return 0
}

// next moves on.
func (c *cursor) next() {
	c.at++
	if c.at >= c.n && c.right != 0 {
		c.loadLeaf(c.right)
		c.at = 0
	}
}

// loadSmall loads a set that is not a tree.
func (c *cursor) loadSmall() {
	c.right, c.n = 0, 0
	switch c.word & tagMask {
	case tagEntry:
		c.refs[0], c.n = c.word&refMask, 1
	case tagVec:
		v := c.t.vec(c.word)
		n := v.n.Load()
		c.n = copy(c.refs[:], v.refs()[:n])
	}
}

func (c *cursor) loadLeaf(ref uint32) {
	c.n, c.right, _, _, _ = c.t.loadLeaf(c.t.tree(c.word), ref, &c.refs)
}

// seek moves to the first entry at or after k.
func (c *cursor) seek(k *key) {
	if c.word&tagMask == tagTree {
		tr := c.t.tree(c.word)
		p := c.t.descend(tr, k, false, 0)
		c.loadLeaf(p.ref)
	} else {
		c.loadSmall()
	}
	for {
		lo, hi := 0, c.n
		for lo < hi {
			m := int(uint(lo+hi) / 2)
			if k.compare(c.t.entry(c.refs[m&(most-1)])) > 0 {
				lo = m + 1
			} else {
				hi = m
			}
		}
		if c.at = lo; lo < c.n || c.right == 0 {
			return
		}
		c.loadLeaf(c.right) // the leaf has been split since, or ends before k
	}
}

// loadLeaf copies the refs of a leaf, and returns how many, its right neighbour, its beginning, the number of the leaf itself,
// which is another one if ref has only a signpost left, and its state, with the latch bit if that was held meanwhile.
func (t *Table) loadLeaf(tr *tree, ref uint32, refs *[most]uint32) (n int, next, low, self uint32, state uint64) {
	for {
		nd := (*node)(t.at(ref))
		h := nd.hdr.Load()
		if h&hdrForward != 0 {
			ref = nd.next.Load()
			continue
		}
		order := &nd.order[h/hdrList&1]
		n = count(h)
		for i := 0; i < n; i += 8 {
			w := order.words[i>>3].Load()
			for j := i; j < min(i+8, n); j++ {
				refs[j&(most-1)] = nd.slotRef(int(w & 0x7f)).Load()
				w >>= 8
			}
		}
		next = nd.next.Load()
		h2 := nd.hdr.Load()
		if h2&^hdrLatch != h&^hdrLatch {
			continue
		}
		if (h|h2)&hdrLatch != 0 && next != 0 {
			// A split may have stored next but not yet the shorter order: leave to the new leaf what is its own.
			k := t.itemKey(tr, (*node)(t.at(next)).low)
			for n > 0 && t.compare(tr, &k, refs[(n-1)&(most-1)]) <= 0 {
				n--
			}
		}
		return n, next, nd.low, ref, h | h2&hdrLatch
	}
}
