package main

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/rowandb/rowan/bench/measure"
	"github.com/rowandb/rowan/bench/store"
	"github.com/rowandb/rowan/bench/work"
)

// job is what a process of its own is to do.
type job struct {
	Engine, Workload string
	Part             string // "run", "data" or "crash"
	Dir              string
	Scale            float64
	Cgroup           string // to go into, if any
	Profile          string // file for a profile, if any
}

// dataRest is for how long a set of data is left alone when it has been loaded and drained, as before reads of another day.
const dataRest = 5 * time.Second

// child does a job and prints its result.
func child(what string) error {
	var j job
	if err := json.Unmarshal([]byte(what), &j); err != nil {
		return fmt.Errorf("job %q: %w", what, err)
	}
	e, err := store.Find(j.Engine)
	if err != nil {
		return err
	}
	if j.Cgroup != "" {
		if err := enterCgroup(j.Cgroup); err != nil {
			return err
		}
	}
	r := &work.Run{Engine: e, Options: store.Standard, Dir: j.Dir, Scale: j.Scale, Profile: j.Profile}
	switch j.Part {
	case "data":
		r.Rest = dataRest
		err = work.Datasets[j.Workload](r)
	default:
		w, found := find(j.Workload)
		if !found {
			return fmt.Errorf("no workload %q", j.Workload)
		}
		if j.Part == "crash" {
			if err := w.Crash(r); err != nil {
				return err
			}
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		err = w.Run(r)
	}
	if err != nil {
		return err
	}
	r.Out.Version = e.Version() // of a library that tells only when it is loaded
	return json.NewEncoder(os.Stdout).Encode(struct{ Result measure.Result }{r.Out})
}

func find(name string) (work.Workload, bool) {
	for _, w := range work.All() {
		if w.Name == name {
			return w, true
		}
	}
	return work.Workload{}, false
}
