package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
)

// Each batch counts itself twice: with an Add and with a plain number. After any crash, flush, merge and replay both agree, in
// one locality group and over two: every Add counts exactly once.
func TestAddsAreExactOverCrashes(t *testing.T) {
	for _, group := range []string{"", "other"} {
		for seed := range uint64(4) {
			addsOverCrashes(t, group, seed)
		}
	}
}

func addsOverCrashes(t *testing.T, group string, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	s := newStore(t, func(o *Options) { o.MemtableBytes = 16 << 10 })
	spec := TableSpec{Families: map[string]FamilySpec{
		"n": {GC: gc.MaxVersionsPolicy(1)}, "sum": {Aggregate: Sum, Group: group}, "max": {Aggregate: Max, Group: group},
	}}
	tb, err := s.CreateTable(ctx, "t", spec)
	s.must(err)
	count, synced := int64(0), int64(0)
	var value [cell.StateLen]byte
	for range 400 {
		switch rng.IntN(12) {
		case 0:
			s.must(s.Flush(ctx))
		case 1:
			s.must(s.Compact(ctx))
		case 2:
			if rng.IntN(3) > 0 {
				break
			}
			fs := s.fs.CrashClone(rng.Uint64(), rng.Float64())
			s.must(s.Close())
			s.fs, s.opts.FS = fs, fs
			s.open()
			tb = s.Table("t")
			r, err := tb.ReadRow(ctx, "r")
			s.must(err)
			n := map[string]int64{}
			for _, c := range r.Cells {
				n[c.Family], _ = cell.State(c.Value)
			}
			if n["sum"] != n["n"] || n["max"] != n["n"] || n["n"] < synced || n["n"] > count {
				t.Fatalf("group %q, seed %d: %v of %d batches, %d synced", group, seed, n, count, synced)
			}
			count = n["n"]
			synced = count
		}
		count++
		cell.PutState(value[:], count)
		b := NewBatch()
		b.Add(tb, "r", mut(func(m *Mutation) {
			m.Set("n", "q", 1, value[:])
			m.AddIntToCell("sum", "q", 0, 3)
			m.AddIntToCell("max", "q", 0, count)
			m.AddIntToCell("sum", "q", 0, -2)
		}))
		if rng.IntN(4) == 0 {
			s.must(s.Apply(ctx, b))
			synced = count
		} else {
			s.must(s.Apply(ctx, b, NoSync))
		}
	}
	if got := s.scan(tb); got == "" {
		t.Fatal("nothing is there")
	}
}
