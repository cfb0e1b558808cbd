package wal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rowandb/rowan/io/direct"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

// maxAlign is the largest alignment that direct I/O is used with; a file that wants more is written buffered.
const maxAlign = 64 << 10

// slotFile is a file of the log. It is never renamed; its number is only a name.
type slotFile struct {
	file int
	size int64
	used bool // it was a slot before
}

// slot is a file in use.
type slot struct {
	slotFile
	num    uint64
	maxSeq uint64 // highest last sequence of the records that have bytes in it
	begun  bool   // its first block is durable
}

func (l *Log) path(file int) string { return slotName(l.o.Dir, file) }

// switchSlot goes on in a fresh slot. Only the leader calls it, when all that was written is durable.
func (l *Log) switchSlot(num uint64, gap bool, end record.Pos) error {
	sf, err := l.takeFile()
	if err != nil {
		return err
	}
	f, isDirect, err := l.openSlot(sf)
	if err != nil {
		return err
	}
	if l.f != nil {
		if err := l.f.Close(); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	l.f, l.direct, l.wrote, l.slotSize = f, isDirect, false, sf.size
	align := record.BlockSize
	if isDirect {
		align = f.Align()
	}
	if l.b.Room() < 2*align { // a mark needs a block behind the tail
		l.b.Grow(direct.Buffer(2*maxAlign, maxAlign))
	}
	if err := l.b.SetAlign(align); err != nil {
		return err
	}
	l.b.Reset(num, l.o.OpenCount, sf.size, gap, end)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.half = sf.size / 2
	l.slots = append(l.slots, slot{slotFile: sf, num: num})
	return nil
}

// openSlot opens a slot for writing, directly where that is allowed.
func (l *Log) openSlot(sf slotFile) (f vfs.File, isDirect bool, err error) {
	name := l.path(sf.file)
	if l.wantDirect.Load() {
		f, err = l.o.FS.Open(name, vfs.How{Write: true, Direct: true, DSync: true})
		switch {
		case err == nil && f.Align() <= maxAlign && sf.size%int64(f.Align()) == 0:
			return f, true, nil
		case err == nil:
			err = fmt.Errorf("%w: alignment %d, slot of %d bytes", vfs.ErrDirect, f.Align(), sf.size)
			_ = f.Close()
		case !errors.Is(err, vfs.ErrDirect):
			return nil, false, err
		}
		l.refused(err)
	}
	f, err = l.o.FS.Open(name, vfs.How{Write: true})
	return f, false, err
}

// reopenBuffered goes on with a buffered handle after the first direct write was refused.
func (l *Log) reopenBuffered() error {
	l.refused(vfs.ErrDirect)
	l.mu.Lock()
	sf := l.slots[len(l.slots)-1].slotFile
	l.mu.Unlock()
	f, _, err := l.openSlot(sf)
	if err != nil {
		return err
	}
	_ = l.f.Close() // nothing was written through it
	l.f, l.direct = f, false
	return nil
}

func (l *Log) refused(err error) {
	if l.wantDirect.Swap(false) {
		l.o.Logger.Info("log: direct I/O refused, writing buffered", "dir", l.o.Dir, "err", err)
	}
}

// begun notes that the current slot is durable on its first block, and has the next one prepared when half of it is used.
func (l *Log) begun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots[len(l.slots)-1].begun = true
	l.ahead()
}

// pickFree returns the index of a spare file that is large enough, or else of the largest, or -1 if there is none. mu is held.
func (l *Log) pickFree() int {
	best := -1
	for i, f := range l.free {
		if f.size >= l.size {
			return i
		}
		if best < 0 || f.size > l.free[best].size {
			best = i
		}
	}
	return best
}

