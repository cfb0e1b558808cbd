package main

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/rowandb/rowan/engine"
)

// report gathers what the run saw.
type report struct {
	src    string
	site   *site
	crawls []crawl
	// anchors are the links of the last crawl.
	anchors anchors

	edits, deletes        int
	cellsIn, bytesIn      int64
	loadTime              time.Duration
	direct, tablesDirect  bool
	diskBefore, diskAfter int64
	compactTime, readTime time.Duration
	rows                  int
	cells, bytesOut       int64
	excess, expired       int64 // versions beyond two, and meta cells past their age
}

const mb = 1e6

func (r *report) print(ctx context.Context, db *engine.DB) error {
	t := db.Table(tableName)
	m := db.Metrics()
	fmt.Printf("\n%s: %d files in %d directories\n", r.src, r.site.files, len(r.site.pages))
	fmt.Printf("I/O: log %s, table files %s, %d files read mapped and %d by position\n",
		mode(r.direct), mode(r.tablesDirect), m.MappedFiles, m.PositionalFiles)
	fmt.Printf("in:   %d cells, %.1f MB in %.1f s (%.0f MB/s); %d files edited, %d columns deleted\n",
		r.cellsIn, float64(r.bytesIn)/mb, r.loadTime.Seconds(), float64(r.bytesIn)/mb/r.loadTime.Seconds(), r.edits, r.deletes)
	fmt.Printf("disk: %.1f MB of table files before compaction, %.1f MB after, in %.1f s\n",
		float64(r.diskBefore)/mb, float64(r.diskAfter)/mb, r.compactTime.Seconds())
	fmt.Printf("out:  %d rows, %d cells, %.1f MB read and compared in %.1f s (%.0f MB/s)\n",
		r.rows, r.cells, float64(r.bytesOut)/mb, r.readTime.Seconds(), float64(r.bytesOut)/mb/r.readTime.Seconds())
	fmt.Printf("collected: %d versions beyond two, %d entries past their age; none is left on disk\n", r.excess, r.expired)

	fmt.Println("\npackages under net/http:")
	keys := engine.RowFilter(engine.ChainFilters(engine.FamilyExact("meta"), engine.LatestNFilter(1)))
	for row, err := range t.Rows(ctx, engine.PrefixRange("net/http"), keys, engine.LimitRows(12)) {
		if err != nil {
			return err
		}
		v, _ := row.Latest("meta", "crawl")
		fmt.Printf("  %-32s %s\n", row.Key, v)
	}
	if err := r.printLinks(ctx, t); err != nil {
		return err
	}
	return r.printVersions(ctx, t)
}

func mode(direct bool) string {
	if direct {
		return "direct"
	}
	return "buffered"
}

// printLinks shows the ten rows with most anchors.
func (r *report) printLinks(ctx context.Context, t *engine.Table) error {
	type count struct {
		row string
		n   int
	}
	var counts []count
	err := t.ReadCellsBorrowed(ctx, engine.AllRows(), func(c *engine.BorrowedCell) bool {
		if n := len(counts); n == 0 || counts[n-1].row != string(c.Row) {
			counts = append(counts, count{row: string(c.Row)})
		}
		counts[len(counts)-1].n++
		return true
	}, engine.RowFilter(engine.FamilyExact("anchor")))
	if err != nil {
		return err
	}
	sort.SliceStable(counts, func(i, j int) bool { return counts[i].n > counts[j].n })
	fmt.Println("\nmost imported:")
	for _, c := range counts[:min(10, len(counts))] {
		fmt.Printf("  %-32s by %d packages\n", c.row, c.n)
	}
	return nil
}

// printVersions shows one edited file at its two versions.
func (r *report) printVersions(ctx context.Context, t *engine.Table) error {
	for _, p := range r.site.pages {
		for _, f := range p.files {
			text, err := r.site.read(p.row, f)
			if err != nil {
				return err
			}
			_, ok2, _ := seen(2, p.row, f, text)
			_, ok3, edited := seen(3, p.row, f, text)
			if !ok2 || !ok3 || !edited {
				continue
			}
			row, err := t.ReadRow(ctx, p.row, engine.RowFilter(engine.ColumnExact("contents", f)))
			if err != nil {
				return err
			}
			if len(row.Cells) != 2 {
				return fmt.Errorf("%s/%s has %d versions, expected 2", p.row, f, len(row.Cells))
			}
			fmt.Printf("\n%s/%s at two versions:\n", p.row, f)
			for _, c := range row.Cells {
				fmt.Printf("  %s  %d bytes\n", c.Timestamp.Time().Format(time.DateTime), len(c.Value))
			}
			return nil
		}
	}
	return fmt.Errorf("no file was edited before the last crawl")
}
