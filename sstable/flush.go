package sstable

import (
	"fmt"
	"math"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
)

// write appends one envelope to the file.
func (w *Writer) write(part block.Part, codec block.Codec, raw int, stored []byte) error {
	w.head = block.AppendHead(w.head[:0], block.Seed(w.o.ID, w.off), part, codec, raw, stored)
	if err := w.writeRaw(w.head); err != nil {
		return err
	}
	return w.writeRaw(stored)
}

func (w *Writer) writeRaw(p []byte) error {
	if w.err != nil {
		return w.err
	}
	n, err := w.w.Write(p)
	w.off += int64(n)
	if err == nil && n != len(p) {
		err = fmt.Errorf("sink took %d of %d bytes", n, len(p))
	}
	if err != nil {
		return w.fail(fmt.Errorf("write table: %w", err))
	}
	return nil
}

// flush writes the lane's block and adds it to the index.
func (w *Writer) flush(ln *laneWriter) error {
	b := &ln.b
	n := b.Chunks()
	for len(w.packed) < n {
		w.packed = append(w.packed, packed{})
	}
	w.places = w.places[:0]
	at := int64(0)
	for i := 0; i < n; i++ {
		c := &w.packed[i]
		c.stored, c.codec, c.buf = block.Compress(w.o.Codec, c.buf, b.Chunk(i))
		w.places = append(w.places, uint32(at))
		at += block.HeadLen + int64(len(c.stored))
	}
	if at > math.MaxUint32-(16<<20) {
		return w.fail(fmt.Errorf("%w: block of %d bytes of values", ErrEntry, at))
	}
	w.keys = b.AppendKeys(w.keys[:0], w.places)
	keys, codec, buf := block.Compress(w.o.Codec, w.keysBuf, w.keys)
	w.keysBuf = buf

	e := block.Entry{
		Off: w.off, KeysLen: uint32(block.HeadLen + len(keys)), Len: uint32(int64(block.HeadLen+len(keys)) + at),
		Parts: uint32(1 + n), Rows: uint32(b.Rows()), Cells: uint64(b.Cells()), Families: ln.fams,
	}
	e.MinTS, e.MaxTS = b.TimeBounds()
	switch {
	case b.Cut():
		e.Row = b.FirstRow()
		e.Col, e.TS = b.First()
	case ln.blocks == 0:
		e.Row = b.FirstRow()
	default:
		e.Row = separator(ln.lastRow, b.FirstRow())
	}
	ln.index.Add(e)
	ln.lastRow = append(ln.lastRow[:0], b.LastRow()...)
	ln.blocks++

	if err := w.write(block.PartKeys, codec, len(w.keys), keys); err != nil {
		return err
	}
	for i := range w.packed[:n] {
		c := &w.packed[i]
		if err := w.write(block.PartValues, c.codec, len(b.Chunk(i)), c.stored); err != nil {
			return err
		}
		const keep = 1 << 20 // do not hold a huge value's memory for ever
		if c.stored = nil; cap(c.buf) > keep {
			c.buf = nil
		}
	}
	w.stored += uint64(e.Len)
	b.Reset()
	ln.fams = 0
	if ln.n == laneCells {
		w.stats.blockCols, w.lastCode = w.stats.blockCols[:0], -1
	}
	if ln.index.Len() >= w.o.fanout || ln.index.Size() >= indexByteMax {
		return w.flushIndex(ln)
	}
	return nil
}

// separator returns the shortest key above a and not above b, for a < b. It aliases b.
func separator(a, b []byte) []byte {
	n := 0
	for n < len(a) && a[n] == b[n] {
		n++
	}
	return b[:n+1]
}

// flushIndex writes the lane's index block and puts it under the root.
func (w *Writer) flushIndex(ln *laneWriter) error {
	e := ln.index.Summary()
	p, err := w.writeIndex(&ln.index, block.PartIndex)
	if err != nil {
		return err
	}
	e.Off, e.Len = p.off, uint32(p.n)
	ln.root.Add(e)
	ln.index.Reset()
	return nil
}

func (w *Writer) writeIndex(x *block.IndexBuilder, part block.Part) (place, error) {
	return w.seal(part, x.Append(nil))
}

