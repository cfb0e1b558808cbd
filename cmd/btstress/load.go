package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/gc"
)

// loadOptions are the flags of load.
type loadOptions struct {
	dir      string
	seconds  float64
	writers  int
	rows     int // of each writer and table
	value    int // bytes of the largest value
	seed     uint64
	reopen   time.Duration
	memtable int64
	buffered bool
	lie      int // test only: the model forgets this batch of writer 0
}

// tables and families are fixed: every batch spans both tables.
var tables = []string{"left", "right"}

const versionsKept = 3 // of family "few"; family "all" keeps everything

// counts are what the writers and the controller did.
type counts struct {
	batches, changes, bytes, reads, scans, snapshots, cells atomic.Int64
	flushes, compactions, reopens                           int64
}

// loader runs one load.
type loader struct {
	o       loadOptions
	out     io.Writer
	db      *engine.DB
	writers []*writer
	// work is held by each writer during an operation; the controller takes it to close and reopen the store.
	work  sync.RWMutex
	stop  atomic.Bool
	first atomic.Pointer[error] // the first difference or failure
	n     counts
	m     engine.Metrics // of stores that were closed
}

func load(ctx context.Context, out io.Writer, args []string) (err error) {
	o := loadOptions{lie: -1}
	f := flag.NewFlagSet("btstress load", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.dir, "dir", "", "directory for the store, missing or empty; default a temporary one, removed at the end")
	f.Float64Var(&o.seconds, "seconds", 10, "how long")
	f.IntVar(&o.writers, "writers", 4, "goroutines, each with rows of its own")
	f.IntVar(&o.rows, "rows", 500, "rows of each writer in each of two tables")
	f.IntVar(&o.value, "value", 2000, "bytes of the largest value")
	f.Uint64Var(&o.seed, "seed", 0, "of all choices; 0 draws one. The same seed gives each writer the same operations in the same order")
	f.DurationVar(&o.reopen, "reopen", time.Second, "time between reopenings")
	f.Int64Var(&o.memtable, "memtable", 256<<10, "bytes at which a memtable is flushed")
	f.BoolVar(&o.buffered, "buffered", false, "no direct I/O")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	case f.NArg() > 0 || o.writers < 1 || o.rows < 1 || o.value < 1 || o.reopen <= 0:
		return fmt.Errorf("%w: writers, rows, value and reopen must be positive, and nothing may follow the flags", errUsage)
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1e9) + 1
	}
	if o.dir == "" {
		tmp, err := os.MkdirTemp("", "btstress-")
		if err != nil {
			return err
		}
		o.dir = filepath.Join(tmp, "store")
		defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	}
	return o.run(ctx, out)
}

// run loads for the given time and returns the first difference.
func (o loadOptions) run(ctx context.Context, out io.Writer) error {
	l := &loader{o: o, out: out}
	fmt.Fprintf(out, "seed %d, %d writers, store in %s\n", o.seed, o.writers, o.dir)
	if err := l.open(engine.Options{CreateOnly: true}); err != nil {
		return err
	}
	for _, name := range tables {
		_, err := l.db.CreateTable(ctx, name, engine.TableSpec{BlockBytes: 4096, Families: map[string]engine.FamilySpec{
			"few": {GC: gc.MaxVersionsPolicy(versionsKept)}, "all": {},
		}})
		if err != nil {
			return errors.Join(err, l.db.Close())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.seconds*float64(time.Second)))
	defer cancel()
	began := time.Now()
	var wg sync.WaitGroup
	for i := range o.writers {
		w := newWriter(l, i)
		l.writers = append(l.writers, w)
		wg.Go(w.loop)
	}
	err := l.control(ctx)
	l.stop.Store(true)
	wg.Wait()
	took := time.Since(began)
	if first := l.first.Load(); first != nil {
		err = *first
	}
	if err == nil {
		err = l.verify()
	}
	l.count()
	err = errors.Join(err, l.db.Close())
	l.report(took)
	if err != nil {
		return fmt.Errorf("seed %d: %w", o.seed, err)
	}
	fmt.Fprintln(out, "no differences")
	return nil
}

