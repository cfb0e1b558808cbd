package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/bench/report"
	"github.com/rowandb/rowan/bench/store"
	"github.com/rowandb/rowan/bench/work"
)

// The test program does the jobs of child processes, as the command does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-child" {
		main()
		return
	}
	os.Exit(m.Run())
}

func compareTiny(t *testing.T, args ...string) (string, error) {
	t.Helper()
	old := os.Stdout
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = w
	out := make(chan string)
	go func() {
		var b bytes.Buffer
		b.ReadFrom(r)
		out <- b.String()
	}()
	err = run(append([]string{"-scale", "0.0002", "-runs", "2"}, args...))
	os.Stdout = old
	w.Close()
	return <-out, err
}

// A comparison that was stopped goes on where it was: runs that were made are not made again.
func TestStoppedComparisonGoesOn(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-profile", "full", "-engines", "rowan,pebble", "-workloads", "fillseq*,scan 100 forward", "-dir", dir}
	out, err := compareTiny(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "results", "results.jsonl")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(before, []byte("\n"))
	if len(lines) != 2*2*2+1 {
		t.Fatalf("%d results were written:\n%s", len(lines)-1, before)
	}
	if err := os.WriteFile(path, bytes.Join(lines[:5], nil), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := compareTiny(t, args...); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(after, bytes.Join(lines[:5], nil)) || bytes.Count(after, []byte("\n")) != 8 {
		t.Errorf("the results are\n%s", after)
	}
	for _, want := range []string{"fillseq batch 100", "scan 100 forward", "pebble", "ratio"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the table:\n%s", want, out)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "results", "index.html"))
	if err != nil || !bytes.Contains(page, []byte("scan 100 forward")) {
		t.Errorf("the page is not there: %v", err)
	}
}

// A wanted ratio that is missed is an error that names it, one that is met is none.
func TestRequire(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-profile", "full", "-engines", "rowan,pebble", "-workloads", "fillseq batch 100", "-dir", dir, "-require", filepath.Join(dir, "wanted")}
	for text, met := range map[string]bool{"fillseq batch 100; rate; >= 0.00001": true, "fillseq batch 100; rate; >= 100000": false} {
		if err := os.WriteFile(filepath.Join(dir, "wanted"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := compareTiny(t, args...)
		if met && err != nil || !met && (err == nil || !strings.Contains(err.Error(), "missed: fillseq batch 100")) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// After a crash every engine with a log has all that was durable.
func TestReopenAfterACrash(t *testing.T) {
	dir := t.TempDir()
	out, err := compareTiny(t, "-profile", "full", "-workloads", "reopen after a crash", "-dir", dir, "-runs", "1")
	if err != nil {
		t.Fatal(err)
	}
	state, err := report.OpenState(filepath.Join(dir, "results", "results.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range state.Results {
		if r.Entries < 100 || r.Hash != state.Results[0].Hash || r.Disk <= 0 {
			t.Errorf("%s has %d entries %s on %d bytes of disk", r.Engine, r.Entries, r.Hash, r.Disk)
		}
	}
	if err := state.Close(); err != nil || len(state.Results) < 4 {
		t.Fatalf("%d results: %v", len(state.Results), err)
	}
	if !strings.Contains(out, "bbolt: left out: it has no log") {
		t.Errorf("the table does not say why an engine is left out:\n%s", out)
	}
}

// A process that does not end in time, or is killed, or fails, is a failed run and not a missing one.
func TestFailedProcessIsAFailedRun(t *testing.T) {
	dir := t.TempDir()
	_, err := compareTiny(t, "-profile", "full", "-engines", "rowan", "-workloads", "fillseq batch 100", "-dir", dir, "-runs", "1", "-timeout", "1ms")
	if err == nil || !strings.Contains(err.Error(), "not done after 1ms") {
		t.Errorf("the error is %v", err)
	}
	state, err := report.OpenState(filepath.Join(dir, "results", "results.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Results) != 1 || state.Results[0].Failed == "" {
		t.Errorf("the results are %+v", state.Results)
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
	p := &place{settings: settings{dir: dir, scale: 0.0002, timeout: time.Minute}}
	if _, err := p.start(job{Engine: "rowan", Workload: "reopen after a crash", Part: "crash", Dir: filepath.Join(dir, "x"), Scale: 0.0002}); !errors.Is(err, errKilled) {
		t.Errorf("a killed process gives %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := p.start(job{Engine: "rowan", Workload: "fillseq batch 100", Part: "run", Dir: filepath.Join(dir, "file"), Scale: 0.0002}); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a process that cannot make its store gives %v", err)
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-profile", "best"}, {"-engines", "oracle"}, {"-workloads", "sleep"}, {"stray"}, {"-nonsense"}} {
		if _, err := compareTiny(t, append(args, "-dir", t.TempDir())...); err == nil {
			t.Errorf("%q passes", args)
		}
	}
}

// The quick profile is eight workloads, Rowan and two peers.
func TestQuickProfileIsQuick(t *testing.T) {
	quick := 0
	for _, w := range work.All() {
		if w.Quick {
			quick++
		}
	}
	engines, err := choose(settings{profile: "quick"})
	if err != nil || quick != 8 || len(engines) != 3 || engines[0].Name != report.Own {
		t.Errorf("%d workloads, %d engines: %v", quick, len(engines), err)
	}
	if all, err := choose(settings{profile: "full"}); err != nil || len(all) != len(store.Engines()) || len(all) < 5 {
		t.Errorf("the full profile has %d engines: %v", len(all), err)
	}
}
