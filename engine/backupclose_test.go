package engine

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// closing closes a store at the first call of a kind, from another goroutine, and returns how that ended.
func closing(db *DB, faulty *faultfs.FS, kind faultfs.Kind) func() error {
	var once sync.Once
	ended := make(chan error, 1)
	faulty.SetRules(func(o faultfs.Op) error {
		if o.Kind == kind {
			once.Do(func() {
				go func() { ended <- db.Close() }()
				<-db.life.stop
			})
		}
		return nil
	})
	return func() error { return <-ended }
}

// Close ends a checkpoint and a scrub that are under way; what was made of the checkpoint is removed.
func TestCloseEndsCheckpointsAndScrubs(t *testing.T) {
	fill := func() (*DB, *faultfs.FS, *vfs.Mem) {
		mem := vfs.NewMem()
		faulty := faultfs.New(mem, faultfs.Options{})
		db, err := Open("/store", Options{FS: faulty, MemtableBytes: 32 << 10, TableFileBytes: 8 << 10})
		if err != nil {
			t.Fatal(err)
		}
		tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
		for i := range 300 {
			if err := tb.Apply(ctx, string(rune('a'+i%26)), set("f", "q", Timestamp(i), string(make([]byte, 900))), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		return db, faulty, mem
	}
	db, faulty, mem := fill()
	closed := closing(db, faulty, faultfs.Link)
	if _, err := db.Checkpoint(ctx, "/backup"); !errors.Is(err, ErrClosed) {
		t.Errorf("checkpoint: %v", err)
	}
	if err := closed(); err != nil {
		t.Errorf("close: %v", err)
	}
	if list, err := mem.List("/backup"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", list)
	}

	db, faulty, _ = fill()
	closed = closing(db, faulty, faultfs.Read)
	began := time.Now()
	r, err := db.Scrub(ctx, ScrubOptions{BytesPerSecond: 1}) // would take days
	if !errors.Is(err, ErrClosed) || r.Next == 0 {
		t.Errorf("scrub: %+v, %v", r, err)
	}
	if err := closed(); err != nil {
		t.Errorf("close: %v", err)
	}
	t.Log("the scrub ended after ", time.Since(began))
	if _, err := db.Checkpoint(ctx, "/backup"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := db.Scrub(ctx, ScrubOptions{}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
