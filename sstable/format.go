package sstable

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
)

// Footer, the last 64 bytes of a file, little-endian:
//
//	<checksum 8B> <version 4B> <zero 4B> <identity 8B> <file length 8B>
//	<properties offset 8B> <properties length 8B> <zero 8B> <magic 8B>
//
// The checksum is xxhash64 over the 56 bytes after it, seeded with identity and the footer's offset.
const (
	footerLen     = 64
	formatVersion = 1
	magic         = "rowantbl"
)

type footer struct {
	id       uint64
	length   int64
	propsOff int64
	propsLen int64
}

func (f footer) append(dst []byte) []byte {
	le := binary.LittleEndian
	p := make([]byte, footerLen)
	le.PutUint32(p[8:], formatVersion)
	le.PutUint64(p[16:], f.id)
	le.PutUint64(p[24:], uint64(f.length))
	le.PutUint64(p[32:], uint64(f.propsOff))
	le.PutUint64(p[40:], uint64(f.propsLen))
	copy(p[56:], magic)
	le.PutUint64(p, block.Checksum(block.Seed(f.id, f.length-footerLen), nil, p[8:]))
	return append(dst, p...)
}

// readFooter reads the footer p of a file of size bytes. Offsets in errors count from the footer's start.
func readFooter(p []byte, size int64) (footer, error) {
	le := binary.LittleEndian
	bad := func(at int64, format string, args ...any) (footer, error) {
		return footer{}, damage.New("footer", at, format, args...)
	}
	if string(p[56:]) != magic {
		return bad(56, "no table file's magic: %q", p[56:])
	}
	f := footer{id: le.Uint64(p[16:]), length: int64(le.Uint64(p[24:])), propsOff: int64(le.Uint64(p[32:])), propsLen: int64(le.Uint64(p[40:]))}
	if sum, want := le.Uint64(p), block.Checksum(block.Seed(f.id, size-footerLen), nil, p[8:]); sum != want {
		return bad(0, "checksum %016x, computed %016x", sum, want)
	}
	if v := le.Uint32(p[8:]); v != formatVersion {
		return f, fmt.Errorf("table format %d, this build reads %d: %w", v, formatVersion, damage.ErrFormat)
	}
	if le.Uint32(p[12:]) != 0 || le.Uint64(p[48:]) != 0 {
		return bad(12, "reserved bytes are not zero")
	}
	if f.length != size || f.propsLen < block.HeadLen || f.propsOff < 0 || f.propsOff > size-footerLen-f.propsLen {
		return bad(24, "length %d, properties of %d bytes at %d in a file of %d", f.length, f.propsLen, f.propsOff, size)
	}
	return f, nil
}

// A file has three lanes, each a sequence of blocks with an index. A cell of a range lane's block is a wide delete: column =
// From, value = To. One of a delete lane's block is a narrow delete: timestamp = Hi, value = Lo, empty for 0.
const (
	laneCells = iota
	laneRanges
	laneDeletes
	lanes
)

var laneNames = [lanes]string{"cell", "range", "delete"}

// Kinds of the entries of range and delete blocks. They are not cells' kinds and never leave the package.
const (
	kindRange     cell.Kind = 16 // value is To
	kindOpenRange cell.Kind = 17 // no upper end
	kindDelete    cell.Kind = 18
)

// place is where a part of the file stands, head included. Length 0: there is none.
type place struct{ off, n int64 }

type laneInfo struct {
	blocks uint64
	levels uint64 // of the index: 0 no blocks, 1 or 2
	root   place
}

// toc says where the parts of the file are.
type toc struct {
	lanes      [lanes]laneInfo
	rowFilter  place
	cellFilter place
}

// histBuckets is the resolution of the age histogram.
const histBuckets = 32

// Properties are what a file says about itself. Counters are of the file as written; a reader that sees a part of it (narrowed
// bounds) scales them.
type Properties struct {
	ID       uint64 // the file's 64-bit identity
	Tree     uint64 // these five as given at creation
	TreeName string
	Rules    string
	Level    int
	Epoch    uint64

	FirstSeq, LastSeq uint64 // of the changes the file came from
	Bounds            cell.Bounds

	Rows    uint64 // with any entry
	Cells   uint64
	Ranges  uint64 // wide deletes
	Deletes uint64 // narrow deletes
	Holes   uint64 // narrow deletes with Lo > 0

	MinTS, MaxTS int64 // of the cells; 0 and 0 without cells

	LogicalBytes uint64 // row + column + 8 + value of every cell, the keys of every delete
	StoredBytes  uint64 // of all blocks as they stand in the file
	BlockSize    int
	Codec        block.Codec
	Families     []FamilyProps // in the order of first appearance
}

