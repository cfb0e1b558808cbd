package merge

import (
	"bytes"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/levels"
)

// OpenFile returns an iterator over one table file, restricted as the run's options say.
type OpenFile func(f *levels.File) (cell.Iter, error)

// Run joins the disjoint files of a level, or of a sublevel of L0, into one source. Files are opened when they are reached
// and one at a time is held, a row that lies in several files aside: its pieces are read one after the other.
type Run struct {
	files   []*levels.File
	open    OpenFile
	cols    cell.Range // pieces of rows without any of these are passed over
	cur     cell.Iter  // over files[at]
	at      int
	row     []byte    // copy of the current row's key when it has pieces in several files
	multi   bool      // the current row goes on in files after lo
	lo      int       // first file with a piece of the current row
	hi      int       // last one
	piece   cell.Iter // files[pieceAt] while reading a row of several pieces; nil when cur is it
	pieceAt int
	del     cell.Iter // the same for the delete cursor
	delAt   int
	keep    []cell.Iter // pieces to close at the next row move, so that bytes handed out stay
	err     error
}

// NewRun returns a source over files, which are disjoint and sorted by bounds.
func NewRun(files []*levels.File, open OpenFile) *Run {
	return &Run{files: files, open: open, at: -1}
}

// Restrict says that only columns in cols are asked for, as the iterators of the files have been told: a row of many pieces is
// opened at those only that may have some. It returns r.
func (r *Run) Restrict(cols cell.Range) *Run {
	r.cols = cols
	return r
}

func (r *Run) First() bool { return r.into(0, func(it cell.Iter) bool { return it.First() }) }

func (r *Run) Last() bool {
	return r.outOf(len(r.files)-1, func(it cell.Iter) bool { return it.Last() })
}

