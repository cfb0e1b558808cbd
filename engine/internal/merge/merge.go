// Package merge joins sorted sources into one stream of rows with the deletes of newer sources and the collection rules
// applied. Readers, flushes and compactions all go through it, so an answer cannot depend on which of them ran.
package merge

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/rowandb/rowan/cell"
)

// Config says how cells are judged. It does not change while an Iter uses it.
type Config struct {
	Families *Families
	AsOf     int64 // engine time, microseconds
	Raw      bool  // rules off: show what is stored
	// First is how many cells of a row to ask a source for at first, more later, for readers who want few; 0: no matter.
	First int
	// Pass says that nobody counts what the rules drop: then a seek passes over the rest of a column of which many versions were
	// dropped already.
	Pass bool
	// MayRank reports whether versions of a column may be dropped by rank. Readers see every source and leave it nil; a
	// merge of some sources asks the newer ones for holes.
	MayRank func(row, col []byte) (bool, error)
}

func (c *Config) plain() bool { return c.Raw || c.Families.plain }

// Iter joins sources row by row, in one direction. Not for concurrent use.
type Iter struct {
	stop   []byte // see Until
	cfg    Config
	src    []rowSource
	at     []int        // indexes of the sources that stand on the current row, newest first
	on     []*source    // the same, for Row
	sorted []*rowSource // scratch of Batch
	next   int          // the source with the next row after the current one, -1 if none or unknown
	back   bool
	row    Row
	ok     bool
	fail   error
}

type rowSource struct {
	source
	key  []byte
	head uint64 // first 8 bytes of key, big-endian
	ok   bool

	batcher cell.Batcher // it, where that is one
	batch   cell.Batch   // rows read ahead; the iterator stands on the last of them
	at      int          // number of the current row in batch
	apart   bool         // the current row does not come in a batch
	age     int          // number of the source, 0 for the newest
	part    uint64       // head of key after the prefix that all rows have which Batch looks at
}

// New joins sources, newest first. Close closes them.
func New(cfg Config, sources []cell.Iter) *Iter {
	m := &Iter{src: make([]rowSource, 0, len(sources)), at: make([]int, 0, len(sources)), on: make([]*source, 0, len(sources))}
	m.Init(cfg, sources)
	return m
}

// Init makes m, which is new or closed, what New returns. It keeps m's memory: an Iter that is used again costs no allocation.
func (m *Iter) Init(cfg Config, sources []cell.Iter) {
	m.cfg = cfg
	m.src = slices.Grow(m.src[:0], len(sources))[:len(sources)]
	for i, it := range sources {
		m.src[i].it = it
		m.src[i].batcher, _ = it.(cell.Batcher)
	}
	m.row.cfg = &m.cfg
	m.row.gc.cfg = &m.cfg
}

// Groups says which sources belong together: those of group i end before ends[i]. Groups hold different columns, and the deletes
// of one do not concern the others. Without it all are one group. For readers only: a merge to be written is of one group.
func (m *Iter) Groups(ends []int) {
	at := 0
	for g, end := range ends {
		for ; at < end; at++ {
			m.src[at].group = g
		}
	}
}

// First and Last go to the first and last row; Last turns the direction around.
func (m *Iter) First() bool {
	m.back = false
	for i := range m.src {
		m.src[i].set(m.src[i].it.First())
	}
	return m.settle()
}

func (m *Iter) Last() bool {
	m.back = true
	for i := range m.src {
		m.src[i].set(m.src[i].it.Last())
	}
	return m.settle()
}

// SeekGE goes to the first row >= key and forward from there; SeekLT to the last row < key and backward.
func (m *Iter) SeekGE(key []byte) bool {
	m.back = false
	for i := range m.src {
		m.src[i].set(m.src[i].it.SeekGE(key))
	}
	return m.settle()
}

func (m *Iter) SeekLT(key []byte) bool {
	m.back = true
	for i := range m.src {
		m.src[i].set(m.src[i].it.SeekLT(key))
	}
	return m.settle()
}

// Here starts a row on which all sources already stand, for point reads.
func (m *Iter) Here(key []byte) {
	m.at, m.on, m.ok = m.at[:0], m.on[:0], len(m.src) > 0
	for i := range m.src {
		m.at = append(m.at, i)
		m.on = append(m.on, &m.src[i].source)
	}
	if m.ok {
		m.row.start(key, m.on)
	}
}

// Next moves on in the current direction. It may be called only on a row.
func (m *Iter) Next() bool {
	for _, i := range m.at {
		s := &m.src[i]
		if m.back {
			s.set(s.it.Prev())
		} else {
			s.next()
		}
	}
	// While one source alone stays in front of the next one nothing else has to be compared.
	if len(m.at) == 1 {
		s := &m.src[m.at[0]]
		if s.ok && (m.next < 0 || m.ahead(s, &m.src[m.next])) {
			m.row.start(s.key, m.on)
			return true
		}
	}
	return m.settle()
}

