package block

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
)

// An index block, after decoding: entries of fixed size, then the separators' bytes. Numbers are little-endian.
//
//	<entries 4B> <prefix length 4B> <separator bytes 4B> <zero 4B>
//	entry x entries (80 B):
//	  <offset 8B> <length 4B> <keys length or children 4B> <parts 4B> <rows 4B> <cells 8B>
//	  <separator at 4B> <row length 4B> <column length + 1, or 0 4B> <zero 4B> <separator timestamp 8B>
//	  <lowest timestamp 8B> <highest timestamp 8B> <families 8B>
//	<prefix> <separator bytes>
//
// A separator is a place in the order of cells: not above the first cell of its block, and above the last cell of the block
// before. Its row is the prefix and the row bytes. Where a block begins with a new row it has no column (0) and may be
// shorter than the row; where a row was cut it is that cell's full (row, column, timestamp).
const (
	indexHead  = 16
	indexEntry = 80
)

// Entry describes a block, or an index block with several.
type Entry struct {
	Off      int64  // of the block's first envelope
	Len      uint32 // of all its envelopes
	KeysLen  uint32 // of the keys' envelope; of an index block: its entries
	Parts    uint32 // envelopes: keys and value chunks; of an index block: the sum of its entries'
	Rows     uint32 // that begin or go on in it; of an index block: the sum, saturating
	Cells    uint64
	MinTS    int64
	MaxTS    int64
	Families uint64 // bit i: has a cell of the file's family number i; bit 63: of any number from 63 on

	Row []byte // separator
	Col []byte // nil: none
	TS  int64
}

// Cut reports whether the block begins inside a row.
func (e *Entry) Cut() bool { return e.Col != nil }

// IndexBuilder collects entries. The zero value is ready.
type IndexBuilder struct {
	entries []Entry
	seps    []byte // backing of the entries' separators
	bytes   int
}

// Add adds an entry, whose separator must sort after the one before. It is copied.
func (x *IndexBuilder) Add(e Entry) {
	x.bytes += len(e.Row) + len(e.Col)
	e.Row = x.keep(e.Row)
	if e.Col != nil {
		e.Col = x.keep(e.Col)
	}
	x.entries = append(x.entries, e)
}

// keep copies b into memory that is not moved while entries point into it.
func (x *IndexBuilder) keep(b []byte) []byte {
	if cap(x.seps)-len(x.seps) < len(b) || x.seps == nil {
		x.seps = make([]byte, 0, max(4096, len(b)))
	}
	n := len(x.seps)
	x.seps = append(x.seps, b...)
	return x.seps[n:len(x.seps):len(x.seps)]
}

// Len is the number of entries; Size about their bytes when encoded.
func (x *IndexBuilder) Len() int  { return len(x.entries) }
func (x *IndexBuilder) Size() int { return indexHead + indexEntry*len(x.entries) + x.bytes }

// Summary is the entry of an index one level up for the entries so far, without place. Its separator aliases the builder.
func (x *IndexBuilder) Summary() Entry {
	s := x.entries[0]
	s.Off, s.Len, s.KeysLen, s.Parts, s.Rows, s.Cells = 0, 0, uint32(len(x.entries)), 0, 0, 0
	for _, e := range x.entries {
		s.Parts += e.Parts
		s.Rows = uint32(min(uint64(s.Rows)+uint64(e.Rows), 1<<32-1))
		s.Cells += e.Cells
		s.MinTS, s.MaxTS, s.Families = min(s.MinTS, e.MinTS), max(s.MaxTS, e.MaxTS), s.Families|e.Families
	}
	return s
}

// Reset forgets all entries.
func (x *IndexBuilder) Reset() {
	x.entries, x.bytes, x.seps = x.entries[:0], 0, nil
}