// FamilyProps sums up the cells of one life of a family.
type FamilyProps struct {
	Name         string
	Life         uint64
	Cells        uint64
	Bytes        uint64 // logical
	MinTS, MaxTS int64
	Ages         Histogram // logical bytes by timestamp
	Beyond       [4]uint64 // cells that have more than 1, 2, 4, 8 newer-or-equal versions in this file, themselves included
}

// Histogram counts bytes by timestamp in buckets of 2^Shift microseconds. Bucket i covers [(Base+i)<<Shift, (Base+i+1)<<Shift).
type Histogram struct {
	Base   int64
	Shift  uint8
	Counts [histBuckets]uint64
}

// Add counts n bytes at ts, widening the buckets as needed.
func (h *Histogram) Add(ts int64, n uint64) {
	for {
		i := ts>>h.Shift - h.Base
		if uint64(i) < histBuckets {
			h.Counts[i] += n
			return
		}
		h.widen(ts)
	}
}

func (h *Histogram) widen(ts int64) {
	if h.empty() {
		h.Base = ts >> h.Shift
		return
	}
	if i := ts>>h.Shift - h.Base; i < 0 {
		// Free buckets at the upper end allow a lower base.
		used := histBuckets
		for used > 0 && h.Counts[used-1] == 0 {
			used--
		}
		if -i <= int64(histBuckets-used) {
			copy(h.Counts[-i:], h.Counts[:used])
			clear(h.Counts[:-i])
			h.Base += i
			return
		}
	}
	var c [histBuckets]uint64
	base := h.Base >> 1
	for i, n := range h.Counts {
		c[(h.Base&1+int64(i))>>1] += n // (Base+i)>>1 - base, without the overflow near the largest timestamp
	}
	h.Base, h.Counts = base, c
	h.Shift++
}

func (h *Histogram) empty() bool {
	for _, n := range h.Counts {
		if n != 0 {
			return false
		}
	}
	return true
}

// Older estimates the bytes with timestamps below ts, spreading a bucket's bytes evenly.
func (h *Histogram) Older(ts int64) uint64 {
	var sum uint64
	for i, n := range h.Counts {
		if n == 0 {
			continue // its timestamps may be beyond the largest
		}
		lo := (h.Base + int64(i)) << h.Shift
		switch d := ts - lo; {
		case d >= 1<<h.Shift:
			sum += n
		case d > 0:
			sum += uint64(float64(n) * float64(d) / float64(int64(1)<<h.Shift))
		}
	}
	return sum
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// appendProperties writes p and t. The order of the fields is the format; docs/formats/table.md lists it.
func appendProperties(dst []byte, p *Properties, t *toc) []byte {
	u := func(vs ...uint64) {
		for _, v := range vs {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	for _, l := range t.lanes {
		u(l.blocks, l.levels, uint64(l.root.off), uint64(l.root.n))
	}
	u(uint64(t.rowFilter.off), uint64(t.rowFilter.n), uint64(t.cellFilter.off), uint64(t.cellFilter.n))
	u(p.Tree, uint64(p.Level), p.Epoch, p.FirstSeq, p.LastSeq)
	dst = appendBytes(dst, []byte(p.TreeName))
	dst = appendBytes(dst, []byte(p.Rules))
	dst = appendBytes(dst, p.Bounds.LoRow)
	dst = appendBytes(dst, p.Bounds.LoCol)
	dst = appendBytes(dst, p.Bounds.HiRow)
	if p.Bounds.HiCol == nil {
		dst = append(dst, 0)
	} else {
		dst = append(dst, 1)
		dst = appendBytes(dst, p.Bounds.HiCol)
	}
	u(p.Rows, p.Cells, p.Ranges, p.Deletes, p.Holes, uint64(p.MinTS), uint64(p.MaxTS), p.LogicalBytes, p.StoredBytes,
		uint64(p.BlockSize), uint64(p.Codec), uint64(len(p.Families)))
	for i := range p.Families {
		f := &p.Families[i]
		dst = appendBytes(dst, []byte(f.Name))
		u(f.Life, f.Cells, f.Bytes, uint64(f.MinTS), uint64(f.MaxTS), uint64(f.Ages.Base), uint64(f.Ages.Shift))
		u(f.Ages.Counts[:]...)
		u(f.Beyond[:]...)
	}
	return dst
}

// propsReader reads fields and keeps the first failure.
type propsReader struct {
	p   []byte
	at  int
	err error
}

func (r *propsReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = damage.New("properties", int64(r.at), format, args...)
	}
}

func (r *propsReader) uint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.p[r.at:])
	if n <= 0 {
		r.fail("bad number")
		return 0
	}
	r.at += n
	return v
}

