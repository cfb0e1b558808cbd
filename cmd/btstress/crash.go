package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/gc"
)

// crashOptions are the flags of crash.
type crashOptions struct {
	dir      string
	kills    int
	first    int // number of the first kill
	writers  int
	rows     int
	value    int
	fresh    int // kills after which a new store is begun
	seed     uint64
	memtable int64
	buffered bool
	program  []string              // that is the child; test only
	tamper   func(l *loader) error // what is done to a store before it is looked at; test only
}

// crasher kills children and looks at what they leave.
type crasher struct {
	o     crashOptions
	out   io.Writer
	base  string  // holds the store and the checkpoints
	life  uint64  // seed of the present store
	store *loader // how the present store is opened, and the models of its writers
	have  []int   // batches of each writer in it
	n     crashCounts
}

type crashCounts struct {
	kills                    map[string]int // by moment
	late                     int            // children whose moment did not come, killed at another one
	begun, lost, whole, part int
	cells                    int64
}

func crash(ctx context.Context, out io.Writer, args []string) (err error) {
	var o crashOptions
	f := flag.NewFlagSet("btstress crash", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.dir, "dir", "", "directory for the store and its checkpoints, missing or empty; default a temporary one, removed at the end")
	f.IntVar(&o.kills, "kills", 100, "how many children to kill")
	f.IntVar(&o.first, "first", 0, "number of the first kill, to begin a run of the same seed there; the store begins empty all the same")
	f.IntVar(&o.writers, "writers", 3, "goroutines of a child, each with rows of its own")
	f.IntVar(&o.rows, "rows", 100, "rows of each writer in each of two tables")
	f.IntVar(&o.value, "value", 800, "bytes of the largest value")
	f.IntVar(&o.fresh, "fresh", 50, "kills after which a new store is begun")
	f.Uint64Var(&o.seed, "seed", 0, "of all choices; 0 draws one. The same seed gives the same batches and the same moments; how far the writers come by then differs")
	f.Int64Var(&o.memtable, "memtable", 64<<10, "bytes at which a memtable is flushed")
	f.BoolVar(&o.buffered, "buffered", false, "no direct I/O")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	case f.NArg() > 0 || o.kills < 1 || o.first < 0 || o.writers < 1 || o.rows < 1 || o.value < 1 || o.fresh < 1:
		return fmt.Errorf("%w: kills, writers, rows, value and fresh must be positive, and nothing may follow the flags", errUsage)
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1e9) + 1
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	o.program = []string{exe}
	return o.run(ctx, out)
}

// run kills children and returns the first thing that was wrong; then what they left stays where it is.
func (o crashOptions) run(ctx context.Context, out io.Writer) error {
	c := &crasher{o: o, out: out, base: o.dir, n: crashCounts{kills: map[string]int{}}}
	if c.base == "" {
		tmp, err := os.MkdirTemp("", "btstress-")
		if err != nil {
			return err
		}
		c.base = tmp
	} else if err := os.MkdirAll(c.base, 0o755); err != nil {
		return err
	}
	fmt.Fprintf(out, "seed %d, %d kills, %d writers, in %s\n", o.seed, o.kills, o.writers, c.base)
	began := time.Now()
	for k := o.first; k < o.first+o.kills; k++ {
		if err := c.round(ctx, k); err != nil {
			return fmt.Errorf("seed %d, kill %d: %w; what is left is in %s", o.seed, k, err, c.base)
		}
	}
	c.report(time.Since(began))
	if o.dir == "" {
		return os.RemoveAll(c.base)
	}
	return nil
}

// round begins a new store if it is time, kills a child and checks what it leaves.
func (c *crasher) round(ctx context.Context, k int) error {
	if (k-c.o.first)%c.o.fresh == 0 {
		if err := c.begin(k); err != nil {
			return err
		}
	}
	rng := rand.New(rand.NewPCG(c.o.seed, uint64(k)))
	o := childOptions{
		Dir: c.dir(), Seed: c.life, Kill: k, Rows: c.o.rows, Value: c.o.value, Memtable: c.o.memtable, Buffered: c.o.buffered,
		From: c.have, At: moments[rng.IntN(len(moments))], Nth: 1 + rng.Int64N(1<<rng.IntN(7)), After: rng.IntN(2) == 0,
	}
	if o.At == atManifestRoll {
		o.Nth = 1 + rng.Int64N(2) // once in each of the copies
	}
	late := time.Duration(30+rng.IntN(150)) * time.Millisecond
	if o.At != anyTime && o.At != atOpen {
		late = 2 * time.Second // the moment comes by itself
	}
	h, err := c.child(ctx, &o, late)
	if err != nil {
		return err
	}
	if err := c.look(h, k); err != nil {
		return fmt.Errorf("killed at %s, number %d: %w", o.At, o.Nth, err)
	}
	c.n.kills[o.At]++
	return nil
}

func (c *crasher) dir() string { return filepath.Join(c.base, "store") }

// loader opens a store of the present life; its writers' models are empty.
func (c *crasher) loader(dir string) *loader {
	l := &loader{o: loadOptions{
		dir: dir, seed: c.life, rows: c.o.rows, value: c.o.value, memtable: c.o.memtable, buffered: c.o.buffered, lie: -1,
	}}
	for i := range c.o.writers {
		l.writers = append(l.writers, newWriter(l, i))
	}
	return l
}

