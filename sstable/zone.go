package sstable

import (
	"bytes"
	"math"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/stripe"
)

// zone is what an iterator wants of blocks of cells, as far as their index entries can tell: a block none of whose cells is
// wanted is left out. It speaks of cells only; deletes lie in lanes of their own. Where a cell is left out, so may be older
// copies of it in other files: they have the same column and timestamp.
//
// A row whose first blocks are left out begins with its first wanted one, and one that has none is not there.
type zone struct {
	on       bool
	none     bool // no cell of the file is wanted
	point    bool // only the row sought matters
	min, max int64
	families uint64
	valuesTo int64 // values of cells that are later are not wanted; 0: all are
}

func (z *zone) set(r *Reader, o *cell.IterOptions) {
	*z = zone{min: o.MinTS, max: math.MaxInt64, families: math.MaxUint64, valuesTo: o.ValuesTo, point: o.Point}
	if o.MaxTS > 0 {
		z.max = o.MaxTS
	}
	if o.Wanted != nil {
		z.families = r.familiesOf(o)
	}
	p := &r.props
	all := uint64(1)<<min(uint(len(p.Families)), 63) - 1
	if len(p.Families) > 63 {
		all = math.MaxUint64
	}
	z.none = z.min > p.MaxTS || z.max < p.MinTS || z.families&all == 0
	z.on = z.min > p.MinTS || z.max < p.MaxTS || z.families&all != all
}

// familiesOf returns the bits of the file's families that have wanted columns.
func (r *Reader) familiesOf(o *cell.IterOptions) (set uint64) {
	var buf [cell.FamilyMax + 11]byte
	for i := range r.props.Families {
		f := &r.props.Families[i]
		prefix := cell.AppendFamilyLife(buf[:0], f.Name, f.Life)
		for _, w := range o.Wanted {
			if meets(w, prefix) {
				set |= familyBit(i)
				break
			}
		}
	}
	return set
}

// meets reports whether some column that begins with prefix may be in r.
func meets(r cell.Range, prefix []byte) bool {
	if r.To != nil && bytes.Compare(r.To, prefix) <= 0 {
		return false
	}
	return bytes.Compare(r.From, prefix) <= 0 || bytes.HasPrefix(r.From, prefix)
}

// later reports whether no cell of the block of entry i has a value that is wanted.
func (z *zone) later(x *block.Index, i int) bool {
	lo, _, _ := x.Zone(i)
	return lo > z.valuesTo
}

// excuses reports whether the block of entry i has nothing that is wanted.
func (z *zone) excuses(x *block.Index, i int) bool {
	if !z.on {
		return false
	}
	lo, hi, families := x.Zone(i)
	return hi < z.min || lo > z.max || families&z.families == 0
}

// wanted returns the first block from p on, in direction d, that is wanted.
func (c *cursor) wanted(p pos, d int) (pos, bool) {
	if !c.zone.on {
		return p, true
	}
	if c.zone.none {
		c.leftOut += uint64(c.ln.blocks)
		return p, false
	}
	for {
		if c.ln.leaves != nil && c.zone.excuses(c.ln.root, p.leaf) {
			c.leftOut += uint64(c.ln.leafBlock[p.leaf+1] - c.ln.leafBlock[p.leaf])
			p = pos{p.leaf + d, -1}
		} else {
			x, err := c.r.leaf(c.ln, p.leaf)
			if err != nil {
				return p, c.fail(err)
			}
			if p.i < 0 {
				if p.i = 0; d < 0 {
					p.i = x.Len() - 1
				}
			}
			if !c.zone.excuses(x, p.i) {
				return p, true
			}
			c.leftOut++
			if p.i += d; p.i < 0 || p.i >= x.Len() {
				p = pos{p.leaf + d, -1}
			}
		}
		if p.leaf < 0 || p.leaf >= c.leafCount() {
			return p, false
		}
	}
}

// count adds up what the cursor did.
func (c *cursor) count(s *cell.ReadStats, slot stripe.Slot) {
	if c.blocks > 0 {
		s.Blocks.Add(slot, int64(c.blocks))
	}
	if c.leftOut > 0 {
		s.LeftOut.Add(slot, int64(c.leftOut))
	}
	if c.valueParts > 0 {
		s.ValueParts.Add(slot, int64(c.valueParts))
	}
}
