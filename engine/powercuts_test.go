package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// Many random lives of small stores, and in each the power is cut at every call that changes the disk, before it and in the middle
// of it, with nothing, some or all of what was under way kept. Each image that is left opens, and looks as after one of the steps
// from the last one that was acknowledged as durable to the last one begun: no acknowledged batch is lost, none is there in part,
// none comes back. Some images are recovered with the power cut again on the way.
//
// ROWAN_CUTS is how many images are opened; ROWAN_CUTS_SEED runs one life only. (seed, call, image) repeats exactly.

// cutStep is one step of a life.
type cutStep struct {
	name string
	do   func(s *sweep) error
	soft bool // its end does not make it durable
}

// cutLife is one life and what is known of it.
type cutLife struct {
	t      *testing.T
	seed   uint64
	rng    *rand.Rand
	s      *sweep
	looks  []string // after each step
	acked  int      // step that must survive
	placed int      // step begun
	step   string
	later  []func() error // images that may only be as after the step that is under way
	copied string         // what the checkpoint that is there must look like at least since: its step
	copyAt int
	n      cutCounts
}

// cutCounts are what a life has tried.
type cutCounts struct {
	cuts, images, recovered, again, lost, copies int
	steps                                        map[string]int // images by step that was under way
}

func (n *cutCounts) add(m cutCounts) {
	n.cuts += m.cuts
	n.images += m.images
	n.recovered += m.recovered
	n.again += m.again
	n.lost += m.lost
	n.copies += m.copies
	for k, v := range m.steps {
		n.steps[k] += v
	}
}

var cutTables = []string{"a", "b"}

func cutSpec() TableSpec {
	return TableSpec{BlockBytes: 512, Families: map[string]FamilySpec{
		"f": {GC: gc.MaxVersionsPolicy(2)}, "keep": {Group: "g"}, "n": {Aggregate: Sum},
	}}
}

