package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/rowandb/rowan/engine"
)

// compact merges everything, and notes what the disk held before and after.
func (r *report) compact(ctx context.Context, db *engine.DB) error {
	if err := db.Flush(ctx); err != nil {
		return err
	}
	r.diskBefore = db.Metrics().DiskBytes
	began := time.Now()
	if err := db.Compact(ctx); err != nil {
		return err
	}
	r.compactTime = time.Since(began)
	r.diskAfter = db.Metrics().DiskBytes
	if r.diskAfter >= r.diskBefore {
		return fmt.Errorf("compaction did not give space back: %d bytes of table files before, %d after", r.diskBefore, r.diskAfter)
	}
	return nil
}

// cellKey is a cell without its value.
type cellKey struct {
	family, qualifier string
	ts                engine.Timestamp
}

// verify reads every row twice, under the rules and raw, and compares it with the tree.
func (r *report) verify(ctx context.Context, db *engine.DB) error {
	t := db.Table(tableName)
	pages := map[string]page{}
	for _, p := range r.site.pages {
		pages[p.row] = p
	}
	began := time.Now()
	prog := newProgress("verify", len(r.site.pages))
	rows := 0
	for row, err := range t.Rows(ctx, engine.AllRows()) {
		if err != nil {
			return err
		}
		want, err := r.expect(pages[row.Key], row.Key)
		if err != nil {
			return err
		}
		if err := compare(row, want); err != nil {
			return fmt.Errorf("row %q: %w", row.Key, err)
		}
		rows++
		r.cells += int64(len(row.Cells))
		for _, c := range row.Cells {
			r.bytesOut += int64(len(c.Value))
		}
		prog.add(1)
	}
	prog.done()
	r.readTime = time.Since(began)
	r.rows = rows
	all := map[string]bool{}
	for row := range pages {
		all[row] = true
	}
	for row := range r.anchors {
		all[row] = true
	}
	if rows != len(all) {
		return fmt.Errorf("%d rows, the tree and its links have %d", rows, len(all))
	}
	return r.verifyRaw(ctx, t)
}

// expect says what the rules leave of a row.
func (r *report) expect(p page, row string) (map[cellKey]string, error) {
	want := map[cellKey]string{}
	var sizes [4]int64
	var counts [4]int
	for _, f := range p.files {
		text, err := r.site.read(row, f)
		if err != nil {
			return nil, err
		}
		var versions []cellKey // of this file, oldest first
		for _, c := range r.crawls {
			now, ok, _ := seen(c.n, row, f, text)
			if !ok {
				for _, k := range versions {
					delete(want, k)
				}
				versions = nil
				continue
			}
			k := cellKey{"contents", f, c.ts}
			versions = append(versions, k)
			want[k] = string(now)
			sizes[c.n] += int64(len(now))
			counts[c.n]++
		}
		for len(versions) > 2 {
			delete(want, versions[0])
			versions = versions[1:]
			r.excess++
		}
	}
	if len(p.files) > 0 {
		for _, c := range r.crawls {
			if c.n == 1 {
				r.expired++
				continue // older than a day and a half
			}
			want[cellKey{"meta", "crawl", c.ts}] = meta(c.n, counts[c.n], sizes[c.n])
		}
	}
	last := r.crawls[len(r.crawls)-1].ts
	for importing := range r.anchors[row] {
		want[cellKey{"anchor", importing, last}] = r.anchors.value(row, importing)
	}
	return want, nil
}

func compare(row engine.Row, want map[cellKey]string) error {
	for _, c := range row.Cells {
		k := cellKey{c.Family, c.Qualifier, c.Timestamp}
		v, ok := want[k]
		if !ok {
			return fmt.Errorf("%s:%s at %v should not be there", k.family, k.qualifier, k.ts.Time())
		}
		if v != string(c.Value) {
			return fmt.Errorf("%s:%s at %v has %d bytes that differ from the %d expected", k.family, k.qualifier, k.ts.Time(), len(c.Value), len(v))
		}
		delete(want, k)
	}
	for k := range want {
		return fmt.Errorf("%s:%s at %v is missing", k.family, k.qualifier, k.ts.Time())
	}
	return nil
}

// verifyRaw makes sure that nothing that the rules hide is left on disk.
func (r *report) verifyRaw(ctx context.Context, t *engine.Table) error {
	var raw int64
	err := t.ReadCellsBorrowed(ctx, engine.AllRows(), func(*engine.BorrowedCell) bool { raw++; return true }, engine.Raw())
	if err != nil {
		return err
	}
	if raw != r.cells {
		return fmt.Errorf("%d cells are on disk, the rules leave %d", raw, r.cells)
	}
	if r.expired == 0 || r.excess == 0 {
		return fmt.Errorf("%d expired and %d excess cells: nothing to show", r.expired, r.excess)
	}
	return nil
}

// progress is a line on a terminal, or nothing elsewhere until it is done.
type progress struct {
	what     string
	n, total int
	shown    time.Time
	began    time.Time
	tty      bool
}

func newProgress(what string, total int) *progress {
	info, err := os.Stdout.Stat()
	return &progress{what: what, total: total, began: time.Now(), tty: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (p *progress) add(n int) {
	p.n += n
	if p.tty && time.Since(p.shown) > 100*time.Millisecond {
		p.shown = time.Now()
		fmt.Printf("\r%s: %d of %d", p.what, p.n, p.total)
	}
}

func (p *progress) done() {
	if p.tty {
		fmt.Print("\r")
	}
	fmt.Printf("%s: %d in %.1f s\n", p.what, p.n, time.Since(p.began).Seconds())
}
