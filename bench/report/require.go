package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rowandb/rowan/bench/measure"
)

// Wanted is one line of a file of wanted ratios: workload; metric; ">= number" or "<= number".
type Wanted struct {
	Workload, Metric string
	AtMost           bool
	Value            float64
}

// metric is a figure that something can be wanted of.
type metric struct {
	of func(r *measure.Result) float64
	// more is better; relative to the best peer, or else of Rowan alone; only to peers that have a log and tables.
	more, relative, lsm bool
}

var metrics = map[string]metric{
	"rate":           {func(r *measure.Result) float64 { return r.Rate }, true, true, false},
	"amplification":  {Amplification, false, true, true},
	"cpu":            {func(r *measure.Result) float64 { return r.CPU }, false, true, true},
	"rss":            {func(r *measure.Result) float64 { return float64(r.RSS) }, false, true, true},
	"disk":           {func(r *measure.Result) float64 { return float64(r.Disk) }, false, true, true},
	"p99.9":          {func(r *measure.Result) float64 { return r.P999 }, false, true, true},
	"stall ms":       {func(r *measure.Result) float64 { return r.Stall }, false, false, false},
	"faults per 100": {func(r *measure.Result) float64 { return 100 * float64(r.Faults) / r.Ops }, false, false, false},
}

// Amplification is how many bytes flushes and compactions have written for each byte of the user; NaN if the engine does not tell.
func Amplification(r *measure.Result) float64 {
	if r.Tables < 0 || r.UserData <= 0 {
		return math.NaN()
	}
	return float64(r.Tables) / float64(r.UserData)
}

// trees are the engines that have no log-structured tables.
var trees = []string{"bbolt"}

// ReadWanted reads a file of wanted ratios. Empty lines and what follows a # are left out.
func ReadWanted(r io.Reader) (list []Wanted, err error) {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		parts := strings.Split(line, ";")
		if len(parts) != 3 {
			return nil, fmt.Errorf("line %d: %q is not workload; metric; bound", n, line)
		}
		w := Wanted{Workload: strings.TrimSpace(parts[0]), Metric: strings.TrimSpace(parts[1])}
		bound := strings.TrimSpace(parts[2])
		if _, ok := metrics[w.Metric]; !ok {
			return nil, fmt.Errorf("line %d: no metric %q", n, w.Metric)
		}
		value, most := strings.CutPrefix(bound, "<=")
		value, least := strings.CutPrefix(value, ">=")
		if most == least {
			return nil, fmt.Errorf("line %d: %q is not >= or <= and a number", n, bound)
		}
		w.AtMost = most
		if w.Value, err = strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		list = append(list, w)
	}
	return list, lines.Err()
}

// Verdict is what became of something wanted.
type Verdict struct {
	Wanted
	Got  float64 // NaN if there is no figure
	Peer string  // that it is relative to
	Met  bool
}

func (v Verdict) String() string {
	op, to := ">=", ""
	if v.AtMost {
		op = "<="
	}
	if v.Peer != "" {
		to = " of " + v.Peer
	}
	if math.IsNaN(v.Got) {
		return fmt.Sprintf("%s: %s %s %g is wanted, there is no figure", v.Workload, v.Metric, op, v.Value)
	}
	return fmt.Sprintf("%s: %s %s %g is wanted, it is %.2f%s", v.Workload, v.Metric, op, v.Value, v.Got, to)
}

// Judge compares rows with what is wanted of them; what is wanted of workloads that are not among them is left out.
func Judge(rows []Row, wanted []Wanted) (list []Verdict) {
	for _, w := range wanted {
		for i := range rows {
			if rows[i].Work.Name == w.Workload {
				list = append(list, judge(&rows[i], w))
			}
		}
	}
	return list
}

func judge(row *Row, w Wanted) Verdict {
	m := metrics[w.Metric]
	v := Verdict{Wanted: w, Got: math.NaN()}
	own, best := math.NaN(), math.NaN()
	for pass := range 2 { // peers that were stopped count only if there are no others, for what is not a rate
		for i := range row.Engines {
			c := &row.Engines[i]
			if c.None != "" {
				continue
			}
			x := m.of(&c.Result)
			switch {
			case c.Engine == Own:
				own = x
			case math.IsNaN(x), m.lsm && slices.Contains(trees, c.Engine), pass == 0 && !m.more && c.Result.Stopped:
			case math.IsNaN(best) || m.more && x > best || !m.more && x < best:
				best, v.Peer = x, c.Engine
			}
		}
		if !math.IsNaN(best) {
			break
		}
	}
	if !m.relative {
		v.Got, v.Peer = own, ""
	} else {
		v.Got = own / best
	}
	v.Met = w.AtMost && v.Got <= w.Value || !w.AtMost && v.Got >= w.Value
	return v
}

// Missed returns an error that names everything wanted that was missed, or nil.
func Missed(list []Verdict) error {
	var errs []error
	for _, v := range list {
		if !v.Met {
			errs = append(errs, errors.New("missed: "+v.String()))
		}
	}
	return errors.Join(errs...)
}
