package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// ScrubBytesPerSecond is how fast a scrub reads unless told otherwise.
const ScrubBytesPerSecond = 16 << 20

// ScrubOptions say how Scrub works. The zero value reads all files at 16 MiB a second.
type ScrubOptions struct {
	// BytesPerSecond bounds reading. 0 means ScrubBytesPerSecond, -1 no bound.
	BytesPerSecond int64
	// From is the number of the table file to begin with: ScrubReport.Next of a scrub that was ended.
	From uint64
	// Progress, if not nil, is called after each table file, by the goroutine that scrubs.
	Progress func(ScrubReport)
}

// ScrubReport says what a scrub has checked.
type ScrubReport struct {
	Files int   // table files checked, damaged ones included
	Bytes int64 // of them
	// Bad are the files that could not be read or are not what was written; errors.Is(err, ErrDamaged) tells the latter.
	Bad []error
	// Next is the number of the table file to go on with; 0 if all were checked.
	Next uint64
}

// Scrub reads every block of every table file and the manifest from disk and checks them, past the cache, slowly. Damaged table
// files are set aside at once: reads of their rows fail, and no compaction touches them. A copy of the manifest that is damaged is
// replaced by a fresh manifest. What is found is in the report, not in the error; the error says that ctx ended or the store
// was closed, and then Next of the report says where to go on.
func (db *DB) Scrub(ctx context.Context, o ScrubOptions) (ScrubReport, error) {
	if o.BytesPerSecond < -1 {
		return ScrubReport{}, fmt.Errorf("%w: BytesPerSecond is %d", ErrOption, o.BytesPerSecond)
	}
	if err := db.enter(); err != nil {
		return ScrubReport{}, err
	}
	defer db.leave()
	s := newScrub(db, o)
	for {
		if more, err := s.step(ctx); err != nil {
			return s.report, fmt.Errorf("scrub: %w", err)
		} else if !more {
			return s.report, nil
		}
		if o.Progress != nil {
			o.Progress(s.report)
		}
	}
}

// scrub is one pass over all files.
type scrub struct {
	db     *DB
	report ScrubReport
	rate   int64 // bytes per second, -1 for any
	owed   time.Duration
}

func newScrub(db *DB, o ScrubOptions) *scrub {
	s := &scrub{db: db, rate: o.BytesPerSecond, report: ScrubReport{Next: max(o.From, 1)}}
	if s.rate == 0 {
		s.rate = ScrubBytesPerSecond
	}
	return s
}

// step checks the next table file, or the manifest after the last one. more says that there may be another.
func (s *scrub) step(ctx context.Context) (more bool, err error) {
	if err := (whileOpen{ctx, s.db}).Err(); err != nil {
		return false, err
	}
	st := s.db.states.pin() // so that the file stays while it is read
	defer st.unref()
	var next *levels.File
	st.version.Live(func(_ uint64, _ int, f *levels.File) {
		if f.Num >= s.report.Next && (next == nil || f.Num < next.Num) {
			next = f
		}
	})
	if next == nil {
		if err := s.db.checkManifest(); err != nil {
			s.bad(err)
		}
		s.report.Next = 0
		return false, nil
	}
	if err := s.file(ctx, next); err != nil {
		if ended := (whileOpen{ctx, s.db}).Err(); ended != nil {
			return false, ended
		}
		s.bad(err)
		if errors.Is(err, ErrDamaged) {
			s.db.setAside(st.version, next.Num, err)
		}
	}
	s.report.Files++
	s.report.Bytes += next.Size
	s.report.Next = next.Num + 1
	return true, nil
}

func (s *scrub) bad(err error) {
	s.report.Bad = append(s.report.Bad, err)
	s.db.logger.Warn("scrub: bad file", "cause", err)
}

