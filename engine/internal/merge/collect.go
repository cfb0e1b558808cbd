package merge

import (
	"bytes"

	"github.com/rowandb/rowan/cell"
)

// collector decides cell by cell what the rules keep. It sees the live cells of a row in order.
type collector struct {
	cfg     *Config
	fam     *family // of the current column; nil with known set: a dead life
	known   bool
	prefix  []byte    // of fam, or the dead column itself
	col     []byte    // current column, own copy across calls
	hint    cell.Cell // Dict and Code of the current column
	rank    int
	rest    bool // the rest of the column is dropped
	byAge   bool // the rest of the column may only be dropped by age
	dropped int  // of the rest so far
	asked   bool

	onlyFam   *family // of the last cell that was the only one of its row
	collected uint64
	err       error
}

func (g *collector) reset() {
	g.known, g.hint, g.col = false, cell.Cell{}, g.col[:0]
	g.prefix = nil
	g.rank, g.rest, g.dropped = 0, false, 0
}

// keep reports whether c stays. Cells must come in order.
func (g *collector) keep(row []byte, c *cell.Cell) bool {
	if !g.known || !bytes.HasPrefix(c.Col, g.prefix) {
		g.fam, g.err = g.cfg.Families.find(c.Col)
		if g.err != nil {
			return false
		}
		g.known = true
		if g.fam != nil {
			g.prefix = g.fam.prefix
		} else {
			g.prefix = append([]byte(nil), c.Col...)
		}
		g.newColumn()
		if g.fam != nil && g.fam.ruled {
			g.remember(c)
		}
	}
	if g.fam == nil {
		g.collected++
		return false
	}
	if !g.fam.ruled {
		return true
	}
	if !g.same(c) {
		g.remember(c)
		g.newColumn()
	}
	if g.rest {
		g.collected++
		g.dropped++
		return false
	}
	rank := g.rank
	g.rank++
	asOf := g.cfg.AsOf
	if g.fam.frozen {
		asOf = g.fam.asOf
	}
	if !g.fam.rule.Drops(rank, c.TS, asOf) {
		return true
	}
	if g.fam.counts && g.cfg.MayRank != nil {
		// A rank counted here may include versions that a newer source deletes one by one; then only age may drop.
		if !g.asked {
			g.asked = true
			ok, err := g.cfg.MayRank(row, c.Col)
			if err != nil {
				g.err = err
				return false
			}
			g.byAge = !ok
		}
		if g.byAge {
			floor, ok := g.fam.rule.AgeFloor(asOf)
			if !ok || c.TS >= floor {
				return true
			}
		}
	}
	g.rest = true
	g.collected++
	return false
}

// keepsOnly reports whether the rules keep the only cell of a row. If not, keep tells why: a version may yet be spared.
func (g *collector) keepsOnly(c *cell.Cell) bool {
	f := g.onlyFam
	if f == nil || !bytes.HasPrefix(c.Col, f.prefix) {
		if f, _ = g.cfg.Families.find(c.Col); f == nil {
			return false
		}
		g.onlyFam = f
	}
	if !f.ruled {
		return true
	}
	asOf := g.cfg.AsOf
	if f.frozen {
		asOf = f.asOf
	}
	return !f.rule.Drops(0, c.TS, asOf)
}

func (g *collector) newColumn() {
	g.rank, g.rest, g.byAge, g.asked, g.dropped = 0, false, false, false, 0
}

func (g *collector) same(c *cell.Cell) bool {
	if c.Dict != 0 && c.Dict == g.hint.Dict {
		return c.Code == g.hint.Code
	}
	return bytes.Equal(g.col, c.Col)
}

func (g *collector) remember(c *cell.Cell) {
	g.col = append(g.col[:0], c.Col...)
	g.hint.Dict, g.hint.Code = c.Dict, c.Code
}
