package report

import (
	"cmp"
	"slices"

	"github.com/rowandb/rowan/bench/measure"
	"github.com/rowandb/rowan/bench/work"
)

// Own is the engine that is compared with all others, its peers.
const Own = "rowan"

// Row is what the runs of one workload gave.
type Row struct {
	Work    work.Workload
	Engines []Cell // in the order of the table
	Best    string // the peer with the highest rate
	Ratio   float64
}

// Cell is what the runs of one workload on one engine gave: the run with the median rate, whole, so that its figures belong
// together; or why there is none.
type Cell struct {
	Engine string
	Result measure.Result
	Runs   int
	Low    float64 // lowest and highest rate
	High   float64
	Ratio  float64 // of Rowan's rate to its
	Spared float64 // its processor time for an operation to Rowan's
	None   string  // why there is no figure
}

// Summary puts results in the order of the table.
func Summary(engines []string, works []work.Workload, results []measure.Result) []Row {
	var rows []Row
	for _, w := range works {
		row := Row{Work: w}
		for _, e := range engines {
			row.Engines = append(row.Engines, summarize(w, e, results))
		}
		own, peer, cpu := -1.0, 0.0, 0.0
		for _, c := range row.Engines {
			switch {
			case c.None != "":
			case c.Engine == Own:
				own, cpu = c.Result.Rate, c.Result.CPU
			case c.Result.Rate > peer:
				peer, row.Best = c.Result.Rate, c.Engine
			}
		}
		if own >= 0 && peer > 0 {
			row.Ratio = own / peer
			for i := range row.Engines {
				if c := &row.Engines[i]; c.None == "" {
					c.Ratio, c.Spared = own/c.Result.Rate, c.Result.CPU/cpu
				}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func summarize(w work.Workload, engine string, results []measure.Result) Cell {
	c := Cell{Engine: engine, None: "not run"}
	if why := w.Without[engine]; why != "" {
		c.None = "left out: " + why
		return c
	}
	var list []measure.Result
	for _, r := range results {
		if r.Workload != w.Name || r.Engine != engine {
			continue
		}
		if r.Failed != "" {
			c.None = "FAILED: " + r.Failed
			continue
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return c
	}
	slices.SortFunc(list, func(a, b measure.Result) int { return cmp.Compare(a.Rate, b.Rate) })
	c.None = ""
	c.Result, c.Runs, c.Low, c.High = list[len(list)/2], len(list), list[0].Rate, list[len(list)-1].Rate
	return c
}
