package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

// A scan that takes runs of rows from blocks shows what one does that looks at every row by itself, and what reads of single rows
// do: with deletes, rules by rank and age, old rules, masked rows, rows over several blocks and files, in both directions, with
// limits, ends and snapshots anywhere.
func TestRunsOfRowsShowWhatSingleRowsDo(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() || raceEnabled {
		seeds = 4
	}
	runs := 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := newStore(t, func(o *Options) {
			o.MemtableBytes, o.TableFileBytes, o.LevelBytes, o.L0Files = 32<<10, 24<<10, 64<<10, 3+rng.IntN(6)
			o.Reads = []ReadMode{ReadMapped, ReadPositional, ReadDirect}[seed%3]
		})
		rules := []gc.Rule{{}, gc.MaxVersionsPolicy(1), gc.MaxVersionsPolicy(2), gc.MaxAgePolicy(time.Second),
			gc.UnionPolicy(gc.MaxVersionsPolicy(2), gc.MaxAgePolicy(2*time.Second)),
			gc.IntersectionPolicy(gc.MaxVersionsPolicy(1), gc.MaxAgePolicy(time.Second))}
		spec := TableSpec{BlockBytes: 2048, Families: map[string]FamilySpec{}}
		families := []string{"a", "b", "c"}[:1+rng.IntN(3)]
		plain := seed%4 == 0
		for i, f := range families {
			fam := FamilySpec{}
			if !plain {
				fam.GC = rules[rng.IntN(len(rules))]
			}
			if seed%3 == 1 {
				fam.Group = fmt.Sprint("g", i)
			}
			spec.Families[f] = fam
		}
		tb, err := s.CreateTable(ctx, "t", spec)
		s.must(err)
		keys := 40 + rng.IntN(400)
		lone := seed%2 == 0 && plain
		key := func() string {
			if n := rng.IntN(keys); n%11 > 0 || lone {
				return fmt.Sprintf("row%06d", n)
			} else {
				return fmt.Sprintf("r%d", n)
			}
		}
		var snaps []*Snapshot
		for step := range 60 {
			for range 1 + rng.IntN(40) {
				m := NewMutation()
				f := families[rng.IntN(len(families))]
				q := fmt.Sprint("q", rng.IntN(3))
				switch n := rng.IntN(100); {
				case lone:
					m.Set("a", "q", 1, []byte(strings.Repeat("x", rng.IntN(80))))
				case n < 3:
					m.DeleteRow()
				case n < 6:
					m.DeleteCellsInFamily(f)
				case n < 12:
					m.DeleteCellsInColumn(f, q)
				case n < 18:
					m.DeleteTimestampRange(f, q, Timestamp(1+rng.IntN(5)), Timestamp(6+rng.IntN(3)))
				case n < 20: // a row of several blocks
					for i := range 60 {
						m.Set(f, fmt.Sprintf("w%02d", i), 1, []byte(strings.Repeat("y", 100)))
					}
				default:
					for range 1 + rng.IntN(4) {
						ts := Timestamp(s.now.UnixMicro() - rng.Int64N(4e6))
						if n < 60 {
							ts = Timestamp(1 + rng.IntN(9))
						}
						m.Set(families[rng.IntN(len(families))], fmt.Sprint("q", rng.IntN(3)), ts, []byte(strings.Repeat("z", rng.IntN(60))))
					}
				}
				s.must(tb.Apply(ctx, key(), m, NoSync))
			}
			switch rng.IntN(24) {
			case 0:
				s.must(s.Compact(ctx))
			case 1, 2, 3:
				s.must(s.Flush(ctx))
			case 4:
				if len(snaps) < 3 {
					sn, err := s.Snapshot()
					s.must(err)
					snaps = append(snaps, sn)
				}
			case 5:
				if !lone {
					s.must(tb.DropRowRange(ctx, PrefixRange(fmt.Sprintf("row%05d", rng.IntN(keys/10+1)))))
				}
			case 6:
				if !plain {
					if err := tb.ModifyFamilies(ctx, SetGCRule(families[0], rules[rng.IntN(len(rules))])); !errors.Is(err, ErrRuleChangePending) {
						s.must(err)
					}
				}
			}
			s.now = s.now.Add(time.Duration(rng.IntN(300)) * time.Millisecond)
			if step%5 < 4 {
				continue
			}
			for range 8 {
				var opts []ReadOption
				set := RowSet(AllRows())
				if rng.IntN(2) == 0 {
					set = Rows{NewClosedRange(key(), "row~"), SingleRow(key()), NewOpenRange("r", key())}
				}
				if rng.IntN(2) == 0 {
					opts = append(opts, ReverseScan())
				}
				if rng.IntN(4) == 0 {
					opts = append(opts, LimitRows(int64(1+rng.IntN(60))))
				}
				if len(snaps) > 0 && rng.IntN(3) == 0 {
					opts = append(opts, AtSnapshot(snaps[rng.IntN(len(snaps))]))
				}
				if rng.IntN(6) == 0 {
					opts = append(opts, Raw())
				}
				slow := append(slices.Clone(opts), readOption(func(o *readOptions) { o.rowByRow = true }))
				want, _ := readAll(s, tb, set, false, -1, slow)
				stop := -1
				if rng.IntN(3) == 0 {
					stop = rng.IntN(len(want) + 1)
					want = want[:min(len(want), stop+1)]
				}
				for _, copied := range []bool{false, true} {
					n := stop
					if copied && stop >= 0 {
						continue
					}
					got, r := readAll(s, tb, set, copied, n, opts)
					if !slices.Equal(got, want) {
						t.Fatalf("seed %d, step %d, copied %v, stop %d, %d options: %d cells, want %d:\n%s\nwant\n%s", seed, step, copied, stop, len(opts),
							len(got), len(want), strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
					runs += r
				}
			}
			// Rows by themselves.
			all, _ := readAll(s, tb, AllRows(), false, -1, nil)
			var single []string
			for n, last := 0, ""; n < len(all); n++ {
				row, _, _ := strings.Cut(all[n], " ")
				if row == last {
					continue
				}
				last = row
				r, err := tb.ReadRow(ctx, row)
				s.must(err)
				for _, c := range r.Cells {
					single = append(single, fmt.Sprintf("%s %s:%s@%d=%s", row, c.Family, c.Qualifier, c.Timestamp, c.Value))
				}
			}
			if !slices.Equal(all, single) {
				t.Fatalf("seed %d, step %d: scan\n%s\nsingle rows\n%s", seed, step, strings.Join(all, "\n"), strings.Join(single, "\n"))
			}
		}
		for _, sn := range snaps {
			s.must(sn.Close())
		}
	}
	if runs < 1000 {
		t.Errorf("only %d runs were taken", runs)
	}
}

// readAll reads rows as borrowed cells, or as copied rows, until the cell number stop. It returns how many runs were taken.
func readAll(s *testStore, tb *Table, set RowSet, copied bool, stop int, opts []ReadOption) (out []string, runs int) {
	s.t.Helper()
	before := s.stats.runs.Load()
	if copied {
		s.must(tb.ReadRows(ctx, set, func(r Row) bool {
			for _, c := range r.Cells {
				out = append(out, fmt.Sprintf("%s %s:%s@%d=%s", r.Key, c.Family, c.Qualifier, c.Timestamp, c.Value))
			}
			return true
		}, opts...))
	} else {
		s.must(tb.ReadCellsBorrowed(ctx, set, func(c *BorrowedCell) bool {
			out = append(out, fmt.Sprintf("%s %s:%s@%d=%s", c.Row, c.Family, c.Qualifier, c.Timestamp, c.Value))
			stop--
			return stop != -1
		}, opts...))
	}
	return out, int(s.stats.runs.Load() - before)
}