// Append appends the index block. There must be an entry.
func (x *IndexBuilder) Append(dst []byte) []byte {
	le := binary.LittleEndian
	prefix := x.entries[0].Row[:commonPrefix(x.entries[0].Row, x.entries[len(x.entries)-1].Row)]
	start := len(dst)
	dst = slices.Grow(dst, x.Size())
	dst = dst[:start+indexHead+indexEntry*len(x.entries)]
	clear(dst[start:])
	dst = append(dst, prefix...)
	at := len(dst)
	for i := range x.entries {
		e := &x.entries[i]
		p := dst[start+indexHead+i*indexEntry:]
		le.PutUint64(p[0:], uint64(e.Off))
		le.PutUint32(p[8:], e.Len)
		le.PutUint32(p[12:], e.KeysLen)
		le.PutUint32(p[16:], e.Parts)
		le.PutUint32(p[20:], e.Rows)
		le.PutUint64(p[24:], e.Cells)
		le.PutUint32(p[32:], uint32(len(dst)-at))
		le.PutUint32(p[36:], uint32(len(e.Row)-len(prefix)))
		if e.Col != nil {
			le.PutUint32(p[40:], uint32(len(e.Col)+1))
			le.PutUint64(p[48:], uint64(e.TS))
		}
		le.PutUint64(p[56:], uint64(e.MinTS))
		le.PutUint64(p[64:], uint64(e.MaxTS))
		le.PutUint64(p[72:], e.Families)
		dst = append(dst, e.Row[len(prefix):]...)
		dst = append(dst, e.Col...)
	}
	p := dst[start:]
	le.PutUint32(p[0:], uint32(len(x.entries)))
	le.PutUint32(p[4:], uint32(len(prefix)))
	le.PutUint32(p[8:], uint32(len(dst)-at))
	return dst
}

// Index is a parsed index block. Safe for concurrent readers.
type Index struct {
	b        []byte
	n        int
	prefix   []byte
	seps     []byte
	tree     []uint64 // heads of the separators' rows after the prefix, in the order of a heap; tree[0] unused
	pos      []uint32 // entry of tree[i]; pos[0] = n
	firstPar []uint32 // parts before entry i; n+1 long
}

// ParseIndex checks b and builds its search tree. The index keeps b.
func ParseIndex(b []byte) (*Index, error) {
	le := binary.LittleEndian
	if len(b) < indexHead {
		return nil, damage.New("index", 0, "%d bytes are too short", len(b))
	}
	n, prefixN, sepN := int64(le.Uint32(b)), int64(le.Uint32(b[4:])), int64(le.Uint32(b[8:]))
	if n == 0 || indexHead+n*indexEntry+prefixN+sepN != int64(len(b)) || le.Uint32(b[12:]) != 0 {
		return nil, damage.New("index", 0, "%d entries and %d separator bytes in %d bytes", n, prefixN+sepN, len(b))
	}
	x := &Index{b: b, n: int(n), firstPar: make([]uint32, n+1)}
	x.prefix = b[indexHead+int(n)*indexEntry:][:prefixN]
	x.seps = b[len(b)-int(sepN):]
	next, parts := int64(0), uint64(0)
	for i := 0; i < x.n; i++ {
		at := indexHead + i*indexEntry
		p := b[at:]
		off, row, col := int64(le.Uint32(p[32:])), int64(le.Uint32(p[36:])), int64(le.Uint32(p[40:]))
		if off != next || row > cell.RowKeyMax || col > cell.ColumnMax+1 {
			return nil, damage.New("index", int64(at+32), "separator %d of %d+%d bytes at %d", i, row, col, off)
		}
		next += row + max(col-1, 0)
		if next > sepN {
			return nil, damage.New("index", int64(at+32), "separator %d leaves the index", i)
		}
		length, keys, count := le.Uint32(p[8:]), le.Uint32(p[12:]), le.Uint32(p[16:])
		if int64(le.Uint64(p)) < 0 || length == 0 || keys == 0 || count == 0 || le.Uint32(p[20:]) == 0 || le.Uint32(p[44:]) != 0 {
			return nil, damage.New("index", int64(at), "entry %d is malformed", i)
		}
		if lo, hi := int64(le.Uint64(p[56:])), int64(le.Uint64(p[64:])); lo < 0 || hi < lo || int64(le.Uint64(p[48:])) < 0 {
			return nil, damage.New("index", int64(at+48), "entry %d has impossible timestamps", i)
		}
		if col == 0 && le.Uint64(p[48:]) != 0 {
			return nil, damage.New("index", int64(at+48), "separator %d has a timestamp and no column", i)
		}
		x.firstPar[i] = uint32(parts)
		if parts += uint64(count); parts > 1<<31 {
			return nil, damage.New("index", int64(at+16), "%d parts", parts)
		}
		if i > 0 && x.compareSeps(i-1, i) >= 0 {
			return nil, damage.New("index", int64(at), "separator %d is not above the one before", i)
		}
	}
	if next != sepN {
		return nil, damage.New("index", 8, "%d separator bytes, entries use %d", sepN, next)
	}
	x.firstPar[n] = uint32(parts)
	x.tree, x.pos = make([]uint64, n+1), make([]uint32, n+1)
	x.pos[0] = uint32(n)
	x.build(0, 1)
	return x, nil
}

