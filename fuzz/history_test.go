package fuzz

import (
	"errors"
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
	kind   histKind
	row    int // of a read, 2 = both; of a condition, an append
	col    int
	want   bool        // of a guarded batch
	value  string      // to append
	writes []histWrite // a batch
	other  []histWrite // if a condition does not hold
}

type histKind uint8

const (
	histWriting  histKind = iota // a batch over rows
	histReading                  // of a row, or a scan over both
	histSnapshot                 // both rows, one after the other, of one snapshot
	histCond                     // writes if the column has a cell, else other
	histAppend                   // read-modify-write
	histGuarded                  // a batch over rows that requires the column to have a cell, or none
	histKinds
)

// histOut is what a call returned.
type histOut struct {
	group group  // of reads
	flag  bool   // the condition
	value string // after an append
}

// histWrite sets a cell, or deletes what value "" says: a column, or the whole row if col is 2.
type histWrite struct {
	row, col int
	value    string
}

func apply(g group, writes []histWrite) group {
	for _, w := range writes {
		if w.col == 2 {
			g[w.row] = [2]string{}
		} else {
			g[w.row][w.col] = w.value
		}
	}
	return g
}

// step is what the call must return in state g, and the state after it.
func (in histIn) step(g group) (histOut, group) {
	switch in.kind {
	case histWriting:
		return histOut{}, apply(g, in.writes)
	case histCond, histGuarded:
		there := g[in.row][in.col] != ""
		switch {
		case in.kind == histGuarded && there != in.want:
			return histOut{flag: false}, g
		case in.kind == histGuarded:
			return histOut{flag: true}, apply(g, in.writes)
		case there:
			return histOut{flag: true}, apply(g, in.writes)
		}
		return histOut{flag: false}, apply(g, in.other)
	case histAppend:
		g[in.row][in.col] += in.value
		return histOut{value: g[in.row][in.col]}, g
	}
	seen := g
	if in.row < 2 {
		seen[1-in.row] = [2]string{}
	}
	return histOut{group: seen}, g
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
		want, next := input.(histIn).step(state.(group))
		return want == output.(histOut), next
	},
}

func randWrites(r *rand.Rand, tag string) (out []histWrite) {
	for range 1 + r.IntN(3) {
		w := histWrite{row: r.IntN(2), col: r.IntN(2), value: tag}
		switch r.IntN(8) {
		case 0:
			w.value = ""
		case 1:
			w.value, w.col = "", 2
		}
		out = append(out, w)
	}
	return out
}

func randHist(r *rand.Rand, group int, tag string) histIn {
	in := histIn{group: group, row: r.IntN(2), col: r.IntN(2), want: r.IntN(2) == 0, value: tag + ","}
	switch n := r.IntN(12); {
	case n < 4:
		in.kind, in.row = histReading, r.IntN(3)
	case n < 5:
		in.kind, in.row = histSnapshot, 2
	case n < 7:
		in.kind = histWriting
	default:
		in.kind = histCond + histKind(r.IntN(int(histKinds-histCond)))
	}
	in.writes, in.other = randWrites(r, tag), randWrites(r, tag+"else")
	if in.kind == histCond { // of one row
		for _, list := range [][]histWrite{in.writes, in.other} {
			for i := range list {
				list[i].row = in.row
			}
		}
	}
	return in
}

// histStore is a store that flushes and merges all the time until it is stopped.
type histStore struct {
	db   *engine.DB
	tb   *engine.Table
	stop chan struct{}
	bg   sync.WaitGroup
}

