package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/rowandb/rowan/internal/damage"
)

// Slot is a slot to be read: a file whose first block has a valid header.
type Slot struct {
	R     io.ReaderAt
	Name  string // for errors
	Size  int64  // of the file
	First Header // of its first block
	limit int64  // the stream in this slot ends here; -1 if the file's end is meant
}

// Chain sorts slots and returns those that the stream runs through, from slot number `from` on (0 and 1 mean from the first
// one ever). The highest slot is the last; from a slot the stream goes back to the one whose end its first header names, or
// to its predecessor. What lies between is dead: begun before a crash, and found to hold nothing whole.
func Chain(slots []Slot, from uint64) (chain []Slot, err error) {
	from = max(from, 1)
	slots = slices.DeleteFunc(slices.Clone(slots), func(s Slot) bool { return s.First.Slot < from })
	slices.SortFunc(slots, func(a, b Slot) int { return Pos{a.First.Slot, 0}.Compare(Pos{b.First.Slot, 0}) })
	missing := func(num uint64) error {
		return damage.New("log", -1, "slot %d, which is needed, is missing", num)
	}
	for i := 1; i < len(slots); i++ {
		if slots[i].First.Slot == slots[i-1].First.Slot {
			return nil, damage.At(damage.New("log", 0, "slot %d again, as in %s", slots[i].First.Slot, slots[i-1].Name), slots[i].Name, 0)
		}
	}
	if len(slots) == 0 {
		if from > 1 {
			return nil, missing(from)
		}
		return nil, nil
	}
	limit := int64(-1)
	for i := len(slots) - 1; ; {
		s := slots[i]
		if s.Size%BlockSize != 0 { // it has its size before it is first used
			return nil, damage.At(damage.New("log", s.Size, "slot %d ends inside a block", s.First.Slot), s.Name, 0)
		}
		s.limit = limit
		chain = append(chain, s)
		limit = -1
		prev := s.First.Slot - 1
		if s.First.Gap {
			prev, limit = s.First.End.Slot, s.First.End.Off
		}
		if prev < from || prev >= s.First.Slot {
			break
		}
		j, ok := slices.BinarySearchFunc(slots[:i], prev, func(s Slot, n uint64) int { return Pos{s.First.Slot, 0}.Compare(Pos{n, 0}) })
		if !ok {
			return nil, missing(prev)
		}
		i = j
	}
	slices.Reverse(chain)
	return chain, nil
}

// Reader reads the records of a chain of slots and decides where the log ends. It is used by one goroutine.
type Reader struct {
	store   uint64
	chain   []Slot
	orphans []Slot

	i    int   // slot
	blk  int64 // block of the slot, -1 before the first
	p    []byte
	off  int64  // of p[0] in the slot
	buf  []byte // a run of blocks
	at   int64  // offset in the slot of buf[0], -1 if none
	rec  []byte
	last uint64 // sequence of the last record

	state   State
	open    uint64
	ignored int64
	begun   bool // a place where a record starts was found
	start   Pos
	end     Pos
	err     error // io.EOF at the end
}

const readSize = 64 * BlockSize

// NewReader reads a chain. Orphans are files of the log whose first block cannot be read; only the headers of their later
// blocks count, as witnesses of what was durable.
func NewReader(store uint64, chain, orphans []Slot) *Reader {
	size := int64(BlockSize)
	for _, s := range slices.Concat(chain, orphans) {
		size = max(size, min(s.Size/BlockSize*BlockSize, readSize))
	}
	return &Reader{store: store, chain: chain, orphans: orphans, blk: -1, at: -1, buf: make([]byte, 0, size)}
}

// Next returns the next record and its last sequence; the bytes are valid until the next call. The error is io.EOF at the end
// of the log, a damage error if something that had been durable does not read back, or the failure of a read.
func (r *Reader) Next() (rec []byte, seq uint64, err error) {
	if r.err != nil {
		return nil, 0, r.err
	}
	rec, seq, err = r.next()
	if err != nil {
		r.err = err
		return nil, 0, err
	}
	return rec, seq, nil
}

