package wal

import (
	"sync"

	"github.com/rowandb/rowan/io/record"
)

// SlotRef names a file of the log.
type SlotRef struct {
	Num  uint64 // of the slot that it is
	File int    // in its name
	Size int64  // bytes
}

// Pin holds slots: while it is held they are neither recycled nor removed, whatever is released. What lies before End in them
// is durable and never changes: a tail block that is written again repeats its bytes.
type Pin struct {
	Slots []SlotRef // ascending by Num, through the slot of End
	// End is where the durable bytes of the log end: a byte offset in a file, which may lie inside a header or record.
	End record.Pos
	Seq uint64 // the last durable sequence; its record lies before End

	log  *Log
	once sync.Once
}

// Pin pins every slot from number `from` on, which must be a start of replay that a durable edit recorded. Release ends it.
func (l *Log) Pin(from uint64) *Pin {
	p := &Pin{Seq: l.durable.Load(), log: l} // before End is read: the end only moves on
	l.mu.Lock()
	defer l.mu.Unlock()
	p.End = l.wroteTo
	for _, s := range l.slots {
		if s.num >= from && s.num <= p.End.Slot {
			p.Slots = append(p.Slots, SlotRef{s.num, s.file, s.size})
		}
	}
	if l.pins == nil {
		l.pins = map[*Pin]uint64{}
	}
	l.pins[p] = from
	return p
}

// Release ends the pin. What was released meanwhile goes with the log's next release. It may be called again.
func (p *Pin) Release() {
	p.once.Do(func() {
		if p.log == nil {
			return
		}
		p.log.mu.Lock()
		defer p.log.mu.Unlock()
		delete(p.log.pins, p)
	})
}

// pinned is the lowest slot that is pinned, or else num. mu is held.
func (l *Log) pinned(num uint64) uint64 {
	for _, from := range l.pins {
		num = min(num, from)
	}
	return num
}

// Pin is what Log.Pin gives, of a log that was recovered and is not open, so that nothing moves: all that was read.
func (r *Recovered) Pin() *Pin {
	p := &Pin{Seq: r.last, End: record.Pos{Slot: r.maxSlot}}
	for _, s := range r.slots {
		p.Slots = append(p.Slots, SlotRef{s.num, s.file, s.size})
		if s.num == r.maxSlot {
			p.End.Off = s.size
		}
	}
	return p
}

// Files are the numbers in the names of all files of a log that was recovered, spare and unreadable ones too.
func (r *Recovered) Files() []int { return r.names }

// Renewed is what a log of another identity goes on from: sequences and slot numbers ascend, names in use stay so, and none of
// the old slots counts. Its end lies before the new log's first slot, so that the first header there tells the sequence.
func (r *Recovered) Renewed() Recovered {
	return Recovered{
		End:     record.Pos{Slot: r.maxSlot, Off: record.BlockSize},
		LastSeq: r.through(), EngineTime: r.EngineTime, Stamp: r.Stamp, OpenCount: r.OpenCount, names: r.names, maxSlot: r.maxSlot,
	}
}
