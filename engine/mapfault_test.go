package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// A mapped table file that is cut short under the store, or before it opens, whatever reads it: the outcome is what was written,
// or an error that names the file; the process lives, the rows and the rest of the store stay writable, and Close ends
// (prometheus/prometheus #3375; VictoriaMetrics/VictoriaMetrics #581; pmcfadin/cqlite #591: "unexpected fault address", and the whole process gone).
func TestFilesCutUnderTheirMapping(t *testing.T) {
	const rows = 150
	cuts := map[string]func(size int64) int64{
		"by a byte":    func(size int64) int64 { return size - 1 },
		"to a page":    func(size int64) int64 { return (size - 1) &^ 4095 },
		"to half":      func(size int64) int64 { return size / 2 },
		"to half page": func(size int64) int64 { return size / 2 &^ 4095 },
		"to nothing":   func(int64) int64 { return 0 },
	}
	value := func(i int) string { return noise(fmt.Sprint("value ", i)) }
	for name, cut := range cuts {
		for _, when := range []string{"mapped", "before opening"} {
			for _, codec := range []Codec{CodecNone, CodecS2} {
				dir := t.TempDir()
				o := Options{CacheBytes: 1, TableFileBytes: 1 << 20, FreeFloor: -1}
				db := openDisk(t, dir, o)
				tb, err := db.CreateTable(ctx, "t", TableSpec{Codec: codec, Families: map[string]FamilySpec{"f": {GC: gc.MaxVersionsPolicy(1)}}})
				if err != nil {
					t.Fatal(err)
				}
				row := func(i int) string { return fmt.Sprintf("row%03d", i) }
				for i := range rows {
					if err := tb.Apply(ctx, row(i), set("f", "q", 5, value(i)), NoSync); err != nil {
						t.Fatal(err)
					}
				}
				if err := db.Flush(ctx); err != nil {
					t.Fatal(err)
				}
				files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
				if err != nil || len(files) != 1 {
					t.Fatal(files, err)
				}
				info, err := os.Stat(files[0])
				if err != nil {
					t.Fatal(err)
				}
				if when == "mapped" {
					if _, err := tb.ReadRow(ctx, row(0)); err != nil {
						t.Fatal(err)
					}
					if db.Metrics().MappedFiles != 1 {
						t.Skip("files cannot be mapped here")
					}
				} else if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(files[0], cut(info.Size())); err != nil {
					t.Fatal(err)
				}
				if when != "mapped" {
					db = openDisk(t, dir, o)
					tb = db.Table("t")
				}
				failed := 0
				judge := func(what string, err error) bool {
					t.Helper()
					if err == nil {
						return true
					}
					failed++
					if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), filepath.Base(files[0])) {
						t.Fatalf("%s, %s, %s, codec %v: %v", name, when, what, codec, err)
					}
					return false
				}
				check := func(what string, r Row) {
					t.Helper()
					var i int
					if _, err := fmt.Sscanf(r.Key, "row%03d", &i); err != nil || len(r.Cells) > 0 && string(r.Cells[len(r.Cells)-1].Value) != value(i) {
						t.Fatalf("%s, %s, %s: wrong row %q, %v", name, when, what, r.Key, err)
					}
				}
				for i := 0; i < rows; i += 7 {
					if r, err := tb.ReadRow(ctx, row(i)); judge("point read", err) {
						check("point read", r)
					}
				}
				for what, opts := range map[string][]ReadOption{
					"scan": nil, "reverse": {ReverseScan()}, "filter": {RowFilter(ValueFilter("x"))}, "keys": {RowFilter(StripValueFilter())},
				} {
					judge(what, tb.ReadRows(ctx, AllRows(), func(r Row) bool {
						if what == "scan" || what == "reverse" {
							check(what, r)
						}
						return true
					}, opts...))
				}
				sum := 0
				judge("borrowed cells", tb.ReadCellsBorrowed(ctx, AllRows(), func(c *BorrowedCell) bool {
					for _, b := range c.Value {
						sum += int(b)
					}
					return true
				}))
				_, err = tb.SampleRowKeys(ctx, AllRows())
				judge("samples", err)
				app := NewReadModifyWrite()
				app.AppendValue("f", "q", []byte("x"))
				var wg sync.WaitGroup
				for i := rows / 2; i < rows; i += 9 {
					wg.Go(func() {
						if _, err := tb.ReadModifyWrite(ctx, row(i), app); err != nil && !errors.Is(err, ErrDamaged) {
							t.Errorf("append: %v", err)
						}
					})
				}
				wg.Wait()
				judge("condition", tb.Apply(ctx, row(rows-1), NewCondMutation(ValueFilter("y"), set("f", "q", 9, "z"), nil)))
				judge("one version", tb.Apply(ctx, row(rows-2), mut(func(m *Mutation) { m.DeleteTimestampRange("f", "q", 5, 6) })))
				batch := NewBatch()
				batch.Require(tb, row(rows-3), nil, true)
				batch.Add(tb, "other", set("f", "q", 1, "v"))
				judge("precondition", db.Apply(ctx, batch))
				if when != "mapped" && failed == 0 {
					t.Errorf("%s, %s: nothing was told", name, when)
				}
				if failed > 0 {
					if h := db.Health(); h.State != StateDegraded || len(h.SetAside) != 1 {
						t.Errorf("%s, %s: %+v", name, when, h)
					}
				}
				// Latches, gates and pins are let go of: the same rows are written blindly, and flushed.
				for i := 0; i < rows; i += 5 {
					if err := tb.Apply(ctx, row(i), set("f", "q", 9, "new"), NoSync); err != nil {
						t.Fatal(err)
					}
				}
				if err := db.Flush(ctx); err != nil {
					t.Fatal(err)
				}
				judge("compaction", db.Compact(ctx))
				if err := db.DropTable(ctx, "t"); err != nil {
					t.Fatal(err)
				}
				if n := db.Metrics().MappedFiles; n != 0 {
					t.Errorf("%s, %s: %d files are still mapped", name, when, n)
				}
				if err := db.Close(); err != nil {
					t.Fatalf("%s, %s: close: %v", name, when, err)
				}
			}
		}
	}
}
