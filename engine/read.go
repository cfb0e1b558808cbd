package engine

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/filter"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/internal/stripe"
	"github.com/rowandb/rowan/io/mapped"
)

// Cell is one cell as a read returns it. Everything in it is the caller's own.
type Cell struct {
	Family    string
	Qualifier string
	Timestamp Timestamp
	Value     []byte
	Labels    []string // that LabelFilter put on it
}

// Row is a row with its cells in order: family and qualifier ascending, timestamp descending. A row without cells does not
// exist.
type Row struct {
	Key   string
	Cells []Cell
}

// Latest returns the newest value of a column among the row's cells.
func (r Row) Latest(family, qualifier string) ([]byte, bool) {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Family == family && c.Qualifier == qualifier {
			return c.Value, true
		}
	}
	return nil, false
}

// BorrowedCell is a cell that belongs to the store, with its bytes: both are valid only until the function that was given it
// returns. Copy what is to be kept; a copy of the struct alone keeps nothing.
type BorrowedCell struct {
	Row       []byte
	Family    []byte
	Qualifier []byte
	Timestamp Timestamp
	Value     []byte
	Labels    []string // that LabelFilter put on it
}

// ReadOption changes a read.
type ReadOption interface{ apply(*readOptions) }

type readOptions struct {
	filter  Filter
	option  *rowFilter // of filter
	limit   int64
	reverse bool
	raw     bool
	asOf    int64 // if asOfSet
	asOfSet bool
	snap    *Snapshot
	page    pageOptions
	leave   *LeftOut
	// rowByRow has a scan look at each row by itself, as it does for filters and pages. For tests that compare the two ways.
	rowByRow bool
	err      error
}

type readOption func(*readOptions)

func (f readOption) apply(o *readOptions) { f(o) }

// RowFilter passes only the cells that f passes. Of several the last counts; nil passes every cell. An option that is used for several
// reads of a table is compiled once.
func RowFilter(f Filter) ReadOption { return &rowFilter{f: f} }

// LimitRows ends the read after n rows that have a cell left. 0 means no limit.
func LimitRows(n int64) ReadOption {
	return readOption(func(o *readOptions) {
		if o.limit = n; n < 0 {
			o.err = fmt.Errorf("%w: %d", ErrLimit, n)
		}
	})
}

// ReverseScan returns rows in descending order; the cells inside a row keep their order.
func ReverseScan() ReadOption { return readOption(func(o *readOptions) { o.reverse = true }) }

// AtSnapshot reads from a snapshot instead of the present.
func AtSnapshot(s *Snapshot) ReadOption {
	return readOption(func(o *readOptions) {
		if o.snap = s; s == nil {
			o.err = fmt.Errorf("%w: nil snapshot", ErrOption)
		}
	})
}

// Raw turns collection rules off: cells that rules hide but compaction has not removed yet are shown. For tools and tests.
func Raw() ReadOption { return readOption(func(o *readOptions) { o.raw = true }) }

// ReadRow returns a row; one that does not exist has no cells and is no error. Rows of more than Options.RowBytesMax bytes
// give ErrRowTooLarge.
func (t *Table) ReadRow(ctx context.Context, row string, opts ...ReadOption) (out Row, err error) {
	out.Key = row
	err = t.readRow(ctx, row, opts, func(rd *reader, m *points) (err error) {
		out.Cells, err = rd.row(m, bytesOf(row))
		return err
	})
	return out, err
}

// ReadRowInto is ReadRow into memory that is there already: dst's cells, and the bytes of their values, are overwritten. Read into the
// same Row again and again, it allocates nothing once the memory is large enough and as long as qualifiers do not change. What was
// read into dst before must not be in use any more, but for strings. Several goroutines need a Row each. After an error dst has no
// cells.
func (t *Table) ReadRowInto(ctx context.Context, dst *Row, row string, opts ...ReadOption) error {
	if dst == nil {
		return fmt.Errorf("%w: nil row", ErrOption)
	}
	dst.Key = row
	cells := dst.Cells[:0]
	dst.Cells = cells
	return t.readRow(ctx, row, opts, func(rd *reader, m *points) (err error) {
		dst.Cells, err = rd.rowInto(m, bytesOf(row), cells)
		return err
	})
}

// readRow calls found on a row, unless it is outside of what the options let through.
func (t *Table) readRow(ctx context.Context, row string, opts []ReadOption, found func(*reader, *points) error) (err error) {
	if err := checkRow(row); err != nil {
		return err
	}
	rd, err := t.begin(ctx, opts)
	if err != nil {
		return err
	}
	// Few deferred calls and returns: of many the compiler makes a list to walk, which is a part of a read that counts.
	defer rd.endNoted(&err)
	defer mapped.Leave(mapped.Enter(), &err)
	err = rd.readRow(bytesOf(row), found)
	return err
}