// takeFile returns a file for the next slot. It is a spare one; only the first slot of a life is made here, small if space is
// short. The slots of a growing log grow.
func (l *Log) takeFile() (sf slotFile, err error) {
	l.mu.Lock()
	first := l.f == nil
	i := l.pickFree()
	if i >= 0 && first && l.free[i].size < l.size {
		i = -1
	}
	l.mu.Unlock()
	if i < 0 {
		if !first {
			return sf, fmt.Errorf("%w for what was placed", ErrRoom) // the accounts are wrong
		}
		sf, err = l.create(slotSizeMin, -1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i < 0 && err == nil {
		l.addSpare(sf)
	}
	if err != nil {
		if i = l.pickFree(); i < 0 || !vfs.NoSpace(err) { // a smaller one will do
			return sf, err
		}
	}
	i = l.pickFree()
	sf = l.free[i] // its room is accounted for
	l.free = slices.Delete(l.free, i, i+1)
	if sf.used {
		l.stats.recycled.Add(1)
	}
	if len(l.slots) > 0 && !first { // the first slot of a life starts small, if it can
		l.size = min(max(l.size, sf.size)*2, l.o.SlotSize)
	}
	return sf, nil
}

// create makes a file, written through with zeros and durable with its name, so that writes to it later change no metadata. While
// space is short its size is halved, down to least. keep is how many bytes are to stay free, -1 if that is of no interest.
func (l *Log) create(least, keep int64) (slotFile, error) {
	l.mu.Lock()
	file, size := 1, l.size
	for l.names[file] {
		file++
	}
	l.names[file] = true
	l.mu.Unlock()
	if l.tight.Load() { // what is written now frees space, and needs it elsewhere
		size = min(size, slotSizeSmall)
	}
	size, err := l.shrunk(size, least, keep)
	for err == nil {
		if err = l.createFile(l.path(file), size); err == nil {
			l.stats.created.Add(1)
			return slotFile{file: file, size: size}, nil
		}
		var dir dirError
		if !vfs.NoSpace(err) || size/2 < least || errors.As(err, &dir) {
			break
		}
		l.o.Logger.Warn("log slot made smaller", "bytes", halved(size), "cause", err)
		size, err = halved(size), nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.names, file)
	return slotFile{}, fmt.Errorf("prepare log slot: %w", err)
}

// dirError is the failure of a directory's sync, which is never tried again as if nothing had been.
type dirError struct{ error }

func (e dirError) Unwrap() error { return e.error }

// createFile makes one file; on error there is none.
func (l *Log) createFile(name string, size int64) error {
	w, err := direct.Create(l.o.FS, name, direct.Options{Expect: size, NoDirect: !l.wantDirect.Load()})
	if err != nil {
		return err
	}
	err = func() error {
		zero := make([]byte, min(size, 64<<10))
		for left := size; left > 0; left -= int64(len(zero)) {
			zero = zero[:min(int64(len(zero)), left)]
			if _, err := w.Write(zero); err != nil {
				return errors.Join(err, w.Abort())
			}
		}
		if err := w.Finish(); err != nil {
			return err
		}
		if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
			return dirError{err}
		}
		return nil
	}()
	if err != nil {
		_ = l.o.FS.Remove(name)
	}
	return err
}

// OldestSlot is where replay must start as far as Release knows: what an edit of the manifest records that frees nothing. An
// edit that frees records but only knows this start is correct too; the slots then stay until the next one.
func (l *Log) OldestSlot() uint64 { return l.OldestSlotFor(0) }

// OldestSlotFor is where replay must start once all records through seq are not needed: what the edit that says so records.
// Release then makes use of it. It is always the number of a slot whose first block is durable.
func (l *Log) OldestSlotFor(seq uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	num := l.startFor(max(seq, l.released))
	l.handed = max(l.handed, num)
	return num
}

// startFor returns the first slot with a record above seq, or else the newest begun one. mu is held.
func (l *Log) startFor(seq uint64) uint64 {
	num := l.slots[0].num
	for _, s := range l.slots {
		if s.begun {
			num = s.num
		}
		if s.maxSeq > seq || !s.begun {
			break
		}
	}
	return num
}

// Release says that the edit which makes all records through seq unnecessary is durable. Slots below the start of replay that
// such an edit recorded (the highest that OldestSlot or OldestSlotFor gave out) are recycled, or removed beyond a few. It is for
// owners who make one edit at a time.
func (l *Log) Release(seq uint64) error {
	l.mu.Lock()
	start := l.handed
	l.mu.Unlock()
	return l.ReleaseFrom(seq, start)
}

// ReleaseFrom is Release where several edits may be under way: start is what the durable one recorded. What OldestSlotFor gave
// out for another says nothing yet.
func (l *Log) ReleaseFrom(seq, start uint64) error {
	l.mu.Lock()
	l.released = max(l.released, seq)
	l.recorded = max(l.recorded, start)
	keep := l.pinned(min(l.startFor(l.released), l.recorded))
	var remove []slotFile
	spares, most := spareMax, l.o.SlotSize
	if l.tight.Load() {
		spares, most = 1, slotSizeSmall
	}
	for len(l.slots) > 1 && l.slots[0].num < keep {
		sf := l.slots[0].slotFile
		sf.used = true
		if sf.size >= l.size && sf.size <= most && len(l.free) < spares {
			l.addSpare(sf)
		} else {
			remove = append(remove, sf)
		}
		l.slots = slices.Delete(l.slots, 0, 1)
	}
	// Spares that the log has outgrown, and those beyond a few, which an opening may have found.
	for i := 0; i < len(l.free); {
		// Not those whose room was promised.
		if sf := l.free[i]; (sf.size < l.size && sf.size < most || sf.size > most || i >= spares) && l.room-roomIn(sf.size) >= l.wanted {
			l.room -= roomIn(sf.size)
			remove = append(remove, sf)
			l.free = slices.Delete(l.free, i, i+1)
			continue
		}
		i++
	}
	l.mu.Unlock()
	var errs []error
	for _, sf := range remove {
		if err := l.o.FS.Remove(l.path(sf.file)); err != nil {
			errs = append(errs, err)
			continue // the name stays taken
		}
		l.stats.removed.Add(1)
		l.mu.Lock()
		delete(l.names, sf.file)
		l.mu.Unlock()
	}
	if len(errs) > 0 {
		return fmt.Errorf("remove log slots: %w", errors.Join(errs...))
	}
	return nil
}
