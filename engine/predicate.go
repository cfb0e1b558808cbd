package engine

import (
	"bytes"

	"github.com/rowandb/rowan/cell"
)

// predicate is a compiled filter that is asked only whether it passes any cell of a row.
type predicate struct{ prog program }

// rowCells is the cells of one row, alive and folded, in order.
type rowCells interface {
	SeekCell(col []byte, ts int64)
	Cells(dst []cell.Cell) []cell.Cell
	Err() error
}

// compilePredicate compiles f for a table. A nil filter passes any cell.
func compilePredicate(t *rtable, f Filter) (*predicate, error) {
	p := &predicate{prog: program{table: t}}
	if f == nil {
		return p, nil
	}
	return p, f.compile(&p.prog)
}

func (p *predicate) options() cell.IterOptions {
	return cell.IterOptions{Columns: p.prog.cols, KeysOnly: true}
}

// matches reports whether any cell passes. m stands on the row.
func (p *predicate) matches(m rowCells, _ []byte) (bool, error) {
	if p.prog.empty {
		return false, nil
	}
	var last []byte
	buf := make([]cell.Cell, 0, 64)
	for {
		buf = m.Cells(buf[:0])
		if len(buf) == 0 {
			return false, m.Err()
		}
		for i := range buf {
			if !bytes.Equal(buf[i].Col, last) {
				last = append(last[:0], buf[i].Col...)
				p.prog.newColumn()
			}
			if ok, _ := p.prog.pass(buf[i].TS); ok {
				return true, nil
			}
		}
	}
}