// build fills the subtree at node k in order, starting with entry i, and returns the next entry.
func (x *Index) build(i, k int) int {
	if k > x.n {
		return i
	}
	i = x.build(i, 2*k)
	x.tree[k], x.pos[k] = x.head(i), uint32(i)
	return x.build(i+1, 2*k+1)
}

func (x *Index) entry(i int) []byte { return x.b[indexHead+i*indexEntry:][:indexEntry] }

func (x *Index) row(i int) []byte {
	p := x.entry(i)
	s := int(binary.LittleEndian.Uint32(p[32:]))
	return x.seps[s:][:binary.LittleEndian.Uint32(p[36:])]
}

func (x *Index) head(i int) uint64 { return keyHead(x.row(i)) }

// col returns the separator's column, nil when it has none.
func (x *Index) col(i int) []byte {
	p := x.entry(i)
	n := int(binary.LittleEndian.Uint32(p[40:]))
	if n == 0 {
		return nil
	}
	s := int(binary.LittleEndian.Uint32(p[32:]) + binary.LittleEndian.Uint32(p[36:]))
	return x.seps[s : s+n-1 : s+n-1]
}

func (x *Index) compareSeps(i, j int) int {
	if c := bytes.Compare(x.row(i), x.row(j)); c != 0 {
		return c
	}
	a, b := x.col(i), x.col(j)
	switch {
	case b == nil:
		return 1 // equal at best, never above
	case a == nil:
		return -1
	}
	return cell.Compare(a, x.sepTS(i), b, x.sepTS(j))
}

func (x *Index) sepTS(i int) int64 { return int64(binary.LittleEndian.Uint64(x.entry(i)[48:])) }

// Len is the number of entries, Parts the sum of their parts, Bytes about the memory that the index takes.
func (x *Index) Len() int   { return x.n }
func (x *Index) Parts() int { return int(x.firstPar[x.n]) }
func (x *Index) Bytes() int { return len(x.b) + 16*x.n }

// Cut reports whether the block of entry i begins inside a row. Rows, FirstPart, Place and Zone are the parts of At that hot
// paths need.
func (x *Index) Cut(i int) bool      { return binary.LittleEndian.Uint32(x.entry(i)[40:]) != 0 }
func (x *Index) Rows(i int) int      { return int(binary.LittleEndian.Uint32(x.entry(i)[20:])) }
func (x *Index) FirstPart(i int) int { return int(x.firstPar[i]) }

// Place is where entry i's block stands, and how long its keys' envelope is (of an index block: its entries).
func (x *Index) Place(i int) (off int64, length, keys int64) {
	p := x.entry(i)
	return int64(binary.LittleEndian.Uint64(p)), int64(binary.LittleEndian.Uint32(p[8:])), int64(binary.LittleEndian.Uint32(p[12:]))
}

