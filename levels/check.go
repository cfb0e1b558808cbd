package levels

import (
	"errors"
	"fmt"
	"slices"
)

// ErrOrder marks an edit that would let older data be found before newer data, or bring a deleted cell back.
var ErrOrder = errors.New("edit breaks the order of files")

// Check proves that an edit keeps the order that reading relies on: of two files that overlap the newer is in a higher
// level, or in L0 and later there. old and next are one tree before and after e.
func Check(old, next *Tree, e *Edit) error {
	var in []Input
	for _, d := range e.Deleted {
		if d.Tree != old.ID {
			continue
		}
		i := slices.IndexFunc(old.Files[d.Level], func(f *File) bool { return f.Num == d.Num })
		if i < 0 {
			return fmt.Errorf("%w: file %d is not in level %d", ErrOrder, d.Num, d.Level)
		}
		in = append(in, Input{d.Level, old.Files[d.Level][i]})
	}
	isInput := func(f *File) bool { return slices.ContainsFunc(in, func(x Input) bool { return x.File == f }) }
	output, added := -1, 0
	for _, a := range e.Added {
		if a.Tree != old.ID {
			continue
		}
		if output >= 0 && a.Level != output {
			return fmt.Errorf("%w: one edit adds to levels %d and %d", ErrOrder, output, a.Level)
		}
		output = a.Level
		added++
		if len(in) == 0 {
			if err := checkFlush(old, a); err != nil {
				return err
			}
			continue
		}
		if err := checkInside(in, a.File); err != nil {
			return err
		}
	}
	if added == 0 || len(in) == 0 {
		return nil
	}
	for _, x := range in {
		if x.Level > output {
			return fmt.Errorf("%w: file %d rises from level %d to %d", ErrOrder, x.File.Num, x.Level, output)
		}
		for l := x.Level; l <= output; l++ {
			for _, g := range old.Files[l] {
				if isInput(g) || !g.Bounds.Overlaps(x.File.Bounds) {
					continue
				}
				if l > 0 && (l > x.Level || x.Level == 0) {
					return fmt.Errorf("%w: file %d would go to level %d, past or into older file %d of level %d", ErrOrder, x.File.Num, output, g.Num, l)
				}
				if l == 0 && output > 0 && g.LastSeq <= x.File.LastSeq {
					return fmt.Errorf("%w: file %d would leave L0 without file %d, which is older and overlaps it", ErrOrder, x.File.Num, g.Num)
				}
			}
		}
	}
	if output == 0 {
		return checkInsideL0(old, in, isInput)
	}
	return nil
}

// checkFlush: a new file of L0 is younger than all that it overlaps.
func checkFlush(old *Tree, a AddedFile) error {
	if a.Level != 0 {
		return fmt.Errorf("%w: file %d enters at level %d", ErrOrder, a.File.Num, a.Level)
	}
	for _, g := range old.Files[0] {
		if g.LastSeq >= a.File.FirstSeq && g.Bounds.Overlaps(a.File.Bounds) {
			return fmt.Errorf("%w: flushed file %d begins at sequence %d, file %d reaches %d", ErrOrder, a.File.Num, a.File.FirstSeq, g.Num, g.LastSeq)
		}
	}
	return nil
}

// checkInside: an output stays inside the hull of its inputs, and inside their sequences.
func checkInside(in []Input, f *File) error {
	p := Plan{Inputs: in}
	h := p.Bounds()
	if u := h.Union(f.Bounds); !u.Equal(h) {
		return fmt.Errorf("%w: file %d reaches beyond its inputs", ErrOrder, f.Num)
	}
	for _, x := range in {
		if f.LastSeq >= x.File.LastSeq && f.FirstSeq <= x.File.FirstSeq {
			continue
		}
		if x.File.Num == f.Num {
			continue
		}
		return fmt.Errorf("%w: file %d has sequences %d to %d, its input %d has %d to %d", ErrOrder, f.Num, f.FirstSeq, f.LastSeq, x.File.Num, x.File.FirstSeq, x.File.LastSeq)
	}
	return nil
}

// checkInsideL0: a merge inside L0 takes every file between its inputs in age that overlaps their hull.
func checkInsideL0(old *Tree, in []Input, isInput func(*File) bool) error {
	p := Plan{Inputs: in}
	h := p.Bounds()
	lo, hi := in[0].File.LastSeq, in[0].File.LastSeq
	for _, x := range in {
		lo, hi = min(lo, x.File.LastSeq), max(hi, x.File.LastSeq)
	}
	for _, g := range old.Files[0] {
		if !isInput(g) && g.LastSeq >= lo && g.LastSeq <= hi && g.Bounds.Overlaps(h) {
			return fmt.Errorf("%w: file %d lies between the inputs of a merge inside L0", ErrOrder, g.Num)
		}
	}
	return nil
}