func newHistStore(t *testing.T, groups int) *histStore {
	db, err := engine.Open("/store", base(engine.Options{FS: vfs.NewMem(vfs.MemOptions{NoCrash: true}), MemtableBytes: 16 << 10, TableFileBytes: 8 << 10}))
	if err != nil {
		t.Fatal(err)
	}
	tb, err := db.CreateTable(ctx, "t", engine.TableSpec{Families: map[string]engine.FamilySpec{"f": {GC: Rule{Versions: 1}.Policy()}}, BlockBytes: 1024})
	if err != nil {
		t.Fatal(err)
	}
	s := &histStore{db: db, tb: tb, stop: make(chan struct{})}
	s.bg.Go(func() {
		r := rand.New(rand.NewPCG(9, 9))
		for i := 0; ; i++ {
			select {
			case <-s.stop:
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
	t.Cleanup(func() {
		close(s.stop)
		s.bg.Wait()
		m := db.Metrics()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if m.Flushes < 10 || m.Compactions < 3 {
			t.Errorf("%d flushes and %d compactions are too few", m.Flushes, m.Compactions)
		}
		t.Logf("%d flushes, %d compactions, %d moves", m.Flushes, m.Compactions, m.Moves)
	})
	return s
}

// history lets clients loose on groups from first on and checks what they saw.
func (s *histStore) history(t *testing.T, seed uint64, clients, perClient, first, groups int) {
	var clock atomic.Int64 // orders calls and returns
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), seed))
			for i := range perClient {
				in := randHist(r, first+r.IntN(groups), fmt.Sprintf("%d.%d", c, i))
				noSync := r.IntN(3) > 0
				op := porcupine.Operation{ClientId: c, Input: in, Call: clock.Add(1)}
				out, err := s.call(in, noSync)
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
	if t.Failed() {
		return
	}
	switch res := porcupine.CheckOperationsTimeout(histModel, history, time.Minute); res {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Errorf("seed %d: the check did not end in a minute", seed)
	default:
		t.Errorf("seed %d: the history is not linearizable", seed)
	}
}

// Batches, conditional and read-modify-writes and reads from several goroutines, while memtables are flushed and files merged,
// must look as if each had happened at one moment between its call and its return.
func TestConcurrentHistoriesAreLinearizable(t *testing.T) {
	perClient, seeds := 300, 200
	if !mutantsRun { // under the race detector
		perClient, seeds = 100, 20
	}
	s := newHistStore(t, 6)
	s.history(t, 77, 4, perClient, 0, 6)
	for seed := range seeds { // short ones, on few rows of their own
		s.history(t, uint64(seed), 3+seed%3, 40, 6+2*seed, 1+seed%2)
	}
}

func (s *histStore) row(in histIn, row int) string { return fmt.Sprintf("g%d-%d", in.group, row) }

func (s *histStore) change(m *engine.Mutation, w histWrite) {
	switch {
	case w.col == 2:
		m.DeleteRow()
	case w.value == "":
		m.DeleteCellsInColumn("f", fmt.Sprint(w.col))
	default:
		m.Set("f", fmt.Sprint(w.col), engine.ServerTime, []byte(w.value))
	}
}

func (s *histStore) call(in histIn, noSync bool) (out histOut, err error) {
	var opts []engine.ApplyOption
	if noSync {
		opts = append(opts, engine.NoSync)
	}
	col := fmt.Sprint(in.col)
	switch in.kind {
	case histWriting, histGuarded:
		b := engine.NewBatch()
		if in.kind == histGuarded {
			b.Require(s.tb, s.row(in, in.row), engine.ColumnExact("f", col), in.want)
		}
		for _, w := range in.writes {
			m := engine.NewMutation()
			s.change(m, w)
			b.Add(s.tb, s.row(in, w.row), m)
		}
		err = s.db.Apply(ctx, b, opts...)
		if in.kind == histGuarded {
			if out.flag = err == nil; errors.Is(err, engine.ErrPrecondition) {
				err = nil
			}
		}
		return out, err
	case histCond:
		yes, no := engine.NewMutation(), engine.NewMutation()
		for _, w := range in.writes {
			s.change(yes, w)
		}
		for _, w := range in.other {
			s.change(no, w)
		}
		opts = append(opts, engine.GetCondMutationResult(&out.flag))
		return out, s.tb.Apply(ctx, s.row(in, in.row), engine.NewCondMutation(engine.ColumnExact("f", col), yes, no), opts...)
	case histAppend:
		m := engine.NewReadModifyWrite()
		m.AppendValue("f", col, []byte(in.value))
		r, err := s.tb.ReadModifyWrite(ctx, s.row(in, in.row), m, opts...)
		if err == nil {
			out.value = string(r.Cells[0].Value)
		}
		return out, err
	}
	fill := func(row int, cells []engine.Cell) {
		for _, c := range cells {
			if c.Qualifier == "0" || c.Qualifier == "1" {
				out.group[row][c.Qualifier[0]-'0'] = string(c.Value)
			}
		}
	}
	if in.kind == histSnapshot {
		snap, err := s.db.Snapshot()
		if err != nil {
			return out, err
		}
		defer snap.Close()
		for row := range 2 {
			r, err := s.tb.ReadRow(ctx, s.row(in, row), engine.AtSnapshot(snap))
			if err != nil {
				return out, err
			}
			fill(row, r.Cells)
		}
		return out, nil
	}
	if in.row < 2 {
		row, err := s.tb.ReadRow(ctx, s.row(in, in.row))
		fill(in.row, row.Cells)
		return out, err
	}
	set := engine.NewClosedRange(s.row(in, 0), s.row(in, 1))
	err = s.tb.ReadRows(ctx, set, func(r engine.Row) bool {
		for row := range 2 {
			if r.Key == s.row(in, row) {
				fill(row, r.Cells)
			}
		}
		return true
	})
	return out, err
}

// The check itself must be able to fail.
func TestHistoryCheckFinds(t *testing.T) {
	write := histIn{writes: []histWrite{{0, 0, "a"}, {1, 0, "a"}}}
	app := histIn{kind: histAppend, value: "x"}
	for _, c := range []struct {
		name string
		in   histIn
		bad  histOut
		good histOut
	}{
		{"half a batch", histIn{kind: histReading, row: 2}, histOut{group: group{{"a"}, {}}}, histOut{group: group{{"a"}, {"a"}}}},
		{"half a batch in a snapshot", histIn{kind: histSnapshot, row: 2}, histOut{group: group{{}, {"a"}}}, histOut{group: group{{"a"}, {"a"}}}},
		{"a lost append", app, histOut{value: "x"}, histOut{value: "ax"}},
		{"a condition on the past", histIn{kind: histCond}, histOut{flag: false}, histOut{flag: true}},
		{"a precondition on the past", histIn{kind: histGuarded, col: 0}, histOut{flag: true}, histOut{flag: false}},
	} {
		ops := []porcupine.Operation{
			{ClientId: 0, Input: write, Output: histOut{}, Call: 1, Return: 2},
			{ClientId: 1, Input: c.in, Output: c.bad, Call: 3, Return: 4},
		}
		if porcupine.CheckOperations(histModel, ops) {
			t.Errorf("%s passes", c.name)
		}
		ops[1].Output = c.good
		if !porcupine.CheckOperations(histModel, ops) {
			t.Errorf("%s: what is right does not pass", c.name)
		}
	}
}