// Zone is what is known of the cells of entry i: the lowest and highest timestamp, and a bit for each family.
func (x *Index) Zone(i int) (lo, hi int64, families uint64) {
	p, le := x.entry(i), binary.LittleEndian
	return int64(le.Uint64(p[56:])), int64(le.Uint64(p[64:])), le.Uint64(p[72:])
}

// At returns entry i. Row is newly allocated, Col aliases the index.
func (x *Index) At(i int) Entry {
	p := x.entry(i)
	le := binary.LittleEndian
	e := Entry{
		Off: int64(le.Uint64(p)), Len: le.Uint32(p[8:]), KeysLen: le.Uint32(p[12:]), Parts: le.Uint32(p[16:]), Rows: le.Uint32(p[20:]),
		Cells: le.Uint64(p[24:]), MinTS: int64(le.Uint64(p[56:])), MaxTS: int64(le.Uint64(p[64:])), Families: le.Uint64(p[72:]),
		Col: x.col(i), TS: x.sepTS(i),
	}
	e.Row = append(append(e.Row, x.prefix...), x.row(i)...)
	return e
}

// SeekRow returns the last entry whose separator is not above the start of row, -1 if there is none: the only block that can
// hold row's start, or the row before it.
func (x *Index) SeekRow(row []byte) int {
	if len(row) < len(x.prefix) || string(row[:len(x.prefix)]) != string(x.prefix) {
		if bytes.Compare(row, x.prefix) <= 0 {
			return -1
		}
		return x.n - 1
	}
	row = row[len(x.prefix):]
	h := keyHead(row)
	k := 1
	for k <= x.n {
		// Comparing for "below" leads to the first head that is not: after the loop the path's last left turn names it.
		if x.tree[k] < h {
			k = 2*k + 1
		} else {
			k = 2 * k
		}
	}
	k = lastLeft(k)
	i := int(x.pos[k])
	// Entries [i, ...) with an equal head are told apart by all bytes. Node 0 stands for the end and has no head.
	if k > 0 && x.tree[k] == h {
		j := i + x.equalHeads(i, h)
		lo, hi := i, j
		for lo < hi {
			m := int(uint(lo+hi) >> 1)
			if c := bytes.Compare(x.row(m), row); c < 0 || c == 0 && !x.Cut(m) {
				lo = m + 1
			} else {
				hi = m
			}
		}
		i = lo
	}
	return i - 1
}

// lastLeft undoes the right turns at the end of a path through the heap and the left turn before them.
func lastLeft(k int) int {
	for k&1 == 1 {
		k >>= 1
	}
	return k >> 1
}

// equalHeads returns how many entries from i on have the head h.
func (x *Index) equalHeads(i int, h uint64) int {
	step := 1
	for i+step < x.n && x.head(i+step) == h {
		step *= 2
	}
	lo, hi := i+step/2, min(i+step, x.n) // head(lo) == h, hi is beyond or the end
	for hi-lo > 1 {
		m := int(uint(lo+hi) >> 1)
		if x.head(m) == h {
			lo = m
		} else {
			hi = m
		}
	}
	return lo + 1 - i
}

// SeekCell returns the last entry from lo on whose separator is not above (row, col, ts); lo if there is none above lo.
func (x *Index) SeekCell(lo int, row, col []byte, ts int64) int {
	hi := x.n
	for hi-lo > 1 {
		m := int(uint(lo+hi) >> 1)
		if x.above(m, row, col, ts) {
			hi = m
		} else {
			lo = m
		}
	}
	return lo
}

// above reports whether separator i is above (row, col, ts).
func (x *Index) above(i int, row, col []byte, ts int64) bool {
	p := x.prefix
	if n := min(len(p), len(row)); n < len(p) || string(row[:n]) != string(p) {
		return bytes.Compare(p, row) > 0
	}
	if c := bytes.Compare(x.row(i), row[len(p):]); c != 0 {
		return c > 0
	}
	sep := x.col(i)
	return sep != nil && cell.Compare(sep, x.sepTS(i), col, ts) > 0
}
