package engine

import (
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/memtable"
	"github.com/rowandb/rowan/engine/internal/merge"
	"github.com/rowandb/rowan/sstable"
)

// points is a point read: what shows one row, a merge or a single source, and what that is made of. It is used again and again, so that
// point reads allocate nothing for iterators. One read at a time uses it, until Close.
type points struct {
	busy   bool
	src    []cell.Iter
	among  []candidate
	mems   [4]memtable.Iter
	mem    int // the first of mems that is free
	files  [4]sstable.Iter
	file   int
	absent int  // reads in a row for which a filter said that the row is not there
	alone  bool // lone shows the row, not several
	lone   merge.Lone
	merged merge.Iter
}

// show has the sources in p.src, which stand on row, shown as one. ends are those of their groups, nil if there is one group.
func (p *points) show(row []byte, cfg merge.Config, ends []int) {
	switch len(p.src) {
	case 0:
		p.alone = true
	case 1:
		p.alone = true
		p.lone.Init(cfg, p.src[0], row)
	default:
		p.alone = false
		p.merged.Init(cfg, p.src)
		if ends != nil {
			p.merged.Groups(ends)
		}
		p.merged.Here(row)
	}
}

// SeekCell, Cells and Err are filter.Cells of the row.
func (p *points) SeekCell(col []byte, ts int64) {
	if p.alone {
		p.lone.SeekCell(col, ts)
	} else {
		p.merged.SeekCell(col, ts)
	}
}

func (p *points) Cells(dst []cell.Cell) []cell.Cell {
	if p.alone {
		return p.lone.Cells(dst)
	}
	return p.merged.Cells(dst)
}

func (p *points) Err() error {
	if p.alone {
		return p.lone.Err()
	}
	return p.merged.Err()
}

// take begins a read. What is in use already, or nil, gives way to new memory.
func (p *points) take() *points {
	if p == nil || p.busy {
		p = new(points)
	}
	p.busy, p.mem, p.file = true, 0, 0
	return p
}

// memory returns an iterator over a memtable that stands on row, or nil.
func (p *points) memory(m *memtable.Table, row []byte, seq uint64, o *cell.IterOptions) cell.Iter {
	if m.Empty() {
		return nil
	}
	var it *memtable.Iter
	if p.mem < len(p.mems) {
		it = &p.mems[p.mem]
	} else {
		it = new(memtable.Iter)
	}
	if it.Init(m, seq, *o); it.SeekExact(row) {
		p.mem++
		return it
	}
	it.Close()
	return nil
}

// table returns an iterator over a file, which the caller keeps open until the read has ended.
func (p *points) table(t *sstable.Reader, o *cell.IterOptions) *sstable.Iter {
	var it *sstable.Iter
	if p.file < len(p.files) {
		it = &p.files[p.file]
		p.file++
	} else {
		it = new(sstable.Iter)
	}
	t.Borrow(it, *o)
	return it
}

// untake gives the iterator that table returned last back for the next one. It has been closed.
func (p *points) untake() {
	if p.file > 0 {
		p.file--
	}
}

// Close ends the read.
func (p *points) Close() (err error) {
	if p.alone {
		err = p.lone.Close()
	} else {
		err = p.merged.Close()
	}
	p.end()
	return err
}

func (p *points) end() {
	clear(p.src)
	clear(p.among)
	p.among = p.among[:0]
	p.src, p.busy = p.src[:0], false
}
