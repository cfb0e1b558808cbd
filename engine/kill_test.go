//go:build unix

package engine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
)

// A loading process is killed with SIGKILL at many moments, chosen by what it reports to be doing. After each kill the store
// opens, holds every acknowledged synced batch, no batch in part, and a prefix of each writer's batches, over two tables.

const (
	killEnv     = "ROWAN_KILL_CHILD" // directory of the store, then what to dawdle in
	killWriters = 2
)

var killMoments = []string{"flush", "compaction", "log switch", "manifest write", "anything"}

func killOptions() Options {
	return Options{MemtableBytes: 16 << 10, TableFileBytes: 16 << 10, LevelBytes: 64 << 10, LogSegmentBytes: 16 << 10, CacheBytes: 64 << 10, L0Files: 2}
}

func TestKilledProcessKeepsWhatItAcknowledged(t *testing.T) {
	if v := os.Getenv(killEnv); v != "" {
		dir, dawdle, _ := strings.Cut(v, "|")
		killChild(dir, dawdle)
		return
	}
	kills := 55
	if raceEnabled {
		kills = 10
	}
	dir := t.TempDir()
	db := openDisk(t, dir, killOptions())
	for _, name := range []string{"a", "b"} {
		create(t, db, name, map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1)})
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	inside := map[string]int{}
	rng := rand.New(rand.NewPCG(5, 5))
	var acked, survived [killWriters]int
	tries := 0
	for n := 0; n < kills; tries++ {
		if tries > 6*kills {
			t.Fatalf("%d tries gave %d kills: %v", tries, n, inside)
		}
		want := killMoments[tries%len(killMoments)]
		at := killOnce(t, dir, want, rng, &acked)
		survived = checkSurvivors(t, dir, acked)
		acked = survived // the next child goes on from there
		if want == "anything" || at[want] {
			n++
		}
		for moment := range at {
			inside[moment]++
		}
	}
	t.Logf("%d kills in %d tries, inside %v; %v batches survived", kills, tries, inside, survived)
	for _, moment := range killMoments[:4] {
		if need := kills / 10; inside[moment] < need {
			t.Errorf("only %d kills inside a %s, want %d", inside[moment], moment, need)
		}
	}
}

// killOnce starts a child, kills it when it is inside a moment, and returns what it was inside of when it died.
func killOnce(t *testing.T, dir, want string, rng *rand.Rand, acked *[killWriters]int) map[string]bool {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcessKeepsWhatItAcknowledged$", "-test.count=1")
	cmd.Env = append(os.Environ(), killEnv+"="+dir+"|"+want)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill := func(after time.Duration) {
		if killed {
			return
		}
		killed = true
		time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	}
	skip := 1 + rng.IntN(4) // not always the first such moment
	if want == "anything" {
		kill(time.Duration(20+rng.IntN(200)) * time.Millisecond)
	}
	depth := map[string]int{}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := lines.Text()
		var w, n int
		switch kind, what, _ := strings.Cut(line, " "); kind {
		case "acked":
			if _, err := fmt.Sscan(what, &w, &n); err == nil {
				acked[w] = max(acked[w], n)
			}
		case "begin":
			depth[what]++
			if what == want {
				if skip--; skip <= 0 {
					kill(time.Duration(rng.IntN(1500)) * time.Microsecond)
				}
			}
		case "end":
			depth[what]--
		case "failed":
			t.Fatalf("child: %s", line)
		}
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err == nil {
		t.Fatal("the child ended by itself")
	}
	at := map[string]bool{}
	for what, d := range depth {
		if d > 0 {
			at[what] = true
		}
	}
	return at
}

