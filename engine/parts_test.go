package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/levels"
)

// fillForParts writes rows of every kind, in an order of no meaning.
func (s *testStore) fillForParts(tb *Table, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range 6000 {
		m, row := NewMutation(), fmt.Sprintf("row%05d", r.IntN(3000))
		switch r.IntN(12) {
		case 0:
			m.DeleteRow()
		case 1:
			m.DeleteCellsInFamily("f")
		case 2:
			m.DeleteCellsInColumn("g", fmt.Sprint(r.IntN(3)))
		case 3:
			m.DeleteTimestampRange("f", fmt.Sprint(r.IntN(3)), Timestamp(1+r.IntN(50)), Timestamp(60+r.IntN(50)))
		default:
			for range 1 + r.IntN(4) {
				m.Set([]string{"f", "g"}[r.IntN(2)], fmt.Sprint(r.IntN(3)), Timestamp(r.IntN(100)), []byte(strings.Repeat("v", r.IntN(200))))
			}
		}
		s.must(tb.Apply(ctx, row, m, NoSync))
	}
	s.must(tb.Apply(ctx, "row01500", set("f", "large", 1, strings.Repeat("x", 300<<10)), NoSync))
}

// A merge that is done in parts side by side leaves the same rows as one that is not, and what a rule or a delete removed is removed.
func TestMergeInPartsGivesTheSame(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	var files, cells [2]int
	var rows [2]string
	for i, partBytes := range []int64{1 << 40, 4 << 10} {
		s := newStore(t, func(o *Options) { o.Background, o.Compactions, o.TableFileBytes = nil, 3, 8<<20 })
		s.partBytes = partBytes
		tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2), "g": gc.NoPolicy()})
		s.fillForParts(tb, 7)
		before := s.scan(tb)
		s.must(s.Compact(ctx))
		if rows[i] = s.scan(tb); rows[i] != before {
			t.Fatalf("parts of %d bytes change what is read", partBytes)
		}
		m := s.Metrics()
		for _, l := range m.Levels {
			files[i], cells[i] = files[i]+l.Files, cells[i]+int(l.Cells)
			if l.Deletes > 0 {
				t.Fatalf("parts of %d bytes leave %d deletes", partBytes, l.Deletes)
			}
		}
		s.must(s.Close())
		s.open() // the edit of several parts is found again
		if got := s.scan(s.Table("t")); got != before {
			t.Fatal("after opening it is something else")
		}
	}
	if rows[0] != rows[1] || cells[0] != cells[1] {
		t.Fatalf("one part leaves %d cells, several %d", cells[0], cells[1])
	}
	if files[1] == files[0] {
		t.Fatalf("%d files in both cases: were there parts?", files[0])
	}
}

// When one part of a merge fails the others end, nothing of it stays, and the store is as it was.
func TestFailedPartFailsTheMerge(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	var faulty *faultfs.FS
	s := newStore(t, func(o *Options) {
		faulty = faultfs.New(o.FS, faultfs.Options{})
		o.Background, o.FS, o.L0Files = nil, faulty, 100
	})
	s.partBytes = 4 << 10
	tb := s.table("t", map[string]gc.Rule{"f": gc.NoPolicy(), "g": gc.NoPolicy()})
	s.fillForParts(tb, 8)
	s.must(s.Flush(ctx))
	before, files := s.scan(tb), s.files("/store")
	first := s.nextFile.Load() + 1 // the second file of the merge
	faulty.SetRules(faultfs.FailIf(faultfs.Create, levels.TableName(first), syscall.EIO))
	if err := s.Compact(ctx); !errors.Is(err, syscall.EIO) || faulty.Fired() == 0 {
		t.Fatal(err)
	}
	faulty.SetRules()
	if got := s.files("/store"); got != files {
		t.Fatalf("files before %s\nand after %s", files, got)
	}
	s.want(s.scan(tb), before)
	s.must(s.Compact(ctx))
	s.want(s.scan(tb), before)
}
