package engine

import (
	"fmt"
	"unsafe"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/levels"
)

// rowOutput copies the cells of one row. All strings and values of a row share one allocation, but for a few.
type rowOutput struct {
	rd     *reader
	fn     func(Row) bool // of a scan
	key    []byte
	out    []Cell // scratch, or the caller's
	again  bool   // out is the caller's: cells are overwritten together with the memory of their values
	data   []byte
	labels []string
	size   int64
	err    error
	fam    *levels.Family // of the last cell
}

// scratchCells bounds the scratch that is kept.
const scratchCells = 1024

// begin forgets the row before.
func (o *rowOutput) begin(rd *reader, row []byte) {
	*o = rowOutput{rd: rd, fn: o.fn, key: row, out: o.out[:0]}
}

// cells returns the row's cells, which are the caller's, and forgets them.
func (o *rowOutput) cells() (out []Cell) {
	if len(o.out) > 0 {
		out = make([]Cell, len(o.out))
		copy(out, o.out)
	}
	rd, fn := o.rd, o.fn
	o.forget()
	o.rd, o.fn = rd, fn
	return out
}

// forget drops everything but the scratch.
func (o *rowOutput) forget() {
	clear(o.out)
	out := o.out[:0]
	if cap(out) > scratchCells {
		out = nil
	}
	*o = rowOutput{out: out}
}

// Put implements filter.Output.
func (o *rowOutput) Put(c *cell.Cell, stripped bool, label string) bool {
	rd := o.rd
	if !rd.page.admit(c) {
		return true
	}
	f, life, q, err := cell.SplitColumn(c.Col)
	if err != nil {
		o.err = err
		return false
	}
	value := c.Value
	if stripped {
		value = nil
	}
	n := len(q) + len(value)
	if o.size += int64(n); o.size > rd.db.opts.RowBytesMax {
		o.err = rowTooLarge(o.key, rd.db.opts.RowBytesMax)
		return false
	}
	e := o.next()
	if o.again {
		o.overwrite(e, q, value)
	} else {
		o.copy(e, q, value)
	}
	if !o.again || e.Family != string(f) {
		e.Family = o.family(f, life)
	}
	e.Timestamp, e.Labels = Timestamp(c.TS), nil
	if label != "" {
		o.labels = append(o.labels, label)
		k := len(o.labels)
		e.Labels = o.labels[k-1 : k : k]
	}
	rd.page.took(c, n)
	return !rd.page.full
}

// row implements rowSink.
func (o *rowOutput) row(rd *reader, m *merge.Scan) (any, more bool, err error) {
	cells, err := rd.row(m, m.Row())
	if err != nil || len(cells) == 0 {
		return false, true, err
	}
	return true, o.fn(Row{Key: string(m.Row()), Cells: cells}), nil
}

func rowTooLarge(row []byte, most int64) error {
	return fmt.Errorf("%w: row %.80q has more than %d bytes", ErrRowTooLarge, row, most)
}

// next is one more cell, which may have been used before.
func (o *rowOutput) next() *Cell {
	n := len(o.out)
	if n < cap(o.out) {
		o.out = o.out[:n+1]
	} else {
		o.out = append(o.out, Cell{})
	}
	return &o.out[n]
}

// copy gives e a qualifier and a value in the memory that the row's cells share.
func (o *rowOutput) copy(e *Cell, q, value []byte) {
	n := len(q) + len(value)
	if o.data == nil || cap(o.data)-len(o.data) < n {
		o.data = make([]byte, 0, max(n, min(2*cap(o.data), 64<<10), 64)) // earlier cells keep the earlier piece
	}
	at := len(o.data)
	o.data = append(append(o.data, q...), value...)
	e.Qualifier, e.Value = "", o.data[at+len(q):at+n:at+n]
	if len(q) > 0 {
		e.Qualifier = unsafe.String(&o.data[at], len(q))
	}
}

// overwrite puts a value into the memory of the one that e had. A string is never overwritten: somebody may have kept it.
func (o *rowOutput) overwrite(e *Cell, q, value []byte) {
	if e.Qualifier != string(q) {
		e.Qualifier = string(q)
	}
	if e.Value = append(e.Value[:0], value...); e.Value == nil {
		e.Value = []byte{}
	}
}

// Alive implements filter.Output.
func (o *rowOutput) Alive() error { return o.rd.alive() }

// family is the schema's string of a family's name, so that it is not copied for each cell.
func (o *rowOutput) family(f []byte, life uint64) string {
	name := unsafe.String(&f[0], len(f))
	if o.fam != nil && o.fam.Life == life && o.fam.Name == name {
		return o.fam.Name
	}
	if fam := o.rd.table.Family(name); fam != nil && fam.Life == life {
		o.fam = fam
		return fam.Name
	}
	return string(f)
}

// cellOutput hands borrowed cells to the caller.
type cellOutput struct {
	rd    *reader
	fn    func(*BorrowedCell) bool
	cell  BorrowedCell
	label [1]string
	any   bool // the row had a cell
	err   error
	spoil bool // overwrite what was lent, see invariants
	spare []byte
	lent  BorrowedCell // what is overwritten afterwards
}

func (o *cellOutput) begin(row []byte) { o.cell.Row, o.any = row, false }

// Put implements filter.Output.
func (o *cellOutput) Put(c *cell.Cell, stripped bool, label string) bool {
	rd := o.rd
	if !rd.page.admit(c) {
		return true
	}
	f, _, q, err := cell.SplitColumn(c.Col)
	if err != nil {
		o.err = err
		return false
	}
	x := &o.cell
	x.Family, x.Qualifier, x.Timestamp, x.Value, x.Labels = f, q, Timestamp(c.TS), c.Value, nil
	if stripped {
		x.Value = []byte{}
	}
	if label != "" {
		o.label[0] = label
		x.Labels = o.label[:]
	}
	o.any = true
	rd.page.took(c, len(q)+len(x.Value))
	if !o.lend(x) {
		rd.page.inside = true
		return false
	}
	return !rd.page.full
}

// row implements rowSink.
func (o *cellOutput) row(rd *reader, m *merge.Scan) (any, more bool, err error) {
	o.begin(m.Row())
	more, err = rd.cells(m, o.cell.Row, o)
	if err == nil {
		err = o.err
	}
	return o.any, more, err
}

// Alive implements filter.Output.
func (o *cellOutput) Alive() error { return o.rd.alive() }

// lender is the function to hand cells to.
func (o *cellOutput) lender() func(*BorrowedCell) bool {
	if o.spoil {
		return o.lend
	}
	return o.fn
}

// lend calls the caller's function.
func (o *cellOutput) lend(x *BorrowedCell) bool {
	if !o.spoil {
		return o.fn(x)
	}
	o.lent = *x
	y, b := &o.lent, o.spare[:0]
	for _, p := range []*[]byte{&y.Row, &y.Family, &y.Qualifier, &y.Value} {
		b = append(b, *p...)
	}
	o.spare = b
	for _, p := range []*[]byte{&y.Row, &y.Family, &y.Qualifier, &y.Value} {
		n := len(*p)
		*p, b = b[:n:n], b[n:]
	}
	more := o.fn(y)
	for i := range o.spare {
		o.spare[i] = 0xdb
	}
	return more
}
