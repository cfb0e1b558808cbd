package cell

// Iter walks one sorted source (a memtable as of a sequence, a table file, a level of files) row by row and, inside a row,
// cell by cell in chunks. Inside one source deletes have been applied already: its cells are alive as far as this source
// knows, and its ranges and deletes speak only of older sources.
//
// A row is there if the source has any entry for it, deletes included. An Iter is used by one goroutine.
type Iter interface {
	// First, Last, SeekGE (first row >= key), SeekLT (last row < key), Next and Prev place the iterator on a row and report
	// whether one is there. After false, Err says whether that is the end or a failure. Next and Prev may be called only on a
	// row. A row move puts the cell cursor on the row's first cell and the delete cursor on its first delete.
	First() bool
	Last() bool
	SeekGE(row []byte) bool
	SeekLT(row []byte) bool
	Next() bool
	Prev() bool

	// Row is the current row's key, valid until the next row move.
	Row() []byte

	// Ranges appends the row's wide deletes, clipped to what the source speaks for. Bytes valid until the next row move.
	Ranges(dst []Range) []Range

	// SeekCell places the cell cursor on the first cell at or after (col, ts): same column with a timestamp <= ts, or a
	// later column. It may move backwards.
	SeekCell(col []byte, ts int64)

	// Cells appends the row's next cells to dst while it has spare capacity, and moves the cursor past them. It may append
	// fewer than there is room for (a block's end); none means the row has no more, or Err. The appended cells are valid
	// until the next call of Cells, SeekCell or a row move.
	Cells(dst []Cell) []Cell

	// SeekDelete places the delete cursor on the first narrow delete whose column is >= col.
	SeekDelete(col []byte)

	// Deletes appends the next narrow deletes while dst has spare capacity. None means no more, or Err. Bytes are valid until
	// the next row move or SeekDelete.
	Deletes(dst []Delete) []Delete

	// Err is the first failure; once set every move returns false and every append appends nothing.
	Err() error

	// Close releases what the iterator holds. It may be called twice.
	Close() error
}
