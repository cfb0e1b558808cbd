package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowandb/rowan/engine/internal/executor"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
)

// heldStore is a store whose next job is held at its last step: its files are written, its edit is not.
type heldStore struct {
	*testStore
	armed   atomic.Bool
	reached chan struct{}
	release chan struct{}
}

func newHeldStore(t *testing.T) *heldStore {
	h := &heldStore{reached: make(chan struct{}), release: make(chan struct{})}
	h.testStore = newStore(t, func(o *Options) {
		o.Background = new(executor.Goroutines)
		o.FS = faultfs.New(o.FS, faultfs.Options{Rules: []faultfs.Rule{func(op faultfs.Op) error {
			if op.Kind == faultfs.SyncDir && h.armed.CompareAndSwap(true, false) {
				close(h.reached)
				<-h.release
			}
			return nil
		}}})
		o.L0Files = 100
	})
	return h
}

// A flush and a compaction that were running across a schema change do not bring back what it removed, nor take away what was
// written after it; whether they end before or after it makes no difference to anyone, nor does a crash.
func TestJobsHeldAcrossASchemaChange(t *testing.T) {
	fill := func(s *heldStore, tb *Table, from int) {
		for i := range 20 {
			for ts := range 3 {
				s.must(tb.Apply(ctx, fmt.Sprintf("r%02d", i), mut(func(m *Mutation) {
					m.Set("f", "q", Timestamp(from+ts), []byte(fmt.Sprint(from+ts)))
					m.Set("g", "q", Timestamp(from+ts), []byte(fmt.Sprint(from+ts)))
				}), NoSync))
			}
		}
		s.must(s.Sync(ctx))
	}
	changes := map[string]func(s *heldStore, tb *Table) error{
		"drop rows":   func(_ *heldStore, tb *Table) error { return tb.DropRowRange(ctx, NewRange("r05", "r15")) },
		"drop all":    func(_ *heldStore, tb *Table) error { return tb.DropAllRows(ctx) },
		"drop family": func(_ *heldStore, tb *Table) error { return tb.ModifyFamilies(ctx, DropFamily("f")) },
		"drop and create family": func(_ *heldStore, tb *Table) error {
			return tb.ModifyFamilies(ctx, DropFamily("f"), AddFamily("f", FamilySpec{}))
		},
		"looser rule": func(_ *heldStore, tb *Table) error {
			return tb.ModifyFamilies(ctx, SetGCRule("f", gc.MaxVersionsPolicy(3)))
		},
		"no rule": func(_ *heldStore, tb *Table) error { return tb.ModifyFamilies(ctx, SetGCRule("f", gc.NoPolicy())) },
		"tighter rule": func(_ *heldStore, tb *Table) error {
			return tb.ModifyFamilies(ctx, SetGCRule("f", gc.MaxVersionsPolicy(1)))
		},
		"drop table": func(s *heldStore, _ *Table) error { return s.DropTable(ctx, "t") },
		"drop and create table": func(s *heldStore, _ *Table) error {
			if err := s.DropTable(ctx, "t"); err != nil {
				return err
			}
			_, err := s.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{"f": {}, "g": {}}})
			return err
		},
	}
	for _, job := range []string{"flush", "compaction"} {
		for name, change := range changes {
			t.Run(job+" across "+name, func(t *testing.T) {
				t.Parallel()
				s := newHeldStore(t)
				tb := s.table("t", map[string]gc.Rule{"f": gc.MaxVersionsPolicy(2), "g": {}})
				fill(s, tb, 10)
				s.must(s.Flush(ctx))
				fill(s, tb, 20)
				if job == "compaction" {
					s.must(s.Flush(ctx))
				}
				plainLook := func() string {
					if _, err := tb.Describe(ctx); err != nil {
						return err.Error()
					}
					return s.scan(tb)
				}
				s.armed.Store(true)
				ended := make(chan error, 1)
				go func() {
					if job == "flush" {
						ended <- s.Flush(ctx)
					} else {
						ended <- tb.Compact(ctx, AllRows())
					}
				}()
				<-s.reached
				s.must(change(s, tb))
				after := plainLook()
				if strings.HasPrefix(name, "drop") && strings.Count(after, "f:q") > 40 {
					t.Fatalf("the change has no effect:\n%s", after)
				}
				crashed := s.fs.CrashClone(3, 1)
				close(s.release)
				if err := <-ended; err != nil && !strings.Contains(name, "table") {
					t.Fatal(err)
				}
				s.want(plainLook(), after)
				s.must(s.Flush(ctx))
				s.must(s.Compact(ctx))
				s.want(plainLook(), after)
				if st := s.states.cur.Load(); st.tables["t"] != nil && len(st.tables["t"].Changes) > 0 {
					t.Errorf("changes stand after a compaction: %+v", st.tables["t"].Changes)
				}
				// The same after a crash while the job was held, and after one now.
				for _, image := range []*vfs.Mem{crashed, s.fs.CrashClone(4, 0.5)} {
					o := s.opts
					o.FS, o.Background = image, new(executor.Inline)
					db, err := Open("/store", o)
					s.must(err)
					c := &testStore{DB: db, t: t, fs: image, now: s.now, opts: o}
					look := func() string {
						if _, err := c.Table("t").Describe(ctx); err != nil {
							return err.Error()
						}
						return c.scan(c.Table("t"))
					}
					s.want(look(), after)
					s.must(db.Compact(ctx))
					s.want(look(), after)
					s.must(db.Close())
				}
				// What is written after it stays, with the timestamps of what was there before too.
				if _, err := tb.Describe(ctx); err == nil && name != "drop family" {
					s.must(tb.Apply(ctx, "r07", set("f", "q", 12, "new")))
					if name == "looser rule" || name == "no rule" || name == "tighter rule" {
						return
					}
					row, err := tb.ReadRow(ctx, "r07")
					s.must(err)
					if v, _ := row.Latest("f", "q"); string(v) != "new" {
						t.Errorf("a write after the drop reads as %q", show(row))
					}
				}
			})
		}
	}
}

