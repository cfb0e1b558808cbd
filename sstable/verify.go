package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/bloom"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
)

// Verify reads the whole file anew, without cache and map, and checks every byte: checksums, that the parts fill the file
// without gap or overlap, the order of all entries, that index, zone maps and filters tell the truth about them, and that the
// properties are what the entries add up to. The first contradiction is returned as a damage error with part and offset.
// progress, if not nil, is told the bytes of blocks checked and their total. ctx is looked at once per block.
func (r *Reader) Verify(ctx context.Context, progress func(done, total int64)) error {
	if !r.acquire() {
		return fmt.Errorf("verify %s: %w", r.name, ErrClosed)
	}
	defer r.release()
	mode := r.mode
	if mode == Mapped {
		mode = Positional
	}
	fresh, err := Open(r.f, ReaderOptions{Name: r.name, ID: r.id, Size: r.size, Mode: mode})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	defer fresh.unload()
	v := verifier{r: fresh, ctx: ctx, progress: progress}
	if err := v.run(); err != nil {
		return fmt.Errorf("verify table: %w", damage.At(err, r.name, 0))
	}
	return nil
}

type extent struct {
	part string
	place
}

type verifier struct {
	r        *Reader
	ctx      context.Context
	progress func(done, total int64)
	done     int64
	extents  []extent
	stats    stats
	stored   uint64
	buf      []byte
	row      []byte

	// The last entry of the lane.
	haveLast bool
	lastRow  []byte
	lastCol  []byte
	lastTS   int64
	lastTo   []byte // of a range; nil: open
	lastOpen bool
	lastLo   int64
	version  uint64
}

func (v *verifier) run() error {
	for i := range v.r.lanes {
		if err := v.lane(&v.r.lanes[i]); err != nil {
			return err
		}
	}
	if err := v.filters(); err != nil {
		return err
	}
	if err := v.tiles(); err != nil {
		return err
	}
	return v.properties()
}

// lane checks the blocks and index of one lane.
func (v *verifier) lane(ln *lane) error {
	if ln.blocks == 0 {
		return nil
	}
	v.haveLast = false
	v.extents = append(v.extents, extent{laneNames[ln.n] + " index", ln.info.root})
	for l := 0; l < max(1, len(ln.leaves)); l++ {
		x, err := v.r.leaf(ln, l)
		if err != nil {
			return err
		}
		if ln.leaves != nil {
			off, n, _ := ln.root.Place(l)
			v.extents = append(v.extents, extent{laneNames[ln.n] + " index", place{off, n}})
		}
		var sum block.Entry
		for i := 0; i < x.Len(); i++ {
			if err := v.ctx.Err(); err != nil {
				return err
			}
			e := x.At(i)
			if err := v.block(ln, &e); err != nil {
				return err
			}
			if i == 0 {
				sum = e
				sum.Parts, sum.Rows, sum.Cells = 0, 0, 0
			}
			sum.Parts += e.Parts
			sum.Rows = uint32(min(uint64(sum.Rows)+uint64(e.Rows), math.MaxUint32))
			sum.Cells += e.Cells
			sum.MinTS, sum.MaxTS, sum.Families = min(sum.MinTS, e.MinTS), max(sum.MaxTS, e.MaxTS), sum.Families|e.Families
		}
		if ln.leaves != nil {
			got := ln.root.At(l)
			sum.Off, sum.Len, sum.KeysLen = got.Off, got.Len, got.KeysLen
			if !reflect.DeepEqual(got, sum) {
				return damage.New("index root", ln.info.root.off, "entry %d is %+v, its blocks make %+v", l, got, sum)
			}
		}
	}
	return nil
}

