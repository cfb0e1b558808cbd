package engine

import (
	"bytes"
	"fmt"
	"math"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/filter"
)

// Filter chooses among the cells of a row. It maps the ordered cells of a row, after deletes, aggregation and collection
// rules, to others; a row of which no cell is left is not returned and does not count for LimitRows.
//
// Filters are values, never change, and may be used by many reads at once. What is wrong with one is found when it is used:
// the error matches ErrFilter (or ErrNoFamily) and names the place, like "chain: filter 2 of 3: ...". Filters nest 256 deep at
// most, and one that may look at a cell more than 100,000 times, each copy of the cell counted by itself, is refused.
// docs/filters.md says what each costs.
type Filter interface {
	spec() *filter.Spec
}

type spec filter.Spec

func (s *spec) spec() *filter.Spec { return (*filter.Spec)(s) }

// PassAllFilter passes every cell.
func PassAllFilter() Filter { return &spec{Op: filter.Pass} }

// BlockAllFilter passes no cell.
func BlockAllFilter() Filter { return &spec{Op: filter.Block} }

// ChainFilters applies at least two filters one after the other, each to what the one before passed.
func ChainFilters(filters ...Filter) Filter { return &spec{Op: filter.Chain, Kids: specs(filters)} }

// InterleaveFilters applies each of at least two filters to the same cells and passes what all of them pass, in order. A cell
// that several pass comes as often, and each copy counts for filters that count.
func InterleaveFilters(filters ...Filter) Filter {
	return &spec{Op: filter.Interleave, Kids: specs(filters)}
}

// ConditionFilter applies ifTrue to the cells if predicate passes any of them, else ifFalse. A nil branch passes nothing. The
// predicate and both branches see the cells that the condition sees. There may be no SinkFilter inside.
func ConditionFilter(predicate, ifTrue, ifFalse Filter) Filter {
	return &spec{Op: filter.Condition, Kids: specs([]Filter{predicate, ifTrue, ifFalse})}
}

// SinkFilter sends cells straight to the result, past all filters around it, and passes nothing on to them.
func SinkFilter() Filter { return &spec{Op: filter.Sink} }

func specs(filters []Filter) []*filter.Spec {
	out := make([]*filter.Spec, len(filters))
	for i, f := range filters {
		if f != nil {
			out[i] = f.spec()
		}
	}
	return out
}

// RowKeyFilter passes all cells of rows whose key matches pattern, and none of others.
//
// Patterns are regular expressions of RE2 over bytes that must match from the first byte to the last: a dot is any byte but
// newline, \C any byte, bytes from 0x80 on stand for themselves, case matters. A pattern has at most 64 KiB and 10,000 steps.
// What is literal at its beginning restricts what is read; patterns that are literal but for a .* or \C* at their end, or
// alternations of such, are matched without an automaton.
func RowKeyFilter(pattern string) Filter { return &spec{Op: filter.RowPattern, Text: pattern} }

// FamilyFilter passes the cells of families whose name matches pattern, see RowKeyFilter. A pattern that is a literal must name
// a family of the table.
func FamilyFilter(pattern string) Filter { return &spec{Op: filter.FamilyPattern, Text: pattern} }

// FamilyExact passes the cells of one family. A family that the table does not have is an error.
func FamilyExact(family string) Filter { return &spec{Op: filter.FamilyExact, Text: family} }

// ColumnFilter passes the cells whose qualifier matches pattern, in all families. See RowKeyFilter. The empty pattern matches
// the empty qualifier.
func ColumnFilter(pattern string) Filter { return &spec{Op: filter.QualifierPattern, Text: pattern} }

// ColumnExact passes the cells of one column.
func ColumnExact(family, qualifier string) Filter {
	return &spec{Op: filter.Columns, Text: family, From: []byte(qualifier), To: after(qualifier)}
}

// ColumnRangeFilter passes the cells of one family whose qualifier lies in r.
func ColumnRangeFilter(family string, r QualifierRange) Filter {
	s := &spec{Op: filter.Columns, Text: family}
	s.between(RowRange(r))
	return s
}

// QualifierRange is a range of qualifiers, built like a RowRange: QualifierRange(NewRange("a", "m")). The empty string is a
// qualifier like others: for a range without an end take InfiniteRange.
type QualifierRange RowRange

// ValueFilter passes the cells whose value matches pattern, see RowKeyFilter.
func ValueFilter(pattern string) Filter { return &spec{Op: filter.ValuePattern, Text: pattern} }

// ValueRangeFilter passes the cells whose value lies in r, compared byte by byte.
func ValueRangeFilter(r ValueRange) Filter {
	s := &spec{Op: filter.Values}
	s.between(RowRange(r))
	return s
}

// ValueRange is a range of values, built like a RowRange: ValueRange(NewClosedRange("a", "m")). As for QualifierRange the empty
// string is a value like others.
type ValueRange RowRange

func (s *spec) between(r RowRange) {
	list, err := r.between(nil)
	switch {
	case err != nil:
		s.Err = err
	case len(list) == 0:
		s.Empty = true
	default:
		s.From, s.To = list[0].lo, list[0].hi
	}
}

// ValueBitmaskFilter passes the cells whose value is as long as mask and has all of its bits set.
func ValueBitmaskFilter(mask []byte) Filter {
	return &spec{Op: filter.ValueMask, From: bytes.Clone(mask)}
}

