package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
)

// owner is one goroutine with rows and a family of its own in shared tables, and a model of them. Whatever the others do, its own
// rows are what the model says.
type owner struct {
	id     int
	r      *rand.Rand
	db     *DB
	models []*eager // by table
	adds   []map[string]int64
	snap   *Snapshot
	saved  []*eager
	log    []string
}

func (w *owner) row(i int) string { return fmt.Sprintf("%d-%c", w.id, 'a'+i) }
func (w *owner) family() string   { return fmt.Sprintf("own%d", w.id) }
func (w *owner) table(i int) *Table {
	return w.db.Table([]string{"t", "u"}[i])
}

const ownerRows = 5

func newOwner(id int, db *DB) *owner {
	w := &owner{id: id, r: rand.New(rand.NewPCG(uint64(id), 99)), db: db}
	for range 2 {
		m := &eager{now: 1_000_000_000, fams: map[string]eagerFamily{"f": {}, "g": {rule: gc.MaxVersionsPolicy(2)}}, cells: map[eagerColumn]map[int64]string{}}
		w.models = append(w.models, m)
		w.adds = append(w.adds, map[string]int64{})
	}
	return w
}

func (w *owner) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
	if len(w.log) > 60 {
		w.log = w.log[20:]
	}
}

func (w *owner) put(m *eager, c eagerColumn, ts int64, v string) {
	if m.cells[c] == nil {
		m.cells[c] = map[int64]string{}
	}
	m.cells[c][ts] = v
}

