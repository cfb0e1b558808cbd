package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

// tableBytes is what table files take on the disk.
func (s *testStore) tableBytes() (n int64) {
	list, err := s.fs.List("/store")
	s.must(err)
	for _, e := range list {
		if strings.HasSuffix(e.Name, ".sst") {
			n += e.Size
		}
	}
	return n
}

// What a snapshot alone keeps is told, with its age, and comes back the moment it is closed, without a write after it.
func TestSpaceComesBackWhenASnapshotIsClosed(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1)})
	write := func(round int) {
		for i := range 50 {
			s.must(tb.Apply(ctx, fmt.Sprint("r", i), set("f", "q", Timestamp(round), string(randomBytes(uint64(round*100+i), 1000))), NoSync))
		}
		s.must(s.Compact(ctx))
	}
	write(0)
	once := s.tableBytes()
	snap, err := s.Snapshot()
	s.must(err)
	s.now = s.now.Add(time.Minute)
	for round := 1; round <= 10; round++ {
		write(round)
	}
	m := s.Metrics()
	if m.PinnedBytes != once || m.OldestSnapshot != time.Minute || m.Snapshots != 1 {
		t.Errorf("%d bytes pinned by %d snapshots for %v, want %d", m.PinnedBytes, m.Snapshots, m.OldestSnapshot, once)
	}
	if n := s.tableBytes(); n != m.DiskBytes+m.PinnedBytes {
		t.Errorf("%d bytes on disk, %d live and %d pinned", n, m.DiskBytes, m.PinnedBytes)
	}
	s.must(tb.DropAllRows(ctx))
	if n := s.tableBytes(); n != once || n != s.Metrics().PinnedBytes {
		t.Errorf("%d bytes on disk, %d pinned", n, s.Metrics().PinnedBytes)
	}
	s.must(snap.Close())
	if n := s.tableBytes(); n != 0 || s.Metrics().PinnedBytes != 0 {
		t.Errorf("%d bytes are left", n)
	}
}
