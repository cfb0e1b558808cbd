package wal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/rowandb/rowan/io/direct"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

// slowYield is how long giving way may take: other writers need microseconds, goroutines that compute take their whole slice of
// 10 ms. One slow yield may be the operating system's doing; two soon after each other are not.
const (
	slowYield     = time.Millisecond
	slowYieldSoon = 100 * time.Millisecond
	yieldBudget   = 50 * time.Microsecond
	missedMax     = 8  // times in a row that the writers did not come, before it is not waited for them
	missedRetry   = 64 // ... and after how many groups it is tried again
)

// Wait returns when everything through seq is durable. If nobody is writing it writes, all that is queued. A cancelled context
// ends the waiting, not the writing.
func (l *Log) Wait(ctx context.Context, seq uint64) error {
	if l.durable.Load() >= seq {
		return nil
	}
	l.mu.Lock()
	for {
		if l.durable.Load() >= seq {
			l.mu.Unlock()
			return nil
		}
		err := l.Err()
		switch {
		case err != nil:
		case ctx.Err() != nil:
			err = ctx.Err()
		case seq > l.placed:
			err = fmt.Errorf("%w: sequence %d was never placed", ErrRecord, seq)
		}
		if err != nil {
			if !l.writing && l.queue.n > 0 {
				l.pass() // the lead may have been offered to this waiter
			}
			l.mu.Unlock()
			return err
		}
		if !l.writing {
			l.lead()
			continue
		}
		g := l.next
		if l.queue.n == 0 || seq < l.queue.first { // a queue that starts with a later record does not hold it
			g = l.underWay()
		}
		l.mu.Unlock()
		select {
		case <-g.done:
		case <-g.lead:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
}

// underWay is the group that ends with the present leader. mu is held and somebody leads.
func (l *Log) underWay() *group {
	if l.taken {
		return l.now
	}
	return l.next
}

// Sync makes everything that is placed durable.
func (l *Log) Sync(ctx context.Context) error {
	l.mu.Lock()
	seq := l.placed
	l.mu.Unlock()
	return l.Wait(ctx, seq)
}

// Throttle waits while more bytes are placed and not durable than UnsyncedMax, helping to write them.
func (l *Log) Throttle(ctx context.Context) error {
	if l.unsynced.Load() <= l.o.UnsyncedMax {
		return l.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.unsynced.Load() > l.o.UnsyncedMax {
		if err := l.Err(); err != nil {
			return err
		}
		if !l.writing {
			l.lead()
			continue
		}
		done := l.underWay().done
		l.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
		}
		l.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return l.Err()
}

// lead writes one group: all that is queued when the last write is over. Called with mu held, returns with it held.
func (l *Log) lead() {
	l.writing = true
	if l.lastSize > 1 {
		l.giveWay()
	}
	q := l.queue
	l.queue, l.spareQ = l.spareQ, nil
	l.taken, l.now, l.next = true, l.next, newGroup()
	l.lastSize = q.n
	l.mu.Unlock()

	var err error
	if q.n > 0 {
		if err = l.Err(); err == nil {
			start := time.Now()
			err = l.write(q)
			l.writeTook = time.Since(start)
		}
		if err != nil {
			l.fail(fmt.Errorf("write log: %w", err))
		}
	}

	l.mu.Lock()
	l.end(q, err)
}

// end lets the waiters of the group go and passes the lead on.
func (l *Log) end(q *batch, err error) {
	if q.n > 0 {
		l.marked = false
		l.crowd = q.n + l.queue.n
		l.lastPut = l.o.Now()
		if err == nil {
			l.unsynced.Add(-int64(q.bytes))
			l.stats.records.Add(uint64(q.n))
			l.stats.groups.Add(1)
		}
	}
	q.clear(&l.chunks)
	l.spareQ = q
	l.writing, l.taken = false, false
	close(l.now.done)
	switch {
	case err != nil: // nobody will lead any more
		close(l.next.done)
		l.next = newGroup()
	case l.queue.n > 0:
		l.pass()
	}
}

// pass offers the lead to one waiter of the queue. mu is held.
func (l *Log) pass() {
	select {
	case l.next.lead <- struct{}{}:
	default: // offered already
	}
}

// giveWay lets writers that are about to place a record do so: all those that the last write let go, if they come within a
// fraction of the time that a write takes. Without it the writers split into cohorts that wait for each other. It costs
// microseconds while they do nothing else and many milliseconds where goroutines compute, so it is timed and suspended when
// it is slow, and cut down to one turn when the writers do not come.
func (l *Log) giveWay() {
	start := time.Now()
	if start.Before(l.noYield) {
		return
	}
	budget := min(l.writeTook/8, yieldBudget)
	if l.missed >= missedMax {
		budget = 0
		if l.missed++; l.missed > missedRetry {
			l.missed = 0
		}
	}
	for {
		l.mu.Unlock()
		runtime.Gosched()
		took := time.Since(start)
		l.mu.Lock()
		switch {
		case took > slowYield:
			if start.Sub(l.wasSlow) < slowYieldSoon {
				l.noYield = start.Add(took + time.Second)
			}
			l.wasSlow = start.Add(took)
			l.stats.slowYield.Add(1)
			return
		case l.queue.n >= l.crowd:
			l.missed = 0
			return
		case took >= budget:
			if budget > 0 {
				l.missed++
			}
			return
		}
	}
}

// write lays the records out and writes them; durable moves as they become it. Only the leader calls it.
func (l *Log) write(q *batch) error {
	if n := q.bytes; n > l.b.Room() && l.b.Room() < bufferMax {
		l.b.Grow(direct.Buffer(min(pow2(n+n/8), bufferMax), maxAlign))
	}
	st := &l.b.State
	st.EngineTime, st.Stamp = max(st.EngineTime, q.state.EngineTime), max(st.Stamp, q.state.Stamp)
	var pos record.Pos
	var seq uint64 // through which all is laid out
	out := func() error {
		if err := l.writeOut(); err != nil {
			return err
		}
		if seq > 0 {
			st.Durable, st.DurableSeq = pos, seq
			l.durable.Store(seq)
		}
		return nil
	}
	err := q.each(func(s uint64, rec []byte) error {
		if l.b.Full() {
			if err := l.over(out); err != nil {
				return err
			}
		}
		l.cur = s
		l.b.Start(s, rec)
		for !l.b.Fill() {
			if err := l.over(out); err != nil {
				return err
			}
		}
		pos, seq = l.b.Pos(), s
		return nil
	})
	if err != nil {
		return err
	}
	return out()
}

// over writes out a full buffer and, if the slot is full too, goes to the next one: a slot is not written before the one
// before it is durable.
func (l *Log) over(out func() error) error {
	if err := out(); err != nil {
		return err
	}
	if !l.b.Full() {
		return nil
	}
	return l.switchSlot(l.b.Pos().Slot+1, false, record.Pos{})
}

// writeOut writes what is pending and makes it durable.
func (l *Log) writeOut() error {
	p, off := l.b.Pending()
	if len(p) == 0 {
		return nil
	}
	l.mu.Lock()
	l.slots[len(l.slots)-1].maxSeq = l.cur
	l.mu.Unlock()
	l.stats.writes.Add(1)
	l.stats.bytes.Add(uint64(len(p)))
	_, err := l.f.WriteAt(p, off)
	if err != nil && l.direct && !l.wrote && errors.Is(err, vfs.ErrDirect) {
		if err = l.reopenBuffered(); err == nil {
			l.stats.writes.Add(1)
			_, err = l.f.WriteAt(p, off)
		}
	}
	if err == nil && !l.direct {
		l.stats.syncs.Add(1)
		err = l.f.Sync()
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.wroteTo = record.Pos{Slot: l.slots[len(l.slots)-1].num, Off: l.slotSize - l.b.Left()}
	l.mu.Unlock()
	l.b.Written()
	if !l.wrote || l.b.Left() < l.slotSize/2 {
		l.begun()
	}
	l.wrote = true
	return nil
}

// mark writes the header-only block. Only the leader calls it, with an empty builder queue.
func (l *Log) mark() error {
	for !l.b.Mark() {
		if err := l.writeOut(); err != nil {
			return err
		}
		if l.b.Left() <= record.BlockSize { // no block left: the mark opens the next slot
			if err := l.switchSlot(l.b.Pos().Slot+1, true, l.b.Pos()); err != nil {
				return err
			}
		}
	}
	return l.writeOut()
}

// wake tells the background goroutine to look. mu is held.
func (l *Log) wake() {
	l.active, l.relaxed = true, false
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func (l *Log) background() {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-l.kick:
		case <-t.C:
		case <-l.quit:
			return
		}
		if d := l.Tick(); d > 0 {
			t.Reset(d)
		}
	}
}

// Tick does what is due: writes records that waited long enough or are many, or the header-only block after a quiet second.
// It returns when it wants to be called again; 0 means after the next record. The background goroutine calls it; with
// Options.Manual the owner may.
func (l *Log) Tick() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.Err() != nil {
		l.active = false
		return 0
	}
	now := l.o.Now()
	if l.queue.n > 0 {
		wait := l.o.NoSyncDelay - now.Sub(l.queue.since)
		if l.queue.bytes < l.o.NoSyncBytes && wait > 0 {
			return wait
		}
		if l.writing {
			return l.o.NoSyncDelay // the leader's successor takes it; look again in case there is none
		}
		l.lead()
		return l.o.NoSyncDelay
	}
	if l.writing {
		return l.o.NoSyncDelay
	}
	if l.marked {
		l.active = false
		return 0
	}
	if wait := quiet - now.Sub(l.lastPut); wait > 0 {
		l.relaxed = true
		return wait
	}
	l.leadMark()
	l.active = false
	return 0
}

// leadMark writes the header-only block, as a leader. mu is held before and after.
func (l *Log) leadMark() {
	l.writing = true
	l.taken, l.now, l.next = true, l.next, newGroup()
	ok, err := l.markRoom()
	l.mu.Unlock()
	if err == nil {
		err = l.Err()
	}
	if err == nil && ok {
		if err = l.mark(); err != nil {
			l.fail(fmt.Errorf("write log: %w", err))
		}
	}
	l.mu.Lock()
	l.marked = true
	if l.told = 0; err == nil && ok {
		l.told = l.b.State.DurableSeq
	}
	q := &batch{}
	if l.spareQ != nil {
		q = l.spareQ
	}
	l.end(q, err)
}

// Close writes what is queued and a header-only block, waits for the goroutines of the log and closes its file. It returns the
// log's failure, if any. A second call returns the same.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.wg.Wait()
		return l.Err()
	}
	for l.Err() == nil && (l.writing || l.queue.n > 0 || !l.marked) {
		switch {
		case l.writing:
			g := l.underWay()
			l.mu.Unlock()
			<-g.done
			l.mu.Lock()
		case l.queue.n > 0:
			l.lead()
		default:
			l.leadMark()
		}
	}
	again := l.closed
	l.closed = true
	for l.writing { // a failing leader is still on its way out
		g := l.underWay()
		l.mu.Unlock()
		<-g.done
		l.mu.Lock()
	}
	l.mu.Unlock()
	if !again {
		close(l.quit)
		l.wg.Wait()
		if err := l.f.Close(); err != nil && l.Err() == nil {
			l.fail(fmt.Errorf("close log: %w", err))
		}
	} else {
		l.wg.Wait()
	}
	return l.Err()
}
