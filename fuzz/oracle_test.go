package fuzz

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	seedFlag = flag.Uint64("seed", 0, "run the oracle with this seed only")
	setFlag  = flag.String("set", "", "run the oracle with the option sets whose name has this in it")
	opsFlag  = flag.Int("ops", defaultOps, "operations of the oracle over all option sets")
	shrink   = flag.Bool("shrink", true, "shrink failing lists")
	fileFlag = flag.String("file", "", "run the list of operations in this file, see Replay")
)

// listLen is the length of one list: long enough for several levels, short enough to shrink.
const listLen = 2500

// shapes take turns by seed; the ones that find most come first.
var shapes = []Shape{
	{Tables: 2, Rows: 40, ValueMax: 2000},
	{Tables: 2, Rows: 8, ValueMax: 2500, Hot: true},
	{Tables: 1, Rows: 300, ValueMax: 3000},
	{Tables: 12, Rows: 12, ValueMax: 1000},
	{Tables: 2, Rows: 4, ValueMax: 1500, Wide: true},
}

// floors are counts below which a run of 200,000 operations has not tried enough.
var floors = map[string]int{
	"apply": 50_000, "get": 10_000, "scan": 5_000, "stream": 2_000, "pages": 1_500, "refused": 500, "snapshot": 500,
	"read of a snapshot": 1_000, "create": 100, "drop": 50, "reopen": 200, "kill": 200, "killin": 200, "rawcheck": 50, "compact": 400,
	"flush": 1_000, "tick": 3_000, "back": 300, "alter": 2_000, "droprows": 500,
	"power cut during flush": 20, "power cut during work": 10, "power cut during apply": 10, "power cut during alter": 10,
	"flushed": 3_000, "merge": 1_000, "move": 20, "collected cells": 5_000, "forgotten deletes": 500, "replay": 5_000,
	"row stepped back to": 8_000, "all that could be lost": 20, "a prefix kept": 20, "file verified": 1_000,
	"condition": 2_000, "precondition": 300, "read-modify-write": 2_000, "batch refused": 500, "filter tree": 4_000,
	"filter refused": 300, "page": 3_000, "family added": 200, "family dropped": 200, "rule changed": 1_500, "rule change pending": 10,
	"read as of another time": 1_000, "read as of too early a time": 50,
}

// Lists that were written by hand or once failed.
func TestKnownLists(t *testing.T) {
	files, err := filepath.Glob("testdata/lists/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no lists", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		ops, err := Parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range Sets {
			if err := Run(&Sets[i], ops, &Counts{}); err != nil {
				t.Errorf("%s, set %q: %v", name, Sets[i].Name, err)
			}
		}
	}
}

// All option sets run the same lists and must agree with the model, and so with each other, after every step.
func TestOracle(t *testing.T) {
	if testing.Short() && *opsFlag == defaultOps {
		*opsFlag = 25_000
	}
	seeds := max(1, (*opsFlag+listLen*len(Sets)-1)/(listLen*len(Sets)))
	first := uint64(1)
	if *seedFlag != 0 {
		first, seeds = *seedFlag, 1
	}
	began := time.Now()
	total := &Counts{}
	bySet, failed := runAll(first, first+uint64(seeds))
	if failed != nil {
		report(t, &Sets[failed.set], failed.seed, listOf(failed.seed), failed.err)
		return
	}
	n := 0
	for i := range Sets {
		total.Add(&bySet[i])
		// One list alone may not reach what a set is about.
		if *seedFlag == 0 && *setFlag == "" && seeds >= 5 && !Sets[i].Used(&bySet[i]) {
			t.Errorf("set %q was not used as meant: %+v", Sets[i].Name, bySet[i])
		}
	}
	for k := range opKinds {
		n += total.Get(k.String())
	}
	t.Logf("%d operations over %d option sets in %.1f s", n, len(Sets), time.Since(began).Seconds())
	names := make([]string, 0, len(total.N))
	for k := range total.N {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		t.Logf("%9d %s", total.N[k], k)
	}
	if *seedFlag != 0 || *setFlag != "" {
		return
	}
	for k, floor := range floors {
		// Of what is rare a short run may have none.
		if want := int(int64(floor) * int64(n) / 200_000 * 8 / 10); want >= 5 && total.Get(k) < want {
			t.Errorf("only %d of %q, want %d", total.Get(k), k, want)
		}
	}
}

