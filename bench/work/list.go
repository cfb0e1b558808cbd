package work

// Workload is one kind of work that all engines are measured with.
type Workload struct {
	Name  string
	Group string // under which it stands in the table
	Unit  string // of the rate
	Quick bool   // part of the quick profile
	// Data names the set of data that a store must hold; "" is an empty store. Changes says that the workload changes it, so that
	// it gets a copy.
	Data    string
	Changes bool
	// Memory is the limit of the memory cgroup that the process runs in, in bytes, with nothing of the store in memory; 0: none.
	Memory int64
	// Without says which engines are left out, and why.
	Without map[string]string
	Run     func(*Run) error
	// Crash, if any, runs before, in a process that is killed when it returns.
	Crash func(*Run) error
}

const million = 1_000_000

// The sets of data that are kept between runs.
var (
	kv = shape{n: 4 * million, value: ValueBytes}
)

// Datasets make a set of data in an empty store.
var Datasets = map[string]func(*Run) error{
	"kv": kv.make,
}

// All lists every workload in the order of the table.
func All() []Workload {
	var all []Workload
	group := func(name string, list ...Workload) {
		for _, w := range list {
			w.Group = name
			if w.Unit == "" {
				w.Unit = "ops/s"
			}
			all = append(all, w)
		}
	}
	small := func(n uint64) shape { return shape{n: n, value: ValueBytes} }
	group("write",
		Workload{Name: "fillseq batch 100", Quick: true, Run: fill{shape: shape{n: 4 * million, value: ValueBytes, seq: true}, callers: 1, batch: 100}.run},
		Workload{Name: "fillrandom batch 1", Quick: true, Run: fill{shape: small(2 * million), callers: 1, batch: 1}.run},
		Workload{Name: "fillrandom batch 1, 4 callers", Run: fill{shape: small(2 * million), callers: 4, batch: 1}.run},
		Workload{Name: "fillrandom batch 100", Run: fill{shape: small(4 * million), callers: 1, batch: 100}.run},
		Workload{Name: "fillrandom 1 KiB", Run: fill{shape: shape{n: million, value: 1024}, callers: 1, batch: 100}.run},
		Workload{Name: "fillsync 1", Run: fill{shape: small(30_000), callers: 1, batch: 1, sync: true}.run},
		Workload{Name: "fillsync 8", Run: fill{shape: small(150_000), callers: 8, batch: 1, sync: true}.run},
		Workload{Name: "fillsync 64", Run: fill{shape: small(600_000), callers: 64, batch: 1, sync: true}.run},
	)
	group("read",
		Workload{Name: "readrandom hit", Quick: true, Data: "kv", Run: reads{shape: kv, callers: 1}.run},
		Workload{Name: "readrandom hit, 4 callers", Data: "kv", Run: reads{shape: kv, callers: 4}.run},
		Workload{Name: "readrandom missing", Data: "kv", Run: reads{shape: kv, callers: 1, missing: true}.run},
		Workload{Name: "readrandom missing, 4 callers", Data: "kv", Run: reads{shape: kv, callers: 4, missing: true}.run},
		Workload{Name: "scan 100 forward", Data: "kv", Quick: true, Run: scans{shape: kv, pairs: 100}.run},
		Workload{Name: "scan 100 reverse", Data: "kv", Quick: true, Run: scans{shape: kv, pairs: 100, reverse: true}.run},
		Workload{Name: "full scan", Unit: "entries/s", Data: "kv", Quick: true, Run: fullScan{kv}.run},
	)
	return all
}
