package sstable

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/vfs"
)

// Salvaged is what Salvage found in a damaged file: rows in order, and what is gone.
type Salvaged struct {
	ID     uint64 // identity that the parts check against
	Rows   []SalvagedRow
	Blocks int // that gave something
	Lost   []Lost
	// Moved counts entries that were not in order, or twice there: they are put in their places, and of two that name the same
	// version the first counts.
	Moved                  int
	Cells, Ranges, Deletes uint64 // in Rows
}

// SalvagedRow is one row: deletes and cells in the order that a Writer takes.
type SalvagedRow struct {
	Row     []byte
	Ranges  []cell.Range
	Deletes []cell.Delete
	Cells   []cell.Cell
}

// Lost is a stretch of the file that does not read.
type Lost struct {
	Off, Len int64
	// From and To are the rows that the file was about there, both included; To is nil where the file's end comes next. With Exact
	// they come from the index. A row outside may have lost its deletes if the lane is not known.
	From, To []byte
	Exact    bool
	Lane     string // "cell", "range" or "delete"; "" if it is not known
	Cells    uint64 // entries, where the index tells
	Cause    error
}

// String says it for people.
func (l Lost) String() string {
	s := fmt.Sprintf("%d bytes at offset %d", l.Len, l.Off)
	if l.Lane != "" {
		s += ", " + l.Lane + "s"
	}
	if l.Cells > 0 {
		s += fmt.Sprintf(" (%d)", l.Cells)
	}
	switch {
	case l.From == nil && l.To == nil:
		s += ", no row is known"
	case l.To == nil:
		s += fmt.Sprintf(", rows from %q on", clip(l.From))
	default:
		s += fmt.Sprintf(", rows %q to %q", clip(l.From), clip(l.To))
	}
	return s + ": " + l.Cause.Error()
}

// salvageWork bounds the hashing that looking for parts behind a damaged one may take, in sizes of the file.
const salvageWork = 64

// salvagePage is what is read at once of a file that does not read as a whole.
const salvagePage = 4 << 10

// Salvage reads all good parts of a file, whatever else of it is damaged: it walks from part to part, each of which carries its
// length and checksum, and needs neither index nor footer if id, the file's identity, is given (0: the footer's). All of it is
// held in memory. The error is one of reading, or says that nothing can be read at all.
func Salvage(ctx context.Context, f vfs.File, name string, id uint64) (*Salvaged, error) {
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("salvage %s: %w", name, err)
	}
	s := &salvage{ctx: ctx, name: name, out: &Salvaged{ID: id}}
	if size < 0 || size != int64(int(size)) {
		return nil, fmt.Errorf("salvage %s: %w", name, damage.New("file", -1, "%d bytes", size))
	}
	s.b = make([]byte, size)
	if err := s.read(f); err != nil {
		return nil, fmt.Errorf("salvage %s: %w", name, err)
	}
	if id == 0 {
		if s.out.ID = s.identity(); s.out.ID == 0 {
			return nil, damage.At(damage.New("footer", max(0, size-footerLen), "the file's identity does not read, and without it nothing can be checked"), name, 0)
		}
	}
	if err := s.walk(); err != nil {
		return nil, err
	}
	s.askIndex(f)
	s.assemble()
	return s.out, nil
}

// salvageEntry is an entry of any lane.
type salvageEntry struct {
	row []byte
	c   cell.Cell
}

type salvage struct {
	ctx  context.Context
	name string
	b    []byte // the file
	out  *Salvaged
	work int64

	lanes [lanes][]salvageEntry
	last  [lanes][]byte // the row of the last entry, as the file has it
	// any is the row of the last entry of any lane, and open says that losses wait to learn the row that follows.
	any  []byte
	open int
}

// read reads the file, piece by piece where a read fails: pages that do not read stay zero, and so do not check. Only if none reads it
// is an error.
func (s *salvage) read(f io.ReaderAt) error {
	n, err := f.ReadAt(s.b, 0)
	if n == len(s.b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		s.b = s.b[:n] // cut off since its size was asked
		return nil
	}
	any := false
	for off := 0; off < len(s.b); off += salvagePage {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		p := s.b[off:min(off+salvagePage, len(s.b))]
		if n, pageErr := f.ReadAt(p, int64(off)); n < len(p) {
			clear(p)
			err = pageErr
		} else {
			any = true
		}
	}
	if !any {
		return err
	}
	return nil
}

