package cell

import (
	"encoding/binary"
	"math"

	"github.com/rowandb/rowan/internal/damage"
)

// A batch is logged as one record, drawn in docs/formats/batch.md. It holds results only (timestamps chosen, conditions
// decided), so replay reads nothing, no clock and no randomness.
//
//	record: <flags 1B> <uvarint first sequence> <uvarint engine time> <uvarint highest stamp>
//	        [<uvarint scope> <uvarint applied index>]       if flags has flagApplied
//	        <uvarint entries> entry...
//	entry:  <op 1B> [<uvarint tree> <uvarint n> <row nB>]   if op has opNewRow
//	        [<uvarint n> <column nB>]                       set, merge, blob, delete: if op has opNewColumn
//	        set, merge, blob: <uvarint timestamp> <uvarint n> <value nB>
//	        delete:           <uvarint lo> <uvarint hi>
//	        range:            <uvarint n> <from nB> <uvarint m> <to mB>     m = 0: no upper end
//
// Entry i has sequence first + i.
const (
	flagApplied = 0x01

	opMask      = 0x0f
	opNewRow    = 0x10
	opNewColumn = 0x20

	opSet    = byte(KindSet)
	opMerge  = byte(KindMerge)
	opBlob   = byte(KindBlob)
	opDelete = 4
	opRange  = 5
)

// Op says what an entry does.
type Op uint8

const (
	OpCell   Op = iota // write a cell of Kind
	OpDelete           // a narrow delete
	OpRange            // a wide delete
)

// Header is what a record says about its batch.
type Header struct {
	FirstSeq   uint64 // sequence of the first entry, >= 1
	EngineTime int64  // engine time when the batch took its place, microseconds
	Stamp      int64  // highest ServerTime stamp given so far, microseconds
	Scope      uint64 // reserved: whose index Applied counts; 0 with Applied 0 means none
	Applied    uint64 // reserved: the host's own log index that this batch applies
	Count      int    // entries
}

// Entry is one change. Its bytes are borrowed from the record.
type Entry struct {
	Op     Op
	Kind   Kind   // of an OpCell
	Tree   uint64 // id of the tree it goes to
	Row    []byte
	Col    []byte // OpCell, OpDelete
	TS     int64  // OpCell
	Value  []byte // OpCell
	Lo, Hi int64  // OpDelete
	Range  Range  // OpRange
}

// RecordBuilder writes a record. The zero value is ready; Reset makes it ready again and keeps its memory.
type RecordBuilder struct {
	body    []byte // room for a header, then the entries
	count   int
	tree    uint64
	at      Spot // of the last entry
	haveRow bool
	haveCol bool
}

// headRoom is room for the longest header: flags and six numbers.
const headRoom = 1 + 6*binary.MaxVarintLen64

// Spot tells where a builder has copied the parts of an entry: offsets and lengths of Bytes.
type Spot struct{ Row, RowLen, Col, ColLen, Value, ValueLen uint32 }

// Reset forgets all entries.
func (b *RecordBuilder) Reset() {
	*b = RecordBuilder{body: b.body[:0]}
}

// Len is the size of the entries so far, in bytes; Count is their number.
func (b *RecordBuilder) Len() int   { return max(len(b.body)-headRoom, 0) }
func (b *RecordBuilder) Count() int { return b.count }

// Last is the spot of the last entry, and Bytes is what it refers to, until more is added or the builder is reset.
func (b *RecordBuilder) Last() Spot    { return b.at }
func (b *RecordBuilder) Bytes() []byte { return b.body }