// block checks one block against its index entry.
func (v *verifier) block(ln *lane, e *block.Entry) error {
	r := v.r
	b, mem, err := r.readAt(v.buf, e.Off, int(e.Len))
	if v.buf = mem; err != nil {
		return err
	}
	v.extents = append(v.extents, extent{laneNames[ln.n] + " block", place{e.Off, int64(e.Len)}})
	v.stored += uint64(e.Len)
	var k block.Keys
	raw, err := block.OpenDecoded(b[:e.KeysLen], block.Seed(r.id, e.Off), block.PartKeys)
	if err != nil {
		return damage.At(err, r.name, e.Off)
	}
	if err := k.Parse(raw); err != nil {
		return damage.At(err, r.name, e.Off+block.HeadLen)
	}
	bad := func(format string, args ...any) error {
		return damage.New(laneNames[ln.n]+" block", e.Off, format, args...)
	}
	if uint32(k.Rows) != e.Rows || uint64(k.Cells) != e.Cells || uint32(1+k.Chunks) != e.Parts || k.Cut != e.Cut() {
		return bad("%d rows, %d cells, %d chunks, cut %v; the index says %+v", k.Rows, k.Cells, k.Chunks, k.Cut, *e)
	}
	for i := 1; i < k.Cols; i++ {
		if bytes.Compare(k.Col(i-1), k.Col(i)) >= 0 {
			return bad("column %q after %q in the dictionary", clip(k.Col(i)), clip(k.Col(i-1)))
		}
	}
	if err := v.separator(&k, e, bad); err != nil {
		return err
	}
	var fams []uint32
	if ln.n == laneCells {
		for i := 0; i < k.Cols; i++ {
			fams = append(fams, math.MaxUint32)
		}
	}
	lo, hi, set := int64(math.MaxInt64), int64(0), uint64(0)
	chunk, chunkEnd := -1, 0
	var vals []byte
	base := 0
	var one [1]cell.Cell
	for row := 0; row < k.Rows; row++ {
		v.row = k.AppendRow(v.row[:0], row)
		if err := v.newRow(ln, row == 0 && k.Cut, bad); err != nil {
			return err
		}
		from, to := k.RowCells(row)
		for i := from; i < to; i++ {
			if k.Chunks > 0 && i >= chunkEnd {
				if vals, chunkEnd, err = v.chunk(&k, e, b, chunk+1); err != nil {
					return err
				}
				chunk++
				base = k.ValueStart(i)
			}
			c := k.AppendCells(one[:0], row, i, i+1, orEmpty(vals), base, 1)[0]
			lo, hi = min(lo, c.TS), max(hi, c.TS)
			if err := v.entry(ln, &c, fams, &set, bad); err != nil {
				return err
			}
		}
	}
	if lo != e.MinTS || hi != e.MaxTS || set != e.Families {
		return bad("timestamps %d..%d, families %x; the index says %d..%d, %x", lo, hi, set, e.MinTS, e.MaxTS, e.Families)
	}
	v.done += int64(e.Len)
	if v.progress != nil {
		v.progress(v.done, int64(v.r.props.StoredBytes))
	}
	return nil
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return noValue
	}
	return b
}

// chunk checks value chunk i of block e, whose bytes are b, and returns its values and the first cell after it.
func (v *verifier) chunk(k *block.Keys, e *block.Entry, b []byte, i int) (vals []byte, end int, err error) {
	at, to := int64(k.ChunkAt(i)), int64(e.Len-e.KeysLen)
	end = k.Cells
	if i+1 < k.Chunks {
		to, end = int64(k.ChunkAt(i+1)), k.ChunkCell(i+1)
	}
	off := e.Off + int64(e.KeysLen) + at
	if at > to || to > int64(e.Len-e.KeysLen) {
		return nil, 0, damage.New("keys", e.Off, "chunk %d from %d to %d leaves the block", i, at, to)
	}
	p := b[e.KeysLen:][at:to]
	if vals, err = block.OpenDecoded(p, block.Seed(v.r.id, off), block.PartValues); err != nil {
		return nil, 0, damage.At(err, v.r.name, off)
	}
	if want := k.ValueEnd(end-1) - k.ValueStart(k.ChunkCell(i)); want != len(vals) {
		return nil, 0, damage.New("values", off, "%d bytes, keys say %d", len(vals), want)
	}
	return vals, end, nil
}

// separator checks that e's separator lies between the lane's last entry and the block's first.
func (v *verifier) separator(k *block.Keys, e *block.Entry, bad func(string, ...any) error) error {
	first := k.AppendRow(nil, 0)
	switch {
	case e.Cut():
		if !v.haveLast || !bytes.Equal(first, e.Row) || !bytes.Equal(k.Col(k.Code(0)), e.Col) || k.TS(0, 0) != e.TS {
			return bad("separator %q %q %d is not the block's first cell", clip(e.Row), clip(e.Col), e.TS)
		}
	case bytes.Compare(e.Row, first) > 0:
		return bad("separator %q is above the first row %q", clip(e.Row), clip(first))
	case v.haveLast && bytes.Compare(e.Row, v.lastRow) <= 0:
		return bad("separator %q is not above the last row %q", clip(e.Row), clip(v.lastRow))
	}
	return nil
}

