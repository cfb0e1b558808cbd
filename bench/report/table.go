package report

import (
	"fmt"
	"io"
	"strings"
)

// NoEvidence marks what the quick profile shows.
const NoEvidence = "quick profile: one short run of each, NO EVIDENCE for anything but that it works"

// Table prints the rates of all engines, and below them what each cost.
func Table(w io.Writer, title, warning string, engines []string, rows []Row) {
	fmt.Fprintln(w, title)
	if warning != "" {
		fmt.Fprintln(w, warning)
	}
	fmt.Fprintf(w, "\n%-30s", "workload")
	for _, e := range engines {
		fmt.Fprintf(w, "%12s", e)
	}
	fmt.Fprintf(w, "%12s  %s\n", "ratio", "to the best peer")
	group := ""
	for _, r := range rows {
		if r.Work.Group != group {
			group = r.Work.Group
			fmt.Fprintf(w, "%s\n", group)
		}
		name := "  " + r.Work.Name
		if r.Work.Unit != "ops/s" {
			name += ", " + r.Work.Unit
		}
		fmt.Fprintf(w, "%-30s", name)
		for _, c := range r.Engines {
			fmt.Fprintf(w, "%12s", short(c))
		}
		if r.Ratio > 0 {
			fmt.Fprintf(w, "%12.2f  %s", r.Ratio, r.Best)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "\n%-30s%-10s%10s%10s%10s%10s%9s%9s%9s%9s%9s%9s%8s%10s\n", "median run", "engine", "p50 us", "p99 us", "p99.9 us", "max us", "CPU us", "RSS MB", "wrote MB", "disk MB", "stall ms", "tab/user", "ratio", "CPU ratio")
	for _, r := range rows {
		for _, c := range r.Engines {
			if c.None != "" {
				continue
			}
			x := c.Result
			fmt.Fprintf(w, "%-30s%-10s%10.4g%10.4g%10.4g%10.4g%9.3g%9d%9d%9d%9.0f%9.2f%8.2f%10.2f\n", r.Work.Name, c.Engine, x.P50, x.P99, x.P999, x.Max, x.CPU,
				x.RSS>>20, x.Written>>20, x.Disk>>20, x.Stall, Amplification(&x), c.Ratio, c.Spared)
		}
	}
	fmt.Fprintln(w, "\nratio: Rowan's rate to this engine's. CPU ratio: this engine's processor time for an operation to Rowan's. tab/user: bytes written by")
	fmt.Fprintln(w, "flushes and compactions for each byte of the user.")
	notes(w, rows)
}

// notes says what stands behind cells without a figure, and which engines were stopped.
func notes(w io.Writer, rows []Row) {
	var list []string
	for _, r := range rows {
		for _, c := range r.Engines {
			switch {
			case c.None != "" && c.None != "not run":
				list = append(list, fmt.Sprintf("%s, %s: %s", r.Work.Name, c.Engine, c.None))
			case c.Result.Stopped:
				list = append(list, fmt.Sprintf("%s, %s: time was over after %.0f operations; the rate is of these", r.Work.Name, c.Engine, c.Result.Ops))
			}
		}
	}
	if len(list) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(list, "\n"))
	}
}

// short is the rate of a cell in a few characters.
func short(c Cell) string {
	switch {
	case strings.HasPrefix(c.None, "FAILED"):
		return "FAILED"
	case c.None != "":
		return "-"
	}
	s := Number(c.Result.Rate)
	if c.Result.Stopped {
		s += "*"
	}
	return s
}

// Number writes a rate with three figures.
func Number(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.3g M", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.3g k", v/1e3)
	}
	return fmt.Sprintf("%.3g", v)
}
