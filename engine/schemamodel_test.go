package engine

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

// eager is a table as it would be if every rule removed cells the moment it could.
type eager struct {
	now   int64
	fams  map[string]eagerFamily
	cells map[eagerColumn]map[int64]string
}

type eagerFamily struct {
	rule  gc.Rule
	group string
}

type eagerColumn struct{ row, family, qualifier string }

func (m *eager) collect() {
	for c, vs := range m.cells {
		ts := make([]int64, 0, len(vs))
		for t := range vs {
			ts = append(ts, t)
		}
		slices.Sort(ts)
		slices.Reverse(ts)
		for i, t := range ts {
			if m.fams[c.family].rule.Drops(i, t, m.now) {
				delete(vs, t)
			}
		}
	}
}

func (m *eager) remove(gone func(c eagerColumn, ts int64) bool) {
	for c, vs := range m.cells {
		for ts := range vs {
			if gone(c, ts) {
				delete(vs, ts)
			}
		}
	}
}

// show prints the rows that family and row, if not empty, are the only ones of.
func (m *eager) show(row, family string, reverse bool) string {
	rows := map[string][]string{}
	for c, vs := range m.cells {
		if row != "" && c.row != row || family != "" && c.family != family {
			continue
		}
		for ts, v := range vs {
			// Sorted as text: family and qualifier ascending, newest first.
			rows[c.row] = append(rows[c.row], fmt.Sprintf("%s\x00%s@%020d@%d=%s", c.family, c.qualifier, math.MaxInt64-ts, ts, v))
		}
	}
	var keys []string
	for k := range rows {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	if reverse {
		slices.Reverse(keys)
	}
	var b strings.Builder
	for _, k := range keys {
		sort.Strings(rows[k])
		b.WriteString(k)
		for _, c := range rows[k] {
			head, rest, _ := strings.Cut(c, "@")
			_, tail, _ := strings.Cut(rest, "@")
			b.WriteString(" " + strings.Replace(head, "\x00", ":", 1) + "@" + tail)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (m *eager) clone() *eager {
	c := &eager{now: m.now, fams: map[string]eagerFamily{}, cells: map[eagerColumn]map[int64]string{}}
	for k, v := range m.fams {
		c.fams[k] = v
	}
	for k, v := range m.cells {
		c.cells[k] = map[int64]string{}
		for ts, x := range v {
			c.cells[k][ts] = x
		}
	}
	return c
}

// lottery is an executor that keeps jobs waiting for as long as it can: who waits for one runs one, mostly the latest.
type lottery struct {
	r    *rand.Rand
	jobs []func()
}

func (x *lottery) Go(fn func()) { x.jobs = append(x.jobs, fn) }
func (x *lottery) Inline() bool { return true }

func (x *lottery) Help() bool {
	n := len(x.jobs)
	if n == 0 {
		return false
	}
	i := n - 1
	if x.r.IntN(4) == 0 {
		i = x.r.IntN(n)
	}
	fn := x.jobs[i]
	x.jobs = slices.Delete(x.jobs, i, i+1)
	fn()
	return true
}

func (x *lottery) Wait() {
	for x.Help() {
	}
}

// schemaRun drives a store and the model side by side.
type schemaRun struct {
	*testStore
	r     *rand.Rand
	tb    *Table
	model *eager
	log   []string
	snap  *Snapshot
	saved *eager
	rows  int
	pad   int
}

var modelRules = []gc.Rule{
	gc.NoPolicy(), gc.MaxVersionsPolicy(1), gc.MaxVersionsPolicy(2), gc.MaxVersionsPolicy(3), gc.MaxAgePolicy(time.Second), gc.MaxAgePolicy(3 * time.Second),
	gc.IntersectionPolicy(gc.MaxVersionsPolicy(1), gc.MaxAgePolicy(2*time.Second)), gc.UnionPolicy(gc.MaxVersionsPolicy(2), gc.MaxAgePolicy(2*time.Second)),
}

// There are few rows, so that versions and sources pile up, or many with large values, so that files and levels do.
func (s *schemaRun) rowKey(i int) string { return string(rune('a' + i)) }

func (s *schemaRun) value() string { return fmt.Sprint(len(s.log)) + strings.Repeat("x", s.pad) }

func (s *schemaRun) rule() gc.Rule { return modelRules[s.r.IntN(len(modelRules))] }

func (s *schemaRun) family() string {
	var names []string
	for f := range s.model.fams {
		names = append(names, f)
	}
	sort.Strings(names)
	return names[s.r.IntN(len(names))]
}

func (s *schemaRun) stamp() int64 {
	return max(s.model.now-int64(s.r.IntN(5))*700_000, 0)
}

func (s *schemaRun) step() error {
	m := s.model
	defer m.collect()
	note := func(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }
	row, fam := s.rowKey(s.r.IntN(s.rows)), ""
	if len(m.fams) > 0 {
		fam = s.family()
	}
	col := eagerColumn{row, fam, []string{"", "q"}[s.r.IntN(2)]}
	switch n := s.r.IntN(100); {
	case n < 45 && fam != "":
		ts, v := s.stamp(), s.value()
		note("set %v @%d=%.9s", col, ts, v)
		if m.cells[col] == nil {
			m.cells[col] = map[int64]string{}
		}
		m.cells[col][ts] = v
		return s.tb.Apply(ctx, row, set(fam, col.qualifier, Timestamp(ts), v), NoSync)
	case n < 50 && fam != "":
		lo := s.stamp()
		hi := lo + 1 + int64(s.r.IntN(2))*1_000_000
		note("delete %v [%d,%d)", col, lo, hi)
		m.remove(func(c eagerColumn, ts int64) bool { return c == col && lo <= ts && ts < hi })
		return s.tb.Apply(ctx, row, mut(func(x *Mutation) { x.DeleteTimestampRange(fam, col.qualifier, Timestamp(lo), Timestamp(hi)) }), NoSync)
	case n < 53 && fam != "":
		note("delete %v", col)
		m.remove(func(c eagerColumn, ts int64) bool { return c == col })
		return s.tb.Apply(ctx, row, mut(func(x *Mutation) { x.DeleteCellsInColumn(fam, col.qualifier) }), NoSync)
	case n < 55 && fam != "":
		note("delete %s %s", row, fam)
		m.remove(func(c eagerColumn, ts int64) bool { return c.row == row && c.family == fam })
		return s.tb.Apply(ctx, row, mut(func(x *Mutation) { x.DeleteCellsInFamily(fam) }), NoSync)
	case n < 58:
		note("delete %s", row)
		m.remove(func(c eagerColumn, ts int64) bool { return c.row == row })
		return s.tb.Apply(ctx, row, mut(func(x *Mutation) { x.DeleteRow() }), NoSync)
	case n < 67:
		note("flush")
		return s.Flush(ctx)
	case n < 70:
		lo := s.r.IntN(s.rows)
		note("compact %s..", s.rowKey(lo))
		return s.tb.Compact(ctx, NewRange(s.rowKey(lo), s.rowKey(lo+1)))
	case n < 72:
		note("compact")
		return s.Compact(ctx)
	case n < 79:
		d := time.Duration(s.r.IntN(2000)) * time.Millisecond
		note("tick %v", d)
		s.now = s.now.Add(d)
		m.now = s.now.UnixMicro()
		return nil
	case n < 87 && fam != "":
		rule := s.rule()
		err := s.tb.ModifyFamilies(ctx, SetGCRule(fam, rule))
		note("rule %s %v: %v", fam, rule, err)
		if errors.Is(err, ErrRuleChangePending) {
			return nil
		}
		f := m.fams[fam]
		f.rule = rule
		m.fams[fam] = f
		return err
	case n < 90:
		name := []string{"f", "g", "f-1"}[s.r.IntN(3)]
		old, have := m.fams[name]
		var changes []FamilyChange
		if have {
			changes = append(changes, DropFamily(name))
			delete(m.fams, name)
			m.remove(func(c eagerColumn, ts int64) bool { return c.family == name })
		}
		if !have || s.r.IntN(2) == 0 {
			f := eagerFamily{rule: s.rule(), group: old.group}
			if !have {
				f.group = []string{"", "x"}[s.r.IntN(2)]
			}
			changes = append(changes, AddFamily(name, FamilySpec{GC: f.rule, Group: f.group}))
			m.fams[name] = f
		}
		note("families %+v", changes)
		return s.tb.ModifyFamilies(ctx, changes...)
	case n < 93:
		i, j := s.r.IntN(s.rows), s.r.IntN(s.rows)
		lo, hi := s.rowKey(min(i, j)), s.rowKey(max(i, j))
		note("drop rows [%s,%s]", lo, hi)
		m.remove(func(c eagerColumn, ts int64) bool { return lo <= c.row && c.row <= hi })
		return s.tb.DropRowRange(ctx, NewClosedRange(lo, hi))
	case n < 94:
		note("drop all rows")
		m.remove(func(c eagerColumn, ts int64) bool { return true })
		return s.tb.DropAllRows(ctx)
	case n < 96:
		note("reopen")
		if s.snap != nil {
			s.must(s.snap.Close())
			s.snap = nil
		}
		s.reopen()
		s.tb = s.Table("t")
		return nil
	case n < 98:
		note("crash")
		s.must(s.Sync(ctx))
		if s.snap != nil {
			s.must(s.snap.Close())
			s.snap = nil
		}
		image := s.fs.CrashClone(s.r.Uint64(), 0.5)
		s.must(s.Close())
		s.fs, s.opts.FS = image, image
		s.open()
		s.tb = s.Table("t")
		return nil
	default:
		note("snapshot")
		if s.snap != nil {
			s.must(s.snap.Close())
		}
		var err error
		m.collect()
		s.snap, err = s.Snapshot()
		s.saved = m.clone()
		return err
	}
}

func (s *schemaRun) check() error {
	m := s.model
	if got, want := s.scan(s.tb), m.show("", "", false); got != want {
		return fmt.Errorf("scan got\n%swant\n%s", got, want)
	}
	if got, want := s.scan(s.tb, ReverseScan()), m.show("", "", true); got != want {
		return fmt.Errorf("reverse scan got\n%swant\n%s", got, want)
	}
	row := s.rowKey(s.r.IntN(s.rows))
	r, err := s.tb.ReadRow(ctx, row)
	if err != nil {
		return err
	}
	got := ""
	if len(r.Cells) > 0 {
		got = show(r)
	}
	if want := m.show(row, "", false); got != want {
		return fmt.Errorf("row %s got\n%swant\n%s", row, got, want)
	}
	if s.snap != nil {
		if got, want := s.scan(s.tb, AtSnapshot(s.snap)), s.saved.show("", "", false); got != want {
			return fmt.Errorf("snapshot got\n%swant\n%s", got, want)
		}
	}
	return nil
}

func runSchema(t *testing.T, seed uint64, steps int) {
	s := &schemaRun{r: rand.New(rand.NewPCG(seed, 7)), rows: 4}
	if seed%4 == 3 {
		s.rows, s.pad = 20, 900
	}
	s.testStore = newStore(t, func(o *Options) {
		o.MemtableBytes, o.L0Files, o.LevelBytes = 16<<10, 2+s.r.IntN(3), 4<<10
		o.TableFileBytes = 4 << 10
		o.Background = &lottery{r: s.r}
	})
	s.model = &eager{now: s.now.UnixMicro(), fams: map[string]eagerFamily{}, cells: map[eagerColumn]map[int64]string{}}
	spec := TableSpec{Families: map[string]FamilySpec{}, Codec: CodecNone, BlockBytes: 1024}
	for i, f := range []string{"f", "g"} {
		e := eagerFamily{rule: s.rule(), group: []string{"", "x"}[i*s.r.IntN(2)]}
		s.model.fams[f] = e
		spec.Families[f] = FamilySpec{GC: e.rule, Group: e.group}
	}
	var err error
	s.tb, err = s.CreateTable(ctx, "t", spec)
	s.must(err)
	defer func() {
		if s.snap != nil {
			s.must(s.snap.Close())
		}
	}()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, families %+v\n%s", seed, spec.Families, strings.Join(s.log, "\n"))
		}
	}()
	if s.pad > 0 {
		steps *= 3
	}
	for range steps {
		err := s.step()
		if err == nil {
			err = s.check()
		}
		if err == nil && s.Health().State != StateOK {
			err = s.Health().Cause
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Schema changes, drops, writes, flushes, compactions, clock steps, crashes and reopening in any order give what a table gives
// that removes everything at once, also through a snapshot taken before.
func TestSchemaChangesMatchAnEagerTable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(schemaSeeds()) {
		runSchema(t, seed, 60)
		if t.Failed() {
			return
		}
	}
}

func schemaSeeds() int {
	if raceEnabled {
		return 12
	}
	return 120
}