// newRow checks the order of v.row.
func (v *verifier) newRow(ln *lane, cut bool, bad func(string, ...any) error) error {
	if len(v.row) == 0 || len(v.row) > cell.RowKeyMax {
		return bad("row key of %d bytes", len(v.row))
	}
	if cut {
		if !v.haveLast || !bytes.Equal(v.row, v.lastRow) {
			return bad("block goes on with row %q after %q", clip(v.row), clip(v.lastRow))
		}
		return nil
	}
	if v.haveLast && bytes.Compare(v.row, v.lastRow) <= 0 {
		return bad("row %q after %q", clip(v.row), clip(v.lastRow))
	}
	if b := &v.r.props.Bounds; !b.ContainsRow(v.row) {
		return bad("row %q outside the bounds %q..%q", clip(v.row), clip(b.LoRow), clip(b.HiRow))
	}
	v.lastRow = append(v.lastRow[:0], v.row...)
	v.lastCol, v.haveLast, v.version = nil, true, 0
	return nil
}

// entry checks one entry of the current row and counts it.
func (v *verifier) entry(ln *lane, c *cell.Cell, fams []uint32, set *uint64, bad func(string, ...any) error) error {
	same := v.lastCol != nil && bytes.Equal(v.lastCol, c.Col)
	if v.lastCol != nil && cell.Compare(v.lastCol, v.lastTS, c.Col, c.TS) >= 0 {
		return bad("row %q: column %q at %d after %q at %d", clip(v.row), clip(c.Col), c.TS, clip(v.lastCol), v.lastTS)
	}
	cols, _ := v.r.props.Bounds.Columns(v.row)
	inside := cols.Contains(c.Col)
	first := v.lastCol == nil
	v.lastCol, v.lastTS = append(v.lastCol[:0:0], c.Col...), c.TS
	if v.lastCol == nil {
		v.lastCol = noValue
	}
	switch ln.n {
	case laneCells:
		if c.Kind < cell.KindSet || c.Kind > cell.KindBlob {
			return bad("row %q: cell of kind %d", clip(v.row), c.Kind)
		}
		if c.Kind == cell.KindMerge && len(c.Value) != cell.StateLen {
			return bad("row %q, column %q at %d: an Add of %d bytes, a state has %d", clip(v.row), clip(c.Col), c.TS, len(c.Value), cell.StateLen)
		}
		f := &fams[c.Code]
		if *f == math.MaxUint32 {
			n, err := v.stats.family(c.Col)
			if err != nil {
				return bad("row %q: %v", clip(v.row), err)
			}
			*f = uint32(n)
			*set |= familyBit(n)
		}
		if !same {
			v.version = 0
		}
		v.version++
		v.stats.cell(int(*f), c.TS, v.version, uint64(len(v.row)+8+len(c.Col)+len(c.Value)))
	case laneRanges:
		if c.Kind != kindOpenRange && c.Kind != kindRange || c.Kind == kindRange && bytes.Compare(c.Col, c.Value) >= 0 {
			return bad("row %q: range [%q, %q) of kind %d", clip(v.row), clip(c.Col), clip(c.Value), c.Kind)
		}
		if !first && (v.lastOpen || bytes.Compare(v.lastTo, c.Col) > 0) {
			return bad("row %q: range from %q overlaps the one before", clip(v.row), clip(c.Col))
		}
		v.lastTo, v.lastOpen = append(v.lastTo[:0], c.Value...), c.Kind == kindOpenRange
		r := cell.Range{From: c.Col, To: c.Value}
		if v.lastOpen {
			r.To = nil
		}
		got, ok := r.Clip(cols.From, cols.To)
		inside = ok && bytes.Equal(got.From, r.From) && (got.To == nil) == (r.To == nil) && bytes.Equal(got.To, r.To)
		v.stats.ranges++
		v.stats.logical += uint64(len(v.row) + len(r.From) + len(r.To))
	case laneDeletes:
		lo := int64(0)
		if len(c.Value) == 8 {
			lo = int64(binary.BigEndian.Uint64(c.Value))
		}
		if c.Kind != kindDelete || len(c.Value) != 0 && len(c.Value) != 8 || lo < 0 || lo > c.TS {
			return bad("row %q: delete of %q [%d, %d] of kind %d", clip(v.row), clip(c.Col), lo, c.TS, c.Kind)
		}
		if same && c.TS >= v.lastLo {
			return bad("row %q: delete of %q up to %d overlaps the one before", clip(v.row), clip(c.Col), c.TS)
		}
		v.lastLo = lo
		v.stats.deletes++
		if lo > 0 {
			v.stats.holes++
		}
		v.stats.logical += uint64(len(v.row) + len(c.Col) + 16)
	}
	if !inside {
		return bad("row %q, column %q outside the bounds", clip(v.row), clip(c.Col))
	}
	return nil
}

