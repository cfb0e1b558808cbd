package merge

import (
	"bytes"
	"slices"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
)

// Scan joins sources row by row like Iter, for readers: what one source has alone it hands out as stretches of a block, so that
// a row costs no call and no copy. Not for concurrent use.
type Scan struct {
	cfg   Config
	src   []scanSource
	order []*scanSource // those that stand on a row, the nearest first, of equal rows the newest
	n     int           // the first n of order stand on the current row
	on    []*source     // the same, for row
	back  bool
	begun bool // row is about the current row
	row   Row
	fail  error
}

type scanSource struct {
	source
	spanner spanner // it, where that is one
	age     int     // number of the source, 0 for the newest
	key     []byte
	head    uint64 // first 8 bytes of key, big-endian

	inSpan bool // the current row is number at of span; the iterator stands at its end
	span   block.Span
	at     int
	prefix int    // of keyBuf that all rows of span begin with
	keyBuf []byte // key, if it comes from span
	cells  []cell.Cell
}

// Reset makes m join sources, newest first. Close closes them. What m held before must have been closed.
func (m *Scan) Reset(cfg Config, sources []cell.Iter) {
	m.cfg = cfg
	m.row = Row{cfg: &m.cfg, gc: collector{cfg: &m.cfg, col: m.row.gc.col[:0]}}
	m.src = slices.Grow(m.src[:0], len(sources))[:len(sources)]
	m.order, m.on, m.n, m.fail, m.back = m.order[:0], m.on[:0], 0, nil, false
	for i, it := range sources {
		s := &m.src[i]
		s.it, s.age, s.group, s.inSpan = it, i, 0, false
		s.spanner, _ = it.(spanner)
	}
}

// Groups is Iter.Groups.
func (m *Scan) Groups(ends []int) {
	at := 0
	for g, end := range ends {
		for ; at < end; at++ {
			m.src[at].group = g
		}
	}
}

// First and Last go to the first and last row; Last turns the direction around.
func (m *Scan) First() bool { return m.place(false, cell.Iter.First) }

// Last goes to the last row and backward from there.
func (m *Scan) Last() bool { return m.place(true, cell.Iter.Last) }

// SeekGE goes to the first row >= key and forward from there.
func (m *Scan) SeekGE(key []byte) bool {
	return m.place(false, func(it cell.Iter) bool { return it.SeekGE(key) })
}

// SeekLT goes to the last row < key and backward from there.
func (m *Scan) SeekLT(key []byte) bool {
	return m.place(true, func(it cell.Iter) bool { return it.SeekLT(key) })
}

func (m *Scan) place(back bool, move func(cell.Iter) bool) bool {
	m.back, m.order = back, m.order[:0]
	for i := len(m.src) - 1; i >= 0; i-- {
		s := &m.src[i]
		if !m.arrive(s, move(s.it)) {
			continue
		}
		// To the front, and from there behind those that come before it.
		m.order = append(m.order, nil)
		copy(m.order[1:], m.order)
		m.order[0] = s
		m.sink(0)
	}
	return m.settle()
}

// Next moves on in the current direction, behind the run of rows that Run has returned if it was called.
func (m *Scan) Next() bool {
	for i := m.n - 1; i >= 0; i-- {
		s := m.order[i]
		var ok bool
		switch {
		case s.inSpan && m.back && s.at > s.span.From:
			s.at--
			s.take()
			ok = true
		case s.inSpan && !m.back && s.at+1 < s.span.To:
			s.at++
			s.take()
			ok = true
		case m.back:
			ok = m.arrive(s, s.it.Prev())
		default:
			ok = m.arrive(s, s.it.Next())
		}
		if ok {
			m.sink(i)
		} else {
			m.order = append(m.order[:i], m.order[i+1:]...)
		}
	}
	return m.settle()
}

// arrive ends a move of a source's iterator.
func (m *Scan) arrive(s *scanSource, ok bool) bool {
	s.whole, s.inSpan = nil, false
	if !ok {
		if err := s.it.Err(); err != nil && m.fail == nil {
			m.fail = err
		}
		return false
	}
	if s.spanner != nil {
		if s.spanner.Span(&s.span, nil, m.back) {
			s.inSpan = true
			if s.at = s.span.From; m.back {
				s.at = s.span.To - 1
			}
			p := s.span.Keys.Prefix()
			s.keyBuf, s.prefix = append(s.keyBuf[:0], p...), len(p)
			s.take()
			return true
		}
		if err := s.it.Err(); err != nil {
			m.fail = err
			return false
		}
	}
	s.key = s.it.Row()
	s.head = head(s.key)
	return true
}

