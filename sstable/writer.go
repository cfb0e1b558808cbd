// Package sstable is one immutable sorted file: its writer, reader, iterators and properties. The drawing of a file is in
// docs/formats/table.md.
//
// A file is a source: its own deletes have been applied to its cells already, and speak only of older sources. It holds no
// sequence numbers.
package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/bloom"
	"github.com/rowandb/rowan/cell"
)

// Errors of the writer, wrapped with the keys concerned. After one the file is unusable: every later call returns it.
var (
	ErrOrder  = errors.New("entries out of order")
	ErrEntry  = errors.New("entry outside the model")
	ErrClosed = errors.New("closed")
)

const (
	blockSizeDefault = 32 << 10
	blockSizeMin     = 512
	blockSizeMax     = 1 << 20

	// An index of more blocks than this gets a second level, so that opening a file reads a bounded index.
	indexFanout  = 4096
	indexByteMax = 1 << 20
)

// WriterOptions say how a file is written. The zero value is usable but for ID.
type WriterOptions struct {
	ID           uint64 // 64-bit identity, drawn by the caller: seeds every checksum
	Tree         uint64 // this and the next four are recorded in the properties, and mean nothing here
	TreeName     string
	Level        int
	Epoch        uint64
	Rules        string
	BlockSize    int         // raw bytes of a block, 512..1 MiB; 0: 32 KiB
	Codec        block.Codec // tried per part, kept where it saves an eighth
	BloomBits    int         // bits per key of the filters; 0: 10; negative: no filters
	ColumnFilter bool        // also a filter of (row, column)

	fanout int // blocks of an index leaf; 0: indexFanout. For tests
}

// Writer writes a file through sequential appends. Rows come strictly ascending; inside a row ranges, narrow deletes and cells
// may be added in any mixture, each kind in its own order. Bytes are copied. Used by one goroutine.
type Writer struct {
	o         WriterOptions
	w         io.Writer
	off       int64
	err       error
	first     []byte // first row with an entry
	last      []byte // last row with an entry before the current one
	row       []byte
	rowHash   uint64
	haveRow   bool
	rowUsed   bool // the row has an entry
	lanes     [lanes]laneWriter
	stats     stats
	stored    uint64
	rangeTo   []byte // end of the row's last range, if lastRange and not rangeOpen
	lastRange bool
	rangeOpen bool
	lastLo    int64  // of the row's last narrow delete
	version   uint64 // of the last cell's column in its row, from 1; 0 at the row's start
	lastCode  int    // the last cell's column in its block; of the row's last one if version > 0
	rowLen    uint64 // of the row's key and a timestamp
	rowFilter bloom.Builder
	colFilter bloom.Builder

	keys    []byte // scratch of flush
	keysBuf []byte
	head    []byte
	packed  []packed
	places  []uint32
}

// packed is a chunk of values as it will stand in the file.
type packed struct {
	stored []byte
	codec  block.Codec
	buf    []byte
}

// laneWriter builds the blocks of one lane.
type laneWriter struct {
	b       block.Builder
	n       int // number of the lane
	inRow   bool
	lastRow []byte // last row of the block before
	// The last entry of the block before, when the row goes on in this one.
	lastCol []byte
	lastTS  int64
	blocks  uint64
	index   block.IndexBuilder
	root    block.IndexBuilder
	fams    uint64 // families of the current block
}

// NewWriter returns a writer of one file. It does not close w.
func NewWriter(w io.Writer, o WriterOptions) *Writer {
	if o.BlockSize == 0 {
		o.BlockSize = blockSizeDefault
	}
	if o.fanout == 0 {
		o.fanout = indexFanout
	}
	o.BlockSize = min(max(o.BlockSize, blockSizeMin), blockSizeMax)
	x := &Writer{o: o, w: w}
	x.rowFilter.BitsPerKey, x.colFilter.BitsPerKey = o.BloomBits, o.BloomBits
	for i := range x.lanes {
		x.lanes[i].n = i
		x.lanes[i].b.Reset()
	}
	if !o.Codec.Valid() {
		x.fail(fmt.Errorf("%w: codec %d", ErrEntry, o.Codec))
	}
	return x
}

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// StartRow begins a row, which must sort after the one before. A row that gets no entry leaves no trace.
func (w *Writer) StartRow(row []byte) error {
	if w.err != nil {
		return w.err
	}
	if len(row) == 0 || len(row) > cell.RowKeyMax {
		return w.fail(fmt.Errorf("%w: row key of %d bytes", ErrEntry, len(row)))
	}
	if w.haveRow && bytes.Compare(w.row, row) >= 0 {
		return w.rowOrderErr(row)
	}
	if w.rowUsed {
		w.last, w.row = w.row, w.last
	}
	w.row, w.haveRow, w.rowUsed = append(w.row[:0], row...), true, false
	for i := range w.lanes {
		w.lanes[i].inRow = false
	}
	w.version, w.lastRange, w.rowLen = 0, false, uint64(len(row))+8
	return nil
}

