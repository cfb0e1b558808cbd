package block

import "github.com/rowandb/rowan/cell"

// alikeMin is how many cells a row must have to be compared with the one before it as a whole.
const alikeMin = 4

// alikeRow reports whether the cells of a row have the columns, once each, and kinds of the row before, all one timestamp, and values
// that lie one behind the other in memory. It returns the values as one, and fills ends with where each ends, the first beginning
// at total. known are the columns of the cells' dictionary, of which the first cell's is meant.
func alikeRow(cs []cell.Cell, ids []uint16, kinds []byte, known []uint16, ends []uint32, total int) (run []byte, to int, ok bool) {
	dict, ts, before := cs[0].Dict, cs[0].TS, noCol
	run = cs[0].Value[:0]
	ids, kinds, ends = ids[:len(cs)], kinds[:len(cs)], ends[:len(cs)]
	for i := range cs {
		c, id := &cs[i], ids[i]
		if c.Dict != dict || int(c.Code) >= len(known) || known[c.Code] != id || int(id) == before || c.TS != ts || byte(c.Kind) != kinds[i] {
			return nil, 0, false
		}
		before = int(id)
		if v := c.Value; len(v) > 0 {
			r := len(run)
			if cap(run)-r < len(v) || &run[:r+1][r] != &v[0] {
				return nil, 0, false
			}
			run = run[:r+len(v)]
		}
		ends[i] = uint32(total + len(run))
	}
	return run, total + len(run), ts >= 0
}
