package wal

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

// ErrRoom: the slots that are written through have no room for the record. Nothing was placed; Prepare makes room.
var ErrRoom = errors.New("log has no room prepared")

const (
	blockRoom     = record.BlockSize - record.HeaderSize
	slotSizeSmall = 64 << 10    // what the sizes of slots fall to while space is short
	aheadRetry    = time.Second // before a spare slot is tried again that could not be made
)

// The log never fails for want of space: a record is placed only if the slots that were written through before, the current one
// and the spare ones, have room for everything that is placed. Log.room is what is left of that, in bytes of records with their
// frames; a stream of records fills blocks to the last byte, slot after slot, so it is exact. A mark skips the rest of a block.

// roomIn is the room of slots or parts of slots of n bytes that begin at a block.
func roomIn(n int64) int64 { return n / record.BlockSize * blockRoom }

// restOfBlock is what a mark skips: the part of the current block that is not used. Only the leader calls it.
func (l *Log) restOfBlock() int64 { return l.b.Left() % record.BlockSize }

// need is the room that a record takes.
func need(n int) int64 { return int64(n) + record.FrameSize }

// Tight says whether space is short: then slots are made small, and the next Release leaves one spare slot only.
func (l *Log) Tight(short bool) { l.tight.Store(short) }

// ahead has the next slot prepared in the background when half of the current one is promised. mu is held.
func (l *Log) ahead() {
	if l.o.Manual || l.closed || l.made != nil || l.room >= l.half {
		return
	}
	if now := l.o.Now(); now.Before(l.aheadAt) {
		return
	}
	made := make(chan struct{})
	l.made = made
	l.wg.Go(func() {
		sf, err := l.create(slotSizeSmall, l.o.KeepFree)
		l.prepared(sf, err)
	})
}

// prepared ends a preparation that l.made stands for. Want of space is met again, and reported, by the writer that needs the
// slot; anything else is a failure of the log.
func (l *Log) prepared(sf slotFile, err error) {
	if err != nil && !vfs.NoSpace(err) {
		l.fail(err)
	}
	l.mu.Lock()
	if err == nil {
		l.addSpare(sf)
	} else {
		l.aheadAt = l.o.Now().Add(aheadRetry)
	}
	close(l.made)
	l.made = nil
	l.mu.Unlock()
	if err == nil && l.o.OnSlot != nil {
		l.o.OnSlot()
	}
	if err != nil && vfs.NoSpace(err) && l.o.OnNoSpace != nil {
		l.o.OnNoSpace(err)
	}
}

// addSpare makes a slot ready for use. mu is held.
func (l *Log) addSpare(sf slotFile) {
	l.free = append(l.free, sf)
	l.room += roomIn(sf.size)
}

// Prepare makes room for a record of n bytes, by I/O, and returns when Append has it, unless other writers take it first. keep is
// how many bytes of the file system are to stay free; vfs.NoSpace(err) tells that there are not enough. That harms nothing: it
// may be tried again. After any other error but that of ctx the log has failed.
func (l *Log) Prepare(ctx context.Context, n int, keep int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = max(l.wanted, need(n))
	for l.room < need(n) {
		switch {
		case l.Err() != nil:
			return l.Err()
		case l.closed:
			return ErrClosed
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if made := l.made; made != nil {
			l.mu.Unlock()
			select {
			case <-made:
			case <-ctx.Done():
			}
			l.mu.Lock()
			continue
		}
		l.made = make(chan struct{})
		l.mu.Unlock()
		sf, err := l.create(slotSizeSmall, keep)
		l.prepared(sf, err)
		l.mu.Lock()
		if err != nil {
			l.wanted = 0
			return err
		}
	}
	return nil
}

// shrunk returns the largest size for a slot, at most size, with which keep bytes stay free. What the file system does not tell it
// is asked by trying.
func (l *Log) shrunk(size, least, keep int64) (int64, error) {
	if keep < 0 {
		return size, nil
	}
	free, err := l.o.FS.Free(l.o.Dir)
	if err != nil {
		return size, nil
	}
	for free-size < keep {
		if size/2 < least {
			return 0, fmt.Errorf("%d bytes are free, %d are to stay free: %w", free, keep, syscall.ENOSPC)
		}
		size = halved(size)
	}
	return size, nil
}

func halved(size int64) int64 {
	size /= 2
	if size > maxAlign {
		return size - size%maxAlign
	}
	return size - size%record.BlockSize
}

// markRoom says whether a mark can be written, and makes the slot for it where that is allowed. Only the leader calls it; mu is
// held. A mark that does not fit is left out.
func (l *Log) markRoom() (ok bool, err error) {
	if l.b.Left() >= record.BlockSize { // the mark stays in this slot
		if l.room < l.restOfBlock() {
			return false, nil // records that come next need it
		}
		l.room -= l.restOfBlock()
		return true, nil
	}
	if len(l.free) == 0 {
		for l.made != nil {
			made := l.made
			l.mu.Unlock()
			<-made
			l.mu.Lock()
		}
	}
	if len(l.free) == 0 {
		l.made = make(chan struct{})
		l.mu.Unlock()
		sf, err := l.create(slotSizeSmall, l.o.KeepFree)
		l.prepared(sf, err)
		l.mu.Lock()
		if vfs.NoSpace(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	if rest := l.b.Left() % record.BlockSize; l.room >= rest {
		l.room -= rest
		return true, nil
	}
	return false, nil
}
