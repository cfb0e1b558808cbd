package fuzz

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/io/vfs"
)

// A group is two rows of two columns; a batch writes some of them at once. "" is no cell.
type group [2][2]string

type histIn struct {
	group  int
	read   bool
	row    int // of a read; 2 = a scan over both
	writes []histWrite
}

// histWrite sets a cell, or deletes what value "" says: a column, or the whole row if col is 2.
type histWrite struct {
	row, col int
	value    string
}

func (in histIn) apply(g group) group {
	for _, w := range in.writes {
		if w.col == 2 {
			g[w.row] = [2]string{}
		} else {
			g[w.row][w.col] = w.value
		}
	}
	return g
}

var histModel = porcupine.Model{
	Init: func() any { return group{} },
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		parts := map[int][]porcupine.Operation{}
		for _, o := range all {
			g := o.Input.(histIn).group
			parts[g] = append(parts[g], o)
		}
		var out [][]porcupine.Operation
		for _, p := range parts {
			out = append(out, p)
		}
		return out
	},
	Step: func(state, input, output any) (bool, any) {
		g, in := state.(group), input.(histIn)
		if !in.read {
			return true, in.apply(g)
		}
		want := g
		if in.row < 2 {
			want[1-in.row] = [2]string{}
		}
		return want == output.(group), g
	},
}

// Batches and reads from several goroutines, while memtables are flushed and files merged, must look as if each had happened
// at one moment between its call and its return.
func TestConcurrentHistoriesAreLinearizable(t *testing.T) {
	const clients, groups = 4, 6
	perClient := 600
	if !mutantsRun { // under the race detector
		perClient = 150
	}
	db, err := engine.Open("/store", base(engine.Options{FS: vfs.NewMem(vfs.MemOptions{NoCrash: true}), MemtableBytes: 16 << 10, TableFileBytes: 8 << 10}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		m := db.Metrics()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if m.Flushes < 10 || m.Compactions < 3 {
			t.Errorf("%d flushes and %d compactions are too few", m.Flushes, m.Compactions)
		}
		t.Logf("%d flushes, %d compactions, %d moves", m.Flushes, m.Compactions, m.Moves)
	}()
	tb, err := db.CreateTable(ctx, "t", engine.TableSpec{Families: map[string]engine.FamilySpec{"f": {GC: Rule{Versions: 1}.Policy()}}, BlockBytes: 1024})
	if err != nil {
		t.Fatal(err)
	}
	var clock atomic.Int64 // orders calls and returns
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg, bg sync.WaitGroup
	stop := make(chan struct{})
	bg.Go(func() { // keeps flushes and merges going
		r := rand.New(rand.NewPCG(9, 9))
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			m := engine.NewMutation()
			m.Set("f", "filler", engine.Timestamp(i), make([]byte, 2000))
			if err := tb.Apply(ctx, fmt.Sprintf("g%d-%d filler", r.IntN(groups), r.IntN(20)), m, engine.NoSync); err != nil {
				t.Error(err)
				return
			}
			if i%200 == 199 {
				if err := db.Compact(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for c := range clients {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 77))
			for i := range perClient {
				in := histIn{group: r.IntN(groups), read: r.IntN(2) == 0, row: r.IntN(3)}
				if !in.read {
					for range 1 + r.IntN(3) {
						w := histWrite{row: r.IntN(2), col: r.IntN(2), value: fmt.Sprintf("%d.%d", c, i)}
						switch r.IntN(8) {
						case 0:
							w.value = ""
						case 1:
							w.value, w.col = "", 2
						}
						in.writes = append(in.writes, w)
					}
				}
				op := porcupine.Operation{ClientId: c, Input: in, Call: clock.Add(1)}
				var out group
				var err error
				if in.read {
					out, err = histRead(tb, in)
				} else {
					err = histApply(db, tb, in, r.IntN(3) > 0)
				}
				if op.Return, op.Output = clock.Add(1), out; err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	close(stop)
	bg.Wait()
	if t.Failed() {
		return
	}
	switch res := porcupine.CheckOperationsTimeout(histModel, history, time.Minute); res {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Error("the check did not end in a minute")
	default:
		t.Error("the history is not linearizable")
	}
}

func histRow(in histIn, row int) string { return fmt.Sprintf("g%d-%d", in.group, row) }

func histApply(db *engine.DB, tb *engine.Table, in histIn, noSync bool) error {
	b := engine.NewBatch()
	for _, w := range in.writes {
		m := engine.NewMutation()
		switch {
		case w.col == 2:
			m.DeleteRow()
		case w.value == "":
			m.DeleteCellsInColumn("f", fmt.Sprint(w.col))
		default:
			m.Set("f", fmt.Sprint(w.col), engine.ServerTime, []byte(w.value))
		}
		b.Add(tb, histRow(in, w.row), m)
	}
	if noSync {
		return db.Apply(ctx, b, engine.NoSync)
	}
	return db.Apply(ctx, b)
}

func histRead(tb *engine.Table, in histIn) (out group, err error) {
	fill := func(row int, cells []engine.Cell) {
		for _, c := range cells {
			if c.Qualifier == "0" || c.Qualifier == "1" {
				out[row][c.Qualifier[0]-'0'] = string(c.Value)
			}
		}
	}
	if in.row < 2 {
		row, err := tb.ReadRow(ctx, histRow(in, in.row))
		fill(in.row, row.Cells)
		return out, err
	}
	set := engine.NewClosedRange(histRow(in, 0), histRow(in, 1))
	err = tb.ReadRows(ctx, set, func(r engine.Row) bool {
		for row := range 2 {
			if r.Key == histRow(in, row) {
				fill(row, r.Cells)
			}
		}
		return true
	})
	return out, err
}

// The check itself must be able to fail: a read that misses half a batch.
func TestHistoryCheckFindsHalfABatch(t *testing.T) {
	write := histIn{writes: []histWrite{{0, 0, "a"}, {1, 0, "a"}}}
	ops := []porcupine.Operation{
		{ClientId: 0, Input: write, Output: group{}, Call: 1, Return: 2},
		{ClientId: 1, Input: histIn{read: true, row: 2}, Output: group{{"a"}, {}}, Call: 3, Return: 4},
	}
	if porcupine.CheckOperations(histModel, ops) {
		t.Fatal("half a batch passes")
	}
	ops[1].Output = group{{"a"}, {"a"}}
	if !porcupine.CheckOperations(histModel, ops) {
		t.Fatal("a whole batch does not pass")
	}
}