func (rd *reader) readRow(key []byte, found func(*reader, *points) error) (err error) {
	if rd.filtered && (rd.prog.Empty() || !rd.prog.Rows.Contains(key)) || !rd.opts.reaches(key) {
		rd.ended(nil)
		return nil
	}
	m, err := rd.point(key, rd.iterOptions(false), rd.config())
	if err != nil {
		return err
	}
	defer closeInto(m, &err)
	rd.db.stats.rowReads.Add(rd.slot, 1)
	if err = found(rd, m); err != nil {
		return err
	}
	if !rd.page.full {
		key = nil
	}
	rd.ended(key)
	return nil
}

// ReadRows calls fn for each row of set, in order, until fn returns false. fn may use the store, but must not close it: Close
// waits for reads to end. Rows are copies. The whole scan shows one moment, which is kept until it ends: a function that takes
// long, or a loop over Rows that is never finished, keeps files from being given back (Metrics.PinnedBytes).
func (t *Table) ReadRows(ctx context.Context, set RowSet, fn func(Row) bool, opts ...ReadOption) (err error) {
	if fn == nil {
		return fmt.Errorf("%w: nil function", ErrOption)
	}
	rd, err := t.begin(ctx, opts)
	if err != nil {
		return err
	}
	defer rd.end()
	defer t.db.noted(&err)
	rd.rowOut.rd, rd.rowOut.fn = rd, fn
	return rd.each(set, &rd.rowOut)
}

// Rows is ReadRows as a sequence. The error, if any, comes last, with an empty row.
func (t *Table) Rows(ctx context.Context, set RowSet, opts ...ReadOption) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		stopped := false
		err := t.ReadRows(ctx, set, func(r Row) bool {
			stopped = !yield(r, nil)
			return !stopped
		}, opts...)
		if err != nil && !stopped {
			yield(Row{}, err)
		}
	}
}

// ReadCellsBorrowed calls fn for each cell of set, in order, until fn returns false. Cells are streamed, so that rows may be
// of any size, and both the cell pointed to and its bytes are the store's: they are valid only until fn returns, when the next
// cell takes their place, and fn must not write to them. In a build with the tag invariants the bytes are overwritten then, so that
// whoever keeps them finds out.
func (t *Table) ReadCellsBorrowed(ctx context.Context, set RowSet, fn func(*BorrowedCell) bool, opts ...ReadOption) (err error) {
	if fn == nil {
		return fmt.Errorf("%w: nil function", ErrOption)
	}
	rd, err := t.begin(ctx, opts)
	if err != nil {
		return err
	}
	defer rd.end()
	defer t.db.noted(&err)
	out := &rd.cellOut
	out.rd, out.fn, out.spoil = rd, fn, invariants
	return rd.each(set, out)
}

// reader is one call's read.
type reader struct {
	reading
	ctx      context.Context // of the running call
	opts     readOptions
	filtered bool // prog is the filter
	prog     filter.Program
	page     page
	asOf     int64
	buf      []cell.Cell
	joined   merge.Scan // of a scan
	sources  sources
	spans    []span
	rows     rowRun
	used     int // cells of buf that were set since it was cleared
	rowOut   rowOutput
	cellOut  cellOutput
}

// begin checks the options, pins a state and compiles the filter. Balanced by end.
func (t *Table) begin(ctx context.Context, opts []ReadOption) (*reader, error) {
	rd := readers.Get().(*reader)
	for _, o := range opts {
		if o == nil {
			rd.recycle()
			return nil, fmt.Errorf("%w: nil read option", ErrOption)
		}
		o.apply(&rd.opts)
	}
	rd.flat = rd.opts.raw
	if err := rd.opts.err; err != nil {
		rd.recycle()
		return nil, err
	}
	db := t.db
	if err := db.enterAt(rd.slot); err != nil {
		rd.recycle()
		return nil, err
	}
	rd.db, rd.ctx = db, ctx
	if err := rd.pin(ctx, t); err != nil {
		rd.end()
		return nil, err
	}
	if rd.opts.filter != nil {
		rd.filtered = true
		if err := rd.opts.option.compile(&rd.prog, rd.table); err != nil {
			rd.end()
			return nil, err
		}
	}
	rd.page.begin(&rd.opts.page)
	return rd, nil
}