// Append adds an entry. Its bytes are copied.
func (b *RecordBuilder) Append(e *Entry) {
	op := opSet
	switch e.Op {
	case OpCell:
		op = byte(e.Kind)
	case OpDelete:
		op = opDelete
	case OpRange:
		op = opRange
	}
	newRow := !b.haveRow || e.Tree != b.tree || string(e.Row) != string(b.body[b.at.Row:b.at.Row+b.at.RowLen])
	newCol := e.Op != OpRange && (newRow || !b.haveCol || string(e.Col) != string(b.body[b.at.Col:b.at.Col+b.at.ColLen]))
	if newRow {
		op |= opNewRow
	}
	if newCol {
		op |= opNewColumn
	}
	p := b.body
	if len(p) == 0 {
		p = append(p, make([]byte, headRoom)...)
	}
	p = append(p, op)
	if newRow {
		p = binary.AppendUvarint(p, e.Tree)
		p = binary.AppendUvarint(p, uint64(len(e.Row)))
		b.tree, b.at.Row, b.at.RowLen, b.haveRow, b.haveCol = e.Tree, uint32(len(p)), uint32(len(e.Row)), true, false
		p = append(p, e.Row...)
	}
	if newCol {
		p = binary.AppendUvarint(p, uint64(len(e.Col)))
		b.at.Col, b.at.ColLen, b.haveCol = uint32(len(p)), uint32(len(e.Col)), true
		p = append(p, e.Col...)
	}
	switch e.Op {
	case OpCell:
		p = binary.AppendUvarint(p, uint64(e.TS))
		p = binary.AppendUvarint(p, uint64(len(e.Value)))
		b.at.Value, b.at.ValueLen = uint32(len(p)), uint32(len(e.Value))
		p = append(p, e.Value...)
	case OpDelete:
		p = binary.AppendUvarint(p, uint64(e.Lo))
		p = binary.AppendUvarint(p, uint64(e.Hi))
	case OpRange:
		p = binary.AppendUvarint(p, uint64(len(e.Range.From)))
		p = append(p, e.Range.From...)
		p = binary.AppendUvarint(p, uint64(len(e.Range.To)))
		p = append(p, e.Range.To...)
	}
	b.body = p
	b.count++
}

// Record returns the finished record, which lies in the builder's memory and is valid until more is added or the builder is reset.
// h.Count is ignored. It may be called again, with another header.
func (b *RecordBuilder) Record(h Header) []byte {
	if len(b.body) == 0 {
		b.body = append(b.body, make([]byte, headRoom)...)
	}
	var buf [headRoom]byte
	head := appendHeader(buf[:0], h, b.count)
	at := headRoom - len(head)
	copy(b.body[at:], head)
	return b.body[at:]
}

func appendHeader(dst []byte, h Header, count int) []byte {
	flags := byte(0)
	if h.Scope != 0 || h.Applied != 0 {
		flags |= flagApplied
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, h.FirstSeq)
	dst = binary.AppendUvarint(dst, uint64(h.EngineTime))
	dst = binary.AppendUvarint(dst, uint64(h.Stamp))
	if flags&flagApplied != 0 {
		dst = binary.AppendUvarint(dst, h.Scope)
		dst = binary.AppendUvarint(dst, h.Applied)
	}
	return binary.AppendUvarint(dst, uint64(count))
}

// RecordReader walks a record's entries.
type RecordReader struct {
	Header Header
	p      []byte
	off    int
	left   int
	tree   uint64
	row    []byte
	col    []byte
	err    error
}

// ReadRecord checks a record's header and returns a reader of its entries. Errors match damage.Err.
func ReadRecord(p []byte) (RecordReader, error) {
	r := RecordReader{p: p}
	if len(p) == 0 {
		return r, damage.New("batch record", 0, "empty")
	}
	flags := p[0]
	r.off = 1
	if flags&^flagApplied != 0 {
		return r, damage.New("batch record", 0, "unknown flags %#x", flags)
	}
	r.Header.FirstSeq = r.uvarint("first sequence")
	r.Header.EngineTime = r.varTime("engine time")
	r.Header.Stamp = r.varTime("stamp")
	if flags&flagApplied != 0 {
		r.Header.Scope = r.uvarint("scope")
		r.Header.Applied = r.uvarint("applied index")
	}
	n := r.uvarint("entry count")
	if r.err == nil && n > uint64(len(p)-r.off) {
		r.fail("%d entries in %d bytes", n, len(p)-r.off)
	}
	if r.err == nil && r.Header.FirstSeq == 0 {
		r.fail("first sequence 0")
	}
	r.Header.Count, r.left = int(n), int(n)
	return r, r.err
}

