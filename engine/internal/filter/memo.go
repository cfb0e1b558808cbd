package filter

import "github.com/rowandb/rowan/cell"

// verdicts remembers what was found out about the columns of the dictionaries that cells came with lately, so that a column is
// looked at once a block and not once a cell.
type verdicts struct {
	of   [4]verdictsOf
	last int
}

type verdictsOf struct {
	dict uint32
	ok   []verdict // by code
}

type verdict uint8

const (
	unseen verdict = iota
	refused
	passed
)

// get returns the verdict on c's column, or unseen.
func (v *verdicts) get(c *cell.Cell) verdict {
	if c.Dict == 0 {
		return unseen
	}
	x := &v.of[v.last]
	if x.dict != c.Dict {
		i := 0
		for i < len(v.of) && v.of[i].dict != c.Dict {
			i++
		}
		if i == len(v.of) {
			return unseen
		}
		v.last = i
		x = &v.of[i]
	}
	if int(c.Code) < len(x.ok) {
		return x.ok[c.Code]
	}
	return unseen
}

// put notes the verdict on c's column.
func (v *verdicts) put(c *cell.Cell, ok bool) {
	if c.Dict == 0 {
		return
	}
	x := &v.of[v.last]
	if x.dict != c.Dict { // get has not found it
		v.last = (v.last + 1) % len(v.of)
		x = &v.of[v.last]
		x.dict, x.ok = c.Dict, x.ok[:0]
	}
	for int(c.Code) >= len(x.ok) {
		x.ok = append(x.ok, unseen)
	}
	x.ok[c.Code] = refused
	if ok {
		x.ok[c.Code] = passed
	}
}