// identity takes the footer's word, or its bytes if the first part of the file bears them out.
func (s *salvage) identity() uint64 {
	if len(s.b) < footerLen {
		return 0
	}
	p := s.b[len(s.b)-footerLen:]
	if ft, err := readFooter(p, int64(len(s.b))); err == nil {
		return ft.id
	}
	id := binary.LittleEndian.Uint64(p[16:])
	if _, _, ok := s.part(0, id); ok {
		return id
	}
	return 0
}

// part reads the envelope at off.
func (s *salvage) part(off int64, id uint64) (h block.Head, p []byte, ok bool) {
	rest := s.b[off:]
	if len(rest) < block.HeadLen {
		return h, nil, false
	}
	h, err := block.ReadHead(rest, block.Part(rest[17]))
	if err != nil || h.Part < block.PartKeys || h.Part > block.PartProperties || h.Stored > len(rest)-block.HeadLen {
		return h, nil, false
	}
	p = rest[:block.HeadLen+h.Stored]
	s.work += int64(len(p))
	_, _, err = block.Open(p, block.Seed(id, off), h.Part)
	return h, p, err == nil
}

// walk goes through the file from part to part. After a bad one it looks for the next good one byte by byte.
func (s *salvage) walk() error {
	end := int64(len(s.b))
	for off := int64(0); off < end; {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		h, p, ok := s.part(off, s.out.ID)
		if !ok {
			if p := s.b[off:]; len(p) == footerLen && (string(p[56:]) == magic || binary.LittleEndian.Uint64(p[16:]) == s.out.ID) {
				return nil // the footer, which nothing more is needed of
			}
			off = s.resync(off)
			continue
		}
		off += int64(len(p))
		if h.Part == block.PartKeys {
			off = s.block(off-int64(len(p)), p)
		}
	}
	if len(s.out.Lost) == 0 || s.open == 0 {
		s.lose(Lost{Off: end, From: s.any, Cause: damage.At(damage.New("file", end, "ends here, without a footer"), s.name, 0)})
	}
	return nil
}

// resync notes a loss and returns where the next good part begins.
func (s *salvage) resync(off int64) int64 {
	end := int64(len(s.b))
	to := off + 1
	for ; to < end; to++ {
		if s.work > salvageWork*end {
			to = end
			break
		}
		if p := s.b[to:]; len(p) < block.HeadLen || p[17] == 0 || p[18] != 0 || p[19] != 0 {
			continue
		}
		if _, _, ok := s.part(to, s.out.ID); ok {
			break
		}
	}
	if to >= end && end-off > footerLen {
		to = end - footerLen
	} else if to >= end {
		to = end
	}
	s.lose(Lost{Off: off, Len: to - off, From: s.any, Cause: damage.At(damage.New("part", off, "does not check"), s.name, 0)})
	return to
}

func (s *salvage) lose(l Lost) {
	s.out.Lost = append(s.out.Lost, l)
	if l.To == nil {
		s.open++
	}
}

// block takes the entries of a block whose keys are good; off is its place and p the envelope of the keys. It returns where the
// next part begins.
func (s *salvage) block(off int64, p []byte) int64 {
	after := off + int64(len(p))
	bad := func(err error) int64 {
		s.lose(Lost{Off: off, Len: int64(len(p)), From: s.any, Cause: damage.At(err, s.name, off)})
		return after
	}
	raw, err := block.OpenDecoded(p, block.Seed(s.out.ID, off), block.PartKeys)
	if err != nil {
		return bad(err)
	}
	var k block.Keys
	if err := k.Parse(raw); err != nil {
		return bad(err)
	}
	if k.Cells == 0 || k.Rows == 0 {
		return bad(damage.New("keys", 0, "no entries"))
	}
	lane := laneCells
	switch k.Kind(0) {
	case kindRange, kindOpenRange:
		lane = laneRanges
	case kindDelete:
		lane = laneDeletes
	}
	vals := make([][]byte, k.Chunks) // nil: lost
	next := after
	for i := range vals {
		at := after + int64(k.ChunkAt(i))
		if at < next || at > int64(len(s.b)) {
			return bad(damage.New("keys", 0, "chunk %d at %d", i, at))
		}
		if h, q, ok := s.part(at, s.out.ID); ok && h.Part == block.PartValues {
			v, err := block.OpenDecoded(q, block.Seed(s.out.ID, at), block.PartValues)
			to := k.Cells
			if i+1 < k.Chunks {
				to = k.ChunkCell(i + 1)
			}
			if err == nil && to > k.ChunkCell(i) && k.ValueEnd(to-1)-k.ValueStart(k.ChunkCell(i)) == len(v) {
				vals[i] = orEmpty(v)
			}
			next = at + int64(len(q))
		} else if i+1 < k.Chunks {
			next = after + int64(k.ChunkAt(i+1))
		} else {
			next = s.behind(at)
		}
	}
	s.out.Blocks++
	s.entries(&k, lane, vals, off, next)
	return next
}