func (w *Writer) rowOrderErr(row []byte) error {
	return w.fail(fmt.Errorf("%w: row %q after %q", ErrOrder, clip(row), clip(w.row)))
}

// newRow counts a row that gets its first entry.
func (w *Writer) newRow(row []byte) {
	if w.first == nil {
		w.first = bytes.Clone(row)
	}
	w.stats.rows++
	w.rowHash = bloom.HashRow(row)
	if w.o.BloomBits >= 0 {
		w.rowFilter.Add(w.rowHash)
	}
}

// clip shortens a key for an error message.
func clip(b []byte) []byte { return b[:min(len(b), 64)] }

// enter prepares a lane for entries of the current row.
func (w *Writer) enter(ln *laneWriter) error {
	if w.err != nil {
		return w.err
	}
	if !w.haveRow {
		return w.fail(fmt.Errorf("%w: entry before the first row", ErrOrder))
	}
	if ln.inRow {
		return nil
	}
	if !w.rowUsed {
		w.rowUsed = true
		w.newRow(w.row)
	}
	if ln.b.Rows() > 0 && (ln.b.Size() >= w.o.BlockSize || ln.b.Full()) {
		if err := w.flush(ln); err != nil {
			return err
		}
	}
	ln.b.StartRow(w.row, false)
	ln.inRow = true
	ln.lastCol = nil
	return nil
}

// add adds one entry to the lane's block, cutting the row where the block is full. It returns the entry's column number
// and whether the entry before it in the row has the same column.
func (w *Writer) add(ln *laneWriter, c *cell.Cell) (id int, same bool, err error) {
	if same, err = w.room(ln, c); err != nil {
		return 0, false, err
	}
	if id = ln.b.Add(c); id < 0 {
		return 0, false, w.orderErr(ln, c)
	}
	return id, same || ln.b.Same(), nil
}

// room makes room for c in the lane's block, cutting the row where that is full. If c is the first of the row in its block, it
// checks c's order and reports whether the entry before has the same column.
func (w *Writer) room(ln *laneWriter, c *cell.Cell) (same bool, err error) {
	// A row is cut behind a cell of its own: a long row key alone may have filled the block that rows before it began.
	if (ln.b.Size() >= w.overflow() || ln.b.Full()) && ln.b.Started() {
		col, ts := ln.b.Last()
		ln.lastCol, ln.lastTS = append([]byte{}, col...), ts
		if err := w.flush(ln); err != nil {
			return false, err
		}
		ln.b.StartRow(w.row, true)
	}
	if ln.lastCol != nil {
		if cell.Compare(ln.lastCol, ln.lastTS, c.Col, c.TS) >= 0 {
			return false, w.orderErr(ln, c)
		}
		same = string(ln.lastCol) == string(c.Col)
		ln.lastCol = nil
	}
	return same, nil
}

func (w *Writer) orderErr(ln *laneWriter, c *cell.Cell) error {
	return w.fail(fmt.Errorf("%w: %s of row %q, column %q at %d is not above the one before", ErrOrder, laneNames[ln.n], clip(w.row), clip(c.Col), c.TS))
}