func (w *owner) step() error {
	defer func() {
		for _, m := range w.models {
			m.collect()
		}
	}()
	at := w.r.IntN(2)
	m, tb := w.models[at], w.table(at)
	fams := []string{"f", "g"}
	if _, ok := m.fams[w.family()]; ok {
		fams = append(fams, w.family())
	}
	fam, row := fams[w.r.IntN(len(fams))], w.row(w.r.IntN(ownerRows))
	col := eagerColumn{row, fam, []string{"", "q"}[w.r.IntN(2)]}
	ts, v := int64(w.r.IntN(6)), fmt.Sprint(w.r.Uint32())
	switch n := w.r.IntN(100); {
	case n < 25:
		w.note("set %v@%d=%s", col, ts, v)
		w.put(m, col, ts, v)
		return tb.Apply(ctx, row, set(fam, col.qualifier, Timestamp(ts), v), NoSync)
	case n < 40: // a batch over both tables
		b := NewBatch()
		for i := range w.models {
			for k := range ownerRows {
				c := eagerColumn{w.row(k), []string{"f", "g"}[k%2], "b"}
				w.put(w.models[i], c, ts, v)
				b.Add(w.table(i), c.row, set(c.family, "b", Timestamp(ts), v))
			}
		}
		w.note("batch @%d=%s", ts, v)
		return w.db.Apply(ctx, b, NoSync)
	case n < 46:
		w.note("delete %v@%d", col, ts)
		m.remove(func(c eagerColumn, x int64) bool { return c == col && x == ts })
		return tb.Apply(ctx, row, mut(func(x *Mutation) { x.DeleteTimestampRange(fam, col.qualifier, Timestamp(ts), Timestamp(ts+1)) }), NoSync)
	case n < 50:
		w.note("delete %s", row)
		m.remove(func(c eagerColumn, _ int64) bool { return c.row == row })
		delete(w.adds[at], row)
		return tb.Apply(ctx, row, mut(func(x *Mutation) { x.DeleteRow() }), NoSync)
	case n < 56:
		w.note("add %s", row)
		w.adds[at][row]++
		return tb.Apply(ctx, row, mut(func(x *Mutation) { x.AddIntToCell("n", "", 0, 1) }), NoSync)
	case n < 64:
		any := strings.Contains(m.show(row, "f", false), "f:")
		var said bool
		other := col
		other.family, other.qualifier = "f", "c"
		w.note("check %s: set or not", row)
		if any {
			w.put(m, other, ts, v)
		}
		err := tb.Apply(ctx, row, NewCondMutation(FamilyExact("f"), set("f", "c", Timestamp(ts), v), nil), GetCondMutationResult(&said), NoSync)
		if err == nil && said != any {
			err = fmt.Errorf("the condition is %v, want %v", said, any)
		}
		return err
	case n < 70:
		c := eagerColumn{row, "g", "s"}
		want := ""
		for x := int64(2_000_000_000); x >= 0 && want == ""; x -= 2_000_000_000 {
			want = m.cells[c][x]
		}
		w.note("append %s", row)
		got, err := tb.ReadModifyWrite(ctx, row, func() *ReadModifyWrite { x := NewReadModifyWrite(); x.AppendValue("g", "s", []byte("+")); return x }(), NoSync)
		if err != nil {
			return err
		}
		newest, last := int64(-1), ""
		for x, v := range m.cells[c] {
			if x > newest {
				newest, last = x, v
			}
		}
		if string(got.Cells[0].Value) != last+"+" {
			return fmt.Errorf("row %s: append gave %q, want %q", row, got.Cells[0].Value, last+"+")
		}
		w.put(m, c, int64(got.Cells[0].Timestamp), last+"+")
		return nil
	case n < 77:
		lo := w.r.IntN(ownerRows)
		hi := lo + 1 + w.r.IntN(ownerRows-lo)
		w.note("drop rows %s..%s of %d", w.row(lo), w.row(hi), at)
		gone := func(row string) bool { return row >= w.row(lo) && row < w.row(hi) }
		m.remove(func(c eagerColumn, _ int64) bool { return gone(c.row) })
		for r := range w.adds[at] {
			if gone(r) {
				delete(w.adds[at], r)
			}
		}
		return tb.DropRowRange(ctx, NewRange(w.row(lo), w.row(hi)))
	case n < 84:
		f, rule := w.family(), modelRules[w.r.IntN(4)]
		if _, ok := m.fams[f]; !ok {
			w.note("create %s %v of %d", f, rule, at)
			m.fams[f] = eagerFamily{rule: rule}
			return tb.ModifyFamilies(ctx, AddFamily(f, FamilySpec{GC: rule, Group: []string{"", "x"}[w.r.IntN(2)]}))
		}
		if w.r.IntN(2) == 0 {
			err := tb.ModifyFamilies(ctx, SetGCRule(f, rule))
			w.note("rule %s %v of %d: %v", f, rule, at, err)
			if errors.Is(err, ErrRuleChangePending) {
				return nil
			}
			m.fams[f] = eagerFamily{rule: rule}
			return err
		}
		w.note("drop and create %s of %d", f, at)
		m.remove(func(c eagerColumn, _ int64) bool { return c.family == f })
		if w.r.IntN(2) == 0 {
			m.fams[f] = eagerFamily{rule: rule}
			return tb.ModifyFamilies(ctx, DropFamily(f), AddFamily(f, FamilySpec{GC: rule}))
		}
		delete(m.fams, f)
		return tb.ModifyFamilies(ctx, DropFamily(f))
	case n < 88:
		if w.snap != nil {
			if err := w.snap.Close(); err != nil {
				return err
			}
		}
		w.note("snapshot")
		var err error
		w.saved = nil
		for _, m := range w.models {
			w.saved = append(w.saved, m.clone())
		}
		w.snap, err = w.db.Snapshot()
		return err
	case n < 90:
		w.note("compact")
		return tb.Compact(ctx, PrefixRange(fmt.Sprint(w.id)))
	case n < 92:
		w.note("flush")
		return w.db.Flush(ctx)
	}
	return nil
}

// look reads the owner's rows of a table as text and the sums.
func (w *owner) look(at int, opts ...ReadOption) (string, map[string]int64, error) {
	var b strings.Builder
	sums := map[string]int64{}
	err := w.table(at).ReadRows(ctx, PrefixRange(fmt.Sprintf("%d-", w.id)), func(r Row) bool {
		keep := r
		keep.Cells = nil
		for _, c := range r.Cells {
			if c.Family == "n" {
				for _, x := range c.Value {
					sums[r.Key] = sums[r.Key]<<8 | int64(x)
				}
				continue
			}
			keep.Cells = append(keep.Cells, c)
		}
		if len(keep.Cells) > 0 {
			b.WriteString(show(keep))
		}
		return true
	}, opts...)
	return b.String(), sums, err
}