// behind is where the part behind a bad one begins.
func (s *salvage) behind(off int64) int64 {
	for to := off + 1; to < int64(len(s.b)); to++ {
		if s.work > salvageWork*int64(len(s.b)) {
			break
		}
		if p := s.b[to:]; len(p) < block.HeadLen || p[17] == 0 || p[18] != 0 || p[19] != 0 {
			continue
		}
		if _, _, ok := s.part(to, s.out.ID); ok {
			return to
		}
	}
	return max(off, int64(len(s.b))-footerLen)
}

// entries takes the entries whose values are there, and notes the others.
func (s *salvage) entries(k *block.Keys, lane int, vals [][]byte, off, end int64) {
	var lost *Lost
	for r := range k.Rows {
		row := k.AppendRow(nil, r)
		from, to := k.RowCells(r)
		for i := from; i < to; i++ {
			v, base := []byte{}, k.ValueStart(i)
			if k.Chunks > 0 {
				c, first, _ := k.Chunk(i)
				v, base = vals[c], k.ValueStart(first)
			}
			var one [1]cell.Cell
			good := v != nil
			if good {
				c := k.AppendCells(one[:0], r, i, i+1, orEmpty(v), base, 1)[0]
				if good = modelled(lane, row, &c); good {
					s.take(lane, row, c)
					continue
				}
			}
			if lost == nil {
				lost = &Lost{Off: off, Len: end - off, From: row, Exact: true, Lane: laneNames[lane], Cause: damage.At(damage.New("values", off, "do not check, or are none of the model"), s.name, 0)}
			}
			lost.To = row
			lost.Cells++
		}
	}
	if lost != nil {
		s.lose(*lost)
	}
}

// modelled reports whether an entry is one that a writer of its lane would take.
func modelled(lane int, row []byte, c *cell.Cell) bool {
	if len(row) == 0 || len(row) > cell.RowKeyMax || c.TS < 0 {
		return false
	}
	switch lane {
	case laneRanges:
		return c.Kind == kindOpenRange || c.Kind == kindRange && bytes.Compare(c.Col, c.Value) < 0
	case laneDeletes:
		if len(c.Value) == 8 {
			lo := int64(binary.BigEndian.Uint64(c.Value))
			return c.Kind == kindDelete && lo >= 0 && lo <= c.TS
		}
		return c.Kind == kindDelete && len(c.Value) == 0
	}
	_, _, _, err := cell.SplitColumn(c.Col)
	return err == nil && c.Kind >= cell.KindSet && c.Kind <= cell.KindBlob && (c.Kind != cell.KindMerge || len(c.Value) == cell.StateLen)
}

func (s *salvage) take(lane int, row []byte, c cell.Cell) {
	if s.open > 0 { // losses end before this row
		for i := len(s.out.Lost) - 1; i >= 0 && s.open > 0; i-- {
			if l := &s.out.Lost[i]; l.To == nil {
				l.To = row
				s.open--
			}
		}
	}
	s.lanes[lane] = append(s.lanes[lane], salvageEntry{row, c})
	s.last[lane], s.any = row, row
}

