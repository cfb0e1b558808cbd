package work

import (
	"bytes"
	"fmt"

	"github.com/rowandb/rowan/bench/store"
)

// ycsb is one of the workloads of the Yahoo cloud serving benchmark, with standard pairs in place of its records. Several callers
// write the same keys, so that which value is the last is not known: every value is one that some caller may have written.
type ycsb struct {
	shape
	name                       string
	read, update, insert, scan float64 // parts of all operations; what is left reads, changes and writes
	latest                     bool    // reads go to what was written last
}

const ycsbCallers = 4

func (w ycsb) run(r *Run) error {
	w.n = r.amount(w.n, w.value)
	return r.pairs(func(s store.Store) error {
		if err := (reads{shape: w.shape}).warm(r, s); err != nil {
			return err
		}
		z := newZipf(w.n)
		l := sessions{s: s}
		callers := make([]*ycsbCaller, ycsbCallers)
		_, err := r.measured(phase{callers: ycsbCallers, limit: r.time(ycsbTime), start: func(c int) (step, error) {
			session, err := l.open()
			callers[c] = &ycsbCaller{ycsb: w, z: z, s: session, id: uint64(c), random: newRNG(uint64(c)), b: newBlock(1, w.value)}
			return callers[c].step, err
		}, settle: w.settle(s), stats: s.Stats})
		if err != nil {
			return err
		}
		for _, c := range callers {
			w.n += c.inserted
			r.Out.UserData += int64(c.written) * w.pairBytes()
		}
		if err := l.close(); err != nil {
			return err
		}
		return w.verify(r, s, callers)
	})
}

// settle is nil for a workload without writes: there is nothing to drain.
func (w ycsb) settle(s store.Store) func() error {
	if w.read == 1 {
		return nil
	}
	return s.Settle
}

// verify scans the store: each key that must be there is, with the value that was loaded or inserted, or one of an update.
func (w ycsb) verify(r *Run, s store.Store, callers []*ycsbCaller) error {
	session, err := s.Session()
	if err != nil {
		return err
	}
	var got Sum
	var bad error
	value := scratch(w.value)
	err = session.Scan(nil, int(w.n)+1, false, func(k, v []byte) {
		got.Add(k, v)
		i, known := number(k), false
		for g := uint64(0); g <= ycsbCallers && !known; g++ {
			Value(i, g, value)
			known = bytes.Equal(v, value)
		}
		if !known {
			bad = fmt.Errorf("key %x has a value that nobody wrote", k)
		}
	})
	if err == nil && bad == nil && got.N != w.n {
		bad = fmt.Errorf("%d pairs are there, %d were written", got.N, w.n)
	}
	if bad != nil {
		return bad
	}
	r.checked(Sum{N: got.N}) // which of the values are there is not the same in every run
	if err != nil {
		return err
	}
	return session.Close()
}

// ycsbCaller is one caller: its operations and what it has done.
type ycsbCaller struct {
	ycsb
	z                 *zipf
	s                 store.Session
	id                uint64
	random            *rng
	b                 *block
	inserted, written uint64
	pairs             uint64 // seen by a scan
	bad               error
}

// own is the number of the i-th pair that this caller inserts.
func (c *ycsbCaller) own(i uint64) uint64 { return c.n + i*ycsbCallers + c.id }

func (c *ycsbCaller) pick() uint64 {
	if !c.latest {
		return c.z.scattered(c.random)
	}
	if back := c.z.next(c.random); back < c.inserted {
		return c.own(c.inserted - 1 - back)
	} else {
		return c.n - 1 - min(back-c.inserted, c.n-1)
	}
}

// see touches every byte of a value and checks that both of its halves are alike.
func (c *ycsbCaller) see(v []byte) {
	if half := len(v) / 2; len(v) != c.value || !bytes.Equal(v[:half], v[len(v)-half:]) {
		c.bad = fmt.Errorf("caller %d has read a value that nobody wrote", c.id)
	}
}

func (c *ycsbCaller) step() (int, error) {
	u := c.random.float()
	key := c.b.keys[0]
	switch {
	case u < c.insert:
		Key(c.own(c.inserted), key)
		Value(c.own(c.inserted), 0, c.b.values[0])
		c.inserted++
		c.written++
		return 1, c.s.Put(c.b.keys, c.b.values, false)
	case u < c.insert+c.update:
		return 1, c.put(c.pick())
	case u < c.insert+c.update+c.scan:
		Key(c.pick(), key)
		c.pairs = 0
		if err := c.s.Scan(key, 1+int(c.random.below(100)), false, c.seePair); err != nil {
			return 0, err
		}
		if c.pairs == 0 {
			c.bad = fmt.Errorf("a scan from key %x, which is there, has found nothing", key)
		}
		return 1, c.bad
	}
	i := c.pick()
	Key(i, key)
	ok, err := c.s.Get(key, c.see)
	if err == nil && !ok {
		err = fmt.Errorf("key %x is not there", key)
	}
	if err == nil && u >= c.insert+c.update+c.scan+c.read {
		err = c.put(i)
	}
	if err == nil {
		err = c.bad
	}
	return 1, err
}

func (c *ycsbCaller) seePair(_, v []byte) { c.pairs++; c.see(v) }

func (c *ycsbCaller) put(i uint64) error {
	Key(i, c.b.keys[0])
	Value(i, c.id+1, c.b.values[0])
	c.written++
	return c.s.Put(c.b.keys, c.b.values, false)
}
