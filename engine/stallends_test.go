package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

func sublevelsOf(s *testStore) int { return len(s.states.cur.Load().version.Trees[1].Sub) }

// L0 stands at the limit where writers wait, brought there by flushes, by recovery with small memtables, or by options that allow
// fewer files than there are: either compactions start, or the write says what is wrong; nobody waits without end
// (cockroachdb/pebble #320; dgraph-io/badger #178; facebook/rocksdb #1208, #8643: a stall without end because the stop rule and
// the start rule disagree, or nothing wakes the picker).
func TestStallsComeToAnEnd(t *testing.T) {
	for _, route := range []string{"flushes", "options", "recovery"} {
		s := newStore(t, func(o *Options) {
			if route != "flushes" {
				o.L0Files = 100
			}
			if route == "recovery" {
				o.MemtableBytes = 8 << 20
			}
		})
		tb := s.table("t", map[string]gc.Rule{"f": {}})
		for i := range 40 {
			for j := range 30 {
				s.must(tb.Apply(ctx, fmt.Sprintf("r%02d", j), set("f", "q", Timestamp(i+1), noise(fmt.Sprint(i, j))), NoSync))
			}
			if route != "recovery" {
				s.must(s.Flush(ctx))
			}
		}
		if n := sublevelsOf(s); route == "options" && n < 20 {
			t.Fatalf("%s: %d sublevels", route, n)
		}
		s.must(s.Close())
		s.opts.L0Files, s.opts.MemtableBytes = 1, 16<<10
		s.open()
		tb = s.Table("t")
		for j := range 200 {
			s.must(tb.Apply(ctx, fmt.Sprintf("r%02d", j%30), set("f", "q", Timestamp(100+j), noise(fmt.Sprint(j))), NoSync))
		}
		s.exec.Help()
		if n := sublevelsOf(s); n > 5 {
			t.Errorf("%s: %d sublevels stay", route, n)
		}
		if p := s.Metrics().Pressure; p >= stopPressure {
			t.Errorf("%s: pressure %d", route, p)
		}
	}
}

// Keys at random and values of 1 KiB, ten times what the first level takes: L0 never grows beyond the limit, merges inside L0 do
// not crowd out those that bring it down, and it drains when the load stops
// (facebook/rocksdb #4991, #10384; speedb-io/speedb #154).
func TestL0DrainsUnderRandomLoad(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	most := 0
	check := s.opts.LevelBytes
	for i := range 10 * int(check) >> 10 {
		key := noise(fmt.Sprint("key", i))[:16]
		s.must(tb.Apply(ctx, key, set("f", "q", 1, noise(key)), NoSync))
		most = max(most, sublevelsOf(s))
	}
	s.now = s.now.Add(time.Minute)
	s.must(s.Flush(ctx))
	s.exec.Help()
	s.jobs.kick()
	s.exec.Help()
	m := s.Metrics()
	t.Logf("at most %d sublevels of L0, %d stalls", most, m.Stalls)
	if most > stopL0Factor*defaultL0 {
		t.Errorf("%d sublevels", most)
	}
	if n := sublevelsOf(s); n >= defaultL0 || m.DebtBytes > 0 {
		t.Errorf("after the load: %d sublevels, %d bytes of debt", n, m.DebtBytes)
	}
	if below := m.DiskBytes - m.Levels[0].Bytes; below < 9*check {
		t.Errorf("%d bytes below L0", below)
	}
}