// Writers, readers and every kind of schema change run side by side, and samples and lists of tables are asked for; the race detector
// watches, and each row is whole or gone (googleapis/google-cloud-cpp #441: concurrent use of a map killed the emulator).
func TestWritersRunAcrossSchemaChanges(t *testing.T) {
	s := newStore(t, func(o *Options) {
		o.Background = new(executor.Goroutines)
		o.MemtableBytes, o.L0Files = 32<<10, 2
	})
	tb, err := s.CreateTable(ctx, "t", TableSpec{Families: map[string]FamilySpec{
		"f": {GC: gc.MaxVersionsPolicy(2)}, "g": {Group: "x"}, "h": {Group: "y"},
	}})
	s.must(err)
	stop := make(chan struct{})
	errs := make(chan error, 10)
	for w := range 3 {
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					errs <- nil
					return
				default:
				}
				v := []byte(fmt.Sprint(w, "-", i, strings.Repeat("x", 100)))
				err := tb.Apply(ctx, fmt.Sprintf("r%d", i%50), mut(func(m *Mutation) {
					m.DeleteRow()
					m.Set("f", "q", Timestamp(i), v)
					m.Set("g", "q", Timestamp(i), v)
				}), NoSync)
				if err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for range 2 {
		go func() {
			for {
				select {
				case <-stop:
					errs <- nil
					return
				default:
				}
				err := tb.ReadRows(ctx, AllRows(), func(r Row) bool {
					a, okA := r.Latest("f", "q")
					b, okB := r.Latest("g", "q")
					if okA != okB || string(a) != string(b) || len(r.Cells) != 2 {
						errs <- fmt.Errorf("half a batch: %s", show(r))
						return false
					}
					return true
				})
				if err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	go func() {
		for {
			select {
			case <-stop:
				errs <- nil
				return
			default:
			}
			_, listed := s.Tables(ctx)
			_, described := tb.Describe(ctx)
			_, sampled := tb.SampleRowKeys(ctx, AllRows())
			_ = s.Metrics()
			if err := errors.Join(listed, described, sampled); err != nil {
				errs <- err
				return
			}
		}
	}()
	rules := []gc.Rule{gc.MaxVersionsPolicy(1), gc.MaxVersionsPolicy(3), gc.NoPolicy(), gc.MaxAgePolicy(time.Hour * 24 * 365 * 100)}
	for i := range 40 {
		switch i % 4 {
		case 0:
			s.must(tb.DropRowRange(ctx, NewRange(fmt.Sprintf("r%d", i%50), "r9")))
		case 1:
			if err := tb.ModifyFamilies(ctx, SetGCRule("f", rules[i/4%4])); err != nil && !strings.Contains(err.Error(), "not finished") {
				t.Fatal(err)
			}
		case 2:
			s.must(tb.ModifyFamilies(ctx, DropFamily("h"), AddFamily("h", FamilySpec{Group: "y"})))
		case 3:
			s.must(tb.DropAllRows(ctx))
		}
		time.Sleep(2 * time.Millisecond)
	}
	close(stop)
	for range 6 {
		s.must(<-errs)
	}
	s.must(s.Compact(ctx))
	if n := len(s.states.cur.Load().tables["t"].Changes); n > 0 {
		t.Errorf("%d changes stand after a compaction", n)
	}
}
