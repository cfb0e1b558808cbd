package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/rowandb/rowan/engine"
)

// The test binary is its own child.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childCommand {
		os.Exit(crashChild(os.Stdout, os.Stderr, os.Args[2]))
	}
	os.Exit(m.Run())
}

func crashTest(t *testing.T, kills int) crashOptions {
	return crashOptions{
		dir: t.TempDir(), kills: kills, writers: 2, rows: 40, value: 400, fresh: 50, seed: 11, memtable: 32 << 10, program: []string{os.Args[0]},
	}
}

func TestCrash(t *testing.T) {
	var out bytes.Buffer
	if err := crashTest(t, 11).run(context.Background(), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
}

// What was acknowledged and is gone, and what was deleted and is back, is found.
func TestCrashFindsADifference(t *testing.T) {
	for name, change := range map[string]func(m *engine.Mutation){
		"lost":     func(m *engine.Mutation) { m.DeleteRow() },
		"invented": func(m *engine.Mutation) { m.Set("all", "never", 1, nil) },
	} {
		o := crashTest(t, 11)
		o.tamper = func(l *loader) error {
			if err := l.open(engine.Options{MustExist: true}); err != nil {
				return err
			}
			b := engine.NewBatch()
			for _, w := range l.writers {
				for range 2 * l.o.rows {
					m := engine.NewMutation()
					change(m)
					b.Add(l.db.Table(tables[0]), w.key(), m)
				}
			}
			return errors.Join(l.db.Apply(ctx, b), l.db.Close())
		}
		var out bytes.Buffer
		err := o.run(context.Background(), &out)
		if err == nil || !strings.Contains(err.Error(), "seed 11, kill") || !strings.Contains(err.Error(), "difference in table left") {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}

// What a child told decides how many batches a store may hold.
func TestWhatMayBeThereAfterAKill(t *testing.T) {
	h, err := hear([]int{5, 0}, strings.NewReader(`opening
open
begin 0 6
applied 0 6
begin 0 7
begin 1 1
applied 0 7
begin 0 8
durable 1 1
begin 1 2
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		have []int
		ok   bool
		why  string
	}{
		{[]int{6, 1}, true, "7 and 8 were not made durable by anything"},
		{[]int{8, 2}, true, "all that was begun"},
		{[]int{5, 1}, false, "6 returned before a synchronous batch began"},
		{[]int{6, 0}, false, "that was acknowledged as durable"},
		{[]int{9, 1}, false, "that was never begun"},
		{[]int{6, 2}, false, "7 returned before 2 of the other began"},
		{[]int{7, 2}, true, ""},
	} {
		if err := h.check(c.have, h.durable); (err == nil) != c.ok {
			t.Errorf("%v: %v; %s", c.have, err, c.why)
		}
	}
	for _, bad := range []string{"begin 2 1", "begin x", "nonsense 0 1"} {
		if _, err := hear([]int{0}, strings.NewReader(bad)); err == nil {
			t.Errorf("%q is understood", bad)
		}
	}
}
