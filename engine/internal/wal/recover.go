package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/record"
)

// Recovered is what Recover found. The zero value is an empty log.
type Recovered struct {
	Any        bool       // there was a slot to read
	Slots      []uint64   // numbers of the slots that the records came from, ascending
	End        record.Pos // of the last record
	EndFile    string     // path of the file that End lies in; the directory if there is none
	Records    int
	LastSeq    uint64 // of the last record, 0 if there was none
	Ignored    int64  // bytes behind the end that a write under way may have left
	EngineTime int64  // highest that a block's header names, microseconds
	Stamp      int64  // the same
	DurableSeq uint64 // highest sequence that a header calls durable
	OpenCount  uint64 // highest of any header

	slots   []slot
	free    []slotFile
	fresh   []int // files that no slot ever began in: nothing says that what was written of them is durable
	names   []int
	maxSlot uint64
	durable record.Pos // the furthest that a block's header calls durable
	last    uint64     // through(), as it was found: the owner may raise LastSeq
}

// through is the last sequence that the log has seen.
func (r *Recovered) through() uint64 { return max(r.LastSeq, r.DurableSeq) }

func slotName(dir string, file int) string { return path.Join(dir, record.SlotName(file)) }

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

func recoverLog(ctx context.Context, o Options, fromSlot uint64, fn func(rec []byte) error) (out Recovered, err error) {
	found, err := record.FindSlots(o.FS, o.Dir, o.StoreID)
	defer func() {
		for _, f := range found {
			_ = f.File.Close()
		}
	}()
	out.EndFile = o.Dir
	if err != nil {
		return out, err
	}
	var slots, orphans []record.Slot
	for _, f := range found {
		sf := slotFile{file: f.Number, size: f.Size, used: true}
		out.names = append(out.names, f.Number)
		switch {
		case !f.Begun:
			orphans = append(orphans, f.Slot)
			out.fresh = append(out.fresh, f.Number)
		case f.First.Slot < fromSlot:
			out.free = append(out.free, sf)
		default:
			slots = append(slots, f.Slot)
			out.slots = append(out.slots, slot{slotFile: sf, num: f.First.Slot, begun: true})
		}
		if f.Begun {
			out.maxSlot = max(out.maxSlot, f.First.Slot)
			out.OpenCount = max(out.OpenCount, f.First.Open)
		}
	}
	slices.SortFunc(out.slots, func(a, b slot) int { return cmp.Compare(a.num, b.num) })
	out.free = slices.DeleteFunc(out.free, func(f slotFile) bool { return f.size < slotSizeMin || f.size%record.BlockSize != 0 })
	chain, err := record.Chain(slots, fromSlot)
	if err != nil {
		return out, record.Suspect(err, o.Dir, found)
	}
	for _, s := range chain {
		out.Slots = append(out.Slots, s.First.Slot)
	}
	out.Any = len(chain) > 0
	r := record.NewReader(o.StoreID, chain, orphans)
	err = replay(ctx, r, &out, fn)
	st := r.State()
	out.End, out.Ignored = r.Place(), r.Ignored()
	for _, s := range found {
		if s.Begun && s.First.Slot == out.End.Slot {
			out.EndFile = s.Name
		}
	}
	out.EngineTime, out.Stamp, out.DurableSeq = st.EngineTime, st.Stamp, st.DurableSeq
	out.durable = st.Durable
	out.OpenCount = max(out.OpenCount, r.Open())
	out.last = out.through()
	if err == nil && out.Records > 0 && st.DurableSeq > out.LastSeq {
		// The reader's own rule compares places; this can only be met if a place was wrong.
		err = damage.New("log", -1, "ends at sequence %d, but %d was durable", out.LastSeq, st.DurableSeq)
	}
	if err != nil {
		return out, damage.At(err, out.EndFile, 0)
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
