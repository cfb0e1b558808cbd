package engine

import (
	"bytes"
	"fmt"
	"math"

	"github.com/rowandb/rowan/cell"
)

// Filter chooses among the cells of a row. Filters are values and compose with ChainFilters. A row of which no cell is left
// is not returned and does not count for LimitRows.
type Filter interface {
	// compile appends the filter's steps. It knows the table, so that it can turn names into column ranges.
	compile(p *program) error
}

// program is a compiled filter: one range of columns for all steps that only look at columns, then the steps that look at
// versions, in order.
type program struct {
	table *rtable
	cols  cell.Range
	empty bool // no column can pass
	steps []step
}

type step struct {
	kind   stepKind
	n      int
	lo, hi int64 // inclusive
	count  int   // of the running column
}

type stepKind uint8

const (
	stepVersions stepKind = iota
	stepTime
)

func (p *program) columns(r cell.Range) {
	c, ok := p.cols.Clip(r.From, r.To)
	p.cols = c
	p.empty = p.empty || !ok
}

// FamilyExact passes the cells of one family. A family that the table does not have is an error.
func FamilyExact(family string) Filter { return familyExact(family) }

type familyExact string

func (f familyExact) compile(p *program) error {
	from, err := p.family(string(f))
	if err != nil {
		return err
	}
	p.columns(cell.Range{From: from, To: cell.PrefixEnd(from)})
	return nil
}

func (p *program) family(name string) ([]byte, error) {
	f := p.table.Family(name)
	if f == nil {
		return nil, fmt.Errorf("%w: %q in table %q", ErrNoFamily, name, p.table.Name)
	}
	return cell.AppendFamilyLife(nil, f.Name, f.Life), nil
}

// ColumnExact passes the cells of one column.
func ColumnExact(family, qualifier string) Filter {
	return ColumnRangeFilter(family, QualifierRange{start: bound{inclusive, qualifier}, end: bound{inclusive, qualifier}})
}

// ColumnRangeFilter passes the cells of one family whose qualifier lies in r.
func ColumnRangeFilter(family string, r QualifierRange) Filter { return columnRangeFilter{family, r} }

// QualifierRange is a range of qualifiers, built like a RowRange: QualifierRange(NewRange("a", "m")).
type QualifierRange RowRange

type columnRangeFilter struct {
	family string
	r      QualifierRange
}

func (f columnRangeFilter) compile(p *program) error {
	prefix, err := p.family(f.family)
	if err != nil {
		return err
	}
	list, err := RowRange(f.r).spans(nil)
	if err != nil {
		return fmt.Errorf("%w: column range: %w", ErrFilter, err)
	}
	if len(list) == 0 {
		p.empty = true
		return nil
	}
	r := cell.Range{From: append(bytes.Clone(prefix), list[0].lo...), To: cell.PrefixEnd(prefix)}
	if list[0].hi != nil {
		r.To = append(bytes.Clone(prefix), list[0].hi...)
	}
	p.columns(r)
	return nil
}

// TimestampRangeFilter passes cells from start, included, to end, excluded; end 0 means no upper end.
func TimestampRangeFilter(start, end Timestamp) Filter { return timeRange{start, end} }

type timeRange struct{ start, end Timestamp }

func (f timeRange) compile(p *program) error {
	s := step{kind: stepTime, lo: int64(f.start), hi: int64(f.end) - 1}
	if f.end == 0 {
		s.hi = math.MaxInt64
	}
	if f.start < 0 || f.end < 0 || f.end != 0 && f.start > f.end {
		return fmt.Errorf("%w: timestamp range [%d, %d)", ErrFilter, f.start, f.end)
	}
	p.steps = append(p.steps, s)
	return nil
}

// LatestNFilter passes the n newest versions of each column, n at least 1.
func LatestNFilter(n int) Filter { return latestN(n) }

type latestN int

func (f latestN) compile(p *program) error {
	if f < 1 {
		return fmt.Errorf("%w: %d versions per column, the least is 1", ErrFilter, int(f))
	}
	p.steps = append(p.steps, step{kind: stepVersions, n: int(f)})
	return nil
}

// ChainFilters applies filters one after the other, each to what the one before passed.
func ChainFilters(filters ...Filter) Filter { return chain(filters) }

type chain []Filter

func (f chain) compile(p *program) error {
	if len(f) == 0 {
		return fmt.Errorf("%w: chain of no filters", ErrFilter)
	}
	for i, s := range f {
		if s == nil {
			return fmt.Errorf("chain: filter %d of %d: %w: nil", i+1, len(f), ErrFilter)
		}
		if err := s.compile(p); err != nil {
			return fmt.Errorf("chain: filter %d of %d: %w", i+1, len(f), err)
		}
	}
	return nil
}

// newColumn begins a column.
func (p *program) newColumn() {
	for i := range p.steps {
		p.steps[i].count = 0
	}
}

// pass reports whether a version passes all steps; rest is false when no older version of the column can.
func (p *program) pass(ts int64) (ok, rest bool) {
	for i := range p.steps {
		s := &p.steps[i]
		switch s.kind {
		case stepTime:
			if ts < s.lo {
				return false, false
			}
			if ts > s.hi {
				return false, true
			}
		case stepVersions:
			if s.count >= s.n {
				return false, false
			}
			s.count++
		}
	}
	return true, true
}
