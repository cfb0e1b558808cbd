package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rowandb/rowan/bench/measure"
	"github.com/rowandb/rowan/bench/report"
	"github.com/rowandb/rowan/bench/store"
	"github.com/rowandb/rowan/bench/work"
)

// compare makes all runs that have not been made yet and shows them.
func compare(s settings) error {
	engines, err := choose(s)
	if err != nil {
		return err
	}
	var works []work.Workload
	for _, w := range work.All() {
		named := slices.ContainsFunc(split(s.workloads, ","), func(p string) bool {
			return w.Name == p || strings.HasSuffix(p, "*") && strings.HasPrefix(w.Name, p[:len(p)-1])
		})
		if named || s.workloads == "" && (s.profile == "full" || w.Quick) {
			works = append(works, w)
		}
	}
	if len(works) == 0 {
		return fmt.Errorf("no workload is named by %q; -list prints their names", s.workloads)
	}
	for _, dir := range []string{s.dir, s.out, s.profiles} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	state, err := report.OpenState(filepath.Join(s.out, "results.jsonl"))
	if err != nil {
		return err
	}
	defer state.Close() // every line has been written by itself
	p := place{settings: s, machine: machine(), tree: tree()}
	var results []measure.Result
	for run := range s.runs {
		for _, w := range works {
			for _, e := range engines {
				if w.Without[e.Name] != "" {
					continue
				}
				key := measure.Key{Profile: s.profile, Workload: w.Name, Engine: e.Name, Machine: p.machine, Version: e.Version(), Run: run, Scale: s.scale}
				if !e.Peer {
					key.Tree = p.tree // peers do not change with this repository
				}
				r, ok := state.Find(key)
				if !ok && s.show {
					continue
				}
				if !ok {
					if r, err = p.run(w, e, key); err != nil {
						return err
					}
					if err := state.Add(r); err != nil {
						return err
					}
					progress(r)
				}
				results = append(results, r)
			}
		}
	}
	var names []string
	for _, e := range engines {
		names = append(names, e.Name)
	}
	rows := report.Summary(names, works, results)
	if err := p.publish(names, rows); err != nil {
		return err
	}
	return errors.Join(failed(results), p.judge(rows))
}

// failed names the runs that have failed.
func failed(results []measure.Result) error {
	var errs []error
	for _, r := range results {
		if r.Failed != "" {
			errs = append(errs, fmt.Errorf("%s, %s, run %d: %s", r.Workload, r.Engine, r.Run+1, r.Failed))
		}
	}
	return errors.Join(errs...)
}

// publish prints the table and writes the page.
func (p *place) publish(engines []string, rows []report.Row) error {
	title := fmt.Sprintf("%s, %s, tree %s, %s profile, scale %g, median of %d", time.Now().Format("2006-01-02"), p.machine, p.tree, p.profile, p.scale, p.runs)
	warning := ""
	if p.profile == "quick" {
		warning = report.NoEvidence
	}
	report.Table(os.Stdout, title, warning, engines, rows)
	verdicts, err := p.verdicts(rows)
	if err != nil {
		return err
	}
	path := filepath.Join(p.out, "index.html")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(report.Page(f, title, warning, engines, rows, verdicts), f.Close()); err != nil {
		return err
	}
	fmt.Printf("\npage: %s\n", path)
	return nil
}

func (p *place) verdicts(rows []report.Row) ([]report.Verdict, error) {
	if p.require == "" {
		return nil, nil
	}
	f, err := os.Open(p.require)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	wanted, err := report.ReadWanted(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.require, err)
	}
	return report.Judge(rows, wanted), nil
}

// judge is an error that names what is wanted and was missed.
func (p *place) judge(rows []report.Row) error {
	list, err := p.verdicts(rows)
	if err != nil {
		return err
	}
	return report.Missed(list)
}

// choose returns the engines to compare: in the quick profile Rowan and the two best peers.
func choose(s settings) ([]store.Engine, error) {
	if s.engines != "" {
		var out []store.Engine
		for _, name := range split(s.engines, ",") {
			e, err := store.Find(name)
			if err != nil {
				return nil, err
			}
			out = append(out, e)
		}
		return out, nil
	}
	all := store.Engines()
	if s.profile == "full" {
		return all, nil
	}
	quick := []string{report.Own, "pebble", "bbolt"}
	if _, err := store.Find("rocksdb"); err == nil {
		quick = []string{report.Own, "pebble", "rocksdb"}
	}
	return slices.DeleteFunc(all, func(e store.Engine) bool { return !slices.Contains(quick, e.Name) }), nil
}

func progress(r measure.Result) {
	if r.Failed != "" {
		fmt.Fprintf(os.Stderr, "%-30s %-10s run %d FAILED: %s\n", r.Workload, r.Engine, r.Run+1, r.Failed)
		return
	}
	fmt.Fprintf(os.Stderr, "%-30s %-10s run %d %10s/s  p99.9 %.4g us  CPU %.3g us\n", r.Workload, r.Engine, r.Run+1, report.Number(r.Rate), r.P999, r.CPU)
}
