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
	kv    = shape{n: 4 * million, value: ValueBytes}
	big   = shape{n: 4 * million, value: 1024}
	large = shape{n: 32 << 10, value: 16 << 10}
	huge  = shape{n: 512, value: 1 << 20}
	wide  = table{n: 100_000, value: 50}
)

// Datasets make a set of data in an empty store.
var Datasets = map[string]func(*Run) error{
	"kv": kv.make, "4 GB": big.make, "16 KiB": large.make, "1 MiB": huge.make, "rows": wide.loadSorted,
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
	noLog := map[string]string{"bbolt": "it has no log"}
	group("write",
		Workload{Name: "fillseq batch 100", Quick: true, Run: fill{shape: shape{n: 4 * million, value: ValueBytes, seq: true}, callers: 1, batch: 100}.run},
		Workload{Name: "fillrandom batch 1", Quick: true, Run: fill{shape: small(2 * million), callers: 1, batch: 1}.run},
		Workload{Name: "fillrandom batch 1 by 4", Run: fill{shape: small(2 * million), callers: 4, batch: 1}.run},
		Workload{Name: "fillrandom batch 100", Run: fill{shape: small(4 * million), callers: 1, batch: 100}.run},
		Workload{Name: "fillrandom 1 KiB", Run: fill{shape: shape{n: million, value: 1024}, callers: 1, batch: 100}.run},
		Workload{Name: "fillrandom 4 GB", Run: fill{shape: big, callers: 1, batch: 100, long: true}.run},
		Workload{Name: "fillsync 1", Run: fill{shape: small(30_000), callers: 1, batch: 1, sync: true}.run},
		Workload{Name: "fillsync 8", Run: fill{shape: small(150_000), callers: 8, batch: 1, sync: true}.run},
		Workload{Name: "fillsync 64", Run: fill{shape: small(600_000), callers: 64, batch: 1, sync: true}.run},
		Workload{Name: "overwrite", Run: overwrite{shape: small(million), callers: 4, times: 10}.run},
	)
	group("read",
		Workload{Name: "readrandom hit", Quick: true, Data: "kv", Run: reads{shape: kv, callers: 1}.run},
		Workload{Name: "readrandom hit by 4", Data: "kv", Run: reads{shape: kv, callers: 4}.run},
		Workload{Name: "readrandom missing", Data: "kv", Run: reads{shape: kv, callers: 1, missing: true}.run},
		Workload{Name: "readrandom missing by 4", Data: "kv", Run: reads{shape: kv, callers: 4, missing: true}.run},
		Workload{Name: "scan 100 forward", Data: "kv", Quick: true, Run: scans{shape: kv, pairs: 100}.run},
		Workload{Name: "scan 100 reverse", Data: "kv", Quick: true, Run: scans{shape: kv, pairs: 100, reverse: true}.run},
		Workload{Name: "full scan", Unit: "entries/s", Data: "kv", Quick: true, Run: fullScan{kv}.run},
	)
	serving := func(w ycsb) Workload {
		w.shape = kv
		return Workload{Name: "YCSB " + w.name, Data: "kv", Changes: w.read < 1, Quick: w.name == "A", Run: w.run}
	}
	group("YCSB, 4 callers",
		serving(ycsb{name: "A", read: 0.5, update: 0.5}),
		serving(ycsb{name: "B", read: 0.95, update: 0.05}),
		serving(ycsb{name: "C", read: 1}),
		serving(ycsb{name: "D", read: 0.95, insert: 0.05, latest: true}),
		serving(ycsb{name: "E", scan: 0.95, insert: 0.05}),
		serving(ycsb{name: "F", read: 0.5}),
	)
	group("4 GB in 1 GiB of memory, cold",
		Workload{Name: "cold read 1", Data: "4 GB", Memory: 1 << 30, Run: reads{shape: big, callers: 1, cold: true}.run},
		Workload{Name: "cold read 16", Data: "4 GB", Memory: 1 << 30, Run: reads{shape: big, callers: 16, cold: true}.run},
		Workload{Name: "cold read 64", Data: "4 GB", Memory: 1 << 30, Run: reads{shape: big, callers: 64, cold: true}.run},
	)
	group("upkeep",
		Workload{Name: "compact everything", Unit: "entries/s", Data: "kv", Changes: true, Run: compactAll{kv}.run,
			Without: map[string]string{"bbolt": "it has nothing to compact in place"}},
		Workload{Name: "reopen after a crash", Unit: "entries/s", Run: reopen{small(320_000)}.run, Crash: reopen{small(320_000)}.crash, Without: noLog},
	)
	group("large values",
		Workload{Name: "fill 16 KiB", Run: fill{shape: large, callers: 1, batch: 1}.run},
		Workload{Name: "read 16 KiB", Data: "16 KiB", Run: reads{shape: large, callers: 1}.run},
		Workload{Name: "fill 1 MiB", Run: fill{shape: huge, callers: 1, batch: 1}.run},
		Workload{Name: "read 1 MiB", Data: "1 MiB", Run: reads{shape: huge, callers: 1}.run},
	)
	group("rows of 10 columns in 2 families",
		Workload{Name: "rows load", Unit: "cells/s", Run: wide.load},
		Workload{Name: "rows read", Unit: "rows/s", Data: "rows", Quick: true, Run: rowReads{table: wide, callers: 1}.run},
		Workload{Name: "rows read by 4", Unit: "rows/s", Data: "rows", Run: rowReads{table: wide, callers: 4}.run},
		Workload{Name: "rows newest", Unit: "rows/s", Data: "rows", Run: rowReads{table: wide, callers: 1, newest: true}.run},
		Workload{Name: "rows newest by 4", Unit: "rows/s", Data: "rows", Run: rowReads{table: wide, callers: 4, newest: true}.run},
		Workload{Name: "rows scan", Unit: "cells/s", Data: "rows", Run: rowScan{wide}.run},
		Workload{Name: "collection", Unit: "cells/s", Run: collection{table: table{n: 200_000, value: ValueBytes}, versions: 10}.run},
	)
	return all
}
