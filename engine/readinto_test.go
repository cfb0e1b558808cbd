package engine

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

// Rows of every shape read into one Row, one after the other, are what ReadRow returns.
func TestReadRowIntoIsReadRow(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes = 1 << 20 })
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2), "g": gc.NoPolicy()})
	const rows = 60
	for round := range 3 {
		for i := range rows {
			s.must(tb.Apply(ctx, fmt.Sprintf("row%02d", i), mut(func(m *Mutation) {
				for c := range (i * 7) % 13 {
					m.Set([]string{"f", "g"}[c%2], fmt.Sprint("q", c*(i%3)), Timestamp(round), []byte(strings.Repeat("v", (i*c)%50)))
				}
				if i%5 == 0 {
					m.Set("f", "", Timestamp(round), nil)
				}
				if i%7 == 0 && round > 0 {
					m.DeleteCellsInFamily("g")
				}
			}), NoSync))
		}
		if round < 2 {
			s.must(s.Flush(ctx))
		}
	}
	var dst Row
	kept := map[string]string{}
	for _, opts := range [][]ReadOption{nil, {RowFilter(LatestNFilter(1))}, {RowFilter(LabelFilter("l"))}, {LimitCells(2)}} {
		for i := range rows + 1 {
			key := fmt.Sprintf("row%02d", i)
			want, err := tb.ReadRow(ctx, key, opts...)
			s.must(err)
			s.must(tb.ReadRowInto(ctx, &dst, key, opts...))
			if len(want.Cells) != len(dst.Cells) || dst.Key != key {
				t.Fatalf("%s: %d cells of %q, want %d", key, len(dst.Cells), dst.Key, len(want.Cells))
			}
			for j := range want.Cells {
				if !reflect.DeepEqual(dst.Cells[j], want.Cells[j]) {
					t.Fatalf("%s: %+v, want %+v", key, dst.Cells[j], want.Cells[j])
				}
				kept[strings.Clone(dst.Cells[j].Qualifier)] = dst.Cells[j].Qualifier
			}
		}
	}
	for want, got := range kept {
		if got != want {
			t.Errorf("the qualifier %q became %q", want, got)
		}
	}
}

func TestReadRowIntoAfterAnError(t *testing.T) {
	s := newStore(t, func(o *Options) { o.RowBytesMax = 1000 })
	tb := s.table("t", map[string]gc.Rule{"f": gc.NoPolicy()})
	s.must(tb.Apply(ctx, "small", mut(func(m *Mutation) { m.Set("f", "q", 1, []byte("v")) })))
	s.must(tb.Apply(ctx, "large", mut(func(m *Mutation) {
		m.Set("f", "p", 1, make([]byte, 600))
		m.Set("f", "q", 1, make([]byte, 600))
	})))
	var dst Row
	s.must(tb.ReadRowInto(ctx, &dst, "small"))
	if err := tb.ReadRowInto(ctx, &dst, "large"); !errors.Is(err, ErrRowTooLarge) || len(dst.Cells) != 0 {
		t.Errorf("%d cells, %v", len(dst.Cells), err)
	}
	s.must(tb.ReadRowInto(ctx, &dst, "small"))
	if err := tb.ReadRowInto(ctx, &dst, ""); !errors.Is(err, ErrRowKey) || len(dst.Cells) != 0 {
		t.Errorf("%d cells, %v", len(dst.Cells), err)
	}
	if err := tb.ReadRowInto(ctx, nil, "small"); !errors.Is(err, ErrOption) {
		t.Errorf("nil row: %v", err)
	}
	s.must(tb.ReadRowInto(ctx, &dst, "small"))
	if len(dst.Cells) != 1 || string(dst.Cells[0].Value) != "v" {
		t.Errorf("%+v", dst)
	}
}

// A point read into a row that is used again allocates nothing, wherever the row lies.
func TestReadRowIntoAllocatesNothing(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(1), "g": gc.MaxAgePolicy(100 * time.Hour)})
	write := func(from, to int) {
		for i := from; i < to; i++ {
			s.must(tb.Apply(ctx, fmt.Sprintf("row%05d", i), mut(func(m *Mutation) {
				for c := range 10 {
					m.Set([]string{"f", "g"}[c/5], fmt.Sprint("q", c), Timestamp(i), []byte("some value of some length"))
				}
			}), NoSync))
		}
	}
	write(0, 2000)
	s.must(s.Flush(ctx))
	write(1000, 2000)
	s.must(s.Flush(ctx))
	write(1900, 2100)
	var dst Row
	for what, key := range map[string]string{"file": "row00500", "two files": "row01500", "memtable and files": "row01950",
		"memtable": "row02050", "nowhere": "row00500x"} {
		n := testing.AllocsPerRun(200, func() { s.must(tb.ReadRowInto(ctx, &dst, key)) })
		if n != 0 && !raceEnabled && !invariants { // these allocate by themselves
			t.Errorf("%s: %v allocations", what, n)
		}
		if want := 10; what != "nowhere" && len(dst.Cells) != want {
			t.Errorf("%s: %d cells", what, len(dst.Cells))
		}
	}
}
