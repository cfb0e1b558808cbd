package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/levels"
)

// A write that has to read what is damaged fails with the damage, names the row, writes nothing and holds nobody up: neither
// the same row, which can be written blindly and then read again, nor other ones.
func TestWritesThatReadDamageFailAlone(t *testing.T) {
	s := newStore(t, func(o *Options) { o.CacheBytes = 1 })
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2), "g": {}})
	s.must(tb.Apply(ctx, "bad", mut(func(m *Mutation) {
		for ts := Timestamp(1); ts < 4; ts++ {
			m.Set("f", "n", ts, make([]byte, 8))
		}
	})))
	s.must(tb.Apply(ctx, "bad", set("g", "q", 1, strings.Repeat("value", 100))))
	s.must(s.Flush(ctx))
	s.reopen()
	tb = s.Table("t")
	f := s.states.cur.Load().version.Trees[1].Files[0][0]
	name := path.Join("/store", levels.TableName(f.Num))
	flip(t, s.fs, name, 40)
	incr := NewReadModifyWrite()
	incr.Increment("f", "n", 1)
	hole := mut(func(m *Mutation) { m.DeleteTimestampRange("f", "n", 3, 4) })
	for what, call := range map[string]func() error{
		"increment":   func() error { _, err := tb.ReadModifyWrite(ctx, "bad", incr); return err },
		"condition":   func() error { return tb.Apply(ctx, "bad", NewCondMutation(ColumnExact("f", "n"), hole, hole)) },
		"one version": func() error { return tb.Apply(ctx, "bad", hole) },
		"precondition": func() error {
			b := NewBatch()
			b.Add(tb, "good", set("f", "q", 1, "left behind"))
			b.Require(tb, "bad", nil, true)
			return s.Apply(ctx, b)
		},
	} {
		err := call()
		if !errors.Is(err, ErrDamaged) || errors.Is(err, ErrUnknownOutcome) || !strings.Contains(err.Error(), `row "bad"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if r, err := tb.ReadRow(ctx, "good"); err != nil || len(r.Cells) > 0 {
		t.Errorf("%v %v", r, err)
	}
	done := make(chan error, 1)
	go func() {
		err := tb.Apply(ctx, "bad", mut(func(m *Mutation) { m.DeleteRow() }))
		if err == nil { // the memtable answers now
			_, err = tb.ReadModifyWrite(ctx, "bad", incr)
		}
		if err == nil {
			_, err = tb.ReadModifyWrite(ctx, "good", incr)
		}
		done <- err
	}()
	select {
	case err := <-done:
		s.must(err)
	case <-time.After(30 * time.Second):
		t.Fatal("a row is still locked")
	}
	flip(t, s.fs, name, 40)
	if got := s.scan(tb); strings.Count(got, "=") != 2 {
		t.Errorf("left:\n%s", got)
	}
}

// A mapped file that somebody cuts short under the store makes reads inside a write an error too, not a crash of the process.
func TestWriteThatReadsACutFileFails(t *testing.T) {
	dir := t.TempDir()
	db := openDisk(t, dir, Options{Reads: ReadMapped, CacheBytes: 1 << 16})
	defer db.Close()
	tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
	for i := range 200 {
		m := NewMutation()
		m.Set("f", "n", 1, bytes.Repeat([]byte{byte(i), 7}, 2000))
		if err := tb.Apply(ctx, fmt.Sprintf("row%03d", i), m, NoSync); err != nil {
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
	if err := os.Truncate(files[0], 4096); err != nil {
		t.Fatal(err)
	}
	app := NewReadModifyWrite()
	app.AppendValue("f", "n", []byte("x"))
	if _, err := tb.ReadModifyWrite(ctx, "row150", app); err == nil || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("error %v", err)
	}
	if _, err := tb.ReadModifyWrite(ctx, "another", app); err != nil {
		t.Error(err)
	}
}