func (r *Reader) next() ([]byte, uint64, error) {
	if len(r.chain) == 0 {
		return nil, 0, io.EOF
	}
	if len(r.p) == 0 {
		ok, err := r.advance()
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			s := &r.chain[r.i]
			return nil, 0, r.judge(r.i, Pos{s.First.Slot, min(r.blk*BlockSize, s.Size)}, false, "no block of this slot follows")
		}
	}
	i := r.i
	start := Pos{r.chain[i].First.Slot, canon(r.off)}
	r.start = start
	bad := func(format string, args ...any) ([]byte, uint64, error) {
		torn := slices.ContainsFunc(r.rec, func(c byte) bool { return c != 0 })
		return nil, 0, r.judge(i, start, torn, fmt.Sprintf(format, args...))
	}
	if ok, err := r.take(FrameSize); err != nil {
		return nil, 0, err
	} else if !ok {
		return bad("the record's frame is cut off")
	}
	le := binary.LittleEndian
	size, seq, sum := le.Uint32(r.rec), le.Uint64(r.rec[4:]), le.Uint64(r.rec[12:])
	if size == 0 || size > PayloadMax {
		return bad("a record of %d bytes", size)
	}
	// The bytes are gathered block by block, so a length made of noise asks for no memory that the log does not have.
	if ok, err := r.take(int(size)); err != nil {
		return nil, 0, err
	} else if !ok {
		return bad("the record of %d bytes is cut off", size)
	}
	h := &r.chain[i].First
	if sum != frameSum(seedOf(r.store, h.Slot, h.Open), start.Off, seq, r.rec) {
		return bad("wrong checksum of a record of %d bytes", size)
	}
	if seq <= r.last {
		return nil, 0, r.damaged(i, start, "sequence %d after %d", seq, r.last)
	}
	r.last = seq
	r.end = Pos{r.chain[r.i].First.Slot, canon(r.off)}
	return r.rec, seq, nil
}

// take gathers the next n bytes of the stream in rec; false if the stream breaks off before.
func (r *Reader) take(n int) (bool, error) {
	r.rec = r.rec[:0]
	for {
		k := min(n-len(r.rec), len(r.p))
		r.rec = append(r.rec, r.p[:k]...)
		r.p, r.off = r.p[k:], r.off+int64(k)
		if len(r.rec) == n {
			return true, nil
		}
		if ok, err := r.advance(); !ok || err != nil {
			return false, err
		}
	}
}

// advance goes to the next block that has bytes of the stream.
func (r *Reader) advance() (bool, error) {
	for {
		s := &r.chain[r.i]
		r.blk++
		at := r.blk * BlockSize
		if s.limit >= 0 && at >= s.limit || at+BlockSize > s.Size {
			if r.i+1 == len(r.chain) {
				return false, nil
			}
			r.i, r.blk, r.at = r.i+1, -1, -1
			continue
		}
		b, err := r.block(s, at)
		if err != nil {
			return false, err
		}
		h, ok := readHeader(b, r.store, r.blk)
		if !ok || h.Slot != s.First.Slot || h.Open != s.First.Open {
			return false, nil
		}
		r.note(&h)
		end := int64(BlockSize)
		if s.limit >= 0 {
			end = min(end, s.limit-at)
		}
		next, ok, err := r.peek(s, at+BlockSize)
		if err != nil {
			return false, err
		}
		if ok && next.Gap && next.End.Slot == h.Slot && next.End.Off >= at {
			end = min(end, next.End.Off-at)
		}
		from := int64(HeaderSize)
		if !r.begun {
			// The first slot may begin with the rest of a record whose start is not needed any more.
			if h.First == 0 {
				continue
			}
			r.begun, from = true, int64(h.First)
		}
		if end > from {
			r.p, r.off = b[from:end], at+from
			return true, nil
		}
	}
}

func (r *Reader) note(h *Header) {
	r.state.EngineTime = max(r.state.EngineTime, h.EngineTime)
	r.state.Stamp = max(r.state.Stamp, h.Stamp)
	r.open = max(r.open, h.Open)
	if h.Durable.Compare(r.state.Durable) > 0 {
		r.state.Durable, r.state.DurableSeq = h.Durable, h.DurableSeq
	}
}