// begin makes an empty store.
func (c *crasher) begin(k int) error {
	if err := os.RemoveAll(c.dir()); err != nil {
		return err
	}
	c.life = c.o.seed*1_000_003 + uint64(k)
	c.have = make([]int, c.o.writers)
	c.store = c.loader(c.dir())
	l := c.store
	if err := l.open(engine.Options{CreateOnly: true}); err != nil {
		return err
	}
	for _, name := range tables {
		_, err := l.db.CreateTable(ctx, name, engine.TableSpec{BlockBytes: 4096, Families: map[string]engine.FamilySpec{
			"few": {GC: gc.MaxVersionsPolicy(versionsKept)}, "all": {Group: "other"},
		}})
		if err != nil {
			return errors.Join(err, l.db.Close())
		}
	}
	return l.db.Close()
}

// child runs a child until it dies, and kills it if it does not by itself in time.
func (c *crasher) child(ctx context.Context, o *childOptions, late time.Duration) (*heard, error) {
	arg, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, c.o.program[0], append(c.o.program[1:len(c.o.program):len(c.o.program)], childCommand, string(arg))...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	timer := time.AfterFunc(late, func() { _ = cmd.Process.Kill() }) // it may be dead by then
	h, err := hear(c.have, pipe)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	werr := cmd.Wait()
	if !timer.Stop() && o.At != anyTime {
		c.n.late++
	}
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case werr == nil || cmd.ProcessState.ExitCode() >= 0 || errOut.Len() > 0:
		return nil, fmt.Errorf("the child ended by itself (%v): %s", werr, strings.TrimSpace(errOut.String()))
	}
	return h, nil
}

// look opens what a child left and compares it with the model, the checkpoints first.
func (c *crasher) look(h *heard, k int) error {
	for _, cp := range h.copies {
		if err := c.lookAtCopy(h, cp, k); err != nil {
			return fmt.Errorf("checkpoint %s: %w", cp.dir, err)
		}
		if err := os.RemoveAll(cp.dir); err != nil {
			return err
		}
	}
	l := c.store
	if c.o.tamper != nil {
		if err := c.o.tamper(l); err != nil {
			return err
		}
	}
	if err := l.open(engine.Options{MustExist: true}); err != nil {
		return err
	}
	have, err := c.verify(l, h, h.durable, k%2 == 0)
	if err = errors.Join(err, l.db.Close()); err != nil {
		return err
	}
	for w, n := range have {
		c.n.begun += h.begun[w] - c.have[w]
		c.n.lost += h.begun[w] - n
	}
	c.have = have
	return nil
}

// verify compares an open store with what the writers' models hold after as many batches as it has of each, and returns these
// numbers. The models are brought that far.
func (c *crasher) verify(l *loader, h *heard, least []int, reverse bool) ([]int, error) {
	have := make([]int, len(c.have))
	for w := range have {
		var seen [2]int
		for i, name := range tables {
			r, err := l.db.Table(name).ReadRow(ctx, progress(w))
			if err != nil {
				return nil, err
			}
			if len(r.Cells) > 0 {
				if seen[i], err = strconv.Atoi(string(r.Cells[0].Value)); err != nil {
					return nil, err
				}
			}
		}
		if seen[0] != seen[1] {
			return nil, fmt.Errorf("writer %d: %d batches in table %s, %d in table %s", w, seen[0], tables[0], seen[1], tables[1])
		}
		have[w] = seen[0]
	}
	if err := h.check(have, least); err != nil {
		return nil, err
	}
	before := l.n.cells.Load()
	for i, w := range l.writers {
		w.skip(have[i] - w.ops)
		w.ops = have[i]
		for _, name := range tables {
			if err := w.scan(name, w.rows[name], reverse); err != nil {
				return nil, fmt.Errorf("after batches %v: %w", have, err)
			}
		}
	}
	c.n.cells += l.n.cells.Load() - before
	if health := l.db.Health(); health.State != engine.StateOK {
		return nil, fmt.Errorf("health is %s: %w", health.State, health.Cause)
	}
	return have, nil
}

// lookAtCopy opens a checkpoint: one whose call returned holds what was applied before the call; one that was cut short is
// whole all the same or is refused.
func (c *crasher) lookAtCopy(h *heard, cp *copied, k int) error {
	l := c.loader(cp.dir)
	o := engine.Options{MustExist: true, ReadOnly: k%3 > 0} // or it becomes a store of its own
	if err := l.open(o); err != nil {
		if !cp.whole && (errors.Is(err, engine.ErrDamaged) || errors.Is(err, engine.ErrNotExist)) {
			c.n.part++
			return nil
		}
		return err
	}
	_, err := c.verify(l, h, cp.least, k%2 == 1)
	c.n.whole++
	return errors.Join(err, l.db.Close())
}

func (c *crasher) report(took time.Duration) {
	fmt.Fprintf(c.out, "%.1f s: killed at", took.Seconds())
	for i, m := range moments {
		fmt.Fprintf(c.out, "%s %s %d", strings.Repeat(",", min(i, 1)), m, c.n.kills[m])
	}
	fmt.Fprintf(c.out, "; of these %d later than that\n", c.n.late)
	fmt.Fprintf(c.out, "batches begun: %d, not there after a kill (none acknowledged as durable): %d\n", c.n.begun, c.n.lost)
	fmt.Fprintf(c.out, "checkpoints checked: %d whole, %d cut short and refused; cells compared: %d\n", c.n.whole, c.n.part, c.n.cells)
	fmt.Fprintln(c.out, "no differences")
}
