package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

const (
	slotMin = 256 << 10
	slotMax = 16 << 20
)

// log copies the records of the log before its first damage into a log of the new store, since checksums know the store.
func (j *job) log(ctx context.Context) error {
	v := j.s.Version
	found, err := record.FindSlots(j.fs, j.from, v.StoreID)
	defer func() {
		for _, f := range found {
			_ = f.File.Close() // only read
		}
	}()
	if err != nil {
		return err
	}
	var slots, orphans []record.Slot
	var cut error // of a slot
	total, durable := int64(0), uint64(0)
	for _, f := range found {
		durable = max(durable, durableIn(f, v.StoreID))
		switch {
		case !f.Begun:
			orphans = append(orphans, f.Slot)
		case f.First.Slot >= v.LogStart:
			if in := f.Size % record.BlockSize; in != 0 {
				cut = damage.At(damage.New("log", f.Size, "slot %d ends inside a block", f.First.Slot), f.Name, 0)
				f.Slot.Size -= in
			}
			slots = append(slots, f.Slot)
			total += f.Size
		}
	}
	j.logStart = max(v.LogStart, 1)
	w := &logWriter{job: j, size: min(max((total+slotMin-1)/slotMin*slotMin, slotMin), slotMax), num: j.logStart}
	w.state = record.State{EngineTime: v.EngineTime, Stamp: v.Stamp}
	if err := w.begin(); err != nil {
		return err
	}
	chain, bad := chainOf(slots, v.LogStart)
	if len(slots) == 0 && bad == nil && (v.OpenCount > 1 || v.LastTable > 0) {
		bad = damage.New("log", -1, "no slot is there")
	}
	if len(chain) > 0 {
		rd := record.NewReader(v.StoreID, chain, orphans)
		for {
			rec, seq, err := rd.Next()
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				err = j.check(rec)
			}
			if errors.Is(err, io.EOF) {
				if bad == nil {
					bad = cut
				}
				if bad == nil {
					bad = inspect.LogReaches(max(w.last, rd.State().DurableSeq), v)
				}
				break
			}
			if err != nil {
				if ended := ctx.Err(); ended != nil {
					_ = w.file.Close()
					return ended
				}
				bad = err // the first damage is the one that counts
				break
			}
			if err := w.add(seq, rec); err != nil {
				return errors.Join(err, w.file.Close())
			}
			j.report.Records++
		}
	}
	if err := w.finish(); err != nil {
		return err
	}
	j.o.Say("log: %d records, through sequence %d", j.report.Records, w.last)
	if bad != nil {
		s := fmt.Sprintf("the batches in the log after sequence %d", w.last)
		if durable > w.last {
			s += fmt.Sprintf(", of which at least those through %d were durable (as far as they are not in table files)", durable)
		}
		j.lose("%s: %v", s, damage.At(bad, j.from, 0))
	}
	return nil
}

// durableIn is the highest sequence that a header in a file calls durable.
func durableIn(f record.SlotFile, store uint64) (seq uint64) {
	b := make([]byte, record.HeaderSize)
	for blk := int64(0); blk < f.Size/record.BlockSize; blk++ {
		if n, _ := f.File.ReadAt(b, blk*record.BlockSize); n < len(b) {
			continue
		}
		if h, err := record.ReadHeader(b, store, blk); err == nil {
			seq = max(seq, h.DurableSeq)
		}
	}
	return seq
}

// chainOf returns the longest run of slots from the start of replay on that has no hole, and the hole.
func chainOf(slots []record.Slot, from uint64) (chain []record.Slot, hole error) {
	slices.SortFunc(slots, func(a, b record.Slot) int { return cmp.Compare(a.First.Slot, b.First.Slot) })
	for n := len(slots); ; n-- {
		chain, err := record.Chain(slots[:n], from)
		if err == nil && (n > 0 || hole == nil) {
			return chain, hole
		}
		if hole == nil {
			hole = err
		}
		if n == 0 {
			return nil, hole
		}
	}
}

// check makes sure that replay will take a record.
func (j *job) check(rec []byte) error {
	r, err := cell.ReadRecord(rec)
	if err != nil {
		return err
	}
	for e, ok := r.Next(); ok; e, ok = r.Next() {
		if e.Tree > j.s.Version.LastTree {
			return damage.New("batch record", -1, "an entry is for tree %d, the highest ever made is %d", e.Tree, j.s.Version.LastTree)
		}
	}
	return r.Err()
}

// logWriter writes a log that was closed in good order.
type logWriter struct {
	job   *job
	size  int64 // of a slot
	num   uint64
	files int
	file  vfs.File
	b     *record.Builder
	state record.State
	last  uint64
}

func (w *logWriter) begin() error {
	b, err := record.NewBuilder(w.job.id, make([]byte, slotMin), record.BlockSize)
	if err != nil {
		return err
	}
	w.b, b.State = b, w.state
	return w.slot(false, record.Pos{})
}

// slot goes on in a new file.
func (w *logWriter) slot(gap bool, end record.Pos) error {
	if w.file != nil {
		if err := w.close(); err != nil {
			return err
		}
		w.num++
	}
	w.files++
	name := path.Join(w.job.to, record.SlotName(w.files))
	f, err := w.job.fs.Open(name, vfs.How{Create: true})
	if err != nil {
		return err
	}
	w.job.made = append(w.job.made, name)
	w.file = f
	w.b.Reset(w.num, w.job.s.Version.OpenCount, w.size, gap, end)
	return nil
}

func (w *logWriter) close() error {
	err := w.file.Truncate(w.size)
	if err == nil {
		err = w.file.Sync()
	}
	return errors.Join(err, w.file.Close())
}

func (w *logWriter) add(seq uint64, rec []byte) error {
	if w.b.Full() {
		if err := w.over(); err != nil {
			return err
		}
	}
	if r, err := cell.ReadRecord(rec); err == nil {
		st := &w.b.State
		st.EngineTime, st.Stamp = max(st.EngineTime, r.Header.EngineTime), max(st.Stamp, r.Header.Stamp)
	}
	w.b.Start(seq, rec)
	for !w.b.Fill() {
		if err := w.over(); err != nil {
			return err
		}
	}
	w.last = seq
	return nil
}

// over writes what is laid out, and goes to the next slot if this one is full.
func (w *logWriter) over() error {
	if err := w.write(); err != nil {
		return err
	}
	if w.b.Full() {
		return w.slot(false, record.Pos{})
	}
	return nil
}

func (w *logWriter) write() error {
	p, off := w.b.Pending()
	if len(p) == 0 {
		return nil
	}
	if _, err := w.file.WriteAt(p, off); err != nil {
		return err
	}
	w.b.Written()
	return nil
}

// finish writes the header-only block that ends a closed log.
func (w *logWriter) finish() error {
	err := func() error {
		if w.last > 0 {
			w.b.State.Durable, w.b.State.DurableSeq = w.b.Pos(), w.last
		}
		for !w.b.Mark() {
			if err := w.write(); err != nil {
				return err
			}
			if w.b.Left() <= record.BlockSize {
				if err := w.slot(true, w.b.Pos()); err != nil {
					return err
				}
			}
		}
		return w.write()
	}()
	if err != nil {
		return errors.Join(err, w.file.Close())
	}
	return w.close()
}