// seal writes raw as a part of its own, compressed if that saves enough.
func (w *Writer) seal(part block.Part, raw []byte) (place, error) {
	off := w.off
	codec := w.o.Codec
	if part == block.PartRowFilter || part == block.PartCellFilter {
		codec = block.CodecNone // filter bits do not compress
	}
	stored, used, _ := block.Compress(codec, nil, raw)
	err := w.write(part, used, len(raw), stored)
	return place{off, w.off - off}, err
}

// Size estimates the size of the file if it were finished now, in bytes.
func (w *Writer) Size() int64 {
	n := w.off + int64(w.rowFilter.Size()+w.colFilter.Size()) + 512
	for i := range w.lanes {
		ln := &w.lanes[i]
		n += int64(ln.b.Size() + ln.index.Size() + ln.root.Size())
	}
	return n
}

// Rows, Cells, Ranges and Deletes count what was added.
func (w *Writer) Rows() uint64    { return w.stats.rows }
func (w *Writer) Ranges() uint64  { return w.stats.ranges }
func (w *Writer) Deletes() uint64 { return w.stats.deletes }
func (w *Writer) Cells() uint64 {
	n := w.stats.runCells
	for i := range w.stats.families {
		n += w.stats.families[i].Cells
	}
	return n
}

// Empty reports whether nothing was added.
func (w *Writer) Empty() bool { return w.stats.rows == 0 }

// Finish writes what remains of the file: last blocks, indexes, filters, properties, footer. b are the file's bounds, firstSeq
// and lastSeq the changes it came from. Rows outside the bounds are an error; columns are checked by Verify. The caller makes the bytes durable. The writer is closed afterwards.
func (w *Writer) Finish(b cell.Bounds, firstSeq, lastSeq uint64) (Properties, error) {
	if w.err != nil {
		return Properties{}, w.err
	}
	if w.rowUsed {
		w.last = w.row
	}
	if w.stats.rows > 0 && (!b.ContainsRow(w.first) || !b.ContainsRow(w.last)) {
		return Properties{}, w.fail(fmt.Errorf("%w: rows %q..%q outside the bounds %q..%q", ErrOrder, clip(w.first), clip(w.last), clip(b.LoRow), clip(b.HiRow)))
	}
	var t toc
	for i := range w.lanes {
		ln := &w.lanes[i]
		if ln.b.Rows() > 0 {
			if err := w.flush(ln); err != nil {
				return Properties{}, err
			}
		}
	}
	for i := range w.lanes {
		if err := w.finishLane(&w.lanes[i], &t.lanes[i]); err != nil {
			return Properties{}, err
		}
	}
	if w.o.BloomBits >= 0 {
		var err error
		if t.rowFilter, err = w.seal(block.PartRowFilter, w.rowFilter.Build(nil)); err != nil {
			return Properties{}, err
		}
		w.rowFilter.Reset()
		if w.o.ColumnFilter {
			if t.cellFilter, err = w.seal(block.PartCellFilter, w.colFilter.Build(nil)); err != nil {
				return Properties{}, err
			}
			w.colFilter.Reset()
		}
	}
	p := Properties{
		ID: w.o.ID, Tree: w.o.Tree, TreeName: w.o.TreeName, Rules: w.o.Rules, Level: w.o.Level, Epoch: w.o.Epoch,
		FirstSeq: firstSeq, LastSeq: lastSeq, Bounds: b.Clone(), StoredBytes: w.stored, BlockSize: w.o.BlockSize, Codec: w.o.Codec,
	}
	w.stats.fill(&p)
	props, err := w.seal(block.PartProperties, appendProperties(nil, &p, &t))
	if err != nil {
		return Properties{}, err
	}
	f := footer{id: w.o.ID, length: w.off + footerLen, propsOff: props.off, propsLen: props.n}
	if err := w.writeRaw(f.append(nil)); err != nil {
		return Properties{}, err
	}
	w.err = fmt.Errorf("table writer: %w", ErrClosed)
	return p, nil
}

func (w *Writer) finishLane(ln *laneWriter, l *laneInfo) (err error) {
	if l.blocks = ln.blocks; ln.blocks == 0 {
		return nil
	}
	if ln.root.Len() == 0 {
		l.levels = 1
		l.root, err = w.writeIndex(&ln.index, block.PartIndex)
		return err
	}
	if ln.index.Len() > 0 {
		if err := w.flushIndex(ln); err != nil {
			return err
		}
	}
	l.levels = 2
	l.root, err = w.writeIndex(&ln.root, block.PartRoot)
	return err
}