// block returns the block at an offset of a slot; what the file does not have is zero.
func (r *Reader) block(s *Slot, at int64) ([]byte, error) {
	if r.at < 0 || at < r.at || at+BlockSize > r.at+int64(len(r.buf)) {
		r.buf = r.buf[:min(int64(cap(r.buf)), s.Size-at)]
		n, err := s.R.ReadAt(r.buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			r.at = -1
			return nil, fmt.Errorf("read log: %w", err)
		}
		clear(r.buf[n:])
		r.at = at
	}
	return r.buf[at-r.at:][:BlockSize], nil
}

// peek reads the header of a block ahead of the current one, if it belongs to the slot.
func (r *Reader) peek(s *Slot, at int64) (Header, bool, error) {
	if at+BlockSize > s.Size {
		return Header{}, false, nil
	}
	var own [HeaderSize]byte
	b := own[:]
	if at >= r.at && at+BlockSize <= r.at+int64(len(r.buf)) {
		b = r.buf[at-r.at:]
	} else if _, err := s.R.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
		return Header{}, false, fmt.Errorf("read log: %w", err)
	}
	h, ok := readHeader(b, r.store, at/BlockSize)
	return h, ok && h.Slot == s.First.Slot && h.Open == s.First.Open, nil
}

// judge decides whether a record that does not read back at start, in slot i of the chain, is the end of the log or damage.
// torn says that there is something at start.
func (r *Reader) judge(i int, start Pos, torn bool, what string) error {
	s := &r.chain[i]
	if s.limit >= 0 && start.Off < s.limit {
		return r.damaged(i, start, "%s, but the log was read to offset %d before", what, s.limit)
	}
	if s.limit >= 0 { // the end that the next slot names; it was looked at before
		r.end = start
		return io.EOF
	}
	var claim error
	witness := func(s *Slot, at int64, h *Header) bool {
		r.note(h)
		if h.Durable.Compare(start) > 0 || h.Gap && h.End.Slot < h.Slot && h.End.Compare(start) > 0 {
			claim = r.damaged(i, start, "%s, but slot %d says at offset %d of %s that the log went on", what, h.Slot, at, s.Name)
		}
		return claim == nil
	}
	ignored := int64(0)
	for j := i; j < len(r.chain) && claim == nil; j++ {
		s, at := &r.chain[j], int64(0)
		if j == i {
			at = start.Off - start.Off%BlockSize + BlockSize
			if torn {
				ignored += at - start.Off
			}
		}
		if j > i+1 {
			witness(s, 0, &s.First)
			continue
		}
		err := r.headers(s, at, func(at int64, h *Header) bool {
			if h.Slot != s.First.Slot || h.Open != s.First.Open {
				return true
			}
			ignored += BlockSize
			return witness(s, at, h)
		})
		if err != nil {
			return err
		}
	}
	for j := 0; j < len(r.orphans) && claim == nil; j++ {
		s := &r.orphans[j]
		if err := r.headers(s, 0, func(at int64, h *Header) bool { return witness(s, at, h) }); err != nil {
			return err
		}
	}
	if claim != nil {
		return claim
	}
	r.end, r.ignored = start, ignored
	return io.EOF
}

// headers calls f for every valid header of a file from an offset on, until f returns false.
func (r *Reader) headers(s *Slot, at int64, f func(at int64, h *Header) bool) error {
	r.at = -1
	for ; at+BlockSize <= s.Size; at += BlockSize {
		b, err := r.block(s, at)
		if err != nil {
			return err
		}
		if h, ok := readHeader(b, r.store, at/BlockSize); ok && !f(at, &h) {
			break
		}
	}
	r.at = -1
	return nil
}

func (r *Reader) damaged(i int, at Pos, format string, args ...any) error {
	return damage.At(damage.New(fmt.Sprintf("record in slot %d", at.Slot), at.Off, format, args...), r.chain[i].Name, 0)
}

// Began is where the record that Next returned starts.
func (r *Reader) Began() Pos { return r.start }

// Place is where the record that Next returned ends, or where the log ends.
func (r *Reader) Place() Pos { return r.end }

// Ignored is the number of bytes behind the end that belong to the last slots, as far as their blocks were begun: writes that
// were under way when the store died.
func (r *Reader) Ignored() int64 { return r.ignored }

// State is the newest state that any header named.
func (r *Reader) State() State { return r.state }

// Open is the highest open count of any header.
func (r *Reader) Open() uint64 { return r.open }
