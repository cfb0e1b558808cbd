package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
)

// A table that is dropped while a read or a scrub is still at work in it and finds damage: the store is well, since nothing that
// it lists is damaged, and does not stay degraded for a file that is gone.
func TestDamageFoundInADroppedTableIsForgotten(t *testing.T) {
	var lines logLines
	s, files := inThree(t, &lines)
	st := s.states.pin()
	defer st.unref()
	s.must(s.DropTable(ctx, "t"))
	s.setAside(st.version, files[0].Num, missing("x"))
	if h := s.Health(); h.State != StateOK || len(h.SetAside) > 0 {
		t.Errorf("%+v", h)
	}
}

// A checkpoint that is opened for writing on a disk that is too full: the error says so, attempts do not use up what is left, and
// once there is the room that a first attempt takes, the next one succeeds.
func TestCheckpointsOpenedOnAFullDiskLeaveNoRest(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes, o.FreeFloor = 1<<20, -1 })
	for i := range 4 {
		tb := s.table(fmt.Sprint("t", i), map[string]gc.Rule{"f": {}})
		for j := range 100 {
			s.must(tb.Apply(ctx, fmt.Sprint(j), set("f", "q", 1, noise(fmt.Sprint(i, j)))))
		}
	}
	want := wholeStore(t, s.DB)
	for _, dir := range []string{"/fresh", "/tried"} {
		_, err := s.Checkpoint(ctx, dir)
		s.must(err)
	}
	defer s.fs.SetCapacity(0)
	// try opens a checkpoint with so much room for it and what earlier attempts have left.
	used := s.fs.Used()
	try := func(dir string, room int64) error {
		s.fs.SetCapacity(used + room)
		defer s.fs.SetCapacity(0)
		db, err := Open(dir, s.opts)
		if err != nil {
			return err
		}
		if got := wholeStore(t, db); got != want {
			t.Errorf("%s shows something else", dir)
		}
		return db.Close()
	}
	least := int64(0)
	for {
		err := try("/tried", least)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrDiskFull) {
			t.Fatalf("%d bytes free: %v", least, err)
		}
		if got := s.lookInto("/tried", readOnly); got != want {
			t.Errorf("%d bytes free: the checkpoint shows something else", least)
		}
		if least += 16 << 10; least > 4<<20 {
			t.Fatal("never opens")
		}
	}
	used = s.fs.Used()
	if err := try("/fresh", least); err != nil {
		t.Errorf("what was enough after failed attempts is not without: %v", err)
	}
	used = s.fs.Used()
	_, err := s.Checkpoint(ctx, "/other")
	s.must(err)
	used = s.fs.Used()
	if least > 16<<10 {
		if err := try("/other", least-32<<10); !errors.Is(err, ErrDiskFull) {
			t.Errorf("%d bytes are enough for an attempt that comes first, but after others it takes %d: %v", least-32<<10, least, err)
		}
	}
}

// A read that the disk refuses once is tried again, like one whose checksum is wrong: the file is not set aside.
func TestReadsThatFailOnceAreTriedAgain(t *testing.T) {
	for _, mode := range []ReadMode{ReadPositional, ReadDirect} {
		s, faulty := faultyStore(t)
		s.must(s.Close())
		s.opts.Reads, s.opts.CacheBytes = mode, 1
		s.open()
		tb := s.table("t", map[string]gc.Rule{"f": {}})
		for i := range 60 {
			s.must(tb.Apply(ctx, fmt.Sprintf("r%02d", i), set("f", "q", 1, noise(fmt.Sprint(i))), NoSync))
		}
		s.must(s.Flush(ctx))
		var reads atomic.Int64
		faulty.SetRules(func(op faultfs.Op) error {
			if op.Kind == faultfs.Read && reads.Add(1)%2 == 1 { // the first of every two
				return syscall.EIO
			}
			return nil
		})
		if _, err := tb.ReadRow(ctx, "r07"); err != nil {
			t.Errorf("mode %v: %v", mode, err)
		}
		s.must(s.Compact(ctx))
		faulty.SetRules()
		if h := s.Health(); h.State != StateOK || reads.Load() < 2 {
			t.Errorf("mode %v: %+v after %d reads", mode, h, reads.Load())
		}
	}
}
