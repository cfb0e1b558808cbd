package store

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Every engine gives the same rows: whole, the newest version of a column, all in order; and after collection what the rule keeps.
func TestEnginesAgreeOnRows(t *testing.T) {
	for _, collect := range []bool{false, true} {
		var want []string
		for _, e := range Engines() {
			got, err := rowAnswers(e, t.TempDir(), collect)
			if err != nil {
				t.Fatalf("%s: %v", e.Name, err)
			}
			if len(want) == 0 {
				want = got
			}
			if !slices.Equal(got, want) {
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("%s, collect %v, answer %d: %s, others %s", e.Name, collect, i, got[i], want[i])
					}
				}
				t.Fatalf("%s, collect %v: %d answers, others %d", e.Name, collect, len(got), len(want))
			}
		}
		if len(want) < 100 {
			t.Fatalf("only %d answers", len(want))
		}
	}
}

func rowAnswers(e Engine, dir string, collect bool) (out []string, err error) {
	s, err := e.OpenRows(dir, small, collect)
	if err != nil {
		return nil, err
	}
	c, err := s.Session()
	if err != nil {
		return nil, err
	}
	const n = 300
	base := time.Now().Truncate(time.Second).Add(-2 * time.Hour).UnixMicro()
	row := func(i int) []byte { return fmt.Appendf(nil, "%016x", i*7919%n) }
	for version := range 6 { // the first at 2 hours, the last at 15 minutes of age, none near the hour
		for i := 0; i < n; i += 10 {
			var cells []Cell
			for j := i; j < i+10; j++ {
				for x, f := range Families {
					for y, q := range Qualifiers {
						if version <= (j+x+y)%6 {
							cells = append(cells, Cell{row(j), f, q, base + int64(version)*21*60*1e6 + int64(j), fmt.Appendf(nil, "%d %d %s %s", version, j, f, q)})
						}
					}
				}
			}
			if err := c.Write(cells); err != nil {
				return nil, err
			}
		}
	}
	if err := s.Settle(); err != nil {
		return nil, err
	}
	if collect {
		if err := s.Collect(); err != nil {
			return nil, err
		}
	}
	note := func(c Cell) {
		out = append(out, fmt.Sprintf("%s %s:%s @%d %s", c.Row, c.Family, c.Qualifier, c.Micros-base, c.Value))
	}
	if err := c.ScanRows(note); err != nil {
		return nil, err
	}
	for i := 0; i < n; i += 7 {
		if err := c.ReadRow(row(i), note); err != nil {
			return nil, err
		}
		ok, err := c.Newest(row(i), "f2", "q3", func(v []byte) { out = append(out, string(v)) })
		if err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprint(ok))
	}
	if ok, err := c.Newest([]byte("no row like this"), "f2", "q3", func([]byte) {}); ok || err != nil {
		return nil, fmt.Errorf("a row that is not there: %v, %w", ok, err)
	}
	if err := c.Close(); err != nil {
		return nil, err
	}
	return out, s.Close()
}