// checkSurvivors opens the store and returns how many batches of each writer are there.
func checkSurvivors(t *testing.T, dir string, acked [killWriters]int) (survived [killWriters]int) {
	t.Helper()
	db := openDisk(t, dir, killOptions())
	var seen [2][killWriters]int
	for i, name := range []string{"a", "b"} {
		err := db.Table(name).ReadRows(ctx, AllRows(), func(r Row) bool {
			var w, n int
			if _, err := fmt.Sscanf(r.Key, "w%d-%08d", &w, &n); err != nil {
				t.Errorf("row %q: %v", r.Key, err)
				return false
			}
			if n != seen[i][w]+1 {
				t.Errorf("table %s, writer %d: batch %d follows batch %d", name, w, n, seen[i][w])
				return false
			}
			seen[i][w] = n
			if len(r.Cells) != 3 || !strings.HasPrefix(string(r.Cells[2].Value), r.Key) {
				t.Errorf("table %s: batch %d of writer %d is there in part: %s", name, n, w, show(r))
				return false
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen[0] != seen[1] {
		t.Errorf("table a ends at %v, table b at %v", seen[0], seen[1])
	}
	for w := range acked {
		if seen[0][w] < acked[w] {
			t.Errorf("writer %d: %d batches are there, %d were acknowledged", w, seen[0][w], acked[w])
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	return seen[0]
}

// reporter prints lines to the parent, one write each.
type reporter struct {
	mu     sync.Mutex
	dawdle string
}

func (r *reporter) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(os.Stdout, format+"\n", args...)
}

// begin and end tell of a moment; the one that the parent is after is stretched on both sides.
func (r *reporter) begin(what string) {
	r.say("begin %s", what)
	r.pause(what)
}

func (r *reporter) end(what string) {
	r.pause(what)
	r.say("end %s", what)
}

func (r *reporter) pause(what string) {
	if what == r.dawdle {
		time.Sleep(time.Millisecond)
	}
}

// Handle makes the reporter a log handler that hears of jobs.
func (r *reporter) Handle(_ context.Context, rec slog.Record) error {
	if what, ok := strings.CutSuffix(rec.Message, " begins"); ok {
		r.begin(what)
	}
	if what, ok := strings.CutSuffix(rec.Message, " ends"); ok {
		r.end(what)
	}
	return nil
}

func (r *reporter) Enabled(context.Context, slog.Level) bool { return true }
func (r *reporter) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *reporter) WithGroup(string) slog.Handler            { return r }

// reportFS reports writes to the manifest and to the first block of log slots.
type reportFS struct {
	vfs.FS
	r *reporter
}

type reportFile struct {
	vfs.File
	r    *reporter
	kind string
}

func (f reportFS) Open(name string, how vfs.How) (vfs.File, error) {
	file, err := f.FS.Open(name, how)
	if err != nil || !how.Write && !how.Create {
		return file, err
	}
	switch base := path.Base(name); {
	case strings.HasPrefix(base, "manifest-"):
		return &reportFile{file, f.r, "manifest write"}, nil
	case strings.HasPrefix(base, "slot-"):
		return &reportFile{file, f.r, "log switch"}, nil
	}
	return file, nil
}

func (f *reportFile) WriteAt(b []byte, off int64) (int, error) {
	if f.kind == "log switch" && off != 0 {
		return f.File.WriteAt(b, off)
	}
	f.r.begin(f.kind)
	n, err := f.File.WriteAt(b, off)
	f.r.end(f.kind)
	return n, err
}

// killChild loads until it is killed.
func killChild(dir, dawdle string) {
	r := &reporter{dawdle: dawdle}
	o := killOptions()
	o.FS = reportFS{vfs.OS(), r}
	o.Logger = slog.New(r)
	db, err := Open(dir, o)
	if err != nil {
		r.say("failed open: %v", err)
		return
	}
	a, b := db.Table("a"), db.Table("b")
	var wg sync.WaitGroup
	for w := range killWriters {
		next := 1
		err := a.ReadRows(ctx, PrefixRange(fmt.Sprintf("w%d-", w)), func(row Row) bool {
			_, err := fmt.Sscanf(row.Key, fmt.Sprintf("w%d-%%d", w), &next)
			next++
			return err != nil
		}, ReverseScan(), LimitRows(1))
		if err != nil {
			r.say("failed read: %v", err)
			return
		}
		wg.Go(func() {
			for n := next; ; n++ {
				key := fmt.Sprintf("w%d-%08d", w, n)
				m := NewMutation()
				m.Set("f", "gone", 1, []byte("deleted by the same batch"))
				m.DeleteCellsInColumn("f", "gone")
				for q := range 3 {
					m.Set("f", fmt.Sprint("q", q), 1, []byte(key+strings.Repeat("x", 100*q)))
				}
				batch := NewBatch()
				batch.Add(a, key, m)
				batch.Add(b, key, m)
				var opts []ApplyOption
				if n%3 != 0 {
					opts = append(opts, NoSync)
				}
				if err := db.Apply(ctx, batch, opts...); err != nil {
					r.say("failed apply: %v", err)
					return
				}
				if opts == nil {
					r.say("acked %d %d", w, n)
				}
			}
		})
	}
	wg.Wait()
}