// askIndex makes losses exact where the file's index reads.
func (s *salvage) askIndex(f vfs.File) {
	if len(s.out.Lost) == 0 {
		return
	}
	r, err := Open(f, ReaderOptions{Name: s.name, ID: s.out.ID, Mode: Positional})
	if err != nil {
		return
	}
	defer func() { _ = r.unload() }() // the file is the caller's
	exact := slices.DeleteFunc(slices.Clone(s.out.Lost), func(l Lost) bool { return !l.Exact })
	for i := range r.lanes {
		ln := &r.lanes[i]
		wait := -1 // a loss that waits for the row at which the next block begins
		for l := 0; ln.blocks > 0 && l < max(1, len(ln.leaves)); l++ {
			x, err := r.leaf(ln, l)
			if err != nil {
				return
			}
			for j := range x.Len() {
				e := x.At(j)
				if wait >= 0 {
					exact[wait].To, wait = bytes.Clone(e.Row), -1
				}
				k := slices.IndexFunc(s.out.Lost, func(l Lost) bool {
					return !l.Exact && e.Off < l.Off+l.Len && e.Off+int64(e.Len) > l.Off
				})
				if k < 0 {
					continue
				}
				exact = append(exact, Lost{
					Off: e.Off, Len: int64(e.Len), From: bytes.Clone(e.Row), Exact: true, Lane: laneNames[i], Cells: uint64(e.Cells), Cause: s.out.Lost[k].Cause,
				})
				wait = len(exact) - 1
			}
		}
		if wait >= 0 {
			exact[wait].To = bytes.Clone(r.props.Bounds.HiRow)
		}
	}
	// What the index does not know as a block was none: an index, a filter.
	s.out.Lost = exact
	slices.SortFunc(s.out.Lost, func(a, b Lost) int { return cmp.Compare(a.Off, b.Off) })
}

// assemble puts the lanes together.
func (s *salvage) assemble() {
	for i := range s.lanes {
		less := func(a, b salvageEntry) int {
			if c := bytes.Compare(a.row, b.row); c != 0 {
				return c
			}
			return cell.Compare(a.c.Col, a.c.TS, b.c.Col, b.c.TS)
		}
		e := s.lanes[i]
		for j := 1; j < len(e); j++ {
			if less(e[j-1], e[j]) >= 0 {
				s.out.Moved++
			}
		}
		if s.out.Moved > 0 {
			slices.SortStableFunc(e, less)
			e = slices.CompactFunc(e, func(a, b salvageEntry) bool { return less(a, b) == 0 })
		}
		s.lanes[i] = e
	}
	var at [lanes]int
	for {
		var row []byte
		for i := range s.lanes {
			if at[i] < len(s.lanes[i]) {
				if r := s.lanes[i][at[i]].row; row == nil || bytes.Compare(r, row) < 0 {
					row = r
				}
			}
		}
		if row == nil {
			return
		}
		out := SalvagedRow{Row: row}
		take := func(lane int, fn func(c *cell.Cell)) {
			for e := s.lanes[lane]; at[lane] < len(e) && bytes.Equal(e[at[lane]].row, row); at[lane]++ {
				fn(&e[at[lane]].c)
			}
		}
		take(laneRanges, func(c *cell.Cell) {
			r := cell.Range{From: c.Col, To: c.Value}
			if c.Kind == kindOpenRange {
				r.To = nil
			}
			out.Ranges = cell.AddRange(out.Ranges, r)
		})
		var column []cell.Delete
		take(laneDeletes, func(c *cell.Cell) {
			lo := int64(0)
			if len(c.Value) == 8 {
				lo = int64(binary.BigEndian.Uint64(c.Value))
			}
			if len(column) > 0 && !bytes.Equal(column[0].Col, c.Col) {
				out.Deletes = append(out.Deletes, column...)
				column = column[:0]
			}
			column = cell.AddDelete(column, c.Col, lo, c.TS)
		})
		out.Deletes = append(out.Deletes, column...)
		take(laneCells, func(c *cell.Cell) { out.Cells = append(out.Cells, *c) })
		s.out.Ranges += uint64(len(out.Ranges))
		s.out.Deletes += uint64(len(out.Deletes))
		s.out.Cells += uint64(len(out.Cells))
		s.out.Rows = append(s.out.Rows, out)
	}
}