// filters counts the rows of all lanes together and asks the filters for everything.
func (v *verifier) filters() error {
	r := v.r
	for i, p := range []place{r.toc.rowFilter, r.toc.cellFilter} {
		if p.n > 0 {
			part := []block.Part{block.PartRowFilter, block.PartCellFilter}[i]
			v.extents = append(v.extents, extent{part.String(), p})
			l := &r.filters[i]
			if l.once.Do(func() { r.loadFilter(l, p, part) }); l.err != nil {
				return l.err
			}
		}
	}
	// The hot probe and the library must agree on every key of the file.
	var refs [2]bloom.Reference
	for i := range refs {
		refs[i] = r.filters[i].f.Reference()
	}
	it := r.NewIter(cell.IterOptions{KeysOnly: true, NoFill: true})
	defer it.Close()
	cells := make([]cell.Cell, 0, 256)
	for ok := it.First(); ok; ok = it.Next() {
		v.stats.rows++
		if v.stats.rows&1023 == 0 && v.ctx.Err() != nil {
			return v.ctx.Err()
		}
		h := bloom.HashRow(it.Row())
		if !r.MayContainRow(h) || r.toc.rowFilter.n > 0 && !refs[0].MayContain(h) {
			return damage.New("row filter", r.toc.rowFilter.off, "misses row %q", clip(it.Row()))
		}
		if r.toc.cellFilter.n == 0 {
			continue
		}
		var last []byte
		for cells = it.Cells(cells[:0]); len(cells) > 0; cells = it.Cells(cells[:0]) {
			for i := range cells {
				if col := cells[i].Col; last == nil || !bytes.Equal(last, col) {
					last = append(last[:0], col...)
					if h := bloom.HashColumn(h, col); !r.MayContainColumn(h) || !refs[1].MayContain(h) {
						return damage.New("column filter", r.toc.cellFilter.off, "misses row %q, column %q", clip(it.Row()), clip(col))
					}
				}
			}
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	return nil
}

// tiles checks that the parts fill the file.
func (v *verifier) tiles() error {
	r := v.r
	var f [footerLen]byte
	b, _, err := r.readAt(f[:0:footerLen], r.size-footerLen, footerLen)
	if err != nil {
		return err
	}
	ft, err := readFooter(b, r.size)
	if err != nil {
		return damage.At(err, r.name, r.size-footerLen)
	}
	v.extents = append(v.extents, extent{"properties", place{ft.propsOff, ft.propsLen}}, extent{"footer", place{r.size - footerLen, footerLen}})
	slices.SortFunc(v.extents, func(a, b extent) int {
		if a.off < b.off {
			return -1
		}
		return 1
	})
	at := int64(0)
	for _, e := range v.extents {
		if e.off != at {
			return damage.New(e.part, e.off, "begins at %d, the part before it ends at %d", e.off, at)
		}
		at += e.n
	}
	if at != r.size {
		return damage.New("file", at, "parts end here, the file at %d", r.size)
	}
	return nil
}

// properties compares the properties with what the entries add up to.
func (v *verifier) properties() error {
	got := v.r.props
	want := got
	want.Cells = 0
	v.stats.fill(&want)
	want.StoredBytes = v.stored
	if len(got.Families) == 0 {
		got.Families = nil
	}
	if len(want.Families) == 0 {
		want.Families = nil
	}
	if !reflect.DeepEqual(got, want) {
		return damage.New("properties", -1, "say %+v, the entries make %+v", got, want)
	}
	return nil
}
