package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/rowandb/rowan/bench/measure"
	"github.com/rowandb/rowan/bench/store"
	"github.com/rowandb/rowan/bench/work"
)

// place is where runs are made.
type place struct {
	settings
	machine, tree string
}

// run makes one run. A process that fails gives a result that says so; an error is one of the comparison itself.
func (p *place) run(w work.Workload, e store.Engine, key measure.Key) (measure.Result, error) {
	dir := filepath.Join(p.dir, "work")
	if err := os.RemoveAll(dir); err != nil {
		return measure.Result{}, err
	}
	defer os.RemoveAll(dir) // at the latest the next run does it
	r, err := p.made(w, e, dir)
	if err != nil {
		r = measure.Result{Failed: err.Error()}
	}
	r.Profile, r.Workload, r.Engine, r.Run, r.Scale = key.Profile, key.Workload, key.Engine, key.Run, key.Scale
	r.Machine, r.Version, r.Tree = key.Machine, key.Version, key.Tree
	r.Time = time.Now().UTC().Format(time.RFC3339)
	return r, nil
}

func (p *place) made(w work.Workload, e store.Engine, dir string) (measure.Result, error) {
	j := job{Engine: e.Name, Workload: w.Name, Part: "run", Dir: dir, Scale: p.scale}
	if p.profiles != "" {
		j.Profile = filepath.Join(p.profiles, fileName(w.Name+" "+e.Name)+".prof")
	}
	if w.Data != "" {
		data, err := p.data(w.Data, e)
		if err != nil {
			return measure.Result{}, fmt.Errorf("data set %s: %w", w.Data, err)
		}
		if !w.Changes {
			j.Dir = data
		} else if err := exec.Command("cp", "-r", "--reflink=auto", data, dir).Run(); err != nil {
			return measure.Result{}, fmt.Errorf("copy of data set %s: %w", w.Data, err)
		}
	}
	if w.Crash != nil {
		crash := j
		crash.Part, crash.Profile = "crash", ""
		if _, err := p.start(crash); !errors.Is(err, errKilled) {
			return measure.Result{}, fmt.Errorf("the process that was to be killed ended otherwise: %w", err)
		}
	}
	if w.Memory > 0 {
		remove, err := makeCgroup(w.Memory)
		if err != nil {
			return measure.Result{}, err
		}
		defer remove()
		j.Cgroup = cgroupDir()
		if err := dropCaches(); err != nil {
			return measure.Result{}, err
		}
	}
	return p.start(j)
}

// data makes a set of data if it is not there yet and returns its directory.
func (p *place) data(name string, e store.Engine) (string, error) {
	version := e.Version()
	if !e.Peer {
		version = p.tree
	}
	dir := filepath.Join(p.dir, "data", fmt.Sprintf("%s-%s-%g-%s", e.Name, name, p.scale, fileName(version)))
	done := dir + ".done" // a directory without it is one of a process that was stopped
	if _, err := os.Stat(done); err == nil {
		return dir, nil
	}
	stale, err := filepath.Glob(filepath.Join(p.dir, "data", fmt.Sprintf("%s-%s-%g-*", e.Name, name, p.scale))) // of other versions
	if err != nil {
		return "", err
	}
	for _, old := range append(stale, dir) {
		if err := os.RemoveAll(old); err != nil {
			return "", err
		}
	}
	fmt.Fprintf(os.Stderr, "%-30s %-10s is loaded\n", "data set "+name, e.Name)
	if _, err := p.start(job{Engine: e.Name, Workload: name, Part: "data", Dir: dir, Scale: p.scale}); err != nil {
		return "", err
	}
	return dir, os.WriteFile(done, nil, 0o666)
}

func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '_'
		}
		return r
	}, s)
}

var errKilled = errors.New("killed")

// start runs a process for a job and returns what it has measured.
func (p *place) start(j job) (measure.Result, error) {
	what, err := json.Marshal(j)
	if err != nil {
		return measure.Result{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return measure.Result{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-child", string(what))
	var out, fail bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fail
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return measure.Result{}, fmt.Errorf("it was not done after %v", p.timeout)
	case err != nil:
		if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() && s.Signal() == syscall.SIGKILL {
			return measure.Result{}, fmt.Errorf("%w: %s", errKilled, tail(fail.String()))
		}
		return measure.Result{}, fmt.Errorf("%w: %s", err, tail(fail.String()))
	}
	var got struct{ Result measure.Result }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		return measure.Result{}, fmt.Errorf("the process answered %q: %w", tail(out.String()), err)
	}
	return got.Result, nil
}

// tail is the beginning of the last lines of what a process printed, short enough for a line of the table.
func tail(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.Index(s, "compare: "); i >= 0 {
		s = s[i+len("compare: "):]
	}
	return s[:min(len(s), 300)]
}

// machine names this machine: results of another one are not compared with its own.
func machine() string {
	cpu := "unknown processor"
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d x %s", cpus(), cpu)
}

// tree names the commit of this repository that the program was built from, with a mark if files had been changed since. A program
// that was built without a note of it can be told by ROWAN_BENCH_TREE.
func tree() string {
	if name := os.Getenv("ROWAN_BENCH_TREE"); name != "" {
		return name
	}
	revision, mark := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value[:min(len(s.Value), 10)]
			case s.Key == "vcs.modified" && s.Value == "true":
				mark = "-dirty"
			}
		}
	}
	if revision != "" {
		return revision + mark
	}
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=10").Output() // go run does not say
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
