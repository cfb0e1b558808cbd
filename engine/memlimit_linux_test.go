package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

const memLimitChild = "ROWAN_MEMORY_LIMIT_CHILD"

// A process whose memory is limited loads, compacts and reads many times as much data as it may use: page cache and mapped pages
// count against the limit, and are given back in time (cockroachdb/cockroach #76282; kubernetes/kubernetes #116895;
// threefoldtech/0-db #129: a container is killed for memory while the Go heap is small). In full it is 2 GiB in 256 MiB.
func TestLoadCompactAndReadUnderAMemoryLimit(t *testing.T) {
	limit, data := int64(80<<20), int64(112<<20)
	if os.Getenv("ROWAN_SWEEP") == "full" {
		limit, data = 256<<20, 2<<30
	}
	if dir := os.Getenv(memLimitChild); dir != "" {
		memLimitRun(t, dir, data)
		return
	}
	t.Parallel()
	if raceEnabled {
		t.Skip("the race detector's own memory is beyond the limit")
	}
	group, limitFile, procs := "", "", "cgroup.procs"
	for _, c := range [][2]string{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		g := filepath.Join(c[0], fmt.Sprintf("rowan-test-%d", os.Getpid()))
		if os.Mkdir(g, 0o755) != nil {
			continue
		}
		defer os.Remove(g)
		if err := os.WriteFile(filepath.Join(g, c[1]), fmt.Append(nil, limit), 0o644); err == nil {
			group, limitFile = g, c[1]
			break
		}
	}
	if group == "" {
		t.Skip("no memory cgroup can be made here")
	}
	cmd := exec.Command("/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(group, procs), os.Args[0],
		"-test.run", "^TestLoadCompactAndReadUnderAMemoryLimit$", "-test.v")
	cmd.Env = append(os.Environ(), memLimitChild+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("under a limit of %d MiB (%s): %v\n%s", limit>>20, limitFile, err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "MiB") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if peak, err := os.ReadFile(filepath.Join(group, "memory.max_usage_in_bytes")); err == nil {
		t.Logf("highest use of the group: %s of %d bytes", strings.TrimSpace(string(peak)), limit)
	}
	for range 100 { // the group is empty a moment after its last process has ended
		if os.Remove(group) == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func memLimitRun(t *testing.T, dir string, data int64) {
	db := openDisk(t, dir, Options{MemtableBytes: 4 << 20, CacheBytes: 8 << 20, TableFileBytes: 8 << 20, LevelBytes: 32 << 20})
	tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
	r := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 16<<10)
	rows := int(data / int64(len(value)))
	for i := range rows {
		for j := 0; j < len(value); j += 8 {
			v := r.Uint64()
			for k := range 8 {
				value[j+k] = byte(v >> (8 * k))
			}
		}
		m := NewMutation()
		m.Set("f", "q", 1, value)
		if err := tb.Apply(ctx, fmt.Sprintf("%08d", i*7919%rows), m, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if _, err := tb.ReadRow(ctx, fmt.Sprintf("%08d", r.IntN(rows))); err != nil {
			t.Fatal(err)
		}
	}
	m := db.Metrics()
	t.Logf("%d MiB of data written: memtables %d MiB, cache %d MiB, %d mapped files of %d MiB", data>>20, m.MemtableBytes>>20, m.CacheBytes>>20,
		m.MappedFiles, m.DiskBytes>>20)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
