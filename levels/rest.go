package levels

// pickRest looks for a merge that is not due and makes reads cheaper: L0 into the base, then the files of each level into the
// next. It takes only what drags along less than the ratio of two levels, which is what a byte costs that comes down when it is
// due; so a store that is written in bursts and rests between them writes no more than one that never rests. Each step
// brings data down, so that it comes to an end.
func pickRest(t *Tree, o PickOptions, b *Busy, base int) (Plan, bool) {
	worth := func(p Plan, ok bool) (Plan, bool) {
		if !ok || p.Output == 0 {
			return p, false
		}
		if p.Move {
			return p, true
		}
		var brought, dragged int64
		for _, in := range p.Inputs {
			if in.Level == p.Output {
				dragged += in.File.Size
			} else {
				brought += in.File.Size
			}
		}
		if dragged > brought*o.factor() {
			return p, false
		}
		_, ok = o.Changes.Fit(t, &p, o.OldestMem)
		return p, ok
	}
	if len(t.Files[0]) > 0 {
		if p, ok := worth(pickL0(t, o, b, base)); ok {
			return p, true
		}
	}
	for l := 1; l < Depth-1; l++ {
		p, ok := worth(pickLevel(t, o, b, l, func(f *File) bool { return deeper(t, l, f.Bounds) }))
		if ok {
			return p, true
		}
	}
	return Plan{}, false
}
