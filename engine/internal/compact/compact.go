// Package compact writes the result of a merge into new table files: it decides what is forgotten and where files are cut.
// Flushes and compactions both use it.
package compact

import (
	"bytes"
	"fmt"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/io/direct"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// Job is one merge to be written.
type Job struct {
	Merge *merge.Iter
	// Ranges and Deletes say whether any input has wide or narrow deletes; without, nobody asks for them.
	Ranges, Deletes bool
	// Older reports whether a source older than the inputs may hold something of these columns of a row; a delete that
	// reaches nothing is forgotten.
	Older func(row []byte, cols cell.Range) bool
	// Hull, if set, is the bounds of all inputs: what files that are cut inside a row speak for never grows.
	Hull *cell.Bounds
	// From and To, if set, bound the rows that are merged: From is the first that may be among them, To the first that is not.
	From, To []byte
	// FileBytes is the size at which a file is cut.
	FileBytes int64
	// Cuts are rows, ascending, before each of which a new file begins.
	Cuts              [][]byte
	FirstSeq, LastSeq uint64
	Settled           uint64 // number of the last change of the table that the output has gone through
	// Create makes the next file.
	Create func() (*Output, error)
	// Check is asked before each row; an error ends the job.
	Check func() error
}

// Output is a file being written.
type Output struct {
	Num  levels.Num
	ID   uint64
	Sink *direct.Writer
	Opts sstable.WriterOptions
}

// Result is what a job wrote. The files are synced; their directory is not.
type Result struct {
	Files          []*levels.File
	Rows, Cells    uint64
	Forgotten      uint64 // deletes that reached nothing any more
	Collected      uint64 // cells that rules dropped
	BytesWritten   int64
	LogicalWritten uint64
	Mode           direct.Mode // in force when the last file was finished
}

// Join adds what another part of the same merge wrote behind r's rows.
func (r *Result) Join(o *Result) {
	r.Files = append(r.Files, o.Files...)
	r.Rows, r.Cells, r.Forgotten, r.Collected = r.Rows+o.Rows, r.Cells+o.Cells, r.Forgotten+o.Forgotten, r.Collected+o.Collected
	r.BytesWritten, r.LogicalWritten = r.BytesWritten+o.BytesWritten, r.LogicalWritten+o.LogicalWritten
	if len(o.Files) > 0 {
		r.Mode = o.Mode
	}
}

type writer struct {
	job  *Job
	res  Result
	out  *Output
	w    *sstable.Writer
	cell []cell.Cell
	many cell.Batch
	del  []cell.Delete
	rngs []cell.Range
	cuts []cell.Range
	next int // of job.Cuts

	bounds   cell.Bounds // of the file so far: LoRow and LoCol are set, HiRow is the last row
	row      []byte      // current row
	inRow    bool        // the current row has been started in the current file
	from     []byte      // first column of the current row's piece in this file; empty: from its start
	rowStart int64       // size of the file when the piece began
	lastCol  []byte      // last column written in the current row
}

// Run does the job. On error every file that was begun is closed; the caller removes the files it created.
func (j *Job) Run() (Result, error) {
	w := &writer{job: j, cell: make([]cell.Cell, 0, 256), del: make([]cell.Delete, 0, 16)}
	err := w.rows()
	if err == nil {
		err = w.finish(nil)
	}
	if w.out != nil {
		w.out.Sink.Abort()
	}
	w.res.Collected = j.Merge.Collected()
	return w.res, err
}

func (w *writer) rows() error {
	m := w.job.Merge
	ok := false
	if m.Until(w.job.To); w.job.From != nil {
		ok = m.SeekGE(w.job.From)
	} else {
		ok = m.First()
	}
	for ; ok && (w.job.To == nil || bytes.Compare(m.Row(), w.job.To) < 0); ok = m.Next() {
		if err := w.job.Check(); err != nil {
			return err
		}
		if m.Batch(&w.many) {
			if err := w.batch(); err != nil {
				return err
			}
			continue
		}
		if err := w.start(m.Row()); err != nil {
			return err
		}
		if w.job.Ranges {
			w.ranges()
		}
		if err := w.cells(); err != nil {
			return err
		}
		if err := w.endPiece(nil); err != nil {
			return err
		}
	}
	return m.Err()
}

// start makes row the current one, in a new file if the current file is full.
func (w *writer) start(row []byte) error {
	w.row = append(w.row[:0], row...)
	w.inRow, w.from, w.lastCol = false, w.from[:0], w.lastCol[:0]
	cut := false
	for ; w.passed(row); w.next++ {
		cut = true
	}
	if w.w != nil && (cut || w.w.Size() >= w.job.FileBytes) {
		return w.finish(nil)
	}
	return nil
}

// passed reports whether row is at or behind the next cut.
func (w *writer) passed(row []byte) bool {
	return w.next < len(w.job.Cuts) && bytes.Compare(w.job.Cuts[w.next], row) <= 0
}

// batch writes rows that have no deletes.
func (w *writer) batch() error {
	b := &w.many
	if len(b.Rows) == 0 {
		return nil
	}
	size := int64(0)
	for i := range b.Rows {
		r := &b.Rows[i]
		size += int64(len(r.Key)) + 64*int64(len(r.Cells)) // a cell takes less than 64 bytes beside its column and value
		for j := range r.Cells {
			size += int64(len(r.Cells[j].Col) + len(r.Cells[j].Value))
		}
		w.res.Cells += uint64(len(r.Cells))
	}
	if w.w == nil || w.w.Size()+size >= w.job.FileBytes || w.passed(b.Rows[len(b.Rows)-1].Key) {
		// The file may end within these rows.
		for i := range b.Rows {
			if err := w.start(b.Rows[i].Key); err != nil {
				return err
			}
			if err := w.add(b.Rows[i].Cells); err != nil {
				return err
			}
		}
		return nil
	}
	if err := w.w.AddRows(b.Rows); err != nil {
		return err
	}
	w.bounds.HiRow = append(w.bounds.HiRow[:0], b.Rows[len(b.Rows)-1].Key...)
	w.res.Rows += uint64(len(b.Rows))
	return nil
}

// ranges collects the row's wide deletes that still reach something.
func (w *writer) ranges() {
	all := w.job.Merge.Ranges(w.rngs[:0])
	w.rngs = all[:0]
	for _, r := range all {
		if w.job.Older(w.row, r) {
			w.rngs = append(w.rngs, r)
		} else {
			w.res.Forgotten++
		}
	}
}

func (w *writer) cells() error {
	for {
		w.cell = w.job.Merge.Cells(w.cell[:0])
		if len(w.cell) == 0 {
			return w.job.Merge.Err()
		}
		w.res.Cells += uint64(len(w.cell))
		if err := w.add(w.cell); err != nil {
			return err
		}
	}
}

// add writes cells of the current row.
func (w *writer) add(cs []cell.Cell) error {
	for len(cs) > 0 {
		n := len(cs)
		if w.inRow && w.w.Size()-w.rowStart >= w.job.FileBytes {
			// The piece of this row alone fills a file: cut before the next column.
			n = 0
			for n < len(cs) && bytes.Equal(cs[n].Col, w.lastCol) {
				n++
			}
			if n == 0 {
				col := append([]byte(nil), cs[0].Col...)
				if err := w.cut(col); err != nil {
					return err
				}
				continue
			}
		}
		if err := w.begin(); err != nil {
			return err
		}
		if err := w.w.AddCells(cs[:n]); err != nil {
			return err
		}
		w.lastCol = append(w.lastCol[:0], cs[n-1].Col...)
		cs = cs[n:]
	}
	return nil
}

// begin starts the current row in the current file, making one if there is none.
func (w *writer) begin() error {
	if w.inRow {
		return nil
	}
	if w.w == nil {
		out, err := w.job.Create()
		if err != nil {
			return err
		}
		w.out, w.w = out, sstable.NewWriter(out.Sink, out.Opts)
		w.bounds = cell.Bounds{LoRow: append([]byte(nil), w.row...), LoCol: append([]byte(nil), w.from...)}
	}
	w.rowStart = w.w.Size()
	if err := w.w.StartRow(w.row); err != nil {
		return err
	}
	w.bounds.HiRow = append(w.bounds.HiRow[:0], w.row...)
	w.inRow = true
	w.res.Rows++
	return nil
}

// endPiece writes the deletes of the current row from w.from to column to, nil for the row's end.
func (w *writer) endPiece(to []byte) error {
	w.cuts = w.cuts[:0]
	for _, r := range w.rngs {
		if c, ok := r.Clip(w.from, to); ok {
			w.cuts = append(w.cuts, c)
		}
	}
	if len(w.cuts) > 0 {
		if err := w.begin(); err != nil {
			return err
		}
		if err := w.w.AddRanges(w.cuts); err != nil {
			return err
		}
	}
	if to == nil {
		w.rngs = w.rngs[:0]
	}
	if !w.job.Deletes {
		return nil
	}
	ds := w.job.Merge.Deletes(w.from, w.cuts)
	for {
		w.del = ds.Next(w.del)
		if len(w.del) == 0 || to != nil && bytes.Compare(w.del[0].Col, to) >= 0 {
			break
		}
		col := w.del[0].Col
		if !w.job.Older(w.row, cell.Range{From: col, To: append(append(make([]byte, 0, len(col)+1), col...), 0)}) {
			w.res.Forgotten += uint64(len(w.del))
			continue
		}
		if err := w.begin(); err != nil {
			return err
		}
		if err := w.w.AddDeletes(w.del); err != nil {
			return err
		}
	}
	return w.job.Merge.Err()
}

// cut ends the file inside the current row: columns from col on go to the next file.
func (w *writer) cut(col []byte) error {
	if err := w.endPiece(col); err != nil {
		return err
	}
	if w.job.Deletes {
		w.job.Merge.Reshade(col)
	}
	if err := w.finish(col); err != nil {
		return err
	}
	w.inRow, w.from = false, append(w.from[:0], col...)
	return nil
}

// finish ends the current file, if there is one. hiCol is where it is cut inside its last row, nil if it is not.
func (w *writer) finish(hiCol []byte) error {
	if w.w == nil {
		return nil
	}
	w.bounds.HiCol = hiCol
	b := w.bounds.Clone()
	if h := w.job.Hull; h != nil {
		if len(b.LoCol) == 0 && bytes.Equal(b.LoRow, h.LoRow) {
			b.LoCol = append(b.LoCol, h.LoCol...)
		}
		if b.HiCol == nil && h.HiCol != nil && bytes.Equal(b.HiRow, h.HiRow) {
			b.HiCol = append([]byte{}, h.HiCol...)
		}
	}
	p, err := w.w.Finish(b, w.job.FirstSeq, w.job.LastSeq)
	if err != nil {
		return err
	}
	size := w.out.Sink.Offset()
	out := w.out
	w.out, w.w = nil, nil
	if err := out.Sink.Finish(); err != nil {
		return fmt.Errorf("finish table file %d: %w", out.Num, err)
	}
	w.res.Mode = out.Sink.Mode() // only now: direct I/O may be refused as late as at the first write
	w.res.BytesWritten += size
	w.res.LogicalWritten += p.LogicalBytes
	var lives uint64
	for i := range p.Families {
		lives |= levels.LifeBit(p.Families[i].Life)
	}
	w.res.Files = append(w.res.Files, &levels.File{
		Num: out.Num, ID: out.ID, Size: size, Bounds: b, FirstSeq: w.job.FirstSeq, LastSeq: w.job.LastSeq, Settled: w.job.Settled,
		Rows: p.Rows, Cells: p.Cells, Ranges: p.Ranges, Deletes: p.Deletes, Holes: p.Holes, Lives: lives, MinTS: p.MinTS, MaxTS: p.MaxTS,
		LogicalBytes: p.LogicalBytes,
	})
	return nil
}
