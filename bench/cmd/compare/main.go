// Command compare runs the same work on Rowan and on the engines that its users would pick instead, one process for each engine,
// workload and run, and shows the results side by side. See ../../README.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rowandb/rowan/bench/work"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	profile, engines, workloads, dir, out, require string
	profiles                                       string
	runs                                           int
	scale                                          float64
	timeout                                        time.Duration
	show, list                                     bool
	child                                          string
}

func run(args []string) error {
	var s settings
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	f.StringVar(&s.profile, "profile", "quick", "quick: a few workloads, one short run, no evidence; full: all of them, the median of several runs")
	f.StringVar(&s.engines, "engines", "", "only these engines, with commas between")
	f.StringVar(&s.workloads, "workloads", "", "only these workloads, with commas between; a name may end with * for all that begin so")
	f.IntVar(&s.runs, "runs", 0, "runs of each; 0: 1 in the quick profile, 3 in the full one")
	f.Float64Var(&s.scale, "scale", 0, "part of the full amount of work; 0: 0.25 in the quick profile, 1 in the full one")
	f.StringVar(&s.dir, "dir", "", "directory for stores; default: one below the system's for temporary files. Data sets stay there for the next time")
	f.StringVar(&s.out, "out", "", "directory for results.jsonl and index.html; default: results below dir")
	f.StringVar(&s.require, "require", "", "file of wanted ratios; those that are missed are named, and the exit status is 1")
	f.StringVar(&s.profiles, "profiles", "", "directory for a profile of processor time of each run; it costs a little time itself")
	f.BoolVar(&s.show, "show", false, "show the results that are there and run nothing")
	f.BoolVar(&s.list, "list", false, "print the names of all workloads and end")
	f.DurationVar(&s.timeout, "timeout", 5*time.Minute, "longest time of one process")
	f.StringVar(&s.child, "child", "", "for the command itself: what this process is to do")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	if s.child != "" {
		return child(s.child)
	}
	if s.list {
		for _, w := range work.All() {
			fmt.Println(w.Name)
		}
		return nil
	}
	switch s.profile {
	case "quick":
		s.runs, s.scale = or(s.runs, 1), or(s.scale, 0.25)
	case "full":
		s.runs, s.scale = or(s.runs, 3), or(s.scale, 1)
	default:
		return fmt.Errorf("no profile %q: there are quick and full", s.profile)
	}
	s.dir = or(s.dir, os.TempDir()+"/rowan-compare")
	s.out = or(s.out, s.dir+"/results")
	return compare(s)
}

// or returns the first value that is not zero.
func or[T comparable](a, b T) T {
	var zero T
	if a == zero {
		return b
	}
	return a
}

func split(s, sep string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, sep)
}