// next goes to the source's next row.
func (s *rowSource) next() {
	if s.at+1 < len(s.batch.Rows) {
		s.at++
		s.take()
		return
	}
	s.set(s.it.Next())
}

// take makes row number at of the batch the current one.
func (s *rowSource) take() {
	r := &s.batch.Rows[s.at]
	s.key, s.whole, s.passed = r.Key, r.Cells, 0
	s.head = head(s.key)
}

func (s *rowSource) set(ok bool) {
	s.ok = ok
	s.whole, s.apart = nil, false
	s.batch.Reset()
	s.at = 0
	if ok {
		s.key = s.it.Row()
		s.head = head(s.key)
	}
}

func head(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var h uint64
	for i, c := range key {
		h |= uint64(c) << (56 - 8*i)
	}
	return h
}

// headAt is head(key[skip:]).
func headAt(key []byte, skip int) uint64 {
	if n := len(key) - skip; n < 8 && len(key) >= 8 {
		return binary.BigEndian.Uint64(key[len(key)-8:]) << (8 * uint(8-n))
	}
	return head(key[skip:])
}

func compare(a, b *rowSource) int {
	switch {
	case a.head < b.head:
		return -1
	case a.head > b.head:
		return 1
	}
	return bytes.Compare(a.key, b.key)
}

// ahead reports whether a strictly comes before b in the current direction.
func (m *Iter) ahead(a, b *rowSource) bool {
	c := compare(a, b)
	return m.back && c > 0 || !m.back && c < 0
}

// settle finds the sources with the nearest row, and the source with the one after it.
func (m *Iter) settle() bool {
	m.at, m.on, m.next = m.at[:0], m.on[:0], -1
	for i := range m.src {
		s := &m.src[i]
		if !s.ok {
			if err := s.it.Err(); err != nil {
				m.fail, m.ok = err, false
				return false
			}
			continue
		}
		if len(m.at) == 0 {
			m.at = append(m.at, i)
			continue
		}
		first := &m.src[m.at[0]]
		c := compare(s, first)
		if m.back {
			c = -c
		}
		switch {
		case c == 0:
			m.at = append(m.at, i)
		case c < 0:
			m.next = m.at[0]
			m.at = append(m.at[:0], i)
		case m.next < 0 || m.ahead(s, &m.src[m.next]):
			m.next = i
		}
	}
	m.ok = len(m.at) > 0
	if !m.ok {
		return false
	}
	for _, i := range m.at {
		m.on = append(m.on, &m.src[i].source)
	}
	m.row.start(m.src[m.at[0]].key, m.on)
	return true
}

// Row is the current row's key, valid until the next move. The row may turn out to have no live cell.
func (m *Iter) Row() []byte { return m.row.key }

// SeekCell places the row's cell cursor at (col, ts). Ranks are counted from there: pass MaxTimestamp to count from the
// column's head.
func (m *Iter) SeekCell(col []byte, ts int64) { m.row.seek(col, ts) }

// Cells appends live cells of the row, see Row.Cells.
func (m *Iter) Cells(dst []cell.Cell) []cell.Cell {
	if m.fail != nil {
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

// Ranges appends the union of the row's wide deletes over all sources. Valid until the next row move.
func (m *Iter) Ranges(dst []cell.Range) []cell.Range {
	var tmp []cell.Range
	for _, s := range m.row.src {
		if s.whole != nil {
			continue // a row of a batch has no deletes
		}
		tmp = s.it.Ranges(tmp[:0])
		for _, r := range tmp {
			dst = cell.AddRange(dst, r)
		}
	}
	return dst
}

// Collected counts the cells that rules dropped so far.
func (m *Iter) Collected() uint64 { return m.row.gc.collected }

// Err is the first failure.
func (m *Iter) Err() error {
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

// Close closes the sources.
func (m *Iter) Close() error {
	var first error
	for i := range m.src {
		if err := m.src[i].it.Close(); err != nil && first == nil {
			first = err
		}
	}
	m.forget()
	return first
}

// forget drops everything but the memory, which keeps no pointer into a source: its bytes may be gone before m is used again.
func (m *Iter) forget() {
	for i := range m.src {
		s := &m.src[i]
		clear(s.own[:cap(s.own)])
		clear(s.ranges[:cap(s.ranges)])
		clear(s.dels[:cap(s.dels)])
		*s = rowSource{source: source{own: s.own[:0], ranges: s.ranges[:0], dels: s.dels[:0]}}
	}
	clear(m.on)
	clear(m.sorted)
	m.cfg, m.src, m.at, m.on, m.sorted = Config{}, m.src[:0], m.at[:0], m.on[:0], m.sorted[:0]
	m.next, m.back, m.ok, m.fail = 0, false, false, nil
	m.row.forget()
}
