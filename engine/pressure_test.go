package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowandb/rowan/engine/internal/executor"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
)

// gated is an executor whose work waits at a gate.
type gated struct {
	executor.Goroutines
	gate chan struct{}
}

func (g *gated) Go(fn func()) { g.Goroutines.Go(func() { <-g.gate; fn() }) }

// logLines collects what the store logs.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), part)
}

// While flushes hang, writers are slowed more and more, wait at the limit for as long as their context allows, and go on when
// the work gets done.
func TestWritersAreSlowedThenHeldThenReleased(t *testing.T) {
	x := &gated{gate: make(chan struct{})}
	var lines logLines
	db, err := Open("/store", Options{FS: vfs.NewMem(), Background: x, MemtableBytes: 16 << 10, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	if err != nil {
		t.Fatal(err)
	}
	tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
	last, steps := 0, map[int]bool{}
	for i := 0; ; i++ {
		p := db.Metrics().Pressure
		if p < last {
			t.Fatalf("pressure fell from %d to %d while nothing was flushed", last, p)
		}
		if last = p; p == stopPressure {
			break
		}
		steps[p] = true
		if i > 10_000 {
			t.Fatal("the limit is never reached")
		}
		if err := tb.Apply(ctx, fmt.Sprint("row", i), set("f", "q", 1, strings.Repeat("x", 200)), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if len(steps) < 2 {
		t.Errorf("the limit came without warning: pressures %v", steps)
	}
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := tb.Apply(soon, "late", set("f", "q", 1, "v")); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknownOutcome) {
		t.Fatalf("apply at the limit: %v", err)
	}
	if r, err := tb.ReadRow(ctx, "late"); err != nil || len(r.Cells) != 0 {
		t.Fatalf("a batch that gave up waiting was written: %s %v", show(r), err)
	}
	held := make(chan error)
	go func() { held <- tb.Apply(ctx, "held", set("f", "q", 1, "v")) }()
	for db.Metrics().Stalls < 2 {
		time.Sleep(time.Millisecond)
	}
	close(x.gate)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	m := db.Metrics()
	if m.Stalls < 2 || m.StallTime <= 0 || m.Pressure != 0 {
		t.Errorf("stalls %d of %v, pressure %d", m.Stalls, m.StallTime, m.Pressure)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string]int{`msg=open `: 1, `msg=recovered`: 1, `msg=I/O`: 1, `msg=closed`: 1, `"writers wait for`: 2, `"writers go on"`: 2} {
		if got := lines.count(part); got != want {
			t.Errorf("%d log lines with %s, want %d:\n%s", got, part, want, &lines.b)
		}
	}
}

// A damaged file is set aside: its rows give its error, everything else is read and compacted on, and health says so.
func TestDamagedFileIsSetAside(t *testing.T) {
	var lines logLines
	s := newStore(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&lines, nil)) })
	tb := s.table("bad", map[string]gc.Rule{"f": {}})
	good := s.table("good", map[string]gc.Rule{"f": {}})
	fill := func(t *Table) {
		for i := range 200 {
			s.must(t.Apply(ctx, fmt.Sprintf("r%03d", i), set("f", "q", 1, strings.Repeat(fmt.Sprint(i), 20)), NoSync))
		}
	}
	fill(tb)
	s.must(s.Flush(ctx))
	fill(good)
	s.must(s.Flush(ctx))
	s.must(s.Close())
	flip(t, s.fs, "/store/00000001.sst", 2000)
	s.open()
	tb, good = s.Table("bad"), s.Table("good")
	err := tb.ReadRows(ctx, AllRows(), func(Row) bool { return true })
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "00000001.sst") || !strings.Contains(err.Error(), "offset") {
		t.Fatalf("read of a damaged file: %v", err)
	}
	if err := tb.Compact(ctx, AllRows()); err == nil {
		t.Fatal("compaction of a damaged file succeeds")
	}
	if h := s.Health(); h.State != StateDegraded || !errors.Is(h.Cause, ErrDamaged) {
		t.Fatalf("health: %+v", h)
	}
	s.must(tb.Apply(ctx, "r100", set("f", "q", 2, "new")))
	s.must(good.Compact(ctx, AllRows()))
	n := 0
	s.must(good.ReadRows(ctx, AllRows(), func(Row) bool { n++; return true }))
	if n != 200 {
		t.Fatalf("%d rows of the other table", n)
	}
	if got := lines.count("set aside"); got != 1 {
		t.Fatalf("%d log lines say that the file was set aside:\n%s", got, &lines.b)
	}
	if _, err := s.fs.Stat("/store/00000001.sst"); err != nil {
		t.Fatalf("the damaged file is gone: %v", err)
	}
}