// int reads a number that is at most limit.
func (r *propsReader) int(limit uint64) int64 {
	v := r.uint()
	if v > limit {
		r.fail("number %d over %d", v, limit)
		return 0
	}
	return int64(v)
}

func (r *propsReader) bytes(limit int) []byte {
	n := r.uint()
	if r.err != nil {
		return nil
	}
	if n > uint64(limit) || n > uint64(len(r.p)-r.at) {
		r.fail("%d bytes, %d are left", n, len(r.p)-r.at)
		return nil
	}
	b := append([]byte{}, r.p[r.at:r.at+int(n)]...)
	r.at += int(n)
	return b
}

// readProperties reads what appendProperties wrote. The caller sets ID.
func readProperties(b []byte) (*Properties, *toc, error) {
	r := propsReader{p: b}
	p, t := &Properties{}, &toc{}
	placeOf := func() place { return place{r.int(math.MaxInt64), r.int(math.MaxInt64)} }
	for i := range t.lanes {
		l := &t.lanes[i]
		l.blocks, l.levels = uint64(r.int(math.MaxInt32)), uint64(r.int(2))
		l.root = placeOf()
	}
	t.rowFilter, t.cellFilter = placeOf(), placeOf()
	p.Tree, p.Level, p.Epoch, p.FirstSeq, p.LastSeq = r.uint(), int(r.int(1<<20)), r.uint(), r.uint(), r.uint()
	p.TreeName, p.Rules = string(r.bytes(1<<20)), string(r.bytes(16<<20))
	p.Bounds.LoRow, p.Bounds.LoCol, p.Bounds.HiRow = r.bytes(cell.RowKeyMax+1), r.bytes(cell.ColumnMax+1), r.bytes(cell.RowKeyMax+1)
	if r.int(1) == 1 {
		p.Bounds.HiCol = r.bytes(cell.ColumnMax + 1)
	}
	p.Rows, p.Cells, p.Ranges, p.Deletes, p.Holes = r.uint(), r.uint(), r.uint(), r.uint(), r.uint()
	p.MinTS, p.MaxTS = r.int(math.MaxInt64), r.int(math.MaxInt64)
	p.LogicalBytes, p.StoredBytes = r.uint(), r.uint()
	p.BlockSize, p.Codec = int(r.int(blockSizeMax)), block.Codec(r.int(math.MaxUint8))
	const familyLeast = 8 + histBuckets + 4 // bytes of the shortest family entry: bounds the allocation below
	n := r.uint()
	if n > uint64(len(b)/familyLeast) {
		r.fail("%d families in %d bytes", n, len(b))
	}
	if r.err == nil {
		p.Families = make([]FamilyProps, n)
	}
	for i := range p.Families {
		f := &p.Families[i]
		f.Name, f.Life = string(r.bytes(cell.FamilyMax)), r.uint()
		f.Cells, f.Bytes = r.uint(), r.uint()
		f.MinTS, f.MaxTS = r.int(math.MaxInt64), r.int(math.MaxInt64)
		f.Ages.Base, f.Ages.Shift = r.int(math.MaxInt64), uint8(r.int(63))
		for j := range f.Ages.Counts {
			f.Ages.Counts[j] = r.uint()
		}
		for j := range f.Beyond {
			f.Beyond[j] = r.uint()
		}
	}
	if r.at != len(b) {
		r.fail("%d bytes after the last field", len(b)-r.at)
	}
	return p, t, r.err
}