// listOf is the list of a seed.
func listOf(seed uint64) []Op { return Generate(seed, listLen, shapes[seed%uint64(len(shapes))]) }

// failure is the first list, in the order of seeds and then sets, that failed.
type failure struct {
	seed uint64
	set  int
	err  error
}

// runAll runs the lists of the seeds [first, end) on all sets, one for each processor at once. After a failure no more are begun.
func runAll(first, end uint64) (bySet []Counts, failed *failure) {
	bySet = make([]Counts, len(Sets))
	var mu sync.Mutex // guards bySet, failed, next and ops
	next := 0         // counts lists and sets
	var ops []Op      // of the seed of next
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				mu.Lock()
				at := next
				next++
				seed := first + uint64(at/len(Sets))
				if failed != nil || seed >= end {
					mu.Unlock()
					return
				}
				if at%len(Sets) == 0 {
					ops = listOf(seed)
				}
				list, i := ops, at%len(Sets)
				mu.Unlock()
				if !strings.Contains(Sets[i].Name, *setFlag) {
					continue
				}
				var n Counts
				err := Run(&Sets[i], list, &n)
				mu.Lock()
				bySet[i].Add(&n)
				if err != nil && (failed == nil || seed < failed.seed || seed == failed.seed && i < failed.set) {
					failed = &failure{seed, i, err}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return bySet, failed
}

// report shrinks a failing list and prints it.
func report(t *testing.T, s *Config, seed uint64, ops []Op, err error) {
	t.Helper()
	t.Errorf("set %q, seed %d (repeat with -seed %d -set %q): %v", s.Name, seed, seed, s.Name, err)
	if !*shrink {
		return
	}
	var f *Failure
	if errors.As(err, &f) && f.Step < len(ops) {
		ops = ops[:f.Step+1]
	}
	var last error
	small := Shrink(ops, 600, func(list []Op) bool {
		if err := Run(s, list, &Counts{}); err != nil {
			last = err
			return true
		}
		return false
	})
	t.Logf("shrunk to %d operations: %v\n%s", len(small), last, Format(small))
}

// TestReplay runs a list from a file on every set: go test ./fuzz -run Replay -file FILE.
func TestReplay(t *testing.T) {
	text := "create \"t0\"\napply \"t0\" \"r\" set \"fam\" \"q\" 1 3x7\nkill 0\nscan \"t0\" rows - -\n"
	if *fileFlag != "" {
		p, err := os.ReadFile(*fileFlag)
		if err != nil {
			t.Fatal(err)
		}
		text = string(p)
	}
	ops, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range Sets {
		if strings.Contains(Sets[i].Name, *setFlag) {
			if err := Run(&Sets[i], ops, &Counts{}); err != nil {
				t.Errorf("%s: %v", Sets[i].Name, err)
			}
		}
	}
}

func TestListsReadBack(t *testing.T) {
	for seed := range uint64(8) {
		ops := Generate(seed, 1000, shapes[seed%uint64(len(shapes))])
		text := Format(ops)
		back, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if again := Format(back); again != text {
			a, b := strings.Split(text, "\n"), strings.Split(again, "\n")
			for i := range a {
				if a[i] != b[i] {
					t.Fatalf("line %d:\n%s\n%s", i+1, a[i], b[i])
				}
			}
		}
	}
	for _, bad := range []string{"fly", "get t0", `apply "t" "r" paint`, `scan "t" rows x`, "tick soon", `flush now`, `apply "t" "r" set "f" "q" 1 big`} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func TestShrinkFindsTheOperationsThatMatter(t *testing.T) {
	ops := Generate(3, 400, shapes[0])
	// "Fails" while there is a drop somewhere after a compact.
	fails := func(list []Op) bool {
		c := slices.IndexFunc(list, func(o Op) bool { return o.Kind == OpFlush })
		return c >= 0 && slices.ContainsFunc(list[c:], func(o Op) bool { return o.Kind == OpTick })
	}
	if !fails(ops) {
		t.Fatal("the list has no such pair")
	}
	if small := Shrink(ops, 5000, fails); len(small) != 2 {
		t.Fatalf("shrunk to %s", fmt.Sprint(small))
	}
}