func (r *Run) SeekGE(row []byte) bool {
	lo, hi := 0, len(r.files) // first file that ends at or after row
	for lo < hi {
		mid := (lo + hi) / 2
		if bytes.Compare(r.files[mid].Bounds.HiRow, row) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return r.into(lo, func(it cell.Iter) bool { return it.SeekGE(row) })
}

func (r *Run) SeekLT(row []byte) bool {
	lo, hi := 0, len(r.files) // first file that begins at or after row
	for lo < hi {
		mid := (lo + hi) / 2
		if bytes.Compare(r.files[mid].Bounds.LoRow, row) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return r.outOf(lo-1, func(it cell.Iter) bool { return it.SeekLT(row) })
}

func (r *Run) Next() bool {
	if r.err != nil || r.cur == nil {
		return false
	}
	if r.multi {
		last := r.hi
		if !r.use(last) {
			return false
		}
		// The last piece may hold more rows after this one.
		row := append([]byte(nil), r.row...)
		return r.into(last, func(it cell.Iter) bool {
			return it.SeekGE(row) && (!bytes.Equal(it.Row(), row) || it.Next())
		})
	}
	if r.cur.Next() {
		return r.found()
	}
	if r.err = r.cur.Err(); r.err != nil {
		return false
	}
	return r.into(r.at+1, func(it cell.Iter) bool { return it.First() })
}

func (r *Run) Prev() bool {
	if r.err != nil || r.cur == nil {
		return false
	}
	if r.multi {
		row := append([]byte(nil), r.row...)
		return r.outOf(r.lo, func(it cell.Iter) bool { return it.SeekLT(row) })
	}
	if r.cur.Prev() {
		return r.found()
	}
	if r.err = r.cur.Err(); r.err != nil {
		return false
	}
	return r.outOf(r.at-1, func(it cell.Iter) bool { return it.Last() })
}

// into tries files from i on, the first by move and the others from their start.
func (r *Run) into(i int, move func(cell.Iter) bool) bool {
	for ; i < len(r.files); i++ {
		if !r.use(i) {
			return false
		}
		if move(r.cur) {
			return r.found()
		}
		if r.err = r.cur.Err(); r.err != nil {
			return false
		}
		move = func(it cell.Iter) bool { return it.First() }
	}
	return r.none()
}

// outOf tries files from i down, the first by move and the others from their end.
func (r *Run) outOf(i int, move func(cell.Iter) bool) bool {
	for ; i >= 0; i-- {
		if !r.use(i) {
			return false
		}
		if move(r.cur) {
			return r.found()
		}
		if r.err = r.cur.Err(); r.err != nil {
			return false
		}
		move = func(it cell.Iter) bool { return it.Last() }
	}
	return r.none()
}

func (r *Run) none() bool {
	r.drop()
	if r.cur != nil {
		r.keepErr(r.cur.Close())
		r.cur, r.at = nil, -1
	}
	return false
}

// use makes cur the iterator of files[i].
func (r *Run) use(i int) bool {
	r.drop()
	if r.err != nil {
		return false
	}
	if r.cur != nil && r.at == i {
		return true
	}
	if r.cur != nil {
		r.keepErr(r.cur.Close())
		r.cur = nil
	}
	it, err := r.open(r.files[i])
	if err != nil {
		r.keepErr(err)
		return false
	}
	r.cur, r.at = it, i
	return r.err == nil
}

// found settles on cur's row and finds out whether other files hold pieces of it.
func (r *Run) found() bool {
	r.drop()
	row := r.cur.Row()
	r.lo, r.hi, r.multi = r.at, r.at, false
	for r.lo > 0 && bytes.Equal(r.files[r.lo-1].Bounds.HiRow, row) {
		r.lo--
	}
	for r.hi+1 < len(r.files) && bytes.Equal(r.files[r.hi+1].Bounds.LoRow, row) {
		r.hi++
	}
	if r.lo != r.hi {
		r.multi = true
		r.row = append(r.row[:0], row...)
		r.pieceAt, r.delAt = r.lo-1, r.lo-1
	}
	return true
}

// drop closes the pieces of the row that is being left.
func (r *Run) drop() {
	for _, it := range r.keep {
		r.keepErr(it.Close())
	}
	r.keep, r.piece, r.del, r.multi = r.keep[:0], nil, nil, false
}

func (r *Run) keepErr(err error) {
	if err != nil && r.err == nil {
		r.err = err
	}
}

// openPiece returns an iterator of files[i] that stands on the current row, or nil if it has none there.
func (r *Run) openPiece(i int) cell.Iter {
	it, err := r.open(r.files[i])
	if err != nil {
		r.keepErr(err)
		return nil
	}
	r.keep = append(r.keep, it)
	if it.SeekGE(r.row) && bytes.Equal(it.Row(), r.row) {
		return it
	}
	r.keepErr(it.Err())
	return nil
}

func (r *Run) Row() []byte {
	if r.multi {
		return r.row
	}
	return r.cur.Row()
}

func (r *Run) Ranges(dst []cell.Range) []cell.Range {
	if !r.multi {
		return r.cur.Ranges(dst)
	}
	var tmp []cell.Range
	for i := r.lo; i <= r.hi && r.err == nil; i++ {
		if r.files[i].Ranges == 0 || !r.wants(i) {
			continue
		}
		if it := r.openPiece(i); it != nil {
			tmp = it.Ranges(tmp[:0])
			for _, w := range tmp {
				dst = cell.AddRange(dst, w)
			}
		}
	}
	return dst
}

// wants reports whether the piece of the row in files[i] may have columns that are asked for.
func (r *Run) wants(i int) bool {
	in, ok := r.files[i].Bounds.Columns(r.row)
	if ok {
		_, ok = in.Clip(r.cols.From, r.cols.To)
	}
	return ok
}

// pieceOf is the first file of the row that can hold col.
func (r *Run) pieceOf(col []byte) int {
	i := r.lo
	for i < r.hi && r.files[i].Bounds.HiCol != nil && bytes.Compare(r.files[i].Bounds.HiCol, col) <= 0 {
		i++
	}
	return i
}

func (r *Run) SeekCell(col []byte, ts int64) {
	if !r.multi {
		r.cur.SeekCell(col, ts)
		return
	}
	r.pieceAt = r.pieceOf(col)
	if r.piece = r.openPiece(r.pieceAt); r.piece != nil {
		r.piece.SeekCell(col, ts)
	}
}

func (r *Run) Cells(dst []cell.Cell) []cell.Cell {
	if !r.multi {
		return r.cur.Cells(dst)
	}
	n := len(dst)
	for r.err == nil {
		if r.piece != nil {
			if dst = r.piece.Cells(dst); len(dst) > n {
				return dst
			}
			r.keepErr(r.piece.Err())
		}
		if r.pieceAt >= r.hi || r.err != nil {
			break
		}
		r.pieceAt++
		if r.piece = nil; r.wants(r.pieceAt) {
			r.piece = r.openPiece(r.pieceAt)
		}
	}
	return dst
}

// NextBatch implements cell.Batcher where the files' iterators do. A row that goes on in the next file is not handed out.
func (r *Run) NextBatch(b *cell.Batch, stop []byte) {
	b.Reset()
	if r.multi || r.err != nil || r.cur == nil {
		return
	}
	it, ok := r.cur.(cell.Batcher)
	if !ok {
		return
	}
	if n := r.at + 1; n < len(r.files) {
		if lo := r.files[n].Bounds.LoRow; bytes.Equal(lo, r.files[r.at].Bounds.HiRow) && (stop == nil || bytes.Compare(lo, stop) < 0) {
			stop = lo
		}
	}
	it.NextBatch(b, stop)
}

func (r *Run) SeekDelete(col []byte) {
	if !r.multi {
		r.cur.SeekDelete(col)
		return
	}
	r.delAt = r.pieceOf(col)
	if r.del = r.openPiece(r.delAt); r.del != nil {
		r.del.SeekDelete(col)
	}
}

func (r *Run) Deletes(dst []cell.Delete) []cell.Delete {
	if !r.multi {
		return r.cur.Deletes(dst)
	}
	n := len(dst)
	for r.err == nil {
		if r.del != nil {
			if dst = r.del.Deletes(dst); len(dst) > n {
				return dst
			}
			r.keepErr(r.del.Err())
		}
		if r.delAt >= r.hi || r.err != nil {
			break
		}
		r.delAt++
		r.del = nil
		if r.files[r.delAt].Deletes > 0 && r.wants(r.delAt) {
			r.del = r.openPiece(r.delAt)
		}
	}
	return dst
}

func (r *Run) Err() error {
	if r.err == nil && r.cur != nil {
		return r.cur.Err()
	}
	return r.err
}

func (r *Run) Close() error {
	r.none()
	return r.err
}
