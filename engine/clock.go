package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/levels"
)

// A clock that is wrong for a moment must not make rules remove what cannot be brought back. Wall time that leaps ahead while
// the store runs is not followed, and what is found far ahead of the last life's time at open hides cells, but removes none.
const (
	leapMax  = time.Hour      // by which wall time may run ahead of elapsed time
	aheadMax = 24 * time.Hour // by which wall time may be ahead at open of the time up to which was collected
	heldFor  = time.Hour      // after which the time found at open is believed
)

// clock is the store's one time: the host's clock, never below what was handed out before, in this life of the store or an
// earlier one. It is the as-of time of reads, collection and conditions.
type clock struct {
	wall func() time.Time
	mono func() time.Duration // nil: times of wall carry a monotonic reading, or there is none to be had
	mark atomic.Int64         // microseconds
	base atomic.Pointer[clockBase]
	held atomic.Pointer[clockHold]

	mu     sync.Mutex // guards what follows
	leaped bool       // wall time is not followed
	told   func(leaped bool, wall, engine time.Time)
}

// clockBase is a moment from which on elapsed time is counted.
type clockBase struct {
	t    time.Time
	mono time.Duration
}

// clockHold keeps collection at a time until the clock is believed.
type clockHold struct {
	base    clockBase
	collect int64 // microseconds
}

func (c *clock) moment() clockBase {
	b := clockBase{t: c.wall()}
	if c.mono != nil {
		b.mono = c.mono()
	}
	return b
}

// since is the time elapsed from one moment to another, as far as it is known apart from wall time.
func (c *clock) since(from *clockBase, to clockBase) time.Duration {
	if c.mono != nil {
		return to.mono - from.mono
	}
	return to.t.Sub(from.t)
}

// now returns the engine time in microseconds since the epoch, at least 0.
func (c *clock) now() int64 {
	b := c.moment()
	t := max(c.follow(b), 0)
	for {
		m := c.mark.Load()
		if t <= m {
			return m
		}
		if c.mark.CompareAndSwap(m, t) {
			return t
		}
	}
}

// follow returns the wall time of a moment, or, if that has leapt ahead, what has elapsed since it was right.
func (c *clock) follow(b clockBase) int64 {
	wall := b.t.UnixMicro()
	base := c.base.Load()
	if base == nil {
		first := b
		c.base.CompareAndSwap(nil, &first)
		return wall
	}
	elapsed := base.t.UnixMicro() + c.since(base, b).Microseconds()
	switch ahead := wall - elapsed; {
	case ahead > leapMax.Microseconds() && wall > c.mark.Load()+leapMax.Microseconds():
		c.tell(true, wall, elapsed)
		return elapsed
	case ahead > time.Second.Microseconds() || ahead < -time.Second.Microseconds():
		next := b // it was set by hand, or drifted
		c.base.CompareAndSwap(base, &next)
	}
	return wall
}

// tell reports when wall time stops and begins to be followed.
func (c *clock) tell(leaped bool, wall, engine int64) {
	c.mu.Lock()
	change := c.leaped != leaped
	c.leaped = leaped
	c.mu.Unlock()
	if change && c.told != nil {
		c.told(leaped, time.UnixMicro(wall), time.UnixMicro(engine))
	}
}

// collect returns the time as of which merges collect: now, or less while the clock is not believed.
func (c *clock) collect() int64 {
	now := c.now()
	h := c.held.Load()
	if h == nil {
		return now
	}
	if c.since(&h.base, c.moment()) >= heldFor {
		c.held.CompareAndSwap(h, nil)
		return now
	}
	return min(now, h.collect)
}

// hold makes collection stay at the time up to which an earlier life collected if wall time is too far ahead of it. A store that
// never had a time holds nothing.
func (c *clock) hold(collected int64) bool {
	b := c.moment()
	if collected == 0 || b.t.UnixMicro() <= collected+aheadMax.Microseconds() {
		return false
	}
	c.held.Store(&clockHold{base: b, collect: collected})
	return true
}

// collected is the time that nothing was collected beyond.
func (c *clock) collected() int64 {
	if h := c.held.Load(); h != nil {
		return min(c.mark.Load(), h.collect)
	}
	return c.mark.Load()
}

// confirm makes wall time the right one.
func (c *clock) confirm() {
	b := c.moment()
	c.base.Store(&b)
	c.held.Store(nil)
	c.tell(false, b.t.UnixMicro(), c.now())
}

