package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/io/vfs"
)

// childCommand is how the parent calls its children; what follows is a childOptions in JSON.
const childCommand = "crash-child"

// childOptions say what a child does until it dies.
type childOptions struct {
	Dir      string
	Seed     uint64 // of the store's content
	Kill     int    // number of this child, which its own choices follow from
	Rows     int
	Value    int
	Memtable int64
	Buffered bool
	From     []int // batches of each writer that are there
	At       string
	Nth      int64
	After    bool
}

// tells writes lines to the parent, each by one call, so that the order of lines is the order of what they tell.
type tells struct {
	mu  sync.Mutex
	out io.Writer
}

func (t *tells) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(t.out, format+"\n", args...) // the parent may be gone; then this process soon is
}

// crashChild loads a store until it is killed. It ends by itself only when something is wrong.
func crashChild(out, errOut io.Writer, arg string) int {
	var o childOptions
	err := json.Unmarshal([]byte(arg), &o)
	if err == nil {
		err = o.run(&tells{out: out})
	}
	fmt.Fprintf(errOut, "child: %v\n", err)
	return 1
}

func (o *childOptions) run(t *tells) error {
	rng := rand.New(rand.NewPCG(o.Seed, uint64(o.Kill)<<32|1<<20))
	d := &death{at: o.At, after: o.After}
	d.left.Store(o.Nth)
	l := &loader{o: loadOptions{dir: o.Dir, seed: o.Seed, rows: o.Rows, value: o.Value, memtable: o.Memtable, buffered: o.Buffered, lie: -1}}
	if o.At == atOpen {
		time.AfterFunc(time.Duration(o.Nth)*time.Millisecond/4, die)
	}
	t.say("opening")
	if err := l.open(engine.Options{MustExist: true, FS: deadlyFS{vfs.OS(), d}, Logger: slog.New(d)}); err != nil {
		return err
	}
	t.say("open")
	failed := make(chan error)
	for i, from := range o.From {
		w := newWriter(l, i)
		w.skip(from)
		go func() { failed <- w.crashLoop(t, from) }()
	}
	go func() { failed <- o.maintain(l.db, t, rng) }()
	return <-failed
}

// skip draws n batches and takes them for applied.
func (w *writer) skip(n int) {
	for range n {
		w.accept(w.draft())
	}
}

// progress is the row in which a writer notes, in every batch and in both tables, how many batches it has made.
func progress(id int) string { return fmt.Sprintf("progress-%03d", id) }

func note(id, n int) (parts []part) {
	for _, t := range tables {
		m := engine.NewMutation()
		m.Set("few", "", 1, []byte(fmt.Sprint(n)))
		parts = append(parts, part{t, progress(id), m})
	}
	return parts
}

func (w *writer) crashLoop(t *tells, n int) error {
	for {
		n++
		d := w.draft()
		t.say("begin %d %d", w.id, n)
		if err := d.apply(w.l.db, note(w.id, n)...); err != nil {
			return fmt.Errorf("writer %d, batch %d: %w", w.id, n, err)
		}
		if d.sync {
			t.say("durable %d %d", w.id, n)
		} else {
			t.say("applied %d %d", w.id, n)
		}
		w.accept(d)
	}
}

// maintain asks for what a store does seldom by itself.
func (o *childOptions) maintain(db *engine.DB, t *tells, rng *rand.Rand) error {
	for n := 0; ; n++ {
		time.Sleep(time.Duration(rng.IntN(5000)) * time.Microsecond)
		var err error
		switch k := rng.IntN(10); {
		case k < 2 || o.At == atCheckpoint:
			dir := filepath.Join(filepath.Dir(o.Dir), fmt.Sprintf("checkpoint-%d-%d", o.Kill, n))
			t.say("copy %s", dir)
			if _, err = db.Checkpoint(ctx, dir); err == nil {
				t.say("copied %s", dir)
			}
		case k < 4 || o.At == atCompaction:
			err = db.Table(tables[rng.IntN(len(tables))]).Compact(ctx, engine.AllRows())
		case k < 5:
			var r engine.ScrubReport
			r, err = db.Scrub(ctx, engine.ScrubOptions{BytesPerSecond: -1})
			err = errors.Join(append(r.Bad, err)...)
		default:
			err = db.Flush(ctx)
		}
		if err != nil {
			return fmt.Errorf("maintenance: %w", errors.Join(err, db.Health().Cause))
		}
	}
}
