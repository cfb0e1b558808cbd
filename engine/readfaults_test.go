package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/io/faultfs"
)

// looking reports whether a call reads, opens, lists or maps, and changes nothing.
func looking(o faultfs.Op) bool { return !o.Kind.Mutating() && o.Kind != faultfs.Close }

// Every call that changes nothing fails once with EIO, over the whole of each scenario. Nothing acknowledged is lost, what is there
// is undamaged, and the failure is told; but for how much space is free, which is then taken to be enough, for reads of a table
// file, which are tried once more, and for whether the directory is still there.
func TestFailureOfEveryCallThatOnlyLooks(t *testing.T) {
	t.Parallel()
	w := undisturbed(t)
	reached, silent := map[string]int{}, map[string]int{}
	for _, sc := range w.scenarios(t) {
		var total atomic.Int64
		sc.run(sc.begin(faultfs.Options{Rules: []faultfs.Rule{func(o faultfs.Op) error {
			if looking(o) {
				total.Add(1)
			}
			return nil
		}}}))
		step := 1
		if !fullSweep() {
			step = max(1, int(total.Load())/40)
		}
		if raceEnabled {
			step *= 5
		}
		for n := 1; n <= int(total.Load()); n += step {
			calls, what := 0, faultfs.Op{}
			s := sc.begin(faultfs.Options{Rules: []faultfs.Rule{func(o faultfs.Op) error {
				if !looking(o) {
					return nil
				}
				if calls++; calls != n {
					return nil
				}
				what = o
				return syscall.EIO
			}}})
			sc.run(s)
			if s.fs.Fired() == 0 {
				continue
			}
			reached[what.Kind.String()]++
			if err := w.afterReadFault(s, what, silent); err != nil {
				t.Fatalf("%s, EIO at looking call %d (%s), seed %d: %v\nerrors %v\nwarnings %v", sc.name, n, what, sc.seed, err, s.errs, s.warnings)
			}
		}
	}
	t.Logf("reached %v, not told %v", reached, silent)
	for _, kind := range []string{"read", "open", "list", "map", "free"} {
		if !raceEnabled && reached[kind] == 0 {
			t.Errorf("no %s failed", kind)
		}
	}
}

func (w *sweepWant) afterReadFault(s *sweep, what faultfs.Op, silent map[string]int) error {
	told := slices.ContainsFunc(s.warnings, func(line string) bool { return strings.Contains(line, syscall.EIO.Error()) })
	for _, err := range append(s.errs, s.unhealthy...) {
		told = told || errors.Is(err, syscall.EIO)
	}
	if !told {
		silent[what.Kind.String()]++
		switch {
		case what.Kind == faultfs.Free, what.Kind == faultfs.Stat:
		case what.Kind == faultfs.Read && strings.HasSuffix(what.Name, ".sst"):
		default:
			return errors.New("the failure was not told")
		}
	}
	if s.db != nil {
		if err := s.db.Close(); err != nil && !errors.Is(err, syscall.EIO) {
			return err
		}
	}
	if _, err := w.reopen(s.mem.CrashClone(1, 0), s.bounds(), 1); err != nil {
		return fmt.Errorf("after a power cut: %w", err)
	}
	_, err := w.reopen(s.mem, s.bounds(), 1)
	return err
}