func (w *owner) check() error {
	at := w.r.IntN(2)
	var opts []ReadOption
	reverse := w.r.IntN(2) == 0
	if reverse {
		opts = append(opts, ReverseScan())
	}
	got, sums, err := w.look(at, opts...)
	if err != nil {
		return err
	}
	if want := w.models[at].show("", "", reverse); got != want {
		return fmt.Errorf("table %d got\n%swant\n%s", at, got, want)
	}
	if fmt.Sprint(sums) != fmt.Sprint(w.adds[at]) {
		return fmt.Errorf("table %d sums got %v want %v", at, sums, w.adds[at])
	}
	if w.snap != nil {
		if got, _, err = w.look(at, AtSnapshot(w.snap)); err != nil {
			return err
		}
		if want := w.saved[at].show("", "", false); got != want {
			return fmt.Errorf("snapshot of table %d got\n%swant\n%s", at, got, want)
		}
	}
	return nil
}

// Many owners of rows and families work in the same tables, with drops of rows, changes of families and rules, snapshots,
// flushes and compactions all at once, while another table comes and goes: each sees its own rows as if it were alone, and
// after a crash too.
func TestOwnersSeeTheirRowsWhateverOthersDo(t *testing.T) {
	steps := 250
	if raceEnabled {
		steps = 80
	}
	mem := vfs.NewMem()
	opts := Options{
		FS: mem, Clock: func() time.Time { return time.UnixMicro(1_000_000_000) }, MemtableBytes: 16 << 10, TableFileBytes: 4 << 10,
		LevelBytes: 8 << 10, LogSegmentBytes: 64 << 10, L0Files: 2, CacheBytes: 1 << 20,
	}
	db, err := Open("/store", opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"t", "u"} {
		if _, err := db.CreateTable(ctx, name, TableSpec{BlockBytes: 1024, Families: map[string]FamilySpec{
			"f": {}, "g": {GC: gc.MaxVersionsPolicy(2), Group: "x"}, "n": {Aggregate: Sum, Group: "y"},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	var owners []*owner
	for id := range 4 {
		owners = append(owners, newOwner(id, db))
	}
	for round := range 3 {
		var wg sync.WaitGroup
		errs := make(chan error, len(owners)+1)
		done := make(chan struct{})
		for _, w := range owners {
			wg.Go(func() {
				for range steps {
					err := w.step()
					if err == nil {
						err = w.check()
					}
					if err != nil {
						errs <- fmt.Errorf("round %d, owner %d: %w\n%s", round, w.id, err, strings.Join(w.log, "\n"))
						return
					}
				}
			})
		}
		other := make(chan struct{})
		go func() {
			defer close(other)
			for {
				select {
				case <-done:
					return
				default:
				}
				tb, err := db.CreateTable(ctx, "v", TableSpec{Families: map[string]FamilySpec{"f": {}, "g": {Group: "x"}}})
				for i := range 30 {
					if err == nil {
						err = tb.Apply(ctx, fmt.Sprint(i), mut(func(m *Mutation) { m.Set("f", "", 1, make([]byte, 300)); m.Set("g", "", 1, nil) }), NoSync)
					}
				}
				if err == nil {
					err = db.DropTable(ctx, "v")
				}
				if err != nil {
					errs <- err
					return
				}
			}
		}()
		wg.Wait()
		close(done)
		<-other
		close(errs)
		for err := range errs {
			t.Fatal(err)
		}
		if h := db.Health(); h.State != StateOK {
			t.Fatal(h.Cause)
		}
		for _, w := range owners {
			if w.snap != nil {
				if err := w.snap.Close(); err != nil {
					t.Fatal(err)
				}
				w.snap = nil
			}
		}
		if err := db.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		image := mem.CrashClone(uint64(round), 0.5)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if round%2 == 0 {
			mem = image
		}
		opts.FS = mem
		if db, err = Open("/store", opts); err != nil {
			t.Fatal(err)
		}
		for _, w := range owners {
			w.db = db
			for range 4 {
				if err := w.check(); err != nil {
					t.Fatalf("after round %d, owner %d: %v\n%s", round, w.id, err, strings.Join(w.log, "\n"))
				}
			}
		}
	}
	if err := db.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	for _, w := range owners {
		for range 4 {
			if err := w.check(); err != nil {
				t.Fatalf("at the end, owner %d: %v", w.id, err)
			}
		}
	}
	if m := db.Metrics(); m.StandingChanges > 0 {
		t.Errorf("%d changes stand after a compaction", m.StandingChanges)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
