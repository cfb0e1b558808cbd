// Command video keeps videos, one row each:
//
//	info:<attribute>     title, length, ...; one version
//	count:<what>         views and likes; Adds that fold, so that counting reads nothing
//	comments:all         one cell a comment, timestamp = when it was written; the newest 100,000 are kept
//
// It fills a video with comments, reads the first page and all pages, counts views from many goroutines, and deletes the video
// with all its comments in one call. It prints what it does, checks every answer, and exits with 1 at the first difference.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/gc"
)

const (
	video    = "video#7f3a"
	other    = "video#7f3b"
	comments = 100_000
	extra    = 500 // comments beyond those that are kept
	pageSize = 1000
	viewers  = 8
	views    = 5000 // of each viewer
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "video:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "video-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := engine.Open(dir, engine.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	t, err := db.CreateTable(ctx, "videos", engine.TableSpec{Families: map[string]engine.FamilySpec{
		"info":     {GC: gc.MaxVersionsPolicy(1)},
		"count":    {Aggregate: engine.Sum},
		"comments": {GC: gc.MaxVersionsPolicy(comments), Group: "comments"}, // read apart from the rest
	}})
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, *engine.DB, *engine.Table) error{upload, comment, firstPage, allPages, count, remove} {
		if err := step(ctx, db, t); err != nil {
			return err
		}
	}
	fmt.Println("all answers are right")
	return nil
}

func upload(ctx context.Context, _ *engine.DB, t *engine.Table) error {
	for _, v := range []string{video, other} {
		m := engine.NewMutation()
		m.Set("info", "title", engine.ServerTime, []byte("How to plant a rowan"))
		m.Set("info", "seconds", engine.ServerTime, []byte("312"))
		if err := t.Apply(ctx, v, m); err != nil {
			return err
		}
	}
	fmt.Println("uploaded 2 videos")
	return nil
}

// text is the i-th comment, written i milliseconds after the first.
func text(i int) []byte { return fmt.Appendf(nil, "comment %d: I planted mine in spring", i) }

var first = engine.Time(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

func when(i int) engine.Timestamp { return first + engine.Timestamp(i)*1000 }

func comment(ctx context.Context, db *engine.DB, t *engine.Table) error {
	began := time.Now()
	m := engine.NewMutation()
	for i := range comments + extra {
		m.Set("comments", "all", when(i), text(i))
		if m.Len() == 500 || i == comments+extra-1 {
			if err := t.Apply(ctx, video, m, engine.NoSync); err != nil {
				return err
			}
			m.Reset()
		}
	}
	if err := db.Sync(ctx); err != nil {
		return err
	}
	fmt.Printf("wrote %d comments in %.1f s\n", comments+extra, time.Since(began).Seconds())
	return nil
}

func check(c *engine.BorrowedCell, i int) error {
	if c.Timestamp != when(i) || string(c.Value) != string(text(i)) {
		return fmt.Errorf("comment at %d is %q, want %q at %d", c.Timestamp, c.Value, text(i), when(i))
	}
	return nil
}

// firstPage is what most visitors see: the newest comments, beside the video's attributes.
func firstPage(ctx context.Context, _ *engine.DB, t *engine.Table) error {
	filter := engine.InterleaveFilters(engine.FamilyExact("info"), engine.ChainFilters(engine.FamilyExact("comments"), engine.LatestNFilter(20)))
	row, err := t.ReadRow(ctx, video, engine.RowFilter(filter))
	if err != nil {
		return err
	}
	if len(row.Cells) != 22 {
		return fmt.Errorf("%d cells, want 20 comments and 2 attributes", len(row.Cells))
	}
	for i, c := range row.Cells[:20] {
		if want := comments + extra - 1 - i; c.Timestamp != when(want) || string(c.Value) != string(text(want)) {
			return fmt.Errorf("comment %d of the first page is %q", i, c.Value)
		}
	}
	if title, _ := row.Latest("info", "title"); string(title) != "How to plant a rowan" {
		return fmt.Errorf("the title is %q", title)
	}
	fmt.Println("read the first page: 20 comments and 2 attributes")
	return nil
}

// allPages walks the comments page by page. A page goes on behind the last cell of the one before, wherever new comments have
// come meanwhile.
func allPages(ctx context.Context, _ *engine.DB, t *engine.Table) error {
	next := comments + extra - 1
	pages := 0
	for at := (engine.Position{}); ; pages++ {
		var wrong error
		var end engine.Position
		err := t.ReadCellsBorrowed(ctx, engine.SingleRow(video), func(c *engine.BorrowedCell) bool {
			wrong = check(c, next)
			next--
			return wrong == nil
		}, engine.RowFilter(engine.FamilyExact("comments")), engine.After(at), engine.LimitCells(pageSize), engine.ContinueAt(&end))
		if err = errors.Join(err, wrong); err != nil {
			return err
		}
		if end == (engine.Position{}) {
			break
		}
		at = end
		if pages == 3 { // nobody's page moves
			m := engine.NewMutation()
			m.Set("comments", "all", when(comments+extra), text(comments+extra))
			if err := t.Apply(ctx, video, m, engine.NoSync); err != nil {
				return err
			}
		}
	}
	if got := comments + extra - 1 - next; got != comments-1 { // the new comment took the place of the oldest
		return fmt.Errorf("%d comments over all pages, want %d", got, comments-1)
	}
	fmt.Printf("read %d comments in %d pages\n", comments-1, pages+1)
	return nil
}

func count(ctx context.Context, _ *engine.DB, t *engine.Table) error {
	began := time.Now()
	errs := make([]error, viewers)
	var wg sync.WaitGroup
	for i := range viewers {
		wg.Go(func() {
			m := engine.NewMutation()
			m.AddIntToCell("count", "views", 0, 1)
			for range views {
				if errs[i] = t.Apply(ctx, video, m, engine.NoSync); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	row, err := t.ReadRow(ctx, video, engine.RowFilter(engine.FamilyExact("count")))
	if err != nil {
		return err
	}
	n, _ := row.Latest("count", "views")
	if len(n) != 8 || binary.BigEndian.Uint64(n) != viewers*views {
		return fmt.Errorf("%d views are counted as %x", viewers*views, n)
	}
	fmt.Printf("counted %d views from %d goroutines in %.2f s\n", viewers*views, viewers, time.Since(began).Seconds())
	return nil
}

// remove deletes the video: one call, one small entry in the log, whatever it has.
func remove(ctx context.Context, db *engine.DB, t *engine.Table) error {
	began := time.Now()
	m := engine.NewMutation()
	m.DeleteRow()
	if err := t.Apply(ctx, video, m); err != nil {
		return err
	}
	took := time.Since(began)
	left := 0
	for row, err := range t.Rows(ctx, engine.AllRows()) {
		if err != nil {
			return err
		}
		if left++; row.Key != other {
			return fmt.Errorf("%s is still there with %d cells", row.Key, len(row.Cells))
		}
	}
	if left != 1 {
		return fmt.Errorf("%d videos are left, want 1", left)
	}
	if err := db.Compact(ctx); err != nil {
		return err
	}
	var cells uint64
	for _, l := range db.Metrics().Levels {
		cells += l.Cells
	}
	if cells != 2 {
		return fmt.Errorf("%d cells are left on disk, want the other video's 2", cells)
	}
	fmt.Printf("deleted a video with %d comments in %.1f ms, and compaction left nothing of it\n", comments, float64(took.Microseconds())/1000)
	return nil
}