// take makes row number at of the span the current one.
func (s *scanSource) take() {
	s.whole = nil
	s.keyBuf = append(s.keyBuf[:s.prefix], s.span.Keys.Suffix(s.at)...)
	s.key = s.keyBuf
	s.head = head(s.key)
}

// sink moves source i of order behind those that come before it; those behind it are in order.
func (m *Scan) sink(i int) {
	s := m.order[i]
	for ; i+1 < len(m.order); i++ {
		n := m.order[i+1]
		var c int
		switch {
		case s.head < n.head:
			c = -1
		case s.head > n.head:
			c = 1
		default:
			c = bytes.Compare(s.key, n.key)
		}
		if m.back {
			c = -c
		}
		if c < 0 || c == 0 && s.age < n.age {
			break
		}
		m.order[i] = n
	}
	m.order[i] = s
}

// settle finds the sources that stand on the nearest row.
func (m *Scan) settle() bool {
	m.n, m.begun = 0, false
	if len(m.order) == 0 || m.fail != nil {
		return false
	}
	first := m.order[0]
	for m.n = 1; m.n < len(m.order); m.n++ {
		if s := m.order[m.n]; s.head != first.head || !bytes.Equal(s.key, first.key) {
			break
		}
	}
	return true
}

// Run returns a run of rows [from, to) that one source has alone, the current one being the first in the current direction,
// and goes to the last of them. source is the number of the source. nil: the current row is not of that kind and is to be read
// with Cells; nothing has moved.
func (m *Scan) Run() (sp *block.Span, source, from, to int) {
	s := m.order[0]
	if m.n != 1 || !s.inSpan {
		return nil, 0, 0, 0
	}
	sp = &s.span
	if m.back {
		from, to = sp.From, s.at+1
		if len(m.order) > 1 {
			from = sp.Keys.RunAbove(from, s.at, m.order[1].key)
		}
		s.at = from
		return sp, s.age, from, to
	}
	from, to = s.at, sp.To
	if len(m.order) > 1 {
		to = sp.Keys.RunBelow(from, to, m.order[1].key)
	}
	s.at = to - 1
	return sp, s.age, from, to
}

// Row is the current row's key, valid until the next move. The row may turn out to have no live cell.
func (m *Scan) Row() []byte { return m.order[0].key }

// begin prepares for the cells of the current row.
func (m *Scan) begin() bool {
	if m.begun {
		return m.fail == nil
	}
	m.begun, m.on = true, m.on[:0]
	for _, s := range m.order[:m.n] {
		if s.inSpan {
			var ok bool
			if s.cells, ok = s.span.AppendRow(s.cells[:0], s.at); !ok {
				m.fail = s.it.Err()
				return false
			}
			s.whole = s.cells
		}
		m.on = append(m.on, &s.source)
	}
	m.row.start(m.order[0].key, m.on)
	return m.fail == nil
}

// SeekCell is Iter.SeekCell.
func (m *Scan) SeekCell(col []byte, ts int64) {
	if m.begin() {
		m.row.seek(col, ts)
	}
}

// Cells appends live cells of the row, see Row.Cells. Not to be called after Run.
func (m *Scan) Cells(dst []cell.Cell) []cell.Cell {
	if !m.begin() {
		return dst
	}
	n := len(dst)
	m.row.folds.reuse()
	dst = m.row.Cells(dst)
	if len(dst) == n {
		m.fail = m.row.err()
	}
	return dst
}

// Err is the first failure.
func (m *Scan) Err() error {
	if m.fail != nil {
		return m.fail
	}
	if err := m.row.refused(); err != nil {
		return err
	}
	for i := range m.src {
		if err := m.src[i].it.Err(); err != nil {
			return err
		}
	}
	return nil
}

// keepCells bounds the cells that are kept for the next scan.
const keepCells = 1024

// Close closes the sources and forgets them; the memory stays for Reset.
func (m *Scan) Close() error {
	var first error
	for i := range m.src {
		s := &m.src[i]
		if err := s.it.Close(); err != nil && first == nil {
			first = err
		}
		clear(s.cells)
		clear(s.own[:cap(s.own)])
		if cap(s.cells) > keepCells {
			s.cells = nil
		}
		*s = scanSource{
			source: source{own: s.own[:0], ranges: s.ranges[:0], dels: s.dels[:0]},
			keyBuf: s.keyBuf[:0], cells: s.cells[:0],
		}
	}
	clear(m.order[:cap(m.order)])
	clear(m.on[:cap(m.on)])
	m.order, m.on, m.src, m.n = m.order[:0], m.on[:0], m.src[:0], 0
	m.row.src, m.row.key = nil, nil
	return first
}