// Next returns the next entry; ok is false at the end or on damage, which Err tells.
func (r *RecordReader) Next() (e Entry, ok bool) {
	if r.err != nil {
		return e, false
	}
	if r.left == 0 {
		if r.off != len(r.p) {
			r.fail("%d bytes after the last entry", len(r.p)-r.off)
		}
		return e, false
	}
	r.left--
	if r.off >= len(r.p) {
		r.fail("cut short")
		return e, false
	}
	op := r.p[r.off]
	r.off++
	if op&opNewRow != 0 {
		r.tree = r.uvarint("tree")
		r.row = r.bytes("row", RowKeyMax)
		r.col = nil
	}
	if op&opNewColumn != 0 {
		r.col = r.bytes("column", ColumnMax)
	}
	if r.err == nil && (op&^(opMask|opNewRow|opNewColumn) != 0 || len(r.row) == 0) {
		r.fail("operation byte %#x without a row or with unknown bits", op)
	}
	e.Tree, e.Row = r.tree, r.row
	switch o := op & opMask; o {
	case opSet, opMerge, opBlob:
		e.Op, e.Kind, e.Col = OpCell, Kind(o), r.col
		e.TS = r.varTime("timestamp")
		e.Value = r.bytes("value", ValueMax)
		if o == opMerge && r.err == nil && len(e.Value) != StateLen {
			r.fail("Add of %d bytes, a state has %d", len(e.Value), StateLen)
		}
	case opDelete:
		e.Op, e.Col = OpDelete, r.col
		e.Lo, e.Hi = r.varTime("lower timestamp"), r.varTime("upper timestamp")
		if r.err == nil && e.Lo > e.Hi {
			r.fail("delete of an empty time range")
		}
	case opRange:
		e.Op = OpRange
		e.Range.From = r.bytes("range start", ColumnMax)
		if to := r.bytes("range end", ColumnMax); len(to) > 0 {
			e.Range.To = to
		}
		if r.err == nil && e.Range.To != nil && string(e.Range.From) >= string(e.Range.To) {
			r.fail("empty column range")
		}
	default:
		r.fail("unknown operation %d", o)
	}
	if e.Op != OpRange && r.err == nil && len(r.col) == 0 {
		r.fail("entry without a column")
	}
	return e, r.err == nil
}

// Err is the damage that ended the walk, or nil.
func (r *RecordReader) Err() error { return r.err }

// Offset is the number of the record's bytes that were read so far.
func (r *RecordReader) Offset() int { return r.off }

func (r *RecordReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = damage.New("batch record", int64(r.off), format, args...)
	}
}

func (r *RecordReader) uvarint(what string) uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.p[r.off:])
	if n <= 0 {
		r.fail("bad %s", what)
		return 0
	}
	r.off += n
	return v
}

func (r *RecordReader) varTime(what string) int64 {
	v := r.uvarint(what)
	if v > math.MaxInt64 {
		r.fail("%s %d over the largest timestamp", what, v)
	}
	return int64(v)
}

func (r *RecordReader) bytes(what string, limit int) []byte {
	n := r.uvarint(what)
	if r.err != nil {
		return nil
	}
	if n > uint64(limit) || n > uint64(len(r.p)-r.off) {
		r.fail("%s of %d bytes, %d are left", what, n, len(r.p)-r.off)
		return nil
	}
	b := r.p[r.off : r.off+int(n) : r.off+int(n)]
	r.off += int(n)
	return b
}