// RowSampleFilter passes all cells of a row with probability p, 0 < p < 1, and else none. What is chosen is a function of
// row key and seed.
func RowSampleFilter(p float64, seed uint64) Filter {
	return &spec{Op: filter.RowSample, P: p, Seed: seed}
}

// TimestampRangeFilter passes cells from start, included, to end, excluded; end 0 means no upper end.
func TimestampRangeFilter(start, end Timestamp) Filter {
	s := &spec{Op: filter.Times, Lo: int64(start), Hi: int64(end) - 1}
	if end == 0 {
		s.Hi = math.MaxInt64
	}
	if start < 0 || end < 0 || end != 0 && start > end {
		s.Err = fmt.Errorf("[%d, %d)", start, end)
	}
	return s
}

// LatestNFilter passes the n newest versions of each column, n at least 1.
func LatestNFilter(n int) Filter { return &spec{Op: filter.LatestN, N: int64(n)} }

// CellsPerRowLimitFilter passes the first n cells of a row, n at least 1.
func CellsPerRowLimitFilter(n int) Filter { return &spec{Op: filter.RowLimit, N: int64(n)} }

// CellsPerRowOffsetFilter drops the first n cells of a row.
func CellsPerRowOffsetFilter(n int) Filter { return &spec{Op: filter.RowOffset, N: int64(n)} }

// StripValueFilter makes values empty, also for the filters after it. What is read for keys alone never loads values.
func StripValueFilter() Filter { return &spec{Op: filter.StripValue} }

// LabelFilter puts a label of 1..15 bytes of [-a-z0-9] on cells. A chain may have only one part with labels in it.
func LabelFilter(label string) Filter { return &spec{Op: filter.Label, Text: label} }

// FamilyPrefix, FamilyCount and FamilyAt tell filters about the table.
func (t *rtable) FamilyPrefix(name string) ([]byte, error) {
	f := t.Family(name)
	if f == nil {
		return nil, fmt.Errorf("%w: %q in table %q", ErrNoFamily, name, t.Name)
	}
	return cell.AppendFamilyLife(nil, f.Name, f.Life), nil
}

func (t *rtable) FamilyCount() int { return len(t.Families) }

func (t *rtable) FamilyAt(i int) (name string, prefix []byte) {
	f := &t.Families[i]
	return f.Name, cell.AppendFamilyLife(nil, f.Name, f.Life)
}

// narrowed returns the options of an iterator for what a program looks at. Sources may leave out what is older than the
// program asks for; what is newer only where no rule counts it.
func (t *rtable) narrowed(p *filter.Program) cell.IterOptions {
	o := cell.IterOptions{MinTS: p.MinTS}
	if p.Empty() {
		return o
	}
	o.Columns = p.Cols.Hull()
	if !p.Cols.All() {
		o.Wanted = p.Cols
	}
	counts, folds := false, false
	for i := range t.Families {
		f := &t.Families[i]
		counts, folds = counts || f.Rule.CountsVersions(), folds || f.Fold != 0
	}
	if counts || folds { // look closer
		counts, folds = t.natures(p)
	}
	p.SeekTimes = !counts            // sources that are seen through an old rule count from the column's head themselves
	o.KeysOnly = !p.Values && !folds // folding needs values
	switch {
	case p.MaxTS == math.MaxInt64:
	case !counts:
		o.MaxTS = p.MaxTS
	case !folds:
		o.ValuesTo = p.MaxTS
	}
	return o
}

// natures reports whether families that a program looks at have rules that count versions, and whether some are aggregates.
func (t *rtable) natures(p *filter.Program) (counts, folds bool) {
	for i := range t.Families {
		f := &t.Families[i]
		if _, prefix := t.FamilyAt(i); len(p.Cols.Intersect(filter.Ranges{{From: prefix, To: cell.PrefixEnd(prefix)}})) > 0 {
			counts, folds = counts || f.Rule.CountsVersions(), folds || f.Fold != 0
		}
	}
	return counts, folds
}

// rowCells is a row whose cells can be read, any number of times; *merge.Iter is one.
type rowCells = filter.Cells

// predicate is a compiled filter of which only is asked whether any cell of a row passes.
type predicate struct {
	table *rtable
	prog  filter.Program
}

// compilePredicate compiles f, which may be nil, any cell, and must not have a sink in it.
func compilePredicate(t *rtable, f Filter) (*predicate, error) {
	if f == nil {
		f = PassAllFilter()
	}
	p := &predicate{table: t}
	if err := p.prog.Compile(f.spec(), t, filter.Options{Predicate: true}); err != nil {
		return nil, err
	}
	return p, nil
}

// options says what an iterator needs to yield for p. One that yields more serves as well.
func (p *predicate) options() cell.IterOptions { return p.table.narrowed(&p.prog) }

// matches reports whether a cell of row passes. m stands on row and nothing of it has been read, or SeekCell has put it back
// to the beginning; afterwards it is anywhere in the row.
func (p *predicate) matches(m rowCells, row []byte) (bool, error) {
	if p.prog.Empty() || !p.prog.Rows.Contains(row) {
		return false, nil
	}
	return p.prog.Matches(m, row)
}