// AddRanges adds wide deletes of the current row: disjoint, ascending, over all calls for the row.
func (w *Writer) AddRanges(rs []cell.Range) error {
	if len(rs) == 0 {
		return w.err
	}
	ln := &w.lanes[laneRanges]
	if err := w.enter(ln); err != nil {
		return err
	}
	for _, r := range rs {
		if len(r.From) > cell.ColumnMax || len(r.To) > cell.ColumnMax || r.To != nil && bytes.Compare(r.From, r.To) >= 0 {
			return w.fail(fmt.Errorf("%w: range [%q, %q) of row %q", ErrEntry, clip(r.From), clip(r.To), clip(w.row)))
		}
		c := rangeEntry(r)
		if w.lastRange && (w.rangeOpen || bytes.Compare(w.rangeTo, r.From) > 0) {
			return w.orderErr(ln, &c)
		}
		w.rangeTo, w.lastRange, w.rangeOpen = append(w.rangeTo[:0], r.To...), true, r.To == nil
		if _, _, err := w.add(ln, &c); err != nil {
			return err
		}
		w.stats.ranges++
		w.stats.logical += uint64(len(w.row) + len(r.From) + len(r.To))
	}
	return nil
}

// AddDeletes adds narrow deletes of the current row: columns ascending, then Hi descending, disjoint, over all calls for the row.
func (w *Writer) AddDeletes(ds []cell.Delete) error {
	if len(ds) == 0 {
		return w.err
	}
	ln := &w.lanes[laneDeletes]
	if err := w.enter(ln); err != nil {
		return err
	}
	for _, d := range ds {
		if len(d.Col) == 0 || len(d.Col) > cell.ColumnMax || d.Lo < 0 || d.Lo > d.Hi {
			return w.fail(fmt.Errorf("%w: delete of %q [%d, %d] of row %q", ErrEntry, clip(d.Col), d.Lo, d.Hi, clip(w.row)))
		}
		var lo [8]byte
		c := entryOf(d, &lo)
		_, same, err := w.add(ln, &c)
		if err != nil {
			return err
		}
		if same && d.Hi >= w.lastLo {
			return w.orderErr(ln, &c)
		}
		w.lastLo = d.Lo
		w.stats.deletes++
		if d.Lo > 0 {
			w.stats.holes++
		}
		w.stats.logical += uint64(len(w.row) + len(d.Col) + 16)
	}
	return nil
}

// AddCells adds cells of the current row: columns ascending, then timestamps descending, over all calls for the row. Code and
// Dict, where a source gives them, spare comparisons of columns.
func (w *Writer) AddCells(cs []cell.Cell) error {
	if len(cs) == 0 {
		return w.err
	}
	ln := &w.lanes[laneCells]
	if err := w.enter(ln); err != nil {
		return err
	}
	for len(cs) > 0 {
		follows, err := w.room(ln, &cs[0])
		if err != nil {
			return err
		}
		from := ln.b.Cells()
		n, ok := ln.b.AddCells(cs, w.overflow())
		if err := w.newCols(ln); err != nil {
			return err
		}
		w.count(&ln.b, from, from+n, follows)
		if !ok {
			return w.refused(ln, &cs[n])
		}
		cs = cs[n:]
	}
	return nil
}

// AddRows is StartRow and AddCells for many rows, each of which must have a cell.
func (w *Writer) AddRows(rows []cell.BatchRow) error {
	if w.err != nil || len(rows) == 0 {
		return w.err
	}
	ln := &w.lanes[laneCells]
	for i := range w.lanes {
		w.lanes[i].inRow = false
	}
	w.lastRange, ln.lastCol = false, nil
	for len(rows) > 0 {
		if ln.b.Rows() > 0 && (ln.b.Size() >= w.o.BlockSize || ln.b.Full()) {
			if err := w.flush(ln); err != nil {
				return err
			}
		}
		if w.haveRow && bytes.Compare(w.row, rows[0].Key) >= 0 {
			return w.rowOrderErr(rows[0].Key)
		}
		from := ln.b.Cells()
		n, cells, ok := ln.b.AddRows(rows, w.o.BlockSize, w.overflow())
		if err := w.newCols(ln); err != nil {
			return err
		}
		for i := range rows[:n] {
			r := &rows[i]
			if len(r.Key) == 0 || len(r.Key) > cell.RowKeyMax {
				return w.fail(fmt.Errorf("%w: row key of %d bytes", ErrEntry, len(r.Key)))
			}
			k := len(r.Cells)
			if i == n-1 {
				k = cells
			}
			w.newRow(r.Key)
			w.rowLen, w.version = uint64(len(r.Key))+8, 0
			w.count(&ln.b, from, from+k, false)
			from += k
		}
		var rest []cell.Cell
		if n > 0 {
			r := &rows[n-1]
			w.row, w.haveRow, w.rowUsed, ln.inRow = append(w.row[:0], r.Key...), true, true, true
			rest, rows = r.Cells[cells:], rows[n:]
		}
		switch {
		case !ok && len(rest) > 0:
			return w.refused(ln, &rest[0])
		case !ok && len(rows) > 0 && len(rows[0].Cells) > 0:
			return w.rowOrderErr(rows[0].Key)
		case !ok:
			return w.fail(fmt.Errorf("%w: row without cells after %q", ErrEntry, clip(w.row)))
		}
		// A row that its block had no room for goes on in the next one.
		if err := w.AddCells(rest); err != nil {
			return err
		}
	}
	return nil
}

