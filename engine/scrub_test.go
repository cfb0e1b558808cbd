package engine

import (
	"context"
	"errors"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/levels"
)

// liveFiles are the numbers of the table files, ascending.
func (s *testStore) liveFiles() (nums []levels.Num) {
	st := s.states.pin()
	defer st.unref()
	st.version.Live(func(_ uint64, _ int, f *levels.File) { nums = append(nums, f.Num) })
	return nums
}

// A scrub of a sound store reads all of it, from disk and not from the cache, which it leaves alone.
func TestScrubReadsEveryBlock(t *testing.T) {
	s, faulty := faultyStore(t)
	s.ofEveryKind()
	s.must(s.Flush(ctx))
	before, cached := faulty.Bytes(faultfs.Read), s.Metrics().CacheBytes
	var seen []ScrubReport
	r, err := s.Scrub(ctx, ScrubOptions{BytesPerSecond: -1, Progress: func(r ScrubReport) { seen = append(seen, r) }})
	s.must(err)
	if r.Files != len(s.liveFiles()) || r.Bytes != s.Metrics().DiskBytes || len(r.Bad) > 0 || r.Next != 0 || len(seen) != r.Files {
		t.Fatalf("%+v, after %d calls", r, len(seen))
	}
	if read := faulty.Bytes(faultfs.Read) - before; read < r.Bytes {
		t.Errorf("%d bytes were read for %d", read, r.Bytes)
	}
	if n := s.Metrics().CacheBytes; n != cached {
		t.Errorf("the cache went from %d bytes to %d", cached, n)
	}
}

// A scrub finds damage that no read has met, in table files and the manifest, sets the files aside and mends the manifest, and goes
// on to the end. It can be ended and resumed.
func TestScrubFindsDamage(t *testing.T) {
	s := newStore(t, nil)
	s.ofEveryKind()
	s.must(s.Flush(ctx))
	nums := s.liveFiles()
	if len(nums) < 3 {
		t.Fatal("too few files")
	}
	bad := levels.TableName(nums[1])
	flip(t, s.fs, path.Join("/store", bad), 300)
	list, err := s.fs.List("/store")
	s.must(err)
	for _, e := range list {
		if _, _, ok := levels.ParseManifestName(e.Name); ok {
			flip(t, s.fs, path.Join("/store", e.Name), int(e.Size)/2)
		}
	}
	stop, cancel := context.WithCancel(ctx)
	r, err := s.Scrub(stop, ScrubOptions{BytesPerSecond: -1, Progress: func(ScrubReport) { cancel() }})
	if !errors.Is(err, context.Canceled) || r.Files != 1 || r.Next == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	r, err = s.Scrub(ctx, ScrubOptions{BytesPerSecond: -1, From: r.Next})
	s.must(err)
	if r.Files != len(nums)-1 || r.Next != 0 || len(r.Bad) < 2 {
		t.Fatalf("%+v", r)
	}
	var told string
	for _, err := range r.Bad {
		if !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
		told += err.Error() + "\n"
	}
	if !strings.Contains(told, bad) || !strings.Contains(told, "manifest") {
		t.Fatal(told)
	}
	if h := s.Health(); h.State != StateDegraded || !errors.Is(h.Cause, ErrDamaged) || !strings.Contains(h.Cause.Error(), bad) {
		t.Fatalf("%+v", h)
	}
	if r, err = s.Scrub(ctx, ScrubOptions{BytesPerSecond: -1}); err != nil || len(r.Bad) != 1 {
		t.Fatalf("the manifest was not mended: %+v, %v", r, err)
	}
	if err := s.Compact(ctx); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	s.must(s.fs.Remove(path.Join("/store", bad)))
	if r, err = s.Scrub(ctx, ScrubOptions{BytesPerSecond: -1}); err != nil || len(r.Bad) != 1 || !strings.Contains(r.Bad[0].Error(), "missing") {
		t.Fatalf("%+v, %v", r, err)
	}
}

// Files that compactions end while they wait to be scrubbed are no damage, and scrubs run by themselves, also into a Close.
func TestScrubsRunByThemselves(t *testing.T) {
	db := openDisk(t, t.TempDir(), Options{ScrubEvery: time.Millisecond, MemtableBytes: 32 << 10, TableFileBytes: 16 << 10, LevelBytes: 64 << 10})
	tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
	deadline := time.Now().Add(time.Minute)
	for i := 0; db.Metrics().Scrub.Passes < 3 || db.Metrics().Scrub.LastFiles == 0; i++ {
		if err := tb.Apply(ctx, strings.Repeat("r", i%50+1), set("f", "q", Timestamp(i), strings.Repeat("v", 500)), NoSync); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", db.Metrics().Scrub)
		}
	}
	if m := db.Metrics(); m.Scrub.LastBad != 0 || m.Health.State != StateOK || m.Scrub.LastEnd.IsZero() {
		t.Fatalf("%+v", m)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestScrubBadInput(t *testing.T) {
	s := newStore(t, nil)
	if _, err := s.Scrub(ctx, ScrubOptions{BytesPerSecond: -2}); !errors.Is(err, ErrOption) {
		t.Error(err)
	}
	if _, err := Open("/x", Options{FS: s.fs, ScrubEvery: -1}); !errors.Is(err, ErrOption) {
		t.Error(err)
	}
	r, err := s.Scrub(ctx, ScrubOptions{From: 1 << 60})
	if err != nil || r.Files != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
