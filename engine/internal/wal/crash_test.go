package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rowandb/rowan/io/vfs"
)

var ctx = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recOf is the record of a sequence; its content follows from sequence and size.
func recOf(seq uint64, size int) []byte {
	b := make([]byte, max(size, 12))
	binary.LittleEndian.PutUint64(b, seq)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(b)))
	for i := 12; i < len(b); i++ {
		b[i] = byte(seq + uint64(i))
	}
	return b
}

func readRec(t testing.TB, rec []byte) uint64 {
	t.Helper()
	seq := binary.LittleEndian.Uint64(rec)
	if !bytes.Equal(rec, recOf(seq, int(binary.LittleEndian.Uint32(rec[8:])))) {
		t.Fatalf("record %d has wrong bytes", seq)
	}
	return seq
}

// replayAll recovers and returns the sequences found.
func replayAll(t testing.TB, o Options, from uint64) (seqs []uint64, r Recovered) {
	t.Helper()
	r, err := Recover(ctx, o, from, func(rec []byte) error {
		seqs = append(seqs, readRec(t, rec))
		return nil
	})
	must(t, err)
	if len(seqs) != r.Records || len(seqs) > 0 && r.LastSeq != seqs[len(seqs)-1] {
		t.Fatalf("%d records, %+v", len(seqs), r)
	}
	return seqs, r
}

// picture is a crash image and what was true when it was taken.
type picture struct {
	fs             *vfs.Mem
	acked, placed  uint64
	flushed, start uint64 // of the manifest
	open           uint64
}

type crashRun struct {
	t     *testing.T
	r     *rand.Rand
	m     *vfs.Mem
	o     Options
	l     *Log
	now   time.Time
	p     picture // as of now
	shots []picture
}

func (c *crashRun) shoot() {
	p := c.p
	keep := []float64{0, 0.3, 0.7, 1}[c.r.IntN(4)]
	p.fs = c.m.CrashClone(c.r.Uint64(), keep)
	c.shots = append(c.shots, p)
}

func (c *crashRun) open() {
	_, r := replayAll(c.t, c.o, c.p.start)
	c.p.open++
	c.o.OpenCount = c.p.open
	var err error
	c.l, err = Open(c.o, r)
	must(c.t, err)
	c.p.placed = max(c.p.flushed, r.LastSeq)
	c.p.acked = c.p.placed
	// The manifest learns of the start once; it has 0 before.
	c.p.start = c.l.OldestSlotFor(c.p.flushed)
}

func (c *crashRun) step() {
	switch c.r.IntN(10) {
	case 0, 1, 2, 3, 4:
		size := 12 + c.r.IntN(200)
		if c.r.IntN(15) == 0 {
			size = c.r.IntN(30_000)
		}
		c.p.placed += 1 + uint64(c.r.IntN(2)) // sequences may leave gaps
		must(c.t, place(c.l, recOf(c.p.placed, size), c.p.placed, int64(c.p.placed), int64(c.p.placed)*2))
	case 5, 6:
		must(c.t, c.l.Sync(ctx))
		c.p.acked = c.p.placed
	case 7:
		c.now = c.now.Add(time.Duration(c.r.IntN(1200)) * time.Millisecond)
		c.l.Tick()
		c.p.acked = max(c.p.acked, c.l.Durable())
	case 8:
		if c.r.IntN(3) > 0 || c.p.acked == 0 {
			return
		}
		seq := c.p.flushed + c.r.Uint64N(c.p.acked-c.p.flushed+1)
		c.p.start, c.p.flushed = c.l.OldestSlotFor(seq), seq
		must(c.t, c.l.Release(seq))
	case 9:
		if c.r.IntN(8) > 0 {
			return
		}
		must(c.t, c.l.Close())
		c.p.acked = c.p.placed
		c.shoot()
		c.open()
	}
}

// verify recovers an image, writes on, crashes again and recovers again.
func (p picture) verify(t *testing.T, o Options) {
	o.FS = p.fs
	seqs, r := replayAll(t, o, p.start)
	check := func(seqs []uint64, last uint64) {
		t.Helper()
		if last < p.acked || last > p.placed {
			t.Fatalf("last record %d, acknowledged %d, placed %d", last, p.acked, p.placed)
		}
		want := map[uint64]bool{}
		for _, s := range seqs {
			want[s] = true
		}
		for s := p.flushed + 1; s <= last; s++ { // gaps in sequences are legal, but runs never have two
			if !want[s] && !want[s+1] && s+1 <= last {
				t.Fatalf("records %d and %d are missing before %d", s, s+1, last)
			}
		}
	}
	last := max(p.flushed, r.LastSeq)
	check(seqs, last)
	o.OpenCount = p.open + 1
	l, err := Open(o, r)
	must(t, err)
	must(t, place(l, recOf(p.placed+10, 50), p.placed+10, 1, 1))
	must(t, place(l, recOf(p.placed+11, 9000), p.placed+11, 1, 1))
	must(t, l.Sync(ctx))
	again, _ := replayAll(t, Options{FS: p.fs.CrashClone(1, 0), Dir: o.Dir, StoreID: o.StoreID}, p.start)
	if fmt.Sprint(again) != fmt.Sprint(append(seqs, p.placed+10, p.placed+11)) {
		t.Fatalf("after the second crash:\n%v\nbefore:\n%v", again, seqs)
	}
	must(t, l.Close())
}

// Whatever a power cut leaves of the writes in flight, recovery yields a prefix of what was placed, with all that was
// acknowledged, over slot switches, recycling, marks and reopenings, in all I/O modes (google/leveldb #193: a later write survived an
// earlier one, whose log was never synced).
func TestCrashAnywhere(t *testing.T) {
	images, seeds := 0, 100
	if raceEnabled {
		seeds = 20
	}
	for seed := range uint64(seeds) {
		c := &crashRun{t: t, r: rand.New(rand.NewPCG(seed, 9)), now: time.Unix(1000, 0)}
		mo := vfs.MemOptions{NoDirect: seed%3 == 1, InFlight: func(op, name string) {
			if c.r.IntN(4) == 0 {
				c.shoot()
			}
		}}
		if seed%4 == 2 {
			mo.Align = 16 << 10
		}
		c.m = vfs.NewMem(mo)
		c.o = Options{FS: c.m, Dir: "wal", StoreID: 5, SlotSize: int64(8+8*c.r.IntN(4)) << 10, Manual: true, Now: func() time.Time { return c.now }}
		c.open()
		for range 120 {
			c.step()
		}
		must(t, c.l.Close())
		for i, p := range c.shots {
			t.Run(fmt.Sprintf("seed%d-%d", seed, i), func(t *testing.T) {
				o := c.o
				o.NoSyncBytes = 1 << 20
				p.verify(t, o)
			})
			if t.Failed() {
				return
			}
		}
		images += len(c.shots)
	}
	if images < 10*seeds {
		t.Fatalf("only %d crash images", images)
	}
}

// place is Append with the room made for it, as a store does it.
func place(l *Log, rec []byte, seq uint64, engineTime, stamp int64) error {
	for {
		err := l.Append(rec, seq, engineTime, stamp)
		if !errors.Is(err, ErrRoom) {
			return err
		}
		if err := l.Prepare(context.Background(), len(rec), 0); err != nil {
			return err
		}
	}
}
