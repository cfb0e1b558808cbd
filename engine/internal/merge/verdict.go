package merge

import (
	"math"

	"github.com/rowandb/rowan/gc"
)

// Verdict is what the rules say of a column's live versions: version number rank, counted from the newest, is dropped if
// rank >= Versions, its timestamp is below Floor, or Rule is not nil and drops it; and then all older ones are.
type Verdict struct {
	Versions int
	Floor    int64
	Rule     *gc.Rule // where the numbers cannot tell
}

// Judge returns the verdict on a column. It is for readers, who see all versions; whoever merges only some sources has to
// ask Config.MayRank as well.
func (c *Config) Judge(col []byte) (v Verdict, err error) {
	v = Verdict{Versions: math.MaxInt, Floor: math.MinInt64}
	if c.plain() {
		return v, nil
	}
	fam, err := c.Families.find(col)
	switch {
	case err != nil:
		return v, err
	case fam == nil:
		v.Versions = 0 // a dead life
		return v, nil
	}
	asOf := c.AsOf
	if fam.frozen {
		asOf = fam.asOf
	}
	if versions, floor, ok := fam.rule.Limits(asOf); ok {
		v.Versions, v.Floor = versions, floor
	} else {
		v.Rule = &fam.rule
	}
	return v, nil
}

// Judge is Config.Judge for the sources.
func (m *Scan) Judge(col []byte) (Verdict, error) { return m.cfg.Judge(col) }

// Plain reports whether the rules keep every cell.
func (f *Families) Plain() bool { return f.plain }
