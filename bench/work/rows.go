package work

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"

	"github.com/rowandb/rowan/bench/measure"
	"github.com/rowandb/rowan/bench/store"
)

// table is a set of rows of 10 columns in 2 families, with 1 to 3 versions of each, 2 on average. Rows come in random order.
type table struct {
	n     uint64
	value int
}

// base is the timestamp of the first version: those of the data must be the same in every run.
const base = 1_700_000_000_000_000

var columns = uint64(len(store.Families) * len(store.Qualifiers))

func rowKey(i uint64, row []byte) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], mix(i))
	hex.Encode(row, b[:])
}

// versions of column c of row i.
func versions(i, c uint64) uint64 { return 1 + (i+c)%3 }

func column(c uint64) (family, qualifier string) {
	return store.Families[c/uint64(len(store.Qualifiers))], store.Qualifiers[c%uint64(len(store.Qualifiers))]
}

// cellBytes is what a cell has of a user's bytes: row, family, qualifier, timestamp and value.
func (t table) cellBytes() uint64 { return uint64(store.RowBytes + 2 + 2 + 8 + t.value) }

// cells calls fn for each cell of a row as a write of it lists them, with the memory of one for all.
func (t table) cells(i uint64, c *store.Cell, fn func()) {
	rowKey(i, c.Row)
	for col := range columns {
		c.Family, c.Qualifier = column(col)
		for v := versions(i, col); v > 0; v-- {
			c.Micros = base + int64(v)*1000
			t.valueOf(i, col, v, c.Value)
			fn()
		}
	}
}

func (t table) valueOf(i, col, v uint64, value []byte) { Value(i, col*4+v, value) }

func (t table) cell() *store.Cell {
	return &store.Cell{Row: make([]byte, store.RowBytes), Value: make([]byte, t.value)}
}

// addCell adds a cell to a sum: all of its parts count.
func (s *Sum) addCell(c store.Cell) {
	f, q := c.Family, c.Qualifier
	s.H += (Hash(c.Row) ^ uint64(c.Micros)*0x2545f4914f6cdd1d ^ uint64(f[1])<<56 ^ uint64(q[1])<<48) * (Hash(c.Value) | 1)
	s.N++
}

// rowSum is that of one row.
func (t table) rowSum(i uint64, c *store.Cell) (s Sum) {
	t.cells(i, c, func() { s.addCell(*c) })
	return s
}

func (t table) sum(n uint64) (s Sum) {
	c := t.cell()
	for i := range n {
		x := t.rowSum(i, c)
		s.N, s.H = s.N+x.N, s.H+x.H
	}
	return s
}

// rows opens the store of rows, runs fn and closes it.
func (r *Run) rows(collect bool, fn func(s store.Rows) error) error {
	if err := os.MkdirAll(r.Dir, 0o777); err != nil {
		return err
	}
	s, err := r.Engine.OpenRows(r.Dir, r.Options, collect)
	if err != nil {
		return err
	}
	if err := errors.Join(fn(s), r.rest(s.Settle), s.Close()); err != nil {
		return err
	}
	r.Out.Disk, err = measure.DiskBytes(r.Dir)
	return err
}

// loadBatch is how many rows a batch has.
const loadBatch = 10

// load is the workload that loads the rows in random order; loadSorted makes the set of data, in key order where the engine wants
// that.
func (t table) load(r *Run) error { return t.loadIn(r, nil) }
func (t table) loadSorted(r *Run) error {
	if r.Engine.Sorted {
		return t.loadIn(r, sorted)
	}
	return t.loadIn(r, nil)
}

func (t table) loadIn(r *Run, list func(n uint64) []uint64) error {
	t.n = r.amount(t.n, t.value) / loadBatch * loadBatch
	var order []uint64
	if list != nil {
		order = list(t.n)
	}
	want := t.sum(t.n)
	batches := t.n / loadBatch
	return r.rows(false, func(s store.Rows) error {
		session, err := s.Session()
		if err != nil {
			return err
		}
		next, b := uint64(0), &rowBatch{table: t}
		_, err = r.measured(phase{
			callers: 1, ops: batches, per: float64(want.N) / float64(batches), user: int64(want.N / batches * t.cellBytes()),
			start: func(int) (step, error) {
				return func() (int, error) {
					b.cells = b.cells[:0]
					for range loadBatch {
						i := next
						if order != nil {
							i = order[next]
						}
						b.add(i)
						next++
					}
					return len(b.cells), session.Write(b.cells)
				}, nil
			},
			settle: s.Settle, stats: s.Stats,
		})
		if err != nil {
			return err
		}
		if err := session.Close(); err != nil {
			return err
		}
		return r.holdsRows(s, want)
	})
}

// rowBatch is the memory for the cells of a batch.
type rowBatch struct {
	table
	memory, cells []store.Cell
}

// next returns the i-th cell of the batch, with memory for its row and value.
func (b *rowBatch) next() *store.Cell {
	i := len(b.cells)
	if i == len(b.memory) {
		b.memory = append(b.memory, *b.cell())
	}
	b.cells = append(b.cells, b.memory[i])
	return &b.cells[i]
}

// add appends the cells of a row.
func (b *rowBatch) add(i uint64) {
	for col := range columns {
		for v := versions(i, col); v > 0; v-- {
			c := b.next()
			rowKey(i, c.Row)
			c.Family, c.Qualifier = column(col)
			c.Micros = base + int64(v)*1000
			b.valueOf(i, col, v, c.Value)
		}
	}
}

func (r *Run) holdsRows(s store.Rows, want Sum) error {
	session, err := s.Session()
	if err != nil {
		return err
	}
	var got Sum
	err = session.ScanRows(func(c store.Cell) { got.addCell(c) })
	return errors.Join(err, session.Close(), r.check(got, want))
}
