package fuzz

import "slices"

// Shrink returns a shorter list for which fails still is true. It tries at most tries lists.
func Shrink(ops []Op, tries int, fails func([]Op) bool) []Op {
	try := func(list []Op) bool {
		tries--
		return tries >= 0 && fails(list)
	}
	// Parts of the list, from halves down to single operations.
	for size := len(ops) / 2; size > 0 && tries > 0; {
		shrunk := false
		for at := 0; at < len(ops) && tries > 0; {
			list := slices.Concat(ops[:at], ops[min(at+size, len(ops)):])
			if try(list) {
				ops, shrunk = list, true
			} else {
				at += size
			}
		}
		if size = min(size, len(ops)); !shrunk || size > 1 {
			size /= 2
		}
	}
	// Then parts of operations.
	for i := 0; i < len(ops) && tries > 0; i++ {
		for _, simpler := range simplify(ops[i]) {
			list := slices.Clone(ops)
			list[i] = simpler
			if try(list) {
				ops = list
				i--
				break
			}
		}
	}
	return ops
}

// simplify lists operations that are a little simpler than o.
func simplify(o Op) (out []Op) {
	for i, it := range o.Items {
		if len(o.Items) > 1 {
			c := o
			c.Items = slices.Delete(slices.Clone(o.Items), i, i+1)
			out = append(out, c)
		}
		for j, ch := range it.Changes {
			with := func(changes []Change) {
				c := o
				c.Items = slices.Clone(o.Items)
				c.Items[i].Changes = changes
				out = append(out, c)
			}
			if len(it.Changes) > 1 {
				with(slices.Delete(slices.Clone(it.Changes), j, j+1))
			}
			if ch.Value.Len > 1 {
				changes := slices.Clone(it.Changes)
				changes[j].Value.Len /= 2
				with(changes)
			}
		}
	}
	if (o.Kind == OpScan || o.Kind == OpStream || o.Kind == OpGet) && o.Read.options() != "" {
		c := o
		c.Read = Read{Row: o.Read.Row, Rows: o.Read.Rows, Snapshot: o.Read.Snapshot}
		if c.String() != o.String() {
			out = append(out, c)
		}
	}
	if o.Kind == OpScan || o.Kind == OpStream {
		if len(o.Read.Rows) != 1 || o.Read.Rows[0] != (KeyRange{}) {
			c := o
			c.Read.Rows = KeySet{{}}
			out = append(out, c)
		}
	}
	return out
}
