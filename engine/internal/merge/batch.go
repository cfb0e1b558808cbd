package merge

import (
	"bytes"
	"slices"

	"github.com/rowandb/rowan/cell"
)

// batchCells bounds the cells of a batch; the row that reaches it is the last.
const batchCells = 2048

// Batch fills out with the current row and some that follow it, and goes to the last of them with its cells passed: Next goes
// on behind it. Rows without a live cell are left out. It may be called on a row that First, SeekGE or Next has just led to.
// What has deletes, or does not come from its sources whole, is left alone: then Batch returns false and nothing has moved,
// unless Err says that it failed. The batch is valid until the next move. Values have spare capacity that is not theirs.
func (m *Iter) Batch(out *cell.Batch) bool {
	out.Reset()
	m.row.folds.reuse()
	if m.back || !m.ok || m.fail != nil {
		return false
	}
	for i := range m.src {
		s := &m.src[i]
		if s.ok && s.whole == nil && s.batcher != nil && !s.apart && !m.load(s) {
			return false
		}
	}
	m.row.key = m.src[m.at[0]].key // reading ahead has moved what Row returned
	for _, i := range m.at {
		if m.src[i].whole == nil {
			return false
		}
	}
	if s := m.alone(); s != nil {
		return m.pass(out, s)
	}
	skip := m.order()
	for cells, moved := 0, false; len(m.sorted) > 0; moved = true {
		front := m.sorted[0]
		at := 1 // sources on the row
		for at < len(m.sorted) && front.part == m.sorted[at].part && bytes.Equal(front.key, m.sorted[at].key) {
			at++
		}
		cells += len(front.whole)
		ends := cells >= batchCells
		for _, s := range m.sorted[:at] {
			if s.whole == nil || moved && ends {
				// Next finds the row where it is.
				m.at = m.at[:0]
				return true
			}
		}
		if !m.emit(out, m.sorted[:at]) {
			return false
		}
		for _, s := range m.sorted[:at] {
			ends = ends || s.at+1 == len(s.batch.Rows)
		}
		if ends { // moving on would take bytes from under the cells in out
			m.at, m.on, m.next = m.at[:0], m.on[:0], -1
			for _, s := range m.sorted[:at] {
				m.at, m.on = append(m.at, s.age), append(m.on, &s.source)
			}
			if at < len(m.sorted) {
				m.next = m.sorted[at].age
			}
			return true
		}
		for i := at - 1; i >= 0; i-- {
			s := m.sorted[i]
			s.at++
			s.take()
			s.part = headAt(s.key, skip)
			m.sink(i)
		}
	}
	return true
}

// Until says that rows from stop on are not wanted: none is in a batch. Moves go on beyond it all the same. nil is none.
func (m *Iter) Until(stop []byte) { m.stop = stop }

// alone returns the only source that has rows left, nil if there are several.
func (m *Iter) alone() (only *rowSource) {
	for i := range m.src {
		if s := &m.src[i]; s.ok {
			if only != nil {
				return nil
			}
			only = s
		}
	}
	return only
}

// pass hands out what source s has read ahead, all of it: out and s change their memory.
func (m *Iter) pass(out *cell.Batch, s *rowSource) bool {
	rows := s.batch.Rows
	if s.at > 0 {
		rows = rows[:copy(rows, rows[s.at:])]
	}
	if !m.cfg.plain() {
		kept := 0
		for i := range rows {
			cells, ok := m.kept(rows[i].Key, rows[i].Cells)
			if !ok {
				return false
			}
			if len(cells) > 0 {
				rows[kept] = cell.BatchRow{Key: rows[i].Key, Cells: cells}
				kept++
			}
		}
		rows = rows[:kept]
	}
	s.batch.Rows = rows
	*out, s.batch = s.batch, *out
	s.batch.Reset()
	s.at = 0
	return true
}

