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

// A read that stops in the middle keeps what it shows: metrics tell how much and how old that is. It comes back the moment the
// read ends, not with a later write or at the next open.
func TestSpaceComesBackWhenAReadEnds(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1)})
	write := func(round int) {
		for i := range 50 {
			s.must(tb.Apply(ctx, fmt.Sprint("r", i), set("f", "q", Timestamp(round), string(randomBytes(uint64(round*100+i), 1000))), NoSync))
		}
	}
	write(0)
	s.must(s.Compact(ctx))
	once := s.tableBytes()
	write(1) // stays in the memtable
	rows := 0
	for _, err := range tb.Rows(ctx, AllRows()) {
		s.must(err)
		if rows++; rows > 1 {
			continue
		}
		if m := s.Metrics(); m.PinnedBytes != 0 || m.PinnedMemtableBytes != 0 || m.OldestPin != 0 {
			t.Errorf("before anything is replaced: %d bytes pinned for %v", m.PinnedBytes, m.OldestPin)
		}
		for round := 2; round <= 11; round++ {
			write(round)
			s.must(s.Compact(ctx))
			s.now = s.now.Add(time.Minute)
		}
		m := s.Metrics()
		if m.PinnedBytes != once || m.PinnedMemtableBytes < 50_000 || m.OldestPin != 10*time.Minute || m.Snapshots != 0 {
			t.Errorf("%d bytes of files and %d of memtables pinned for %v, want %d", m.PinnedBytes, m.PinnedMemtableBytes, m.OldestPin, once)
		}
		if n := s.tableBytes(); n != m.DiskBytes+m.PinnedBytes {
			t.Errorf("%d bytes on disk, %d live and %d pinned", n, m.DiskBytes, m.PinnedBytes)
		}
	}
	if m := s.Metrics(); rows != 50 || m.PinnedBytes != 0 || m.PinnedMemtableBytes != 0 || m.OldestPin != 0 || s.tableBytes() != m.DiskBytes {
		t.Errorf("after %d rows: %d bytes pinned, %d on disk, %d live", rows, m.PinnedBytes, s.tableBytes(), m.DiskBytes)
	}
}
