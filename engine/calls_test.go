package engine

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// Unsynced writes reach the kernel in groups, never by a system call each: a million single-cell writes make fewer than 2,000
// write calls, log, table files and manifest together, by the file system's count and by the kernel's.
func TestNoSyncWritesMakeFewWriteCalls(t *testing.T) {
	writes, most := 1_000_000, int64(2000)
	if raceEnabled || testing.Short() {
		writes, most = 50_000, 500
	}
	fs := faultfs.New(vfs.OS(), faultfs.Options{})
	before := writeCalls(t)
	db := openDisk(t, t.TempDir(), Options{FS: fs})
	tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
	m := NewMutation()
	m.Set("f", "q", 1, []byte("a value of some bytes"))
	var row [8]byte
	for i := range writes {
		binary.BigEndian.PutUint64(row[:], uint64(i)*0x9e3779b97f4a7c15)
		if err := tb.Apply(ctx, string(row[:]), m, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	byFS, byKernel := fs.Count(faultfs.Write), writeCalls(t)-before
	t.Logf("%d writes: %d write calls by the file system's count, %d by the kernel's", writes, byFS, byKernel)
	if byFS > most || byFS < 10 || byKernel > most {
		t.Fatalf("%d writes made %d write calls by the file system's count, %d by the kernel's; at most %d are allowed", writes, byFS, byKernel, most)
	}
}

// writeCalls is the process's own count of write system calls, 0 where the system does not tell.
func writeCalls(t *testing.T) int64 {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Log("the kernel's count is not available: ", err)
		return 0
	}
	for line := range strings.Lines(string(b)) {
		var n int64
		if _, err := fmt.Sscanf(line, "syscw: %d", &n); err == nil {
			return n
		}
	}
	t.Fatal("no syscw in /proc/self/io")
	return 0
}
