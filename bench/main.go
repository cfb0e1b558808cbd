package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// workload is one kind of work. It returns the rate of operations a second.
type workload struct {
	name string
	run  func(s store, n uint64) (float64, error)
}

// The workloads. Every one checks what it reads.
var workloads = []workload{
	{"fillseq batch 100", func(s store, n uint64) (float64, error) { return fill(s, n, 100, true, false) }},
	{"fillrandom batch 1", func(s store, n uint64) (float64, error) { return fill(s, n, 1, false, false) }},
	{"fillrandom batch 100", func(s store, n uint64) (float64, error) { return fill(s, n, 100, false, false) }},
	{"fillsync 1", func(s store, n uint64) (float64, error) { return fill(s, min(n, 3000), 1, false, true) }},
	{"read hit", readHit},
	{"scan 100 forward", func(s store, n uint64) (float64, error) { return scans(s, n, false) }},
	{"scan 100 reverse", func(s store, n uint64) (float64, error) { return scans(s, n, true) }},
	{"full scan", fullScan},
}

const keyBytes, valueBytes = 16, 100

func load(s store, n uint64, batch int, sequential, sync bool) error {
	keys, values := make([][]byte, batch), make([][]byte, batch)
	for i := range keys {
		keys[i], values[i] = make([]byte, keyBytes), make([]byte, valueBytes)
	}
	for i := uint64(0); i < n; {
		k := 0
		for ; k < batch && i < n; k++ {
			pair(i, keys[k], values[k])
			if sequential {
				copy(keys[k], fmt.Appendf(nil, "%016d", i))
			}
			i++
		}
		if err := s.put(keys[:k], values[:k], sync); err != nil {
			return err
		}
	}
	return nil
}

func fill(s store, n uint64, batch int, sequential, sync bool) (float64, error) {
	began := time.Now()
	if err := load(s, n, batch, sequential, sync); err != nil {
		return 0, err
	}
	if err := s.settle(); err != nil {
		return 0, err
	}
	rate := float64(n) / time.Since(began).Seconds()
	var got sum
	err := s.scan(nil, int(n)+1, false, got.add)
	if err == nil && got.n != n {
		err = fmt.Errorf("%d entries are there, %d were written", got.n, n)
	}
	return rate, err
}

func loaded(s store, n uint64) error {
	if err := load(s, n, 100, false, false); err != nil {
		return err
	}
	return s.settle()
}

func readHit(s store, n uint64) (float64, error) {
	if err := loaded(s, n); err != nil {
		return 0, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var key [keyBytes]byte
	var want, got [valueBytes]byte
	one := func() error {
		pair(rng.Uint64N(n), key[:], want[:])
		ok, err := s.get(key[:], func(v []byte) { copy(got[:], v) })
		if err == nil && (!ok || got != want) {
			err = fmt.Errorf("key %x reads wrong", key)
		}
		return err
	}
	for range n / 2 { // warm
		if err := one(); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	for range n {
		if err := one(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

func scans(s store, n uint64, reverse bool) (float64, error) {
	if err := loaded(s, n); err != nil {
		return 0, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var key [keyBytes]byte
	value := make([]byte, valueBytes)
	count := min(n/10, 30_000)
	touched := byte(0)
	began := time.Now()
	for range count {
		pair(rng.Uint64N(n), key[:], value)
		got := 0
		err := s.scan(key[:], 100, reverse, func(k, v []byte) {
			for _, c := range v {
				touched ^= c
			}
			got++
		})
		if err != nil || got == 0 {
			return 0, fmt.Errorf("scan from %x: %d entries: %w", key, got, err)
		}
	}
	rate := float64(count) / time.Since(began).Seconds()
	value[0] = touched
	return rate, nil
}

func fullScan(s store, n uint64) (float64, error) {
	if err := loaded(s, n); err != nil {
		return 0, err
	}
	var got, touched uint64
	began := time.Now()
	for range 3 {
		err := s.scan(nil, int(n)+1, false, func(k, v []byte) {
			for _, c := range v {
				touched += uint64(c)
			}
			got++
		})
		if err != nil {
			return 0, err
		}
	}
	rate := float64(got) / time.Since(began).Seconds()
	if got != 3*n || touched == 0 {
		return 0, fmt.Errorf("%d entries, expected %d", got, 3*n)
	}
	return rate, nil
}

// result is one line of output of a child.
type result struct {
	Engine, Workload string
	Rate             float64
}

func main() {
	n := flag.Uint64("n", 1_000_000, "entries")
	runs := flag.Int("runs", 3, "interleaved runs; the median counts")
	only := flag.String("workloads", "", "comma-separated prefixes of workloads; empty: all")
	which := flag.String("engines", "", "comma-separated engines; empty: all")
	child := flag.String("child", "", "engine/workload to run in this process")
	flag.Parse()
	var err error
	if *child != "" {
		err = runChild(*child, *n)
	} else {
		err = runAll(*n, *runs, *only, *which)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func runChild(what string, n uint64) error {
	name, work, _ := strings.Cut(what, "/")
	for _, e := range engines {
		for _, w := range workloads {
			if e.name != name || w.name != work {
				continue
			}
			dir, err := os.MkdirTemp("", "bench-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			s, err := e.open(dir)
			if err != nil {
				return err
			}
			rate, err := w.run(s, n)
			if err != nil {
				return err
			}
			if err := s.close(); err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(result{name, work, rate})
		}
	}
	return fmt.Errorf("no such child: %q", what)
}

func wanted(list, name string) bool {
	return list == "" || slices.ContainsFunc(strings.Split(list, ","), func(p string) bool { return strings.HasPrefix(name, p) })
}

func runAll(n uint64, runs int, only, which string) error {
	fmt.Printf("%-22s", "workload")
	for _, e := range engines {
		if wanted(which, e.name) {
			fmt.Printf("%14s", e.name)
		}
	}
	fmt.Printf("%14s\n", "to the best")
	for _, w := range workloads {
		if !wanted(only, w.name) {
			continue
		}
		rates := map[string][]float64{}
		for range runs {
			for _, e := range engines {
				if !wanted(which, e.name) {
					continue
				}
				r, err := runProcess(e.name+"/"+w.name, n)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", e.name, w.name, err)
				}
				rates[e.name] = append(rates[e.name], r.Rate)
			}
		}
		fmt.Printf("%-22s", w.name)
		best := 0.0
		for _, e := range engines {
			if wanted(which, e.name) {
				m := median(rates[e.name])
				fmt.Printf("%14.0f", m)
				if e.name != "rowan" {
					best = max(best, m)
				}
			}
		}
		if best > 0 && len(rates["rowan"]) > 0 {
			fmt.Printf("%14.2f", median(rates["rowan"])/best)
		}
		fmt.Println()
	}
	return nil
}

func runProcess(child string, n uint64) (r result, err error) {
	cmd := exec.Command(os.Args[0], "-child", child, "-n", fmt.Sprint(n))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(out, &r)
}

func median(list []float64) float64 {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)/2]
}