// file checks every byte of a table file.
func (s *scrub) file(ctx context.Context, f *levels.File) (err error) {
	name := s.db.files.path(f.Num)
	h, err := s.db.fs.Open(name, vfs.How{})
	if errors.Is(err, fs.ErrNotExist) {
		return missing(name)
	}
	if err != nil {
		return err
	}
	r, err := sstable.Open(h, sstable.ReaderOptions{Name: name, ID: f.ID, Size: f.Size, Mode: sstable.Positional})
	if err != nil {
		return errors.Join(err, h.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	at := int64(0)
	return r.Verify(whileOpen{ctx, s.db}, func(done, _ int64) {
		s.pace(ctx, done-at)
		at = done
	})
}

// pace sleeps as long as n bytes may take, in pieces of more than a few milliseconds. It returns early when ctx ends or the store
// closes, which the caller asks for itself.
func (s *scrub) pace(ctx context.Context, n int64) {
	if s.rate < 0 {
		return
	}
	if s.owed += time.Duration(float64(n) / float64(s.rate) * float64(time.Second)); s.owed < 5*time.Millisecond {
		return
	}
	t := time.NewTimer(s.owed)
	defer t.Stop()
	s.owed = 0
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-s.db.life.stop:
	}
}

// checkManifest reads the manifest back. One that does not say what is in force is replaced, while that is still known.
func (db *DB) checkManifest() error {
	if db.opts.ReadOnly {
		l, err := levels.Load(db.fs, db.dir, nil)
		return errors.Join(append(l.Bad, err)...)
	}
	db.installMu.Lock()
	defer db.installMu.Unlock()
	if err := db.health.failed(); err != nil {
		return nil // nothing more is written, and reads do not need it
	}
	v := db.states.cur.Load().version
	l, err := levels.Load(db.fs, db.dir, nil)
	err = errors.Join(append(l.Bad, err)...)
	if err == nil && l.Version.EditNum != v.EditNum {
		err = damage.New("manifest", -1, "ends with edit %d, edit %d is in force", l.Version.EditNum, v.EditNum)
	}
	if err != nil {
		db.rollManifest(v)
	}
	return err
}

// ScrubMetrics tell how the scrubs of Options.ScrubEvery go.
type ScrubMetrics struct {
	Running bool
	Files   int   // of the pass that runs
	Bytes   int64 // of it
	Passes  uint64
	// Of the last pass that ended: when, the files that it checked, and how many were bad.
	LastEnd   time.Time
	LastFiles int
	LastBad   int
}

// scrubber runs scrubs in the background.
type scrubber struct {
	db    *DB
	every time.Duration

	mu    sync.Mutex // guards what follows
	pass  *scrub     // nil between two
	timer *time.Timer
	m     ScrubMetrics
	done  bool // no more is started
}

// start has the first pass begin after the time between two.
func (b *scrubber) start(db *DB, every time.Duration) {
	b.db, b.every = db, every
	if every > 0 && !db.inline() {
		b.after(every)
	}
}

func (b *scrubber) after(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return
	}
	b.timer = time.AfterFunc(d, func() {
		if b.db.enter() != nil {
			return
		}
		defer b.db.leave()
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.done { // or Close waits for the executor already
			b.db.exec.Go(b.step)
		}
	})
}

// step checks one file, as a job of its own, and starts the next.
func (b *scrubber) step() {
	b.mu.Lock()
	if b.pass == nil {
		b.pass = newScrub(b.db, ScrubOptions{})
	}
	s := b.pass
	b.mu.Unlock()
	more, err := s.step(context.Background())
	wait := time.Duration(1)
	b.mu.Lock()
	b.m.Files, b.m.Bytes = s.report.Files, s.report.Bytes
	if err == nil && !more {
		b.pass = nil
		b.m = ScrubMetrics{Passes: b.m.Passes + 1, LastEnd: b.db.opts.Clock(), LastFiles: s.report.Files, LastBad: len(s.report.Bad)}
		wait = b.every
	}
	b.mu.Unlock()
	if err != nil {
		return // the store closes
	}
	if !more {
		b.db.logger.Info("scrub ends", "files", s.report.Files, "bytes", s.report.Bytes, "bad", len(s.report.Bad))
	}
	b.after(wait)
}

func (b *scrubber) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = true
	if b.timer != nil {
		b.timer.Stop()
	}
}

func (b *scrubber) metrics() ScrubMetrics {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.m
	m.Running = b.pass != nil
	return m
}