// raise makes sure that time is not below t.
func (c *clock) raise(t int64) {
	for {
		m := c.mark.Load()
		if t <= m || c.mark.CompareAndSwap(m, t) {
			return
		}
	}
}

// ClockReport is what a store makes of the host's clock.
type ClockReport struct {
	Wall    time.Time // the host's clock
	Engine  time.Time // the store's time: rules hide cells as of it
	Collect time.Time // merges remove cells as of it; behind Engine while the clock is not believed
	// Held says that wall time is not followed or collected by: it leapt ahead by more than an hour while the store was open,
	// or was more than a day ahead when it was opened. The latter ends by itself after an hour, both by DB.ConfirmClock.
	Held bool
}

func (c *clock) report() ClockReport {
	collect := c.collect()
	engine := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return ClockReport{
		Wall: c.wall(), Engine: time.UnixMicro(engine), Collect: time.UnixMicro(collect), Held: c.leaped || c.held.Load() != nil,
	}
}

// ConfirmClock says that the host's clock is right, although it has leapt ahead while the store was open or was far ahead when it
// was opened: the store follows it from now on, and cells that rules hide as of it are removed.
func (db *DB) ConfirmClock(ctx context.Context) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	db.clock.confirm()
	db.logger.Info("the host confirms the clock", "time", time.UnixMicro(db.clock.now()))
	return nil
}

// LowerClock sets the store's time back to t, after the host's clock has been wrong: the store would stand still otherwise until
// the clock has caught up with it. It returns the families, as "table/family", whose rules look at age: what they hid as of the
// later time shows again. Nothing is done if the store's time is not beyond t; ErrAsOf if a cell was collected, or a rule loosened,
// as of a time beyond t.
func (db *DB) LowerClock(ctx context.Context, t time.Time) (shows []string, err error) {
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	if err := db.writable(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	to := max(micros(t), 0)
	db.schemaMu.Lock()
	defer db.schemaMu.Unlock()
	if to >= db.clock.now() {
		return nil, nil
	}
	err = db.installBy(nil, func(v *levels.Version) (*levels.Edit, error) {
		for _, table := range v.Schema.Tables() {
			if last := lastCollected(v, table); to < last {
				return nil, fmt.Errorf("%w: table %q: the last collection was at %d, after %d", ErrAsOf, table.Name, last, to)
			}
			for _, f := range table.Families {
				if f.Rule.LooksAtAge() {
					shows = append(shows, table.Name+"/"+f.Name)
				}
			}
		}
		db.placeMu.Lock() // no batch is placed with a later time from here on
		defer db.placeMu.Unlock()
		db.clock.lower(to)
		return &levels.Edit{Lowered: &levels.Lowered{Time: to, Seq: db.nextSeq - 1}, LastSeq: db.nextSeq - 1}, nil
	}, nil)
	if err != nil {
		return nil, err
	}
	db.logger.Warn("engine time is set back", "to", time.UnixMicro(to), "families that may show more", shows)
	return shows, nil
}

// lower sets time back.
func (c *clock) lower(to int64) {
	b := c.moment()
	c.base.Store(&b)
	c.held.Store(nil)
	c.mark.Store(to)
}

// lastCollected is the latest time as of which something of a table was collected, or is to be for good.
func lastCollected(v *levels.Version, t *levels.Table) (last int64) {
	for _, g := range t.Groups {
		last = max(last, v.Trees[g.Tree].Collected)
	}
	for i := range t.Changes {
		last = max(last, t.Changes[i].Time)
	}
	return last
}

// AsOf reads as if the time was t: rules that look at age hide what they would hide then. It does not undo writes and deletes.
// What has been removed from disk cannot be shown again: a time before the last collection of a cell of the table, or before
// a rule of it was loosened, is ErrAsOf. A later time than the present hides more.
func AsOf(t time.Time) ReadOption {
	return readOption(func(o *readOptions) {
		o.asOf, o.asOfSet = micros(t), true
		if o.asOf < 0 {
			o.err = fmt.Errorf("%w: %v is before 1970", ErrAsOf, t)
		}
	})
}

// checkAsOf makes sure that nothing of the table was collected as of a later time.
func (rd *reading) checkAsOf(asOf int64) error {
	if last := lastCollected(rd.st.version, rd.table.Table); asOf < last {
		return fmt.Errorf("%w: table %q at %d, its last collection was at %d", ErrAsOf, rd.table.Name, asOf, last)
	}
	return nil
}
