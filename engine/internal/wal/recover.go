package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

// Recovered is what Recover found. The zero value is an empty log.
type Recovered struct {
	Any        bool       // there was a slot to read
	Slots      []uint64   // numbers of the slots that the records came from, ascending
	End        record.Pos // of the last record
	Records    int
	LastSeq    uint64 // of the last record, 0 if there was none
	Ignored    int64  // bytes behind the end that a write under way may have left
	EngineTime int64  // highest that a block's header names, microseconds
	Stamp      int64  // the same
	DurableSeq uint64 // highest sequence that a header calls durable
	OpenCount  uint64 // highest of any header

	slots   []slot
	free    []slotFile
	names   []int
	maxSlot uint64
}

// through is the last sequence that the log has seen.
func (r *Recovered) through() uint64 { return max(r.LastSeq, r.DurableSeq) }

func slotName(dir string, file int) string { return path.Join(dir, fmt.Sprintf("slot-%04d.log", file)) }

// slotNumber returns the number in a file name of the log.
func slotNumber(base string) (int, bool) {
	s, ok := strings.CutPrefix(base, "slot-")
	s, ok2 := strings.CutSuffix(s, ".log")
	n, err := strconv.Atoi(s)
	if !ok || !ok2 || err != nil || n < 1 || path.Base(slotName("", n)) != base {
		return 0, false
	}
	return n, true
}

// Recover replays the log from slot fromSlot on, which the manifest recorded (0: from the first one ever), and calls fn with
// every record in order; rec is valid during the call. It changes nothing on disk and may be repeated.
//
// The end of the log is its first record that is not whole, unless something says that it was whole once: that is a damage
// error, and so is a slot that is missing. An error of fn ends the replay and is returned wrapped with the place.
func Recover(ctx context.Context, o Options, fromSlot uint64, fn func(rec []byte) error) (Recovered, error) {
	rec, err := recoverLog(ctx, o.withDefaults(), fromSlot, fn)
	if err != nil {
		return rec, fmt.Errorf("recover log: %w", err)
	}
	return rec, nil
}

type foundFile struct {
	slotFile
	record.Slot
	f  vfs.File
	ok bool // its first block has a header
}

func recoverLog(ctx context.Context, o Options, fromSlot uint64, fn func(rec []byte) error) (out Recovered, err error) {
	found, err := findSlots(o)
	defer func() {
		for _, f := range found {
			_ = f.f.Close()
		}
	}()
	if err != nil {
		return out, err
	}
	var slots, orphans []record.Slot
	for _, f := range found {
		out.names = append(out.names, f.file)
		switch {
		case !f.ok:
			orphans = append(orphans, f.Slot)
			out.free = append(out.free, f.slotFile)
		case f.First.Slot < fromSlot:
			out.free = append(out.free, f.slotFile)
		default:
			slots = append(slots, f.Slot)
			out.slots = append(out.slots, slot{slotFile: f.slotFile, num: f.First.Slot, begun: true})
		}
		if f.ok {
			out.maxSlot = max(out.maxSlot, f.First.Slot)
			out.OpenCount = max(out.OpenCount, f.First.Open)
		}
	}
	slices.SortFunc(out.slots, func(a, b slot) int { return cmp.Compare(a.num, b.num) })
	out.free = slices.DeleteFunc(out.free, func(f slotFile) bool { return f.size < slotSizeMin || f.size%record.BlockSize != 0 })
	chain, err := record.Chain(slots, fromSlot)
	if err != nil {
		return out, damage.At(err, o.Dir, 0)
	}
	for _, s := range chain {
		out.Slots = append(out.Slots, s.First.Slot)
	}
	out.Any = len(chain) > 0
	r := record.NewReader(o.StoreID, chain, orphans)
	err = replay(ctx, r, &out, fn)
	st := r.State()
	out.End, out.Ignored = r.Place(), r.Ignored()
	out.EngineTime, out.Stamp, out.DurableSeq = st.EngineTime, st.Stamp, st.DurableSeq
	out.OpenCount = max(out.OpenCount, r.Open())
	if err == nil && out.Records > 0 && st.DurableSeq > out.LastSeq {
		// The reader's own rule compares places; this can only be met if a place was wrong.
		err = damage.New("log", -1, "ends at sequence %d, but %d was durable", out.LastSeq, st.DurableSeq)
	}
	if err != nil {
		return out, damage.At(err, o.Dir, 0)
	}
	return out, nil
}

func replay(ctx context.Context, r *record.Reader, out *Recovered, fn func(rec []byte) error) error {
	at := 0 // slot in out.slots
	for {
		rec, seq, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if out.Records%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		from, to := r.Began().Slot, r.Place().Slot
		for out.slots[at].num < from {
			at++
		}
		for i := at; i < len(out.slots) && out.slots[i].num <= to; i++ {
			out.slots[i].maxSeq = seq
		}
		out.Records++
		out.LastSeq = seq
		if err := fn(rec); err != nil {
			p := r.Began()
			return fmt.Errorf("record at slot %d, offset %d: %w", p.Slot, p.Off, err)
		}
	}
}

// findSlots opens the files of the log and reads their first headers.
func findSlots(o Options) (found []foundFile, err error) {
	infos, err := o.FS.List(o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, i := range infos {
		n, ok := slotNumber(i.Name)
		if !ok || i.Dir {
			continue
		}
		name := slotName(o.Dir, n)
		f, err := o.FS.Open(name, vfs.How{})
		if err != nil {
			return found, err
		}
		ff := foundFile{slotFile: slotFile{n, i.Size}, f: f, Slot: record.Slot{R: f, Name: name, Size: i.Size}}
		found = append(found, ff)
		var head [record.HeaderSize]byte
		if k, err := f.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
			return found, err
		} else if k < len(head) {
			continue
		}
		last := &found[len(found)-1]
		if h, err := record.ReadHeader(head[:], o.StoreID, 0); err == nil {
			last.First, last.ok = h, true
		}
	}
	return found, nil
}

// IsSlotName reports whether a base name is that of a slot.
func IsSlotName(base string) bool {
	_, ok := slotNumber(base)
	return ok
}