// cutLook is what one sees of a store.
func cutLook(db *DB) (string, error) {
	names, err := db.Tables(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range names {
		tb := db.Table(name)
		info, err := tb.Describe(ctx)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s %v\n", name, info.Families)
		if err := tb.ReadRows(ctx, AllRows(), func(r Row) bool { b.WriteString(show(r)); return true }); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// next draws a step.
func (c *cutLife) next(i int) cutStep {
	rng := c.rng
	tables := func(s *sweep) []*Table {
		var out []*Table
		for _, name := range cutTables {
			out = append(out, s.db.Table(name))
		}
		return out
	}
	one := func(s *sweep, f func(t *Table) error) error { return f(s.db.Table(cutTables[0])) }
	switch k := rng.IntN(100); {
	case k < 76:
		soft, r := rng.IntN(3) > 0, rng.Uint64()
		return cutStep{"batch", func(s *sweep) error {
			b := NewBatch()
			x := rand.New(rand.NewPCG(r, 1))
			for _, t := range tables(s) {
				for range 1 + x.IntN(3) {
					b.Add(t, fmt.Sprint("r", x.IntN(9)), cutMutation(x, i))
				}
			}
			if soft {
				return s.db.Apply(ctx, b, NoSync)
			}
			return s.db.Apply(ctx, b)
		}, soft}
	case k < 79:
		return cutStep{"flush", func(s *sweep) error { return s.db.Flush(ctx) }, false}
	case k < 81:
		return cutStep{"compact", func(s *sweep) error { return s.db.Compact(ctx) }, false}
	case k < 84:
		return cutStep{"quiet", func(s *sweep) error { s.quiet(); return nil }, true}
	case k < 88:
		return cutStep{"reopen", func(s *sweep) error {
			err := s.db.Close()
			if err == nil {
				s.db, err = Open("/store", s.opts)
			}
			return err
		}, false}
	case k < 90:
		return cutStep{"manifest roll", func(s *sweep) error {
			s.db.manifest.RollAt = 1
			err := s.db.Flush(ctx)
			s.db.manifest.RollAt = 1 << 20
			return err
		}, false}
	case k < 92:
		lo := rng.IntN(6)
		return cutStep{"drop rows", func(s *sweep) error {
			return one(s, func(t *Table) error { return t.DropRowRange(ctx, NewRange(fmt.Sprint("r", lo), fmt.Sprint("r", lo+3))) })
		}, false}
	case k < 94:
		n := 1 + rng.IntN(3)
		return cutStep{"rule", func(s *sweep) error {
			err := one(s, func(t *Table) error { return t.ModifyFamilies(ctx, SetGCRule("f", gc.MaxVersionsPolicy(n))) })
			if errors.Is(err, ErrRuleChangePending) {
				return nil
			}
			return err
		}, false}
	case k < 96:
		return cutStep{"family", func(s *sweep) error {
			return one(s, func(t *Table) error {
				return t.ModifyFamilies(ctx, DropFamily("keep"), AddFamily("keep", FamilySpec{Group: "g"}))
			})
		}, false}
	case k < 98:
		return cutStep{"table", func(s *sweep) error {
			if err := s.db.DropTable(ctx, cutTables[1]); err != nil {
				return err
			}
			_, err := s.db.CreateTable(ctx, cutTables[1], cutSpec())
			return err
		}, false}
	default:
		dir := fmt.Sprint("/copy", i)
		return cutStep{"checkpoint", func(s *sweep) error {
			c.copied, c.copyAt = dir, c.placed-1
			_, err := s.db.Checkpoint(ctx, dir)
			return err
		}, false}
	}
}

func cutMutation(x *rand.Rand, i int) *Mutation {
	m := NewMutation()
	for range 1 + x.IntN(3) {
		q, ts := fmt.Sprint("q", x.IntN(3)), Timestamp(x.IntN(4)+i/8)
		switch x.IntN(12) {
		case 0:
			m.DeleteRow()
		case 1:
			m.DeleteCellsInFamily("keep")
		case 2:
			m.DeleteTimestampRange("f", q, ts/2, ts+1)
		case 3:
			m.DeleteCellsInColumn("keep", q)
		case 4:
			m.AddIntToCell("n", "n", 1, int64(i))
		case 5, 6, 7:
			m.Set("keep", q, ts, []byte(fmt.Sprint(i)))
		default:
			m.Set("f", q, ts, bytes.Repeat([]byte{byte('a' + i%26)}, 20+x.IntN(400)))
		}
	}
	return m
}

// run lives one life until enough images were opened or its steps are over.
func (c *cutLife) run(steps int) {
	c.rng = rand.New(rand.NewPCG(c.seed, 77))
	c.n.steps = map[string]int{}
	// Some disks refuse direct I/O or maps.
	c.s = newSweep(vfs.NewMem(vfs.MemOptions{NoDirect: c.seed%4 == 3, NoMap: c.seed%4 == 2}), c.seed, faultfs.Options{Record: true, Rules: []faultfs.Rule{func(o faultfs.Op) error {
		if o.N > 0 {
			c.cut("before")
		}
		return nil
	}}})
	c.tiny(&c.s.opts)
	c.s.mem.SetInFlight(func(string, string) { c.cut("inside") })
	first := []cutStep{{"create", func(s *sweep) (err error) { s.db, err = Open("/store", s.opts); return err }, false}}
	for _, name := range cutTables {
		first = append(first, cutStep{"table", func(s *sweep) error { _, err := s.db.CreateTable(ctx, name, cutSpec()); return err }, false})
	}
	c.looks = []string{""}
	for i := range steps {
		var st cutStep
		if i < len(first) {
			st = first[i]
		} else {
			st = c.next(i)
		}
		if st.name == "table" && i >= len(first) { // two changes: between them the table is not there
			gone, err := cutLook(c.s.db)
			c.must(err)
			at := strings.Index(gone, cutTables[1]+" map[")
			c.looks = append(c.looks, gone[:at])
			c.placed++
		}
		c.placed++
		c.step = st.name
		c.must(st.do(c.s))
		look, err := cutLook(c.s.db)
		c.must(err)
		switch st.name {
		case "flush", "compact", "quiet", "reopen", "manifest roll", "checkpoint":
			if was := c.looks[len(c.looks)-1]; look != was {
				c.must(fmt.Errorf("what one sees has changed: before\n%.3000s\nafter\n%.3000s", was, look))
			}
		}
		c.looks = append(c.looks, look)
		for _, f := range c.later {
			c.must(f())
		}
		c.later = nil
		if !st.soft {
			c.acked = c.placed
		}
	}
	c.step = "close"
	c.must(c.s.db.Close())
	c.must(intact(c.s.mem))
}

func (c *cutLife) tiny(o *Options) {
	o.MemtableBytes, o.TableFileBytes, o.LevelBytes, o.LogSegmentBytes, o.FreeFloor = 16<<10, 4<<10, 8<<10, 8<<10, -1
}

func (c *cutLife) must(err error) {
	if err != nil {
		c.t.Helper()
		c.t.Fatalf("seed %d, step %d (%s), call %d: %v", c.seed, c.placed, c.step, c.s.fs.Mutations(), err)
	}
}

// cut looks at what a power cut now would leave.
func (c *cutLife) cut(where string) {
	c.n.cuts++
	call := c.s.fs.Mutations()
	keeps := []float64{0, 1, 0.5, 0.1, 0.9, 0.3, 0.7, 0.5, 0.2, 0.8, 0.4, 0.6}
	n := 3
	switch c.step {
	case "batch", "quiet": // a write of the log, torn in every way
		n = len(keeps)
	case "flush", "compact", "manifest roll", "close": // many calls each
		keeps, n = keeps[call%3:], 1
	}
	for i, keep := range keeps[:n] {
		image := uint64(call*32 + i*2)
		if where == "inside" {
			image++
		}
		if err := c.image(c.s.mem.CrashClone(image, keep), image); err != nil {
			c.must(fmt.Errorf("power cut %s call %d (%s), keep %v: %w", where, call, nthCall(c.s.fs, call), keep, err))
		}
	}
}

// image opens what is left and compares it.
func (c *cutLife) image(mem *vfs.Mem, image uint64) error {
	c.n.images++
	c.n.steps[c.step]++
	write := image%5 == 0 // the others are only looked at
	s := newSweep(mem, image, faultfs.Options{})
	c.tiny(&s.opts)
	s.opts.ReadOnly = !write
	if write && image%3 == 0 {
		c.cutAgain(s, image)
	}
	db, err := Open("/store", s.opts)
	if errors.Is(err, ErrNotExist) && c.acked == 0 {
		return nil // the creation was cut short
	}
	if err != nil {
		return err
	}
	got, err := cutLook(db)
	if h := db.Health(); err == nil && h.State != StateOK {
		err = h.Cause
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if write {
		c.n.recovered++
		if err := intact(mem); err != nil {
			return err
		}
	}
	if c.step == "checkpoint" && c.copied != "" {
		if err := c.imageOfCopy(mem); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	}
	return c.compare(got)
}

// compare looks for a step that may have been the last to survive.
func (c *cutLife) compare(got string) error {
	if i := slices.Index(c.looks[c.acked:], got); i >= 0 {
		if c.acked+i < len(c.looks)-1 {
			c.n.lost++
		}
		return nil
	}
	acked := c.acked
	if c.placed < len(c.looks) {
		return c.differs(got, acked)
	}
	c.later = append(c.later, func() error {
		if got != c.looks[len(c.looks)-1] {
			return c.differs(got, acked)
		}
		return nil
	})
	return nil
}

func (c *cutLife) differs(got string, acked int) error {
	if i := slices.Index(c.looks[:acked], got); i >= 0 {
		return fmt.Errorf("an image looks as after step %d, step %d was acknowledged", i, acked)
	}
	return fmt.Errorf("an image looks like no step:\n%.3000s\nacknowledged:\n%.3000s", got, c.looks[acked])
}

// cutAgain cuts the power once more while s recovers.
func (c *cutLife) cutAgain(s *sweep, image uint64) {
	at := 1 + int(image/15)%40
	s.fs.SetRules(func(o faultfs.Op) error {
		if o.N != at {
			return nil
		}
		c.n.again++
		c.n.images++
		second := newSweep(s.mem.CrashClone(image, float64(image%3)/2), image, faultfs.Options{})
		c.tiny(&second.opts)
		second.opts.ReadOnly = true
		db, err := Open("/store", second.opts)
		if err != nil {
			if errors.Is(err, ErrNotExist) && c.acked == 0 {
				return nil
			}
			return fmt.Errorf("power cut again at call %d (%s): %w", at, o, err)
		}
		got, err := cutLook(db)
		if err = errors.Join(err, db.Close()); err == nil {
			err = c.compare(got)
		}
		if err != nil {
			return fmt.Errorf("power cut again at call %d (%s): %w", at, o, err)
		}
		return nil
	})
}

// imageOfCopy looks at the checkpoint that was being made: it is whole, or no store.
func (c *cutLife) imageOfCopy(mem *vfs.Mem) error {
	s := newSweep(mem, 5, faultfs.Options{})
	c.tiny(&s.opts)
	s.opts.ReadOnly = true
	if _, err := mem.Stat(path.Join(c.copied, "manifest-00000001.a")); err != nil {
		return nil
	}
	db, err := Open(c.copied, s.opts)
	if errors.Is(err, ErrDamaged) && strings.Contains(err.Error(), "no whole manifest") {
		return nil
	}
	if err != nil {
		return err
	}
	got, err := cutLook(db)
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	c.n.copies++
	if want := c.looks[c.copyAt]; got != want {
		return fmt.Errorf("it looks like\n%.2000s\nwanted\n%.2000s", got, want)
	}
	return nil
}

func TestPowerCuts(t *testing.T) {
	t.Parallel()
	want := 2000
	if raceEnabled || testing.Short() {
		want = 300
	}
	if v := os.Getenv("ROWAN_CUTS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			t.Fatalf("ROWAN_CUTS=%s", v)
		}
		want = n
	}
	steps := 60
	if want < 20_000 {
		steps = 25 // so that there are several lives
	}
	began := time.Now()
	total := cutCounts{steps: map[string]int{}}
	if v := os.Getenv("ROWAN_CUTS_SEED"); v != "" {
		seed, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		c := &cutLife{t: t, seed: seed}
		c.run(steps)
		t.Logf("%+v", c.n)
		return
	}
	var mu sync.Mutex // guards total, lives
	lives := uint64(0)
	t.Run("lives", func(t *testing.T) {
		for w := range 2 {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				for {
					mu.Lock()
					done := total.images >= want
					lives++
					c := &cutLife{t: t, seed: lives}
					mu.Unlock()
					if done || t.Failed() {
						return
					}
					c.run(steps)
					mu.Lock()
					total.add(c.n)
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("%d cuts of the power in %d lives left %d images, all opened: %d recovered for writing, %d of these with another cut on the way; %d had lost something that nobody had been promised; %d of checkpoints; by step %v; %v",
		total.cuts, lives, total.images, total.recovered, total.again, total.lost, total.copies, total.steps, time.Since(began).Round(time.Second))
	if t.Failed() {
		return
	}
	if total.images < want || total.recovered < want/8 || total.again < want/50 || total.lost < want/50 {
		t.Errorf("too little was tried: %+v", total)
	}
	if want >= 20_000 {
		for _, step := range []string{"create", "table", "batch", "flush", "compact", "quiet", "reopen", "manifest roll", "drop rows", "rule", "family", "checkpoint"} {
			if total.steps[step] < want/1000 {
				t.Errorf("%d images while a step %q was under way", total.steps[step], step)
			}
		}
	}
}
