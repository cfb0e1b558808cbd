package engine

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// A row larger than many table files is cut inside, at columns; its row, family and column deletes must hold in every piece and
// nowhere else, through partial compactions, reads in both directions, and columns asked for one by one.
func TestRowLargerThanAFile(t *testing.T) {
	files := 0
	for seed := uint64(1); seed <= 6; seed++ {
		s := newStore(t, func(o *Options) {
			o.MemtableBytes, o.TableFileBytes, o.LevelBytes, o.L0Files = 16<<10, 4<<10, 16<<10, 2
		})
		spec := TableSpec{BlockBytes: 1024, Families: map[string]FamilySpec{"f": {}, "fam": {GC: gc.MaxVersionsPolicy(2)}, "fan": {}}}
		tb, err := s.CreateTable(ctx, "t", spec)
		s.must(err)
		rng := rand.New(rand.NewPCG(seed, 9))
		families := []string{"f", "fam", "fan"}
		rows := []string{"before", "huge", "huge2"}
		type key struct {
			row, family, qualifier string
			ts                     Timestamp
		}
		model := map[key]string{}
		cut := func(match func(key) bool) {
			for k := range model {
				if match(k) {
					delete(model, k)
				}
			}
		}
		want := func(row string) string {
			var keys []key
			for k := range model {
				if k.row == row {
					keys = append(keys, k)
				}
			}
			sort.Slice(keys, func(i, j int) bool {
				a, b := keys[i], keys[j]
				switch {
				case a.family != b.family:
					return a.family < b.family
				case a.qualifier != b.qualifier:
					return a.qualifier < b.qualifier
				}
				return a.ts > b.ts
			})
			r := Row{Key: row}
			rank := 0
			for i, k := range keys {
				if rank++; i == 0 || keys[i-1].family != k.family || keys[i-1].qualifier != k.qualifier {
					rank = 0
				}
				if k.family == "fam" && rank >= 2 {
					continue
				}
				r.Cells = append(r.Cells, Cell{Family: k.family, Qualifier: k.qualifier, Timestamp: k.ts, Value: []byte(model[k])})
			}
			return show(r)
		}
		check := func(where string) {
			t.Helper()
			tb := s.Table("t")
			var all []string
			for _, row := range rows {
				r, err := tb.ReadRow(ctx, row)
				s.must(err)
				if got := show(r); got != want(row) {
					t.Fatalf("seed %d, %s, row %s: got\n%swant\n%s", seed, where, row, got, want(row))
				}
				if len(r.Cells) > 0 {
					all = append(all, row)
				}
				for range 5 {
					f, q := families[rng.IntN(3)], fmt.Sprintf("q%03d", rng.IntN(400))
					one, err := tb.ReadRow(ctx, row, RowFilter(ColumnExact(f, q)))
					s.must(err)
					n := 0
					for _, c := range r.Cells {
						if c.Family == f && c.Qualifier == q {
							if n >= len(one.Cells) || string(one.Cells[n].Value) != string(c.Value) || one.Cells[n].Timestamp != c.Timestamp {
								t.Fatalf("seed %d, %s: column %s:%s of %s reads %s", seed, where, f, q, row, show(one))
							}
							n++
						}
					}
					if n != len(one.Cells) {
						t.Fatalf("seed %d, %s: column %s:%s of %s reads %s", seed, where, f, q, row, show(one))
					}
				}
			}
			for _, reverse := range []bool{false, true} {
				var opts []ReadOption
				if reverse {
					opts = append(opts, ReverseScan())
				}
				i := 0
				s.must(tb.ReadRows(ctx, AllRows(), func(r Row) bool {
					at := i
					if reverse {
						at = len(all) - 1 - i
					}
					if at < 0 || at >= len(all) || r.Key != all[at] || show(r) != want(r.Key) {
						t.Fatalf("seed %d, %s, scan (reverse %v) gives %s in place %d", seed, where, reverse, r.Key, i)
					}
					i++
					return true
				}, opts...))
				if i != len(all) {
					t.Fatalf("seed %d, %s: scan (reverse %v) gives %d rows of %d", seed, where, reverse, i, len(all))
				}
			}
		}
		value := make([]byte, 100)
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		for step := 0; step < 3000; step++ {
			row := rows[1]
			if rng.IntN(20) == 0 {
				row = rows[rng.IntN(3)]
			}
			f, q := families[rng.IntN(3)], fmt.Sprintf("q%03d", rng.IntN(400))
			m := NewMutation()
			switch x := rng.IntN(1000); {
			case x < 1:
				m.DeleteRow()
				cut(func(k key) bool { return k.row == row })
			case x < 3:
				m.DeleteCellsInFamily(f)
				cut(func(k key) bool { return k.row == row && k.family == f })
			case x < 60:
				m.DeleteCellsInColumn(f, q)
				cut(func(k key) bool { return k.row == row && k.family == f && k.qualifier == q })
			default:
				ts := Timestamp(step)
				v := fmt.Sprintf("%d %x", step, value[:rng.IntN(len(value))])
				m.Set(f, q, ts, []byte(v))
				model[key{row, f, q, ts}] = v
			}
			s.must(tb.Apply(ctx, row, m, NoSync))
			if step%500 == 499 {
				check(fmt.Sprint("step ", step))
			}
		}
		s.must(s.Flush(ctx))
		check("flushed")
		s.must(tb.Compact(ctx, NewClosedRange("before", "before")))
		check("one row compacted")
		for _, l := range s.Metrics().Levels {
			files += l.Files
		}
		s.everywhere(check)
	}
	if files < 30 {
		t.Fatalf("the row was not cut often: %d files in six stores", files)
	}
}