func (rd *reader) pin(ctx context.Context, t *Table) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s := rd.opts.snap; s != nil {
		if err := s.use(rd); err != nil {
			return err
		}
	} else {
		rd.st, rd.seq = rd.db.states.pinWith(rd.slot, rd.db.visible)
	}
	if rd.table = rd.st.tables[t.name]; rd.table == nil {
		return fmt.Errorf("%w: %q", ErrNoTable, t.name)
	}
	if rd.opts.snap == nil && rd.table.ages { // a look at the clock is a large part of a read, where nothing depends on it
		rd.asOf = rd.db.clock.now()
	}
	if l := rd.opts.leave; l != nil {
		rd.leaveOut(l)
	}
	if rd.opts.asOfSet {
		rd.asOf = rd.opts.asOf
		return rd.checkAsOf(rd.asOf)
	}
	return nil
}

func (rd *reader) end() {
	if rd.st != nil {
		rd.st.unpin(rd.slot)
	}
	rd.db.leaveAt(rd.slot)
	rd.recycle()
}

// endNoted is end for a read with that error.
func (rd *reader) endNoted(err *error) {
	rd.db.noted(err)
	rd.end()
}

// readers keeps the scratch of reads that have ended.
var readers = sync.Pool{New: func() any {
	return &reader{buf: make([]cell.Cell, 0, 64), reading: reading{slot: stripe.Next()}}
}}

// recycle forgets everything but the scratch.
func (rd *reader) recycle() {
	if rd.filtered {
		rd.prog.Forget()
	}
	clear(rd.buf[:rd.used]) // it points into blocks
	rd.used = 0
	rd.reading, rd.ctx, rd.opts, rd.filtered, rd.asOf = reading{pts: rd.pts, slot: rd.slot}, nil, readOptions{}, false, 0
	rd.buf, rd.page = rd.buf[:0], page{col: rd.page.col[:0]}
	clear(rd.spans[:cap(rd.spans)])
	rd.rows.reset()
	rd.sources.reset()
	rd.rowOut.forget()
	rd.cellOut = cellOutput{}
	readers.Put(rd)
}

func (rd *reader) iterOptions(scan bool) cell.IterOptions {
	var o cell.IterOptions
	if rd.filtered {
		o = rd.table.narrowed(&rd.prog)
	}
	o.Pass, o.Stats = scan, &rd.db.stats.reads
	return o
}

func (rd *reader) config() merge.Config {
	c := merge.Config{Families: rd.table.families, AsOf: rd.asOf, Raw: rd.opts.raw, Pass: true}
	if rd.page.cells > 0 {
		c.First = 4
	} else if rd.filtered {
		c.First = rd.prog.First()
	}
	return c
}

// alive returns an error if the caller has given up or the store is being closed.
func (rd *reader) alive() error {
	if err := rd.ctx.Err(); err != nil {
		return err
	}
	if rd.db.life.closed.Load() {
		return ErrClosed
	}
	return nil
}

// ended tells the caller where the read ended: in row or behind it, or if row is nil at its end.
func (rd *reader) ended(row []byte) {
	next := rd.opts.page.next
	switch {
	case next == nil:
	case row == nil:
		*next = Position{}
	default:
		*next = rd.page.endOf(row)
	}
}

// cells sends each cell of the current row that passes the filter, and was not returned before, to out.
func (rd *reader) cells(m filter.Cells, row []byte, out filter.Output) (more bool, err error) {
	start := rd.enter(row)
	if rd.filtered {
		return rd.prog.Run(m, row, start, out)
	}
	if start.Col != nil {
		m.SeekCell(start.Col, start.TS)
	}
	for asked := 1; ; asked++ {
		if asked%64 == 0 {
			if err := rd.alive(); err != nil {
				return false, err
			}
		}
		rd.buf = m.Cells(rd.buf[:0])
		rd.used = max(rd.used, len(rd.buf))
		if len(rd.buf) == 0 {
			return true, m.Err()
		}
		for i := range rd.buf {
			if !out.Put(&rd.buf[i], false, "") {
				return false, nil
			}
		}
	}
}

// row copies the current row's cells out.
func (rd *reader) row(m filter.Cells, row []byte) ([]Cell, error) {
	o := &rd.rowOut
	o.begin(rd, row)
	if _, err := rd.cells(m, row, o); err != nil {
		return nil, err
	}
	if o.err != nil {
		return nil, o.err
	}
	return o.cells(), nil
}

// rowInto is row into cells that are there already.
func (rd *reader) rowInto(m filter.Cells, row []byte, cells []Cell) ([]Cell, error) {
	o := &rd.rowOut
	scratch := o.out
	o.begin(rd, row)
	o.out, o.again = cells, true
	_, err := rd.cells(m, row, o)
	if err == nil {
		err = o.err
	}
	out := o.out
	*o = rowOutput{out: scratch}
	if err != nil {
		return cells, err
	}
	return out, nil
}

func closeInto(c interface{ Close() error }, err *error) {
	if e := c.Close(); *err == nil {
		*err = e
	}
}
