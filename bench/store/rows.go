package store

// Rows is a store with rows of columns, the shape of Bigtable. Engines that have pairs only keep a pair for each cell, under the
// natural key of rowkey.go. All methods but Close may be called by several goroutines at once.
type Rows interface {
	Session() (RowSession, error)
	Settle() error
	// Collect removes from disk, and from what a scan shows, what the rule does not keep, and returns when that is done.
	Collect() error
	Stats() (Stats, error)
	Close() error
}

// RowSession is one caller. It is not safe for concurrent use.
type RowSession interface {
	// Write writes cells, in the order of their rows, as one batch that need not be durable.
	Write(cells []Cell) error
	// ReadRow calls fn for every cell of a row, in order: columns ascending, the newest version first.
	ReadRow(row []byte, fn func(Cell)) error
	// Newest calls fn with the newest version of a column.
	Newest(row []byte, family, qualifier string, fn func(value []byte)) (bool, error)
	// ScanRows calls fn for every cell of all rows in order.
	ScanRows(fn func(Cell)) error
	Close() error
}

// Cell is one version of a column. As an argument of a function its bytes are valid until that returns.
type Cell struct {
	Row       []byte // RowBytes long, without zero bytes
	Family    string
	Qualifier string
	Micros    int64 // timestamp
	Value     []byte
}

// The shape of rows, and the collection rule of every engine: a version stays while it is one of the newest KeepVersions of its
// column and not older than KeepMicros.
const (
	RowBytes     = 16
	KeepVersions = 3
	KeepMicros   = 3600 * 1_000_000
)

var (
	Families   = []string{"f1", "f2"}
	Qualifiers = []string{"q0", "q1", "q2", "q3", "q4"} // of each family
)