// overflow is the size at which a block is closed inside a row. A row is cut only when it makes its block a quarter too large:
// rows below that size always stand in one block.
func (w *Writer) overflow() int { return w.o.BlockSize + w.o.BlockSize/4 }

// refused is the error for a cell that the block did not take.
func (w *Writer) refused(ln *laneWriter, c *cell.Cell) error {
	if c.TS < 0 || len(c.Value) > cell.ValueMax || len(c.Col) > cell.ColumnMax || c.Kind < cell.KindSet || c.Kind > cell.KindBlob {
		return w.fail(fmt.Errorf("%w: cell of row %q, column %q at %d, kind %d, %d bytes", ErrEntry, clip(w.row), clip(c.Col), c.TS, c.Kind, len(c.Value)))
	}
	return w.orderErr(ln, c)
}

// newCols finds the families of columns that are new in the block of cells.
func (w *Writer) newCols(ln *laneWriter) error {
	for id := len(w.stats.blockCols); id < ln.b.Cols(); id++ {
		col := ln.b.Col(id)
		if len(col) > cell.ColumnMax {
			return w.fail(fmt.Errorf("%w: column of %d bytes near row %q", ErrEntry, len(col), clip(w.row)))
		}
		fam, err := w.stats.family(col)
		if err != nil {
			return w.fail(fmt.Errorf("%w: near row %q: %w", ErrEntry, clip(w.row), err))
		}
		w.stats.blockCols = append(w.stats.blockCols, blockCol{fam, len(col)})
		ln.fams |= familyBit(fam)
	}
	return nil
}

// count notes cells [from, to) of the block as the current row's next. follows says that the first has the column of the row's
// last one in the block before.
func (w *Writer) count(b *block.Builder, from, to int, follows bool) {
	if from >= to {
		return
	}
	st, cols := &w.stats, w.stats.blockCols
	codes, times := b.Codes(from, to), b.Times(from, to)
	filter := w.o.ColumnFilter && w.o.BloomBits >= 0
	prev := -1 // column of the cell before
	switch {
	case follows:
		prev = int(codes[0])
	case w.version > 0:
		prev = w.lastCode
	}
	version := w.version
	// Cells of one family and timestamp, as most rows have throughout, are counted together.
	fam, ts, begin, size := st.runFam, st.runTS, from, uint64(0)
	for i, id := range codes {
		c := &cols[id]
		if c.fam != fam || times[i] != ts {
			at := from + i
			st.add(uint64(at-begin), size+uint64(at-begin)*w.rowLen+b.ValueBytes(begin, at))
			st.endRun()
			fam, ts, begin, size = c.fam, times[i], at, 0
			st.runFam, st.runTS = fam, ts
		}
		if version++; int(id) != prev {
			version = 1
			if filter {
				w.colFilter.Add(bloom.HashColumn(w.rowHash, b.Col(int(id))))
			}
		} else {
			st.beyond(fam, version)
		}
		prev = int(id)
		size += uint64(c.len)
	}
	st.add(uint64(to-begin), size+uint64(to-begin)*w.rowLen+b.ValueBytes(begin, to))
	w.version, w.lastCode = version, prev
}
