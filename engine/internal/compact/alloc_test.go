package compact_test

import (
	"testing"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/io/vfs"
)

// A compaction allocates for its files and sources, not for cells, rows or blocks: ten times as many cells take next to nothing more.
func TestCompactionAllocatesNothingPerCell(t *testing.T) {
	fs := vfs.OS()
	for _, s := range []shape{
		{"rows of one cell", 4, 4_000, 1, 100},
		{"rows of 20 cells", 4, 400, 20, 50},
	} {
		run := func(rows int) (allocs float64, cells int) {
			s.rows = rows
			readers, _, cells := s.build(t, fs, block.CodecS2)
			dir := t.TempDir()
			num := uint64(0)
			least := 1e9 // of several: a pool may have been emptied by the collector
			for range 5 {
				least = min(least, testing.AllocsPerRun(1, func() {
					m := joined(readers)
					job := jobInto(fs, dir, &num, m)
					res, err := job.Run()
					if err != nil || res.Cells != uint64(cells) {
						t.Fatal(res.Cells, err)
					}
					m.Close()
				}))
			}
			return least, cells
		}
		few, n := run(s.rows)
		many, m := run(10 * s.rows)
		per := (many - few) / float64(m-n)
		t.Logf("%s: %.0f allocations for %d cells, %.0f for %d", s.name, few, n, many, m)
		if per > 0.002 && !raceEnabled { // under the race detector pools forget
			t.Errorf("%s: %.4f allocations a cell", s.name, per)
		}
	}
}
