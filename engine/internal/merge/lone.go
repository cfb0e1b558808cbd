package merge

import "github.com/rowandb/rowan/cell"

// Lone shows the row on which a source stands that is the only one to have it: what an Iter over one source shows, for less. Point reads
// mostly come to that. The zero Lone has no row.
type Lone struct {
	cfg  Config
	src  source
	one  [1]*source
	row  Row
	fail error
}

// Init makes it show the row key of it, which stands there; nil for no row at all.
func (l *Lone) Init(cfg Config, it cell.Iter, key []byte) {
	if it == nil {
		return
	}
	l.cfg = cfg
	l.src.it, l.one[0] = it, &l.src
	l.row.cfg, l.row.gc.cfg = &l.cfg, &l.cfg
	l.row.start(key, l.one[:])
}

// SeekCell is Iter.SeekCell, Cells is Iter.Cells.
func (l *Lone) SeekCell(col []byte, ts int64) {
	if l.src.it != nil {
		l.row.seek(col, ts)
	}
}

// Cells appends live cells of the row, see Row.Cells.
func (l *Lone) Cells(dst []cell.Cell) []cell.Cell {
	if l.src.it == nil || l.fail != nil {
		return dst
	}
	n := len(dst)
	if dst = l.row.single(dst); len(dst) == n {
		l.fail = l.row.err()
	}
	return dst
}

// Err is the first failure.
func (l *Lone) Err() error {
	if l.src.it == nil || l.fail != nil {
		return l.fail
	}
	return l.row.err()
}

// Close closes the source and forgets everything but memory for the next time.
func (l *Lone) Close() (err error) {
	if l.src.it != nil {
		err = l.src.it.Close()
	}
	l.src = source{}
	l.one[0], l.fail = nil, nil
	l.cfg.Families, l.cfg.MayRank = nil, nil
	l.row.forget()
	return err
}
