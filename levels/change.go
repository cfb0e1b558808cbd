package levels

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
)

// Change is a change of a table that its sources have not all gone through yet. Sources that were sealed when it was made and
// have not been rewritten under it since are behind it: readers and merges see them through the change. When no source is
// behind any more, the change is forgotten.
type Change struct {
	Num  uint64 // number among the changes of the table; never used again
	Kind ChangeKind
	Seq  uint64 // its place in the write order: everything up to this sequence was sealed
	Tree uint64 // the one tree it is about, or 0 for all of the table

	Lo, Hi []byte // ChangeRows: rows from Lo to Hi, excluded, are gone; a nil Hi is no end
	Life   uint64 // ChangeRule, ChangeLife: of the family
	// ChangeRule: what is behind follows Rule as of Time (microseconds) for good, before newer sources and rules see it.
	Rule gc.Rule
	Time int64
}

// ChangeKind says what a change does. The numbers are part of format 1.
type ChangeKind uint8

const (
	ChangeRows ChangeKind = 1 // a range of rows was dropped
	ChangeRule ChangeKind = 2 // a family got a rule that may keep more than the one before
	ChangeLife ChangeKind = 3 // a family was dropped; its cells are nowhere seen, but take space
)

// String says it for people.
func (c *Change) String() string {
	what := ""
	switch c.Kind {
	case ChangeRows:
		what = fmt.Sprintf("rows from %.60q on were dropped", c.Lo)
		if c.Hi != nil {
			what = fmt.Sprintf("rows from %.60q to %.60q were dropped", c.Lo, c.Hi)
		}
	case ChangeRule:
		what = fmt.Sprintf("life %d followed %v until time %d", c.Life, c.Rule, c.Time)
	case ChangeLife:
		what = fmt.Sprintf("life %d was dropped", c.Life)
	}
	return fmt.Sprintf("change %d at sequence %d: %s", c.Num, c.Seq, what)
}

// Concerns reports whether the change is about a tree of its table.
func (c *Change) Concerns(tree uint64) bool { return c.Tree == 0 || c.Tree == tree }

// Behind reports whether a file of a tree that the change concerns is behind it. Only where it overlaps the dropped rows is
// a file ever behind a ChangeRows, and only where it may have cells of the family behind a ChangeLife.
func (c *Change) Behind(f *File) bool {
	if f.LastSeq > c.Seq || f.Settled >= c.Num {
		return false
	}
	switch c.Kind {
	case ChangeRows:
		return c.Touches(f.Bounds)
	case ChangeLife:
		return f.Lives&LifeBit(c.Life) != 0
	}
	return true
}

// LifeBit is the bit of a family in File.Lives.
func LifeBit(life uint64) uint64 { return 1 << (life % 64) }

// Touches reports whether rows of the change's range may lie in b.
func (c *Change) Touches(b cell.Bounds) bool {
	return string(b.HiRow) >= string(c.Lo) && (c.Hi == nil || string(b.LoRow) < string(c.Hi))
}

// Covers reports whether all rows of b lie in the change's range.
func (c *Change) Covers(b cell.Bounds) bool {
	return string(b.LoRow) >= string(c.Lo) && (c.Hi == nil || string(b.HiRow) < string(c.Hi))
}

// Includes reports whether both changes drop rows, and all that o drops lie in the range of c.
func (c *Change) Includes(o *Change) bool {
	return c.Kind == ChangeRows && o.Kind == ChangeRows && c.Tree == o.Tree &&
		string(c.Lo) <= string(o.Lo) && (c.Hi == nil || o.Hi != nil && string(o.Hi) <= string(c.Hi))
}

// Has reports whether row lies in the change's range.
func (c *Change) Has(row []byte) bool {
	return string(row) >= string(c.Lo) && (c.Hi == nil || string(row) < string(c.Hi))
}

func appendChange(p []byte, c *Change) []byte {
	p = append(p, byte(c.Kind))
	for _, v := range []uint64{c.Num, c.Seq, c.Tree} {
		p = binary.AppendUvarint(p, v)
	}
	switch c.Kind {
	case ChangeRows:
		p = appendBytes(p, c.Lo)
		p = appendBytes(p, c.Hi)
	case ChangeRule:
		p = binary.AppendUvarint(p, c.Life)
		p = binary.AppendUvarint(p, uint64(c.Time))
		p = c.Rule.Append(p)
	case ChangeLife:
		p = binary.AppendUvarint(p, c.Life)
	}
	return p
}

func (d *decoder) change(t *Table) Change {
	c := Change{Kind: ChangeKind(d.byte("kind of change")), Num: d.uvarint("number of a change"), Seq: d.uvarint("sequence of a change"), Tree: d.uvarint("tree of a change")}
	switch c.Kind {
	case ChangeRows:
		c.Lo = d.bytes("first dropped row", cell.RowKeyMax+1)
		if c.Hi = d.bytes("end of the dropped rows", cell.RowKeyMax+1); len(c.Hi) == 0 {
			c.Hi = nil
		}
		if d.err == nil && c.Hi != nil && string(c.Lo) >= string(c.Hi) {
			d.fail("change %d drops rows from %.40q to %.40q", c.Num, c.Lo, c.Hi)
		}
	case ChangeRule:
		c.Life, c.Time = d.uvarint("life"), d.time("time of a change")
		c.Rule = d.rule()
	case ChangeLife:
		c.Life = d.uvarint("life")
	default:
		d.fail("change of kind %d", c.Kind)
	}
	if d.err != nil {
		return c
	}
	if c.Num == 0 || c.Num > t.LastChange || len(t.Changes) > 0 && t.Changes[len(t.Changes)-1].Num > c.Num {
		d.fail("change %d of %d is out of order", c.Num, t.LastChange)
	}
	if c.Life > t.HighestLife || c.Kind != ChangeRows && c.Life == 0 {
		d.fail("change %d is of life %d of %d", c.Num, c.Life, t.HighestLife)
	}
	if !t.HasTree(c.Tree) && (c.Tree != 0 || c.Kind != ChangeRows) {
		d.fail("change %d is about tree %d, which is not the table's", c.Num, c.Tree)
	}
	return c
}

func (d *decoder) rule() gc.Rule {
	if d.err != nil {
		return gc.Rule{}
	}
	rule, rest, err := gc.Decode(d.b[d.off:])
	if err != nil {
		d.wrap(err)
		return gc.Rule{}
	}
	d.off = len(d.b) - len(rest)
	return rule
}

// Standing are the changes of one tree that some source may be behind, in order.
type Standing []*Change

// Standing returns the changes that concern a tree of the table; nil for most.
func (t *Table) Standing(tree uint64) Standing {
	var s Standing
	for i := range t.Changes {
		if t.Changes[i].Concerns(tree) {
			s = append(s, &t.Changes[i])
		}
	}
	return s
}

// Rules reports whether any of the changes is one of a rule.
func (s Standing) Rules() bool {
	for _, c := range s {
		if c.Kind == ChangeRule {
			return true
		}
	}
	return false
}

// behind returns the number of the first change that f is behind; 0 if it is behind none.
func (s Standing) behind(f *File) uint64 {
	for _, c := range s {
		if c.Behind(f) {
			return c.Num
		}
	}
	return 0
}

// class tells files apart by the changes of rules that they are behind: files of one class may always be merged.
func (s Standing) class(f *File) (class uint64) {
	class = math.MaxUint64
	for _, c := range s {
		if c.Kind == ChangeRule && c.Behind(f) {
			return c.Num // the first one: it is behind all later ones too
		}
	}
	return class
}