func (l *loader) open(o engine.Options) (err error) {
	o.MemtableBytes, o.TableFileBytes, o.LevelBytes = l.o.memtable, l.o.memtable, 4*l.o.memtable
	o.LogSegmentBytes, o.CacheBytes, o.Buffered = 1<<20, 4<<20, l.o.buffered
	l.db, err = engine.Open(l.o.dir, o)
	return err
}

// control flushes, compacts and reopens until the time is over or something went wrong.
func (l *loader) control(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(l.o.seed, 1<<32))
	next := time.Now().Add(l.o.reopen)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(rng.IntN(60)) * time.Millisecond):
		}
		if l.stop.Load() {
			return nil
		}
		var err error
		table := l.db.Table(tables[rng.IntN(len(tables))])
		work := context.WithoutCancel(ctx) // what is begun is ended
		switch {
		case time.Now().After(next):
			err = l.reopen()
			next = time.Now().Add(l.o.reopen)
		case rng.IntN(8) == 0:
			l.n.compactions++
			err = table.Compact(work, engine.AllRows())
		case rng.IntN(3) == 0:
			l.n.compactions++
			err = table.Compact(work, engine.PrefixRange(prefix(rng.IntN(l.o.writers))))
		default:
			l.n.flushes++
			err = l.db.Flush(work)
		}
		if err != nil {
			return err
		}
	}
}

// reopen closes the store while nobody works, opens it again and reads everything.
func (l *loader) reopen() error {
	l.work.Lock()
	defer l.work.Unlock()
	for _, w := range l.writers {
		if err := w.dropSnapshot(); err != nil {
			return err
		}
	}
	l.count()
	if err := l.db.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if err := l.open(engine.Options{MustExist: true}); err != nil {
		return err
	}
	l.n.reopens++
	return l.verify()
}

// verify compares every row of the store with the models. Nobody else works.
func (l *loader) verify() error {
	for _, w := range l.writers {
		for _, name := range tables {
			if err := w.scan(name, w.rows[name], l.n.reopens%2 == 0); err != nil {
				return fmt.Errorf("after %d reopenings: %w", l.n.reopens, err)
			}
		}
		if err := w.dropSnapshot(); err != nil {
			return err
		}
	}
	if h := l.db.Health(); h.State != engine.StateOK {
		return fmt.Errorf("health is %s: %w", h.State, h.Cause)
	}
	return nil
}

// count keeps the metrics of a store that is about to be closed.
func (l *loader) count() {
	m := l.db.Metrics()
	l.m.Flushes += m.Flushes
	l.m.Compactions += m.Compactions
	l.m.Moves += m.Moves
	l.m.CollectedCells += m.CollectedCells
	l.m.ReplayedBatches += m.ReplayedBatches
	l.m.Stalls += m.Stalls
	l.m.TableBytesWritten += m.TableBytesWritten
	l.m.Log.WriteCalls += m.Log.WriteCalls
	l.m.DiskBytes = m.DiskBytes
}

func (l *loader) report(took time.Duration) {
	rate := func(n int64) string { return fmt.Sprintf("%d (%.0f/s)", n, float64(n)/took.Seconds()) }
	n, m := &l.n, &l.m
	fmt.Fprintf(l.out, "%.1f s: batches %s, changes %s, MB of values %.1f (%.1f/s)\n", took.Seconds(), rate(n.batches.Load()), rate(n.changes.Load()),
		float64(n.bytes.Load())/1e6, float64(n.bytes.Load())/1e6/took.Seconds())
	fmt.Fprintf(l.out, "checked: rows %s, scans %s, snapshots %d, cells %s\n", rate(n.reads.Load()), rate(n.scans.Load()), n.snapshots.Load(), rate(n.cells.Load()))
	fmt.Fprintf(l.out, "asked for: %d flushes, %d compactions, %d reopenings\n", n.flushes, n.compactions, n.reopens)
	fmt.Fprintf(l.out, "the store made: %d flushes, %d compactions, %d moves; %d cells collected, %d batches replayed, %d stalls, %.1f MB of table files, %d log writes\n",
		m.Flushes, m.Compactions, m.Moves, m.CollectedCells, m.ReplayedBatches, m.Stalls, float64(m.TableBytesWritten)/1e6, m.Log.WriteCalls)
}