// kept returns the cells of a row of one source that the rules keep; the others are overwritten. It is false after a failure.
func (m *Iter) kept(key []byte, cells []cell.Cell) ([]cell.Cell, bool) {
	if len(cells) == 1 && m.row.gc.keepsOnly(&cells[0]) {
		return cells, true
	}
	m.row.key = key
	m.row.gc.reset()
	n := 0
	for i := range cells {
		if m.row.gc.keep(key, &cells[i]) {
			if n != i {
				cells[n] = cells[i]
			}
			n++
		}
		if m.fail = m.row.gc.err; m.fail != nil {
			return nil, false
		}
	}
	return cells[:n], true
}

// load reads rows ahead, if the source can.
func (m *Iter) load(s *rowSource) bool {
	s.batcher.NextBatch(&s.batch, m.stop)
	if len(s.batch.Rows) == 0 {
		s.apart = true
		m.fail = s.it.Err()
		return m.fail == nil
	}
	s.at = 0
	s.take()
	return true
}

// order sorts the sources by their rows, and the newest first where they are equal. It returns the length of a prefix that all
// rows have that can come in the batch.
func (m *Iter) order() (skip int) {
	m.sorted = m.sorted[:0]
	ref := m.row.key
	skip = len(ref)
	for i := len(m.src) - 1; i >= 0; i-- {
		if s := &m.src[i]; s.ok {
			s.age = i
			m.sorted = append(m.sorted, s)
			skip = common(ref[:skip], s.key)
			if n := len(s.batch.Rows); n > 0 {
				skip = common(ref[:skip], s.batch.Rows[n-1].Key)
			}
		}
	}
	for i := len(m.sorted) - 1; i >= 0; i-- {
		s := m.sorted[i]
		s.part = headAt(s.key, skip)
		m.sink(i)
	}
	return skip
}

// common is the length of the longest common prefix.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// sink moves source i of sorted behind those that come before it; those behind it are sorted.
func (m *Iter) sink(i int) {
	s := m.sorted[i]
	for ; i+1 < len(m.sorted); i++ {
		n := m.sorted[i+1]
		if s.part < n.part {
			break
		}
		if s.part == n.part {
			if c := bytes.Compare(s.key, n.key); c < 0 || c == 0 && s.age < n.age {
				break
			}
		}
		m.sorted[i] = n
	}
	m.sorted[i] = s
}

// overwritten reports whether the row's sources have one and the same cell each, so that the newest source's is all that counts.
func overwritten(src []*rowSource) bool {
	if len(src[0].whole) != 1 {
		return false
	}
	c := &src[0].whole[0]
	if c.Kind != cell.KindSet {
		return false
	}
	for _, s := range src[1:] {
		if len(s.whole) != 1 || s.whole[0].TS != c.TS || !bytes.Equal(s.whole[0].Col, c.Col) {
			return false
		}
	}
	return true
}

// emit appends the row that the sources stand on, if it has a live cell.
func (m *Iter) emit(out *cell.Batch, src []*rowSource) bool {
	key, cells := src[0].key, src[0].whole
	alone := len(src) == 1 || overwritten(src)
	switch {
	case alone && m.cfg.plain():
	case alone:
		var ok bool
		if cells, ok = m.kept(key, cells); !ok {
			return false
		}
	default:
		m.on = m.on[:0]
		n := 0
		for _, s := range src {
			m.on = append(m.on, &s.source)
			n += len(s.whole)
		}
		m.row.start(key, m.on)
		// Growing leaves the rows before in the old memory, where they are as good.
		out.Cells = slices.Grow(out.Cells, n+1)
		start := len(out.Cells)
		for more := true; more; {
			n := len(out.Cells)
			out.Cells = m.row.Cells(out.Cells)
			more = len(out.Cells) > n
		}
		if m.fail = m.row.refused(); m.fail != nil {
			return false
		}
		cells = out.Cells[start:len(out.Cells):len(out.Cells)]
	}
	if len(cells) > 0 {
		out.Rows = append(out.Rows, cell.BatchRow{Key: key, Cells: cells})
	}
	return true
}
