package measure

// Result is what one run of a workload on an engine gave. It is one line of the file of results.
type Result struct {
	// The key: a run with the same key need not be made again.
	Profile  string  `json:"profile"`
	Workload string  `json:"workload"`
	Engine   string  `json:"engine"`
	Run      int     `json:"run"`
	Scale    float64 `json:"scale"`
	Machine  string  `json:"machine"`
	Version  string  `json:"version"` // of the engine
	Tree     string  `json:"tree"`    // commit of this repository

	Time   string `json:"time"`             // when it ended, RFC 3339
	Failed string `json:"failed,omitempty"` // why there are no figures

	Ops       float64 `json:"ops"`        // done in the time measured
	Rate      float64 `json:"rate"`       // what counts, a second: the lower of the next two
	WorkRate  float64 `json:"work_rate"`  // while callers were at work
	DrainRate float64 `json:"drain_rate"` // with the drain of what they left to do; 0 if nothing is written
	Seconds   float64 `json:"seconds"`
	Drain     float64 `json:"drain_seconds"`

	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`

	CPU      float64 `json:"cpu_us"`  // of all threads, for each operation, drain included
	RSS      int64   `json:"rss"`     // peak of anonymous memory, bytes
	Written  int64   `json:"written"` // to storage, bytes; -1 if unknown
	Disk     int64   `json:"disk"`    // of the store at the end, bytes
	Faults   int64   `json:"major_faults"`
	UserData int64   `json:"user_bytes"`  // keys and values written in the time measured
	Tables   int64   `json:"table_bytes"` // written by flushes and compactions; -1 if the engine does not tell

	Stall float64   `json:"stall_ms"` // longest time in which no operation ended
	Curve []float64 `json:"curve_us"` // latencies at Quantiles
	Line  []uint32  `json:"line"`     // operations for each Step

	Entries uint64 `json:"entries"` // that the check has seen
	Hash    string `json:"hash"`    // of them

	Stopped bool `json:"stopped,omitempty"` // the time was over before all was done
}

// Key tells results of the same run apart from all others.
type Key struct {
	Profile, Workload, Engine, Machine, Version, Tree string
	Run                                               int
	Scale                                             float64
}

// Key returns the key of a result.
func (r *Result) Key() Key {
	return Key{r.Profile, r.Workload, r.Engine, r.Machine, r.Version, r.Tree, r.Run, r.Scale}
}
