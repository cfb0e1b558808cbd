package sstable

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/rowandb/rowan/cell"
)

// stats gathers the properties that follow from the entries. The writer feeds it while it writes, Verify while it reads; both
// must come to the same result.
type stats struct {
	rows, ranges, deletes, holes uint64
	logical                      uint64 // of deletes; that of cells is in families
	families                     []FamilyProps
	byPrefix                     map[string]int // family 0x00 life -> number
	// Cells of one family and timestamp that followed each other, not added to the family yet: in most rows all cells have one
	// timestamp.
	runFam   int
	runTS    int64
	runCells uint64
	runBytes uint64

	blockCols []blockCol // by column number in the block
}

// blockCol is what the writer must know of a column in the current block.
type blockCol struct {
	fam int // family number
	len int
}

// family returns the number of the family life that col belongs to.
func (s *stats) family(col []byte) (int, error) {
	name, life, qualifier, err := cell.SplitColumn(col)
	if err != nil {
		return 0, err
	}
	prefix := col[:len(col)-len(qualifier)]
	if i, ok := s.byPrefix[string(prefix)]; ok {
		return i, nil
	}
	if s.byPrefix == nil {
		s.byPrefix = map[string]int{}
	}
	i := len(s.families)
	s.byPrefix[string(prefix)] = i
	s.families = append(s.families, FamilyProps{Name: string(name), Life: life, MinTS: math.MaxInt64})
	return i, nil
}

// cell counts a cell of family number fam, the version-th of its column in its row, from 1, with n logical bytes.
func (s *stats) cell(fam int, ts int64, version uint64, n uint64) {
	if fam != s.runFam || ts != s.runTS {
		s.endRun()
		s.runFam, s.runTS = fam, ts
	}
	s.add(1, n)
	s.beyond(fam, version)
}

// add counts cells of the run, with size logical bytes.
func (s *stats) add(cells, size uint64) {
	s.runCells += cells
	s.runBytes += size
}

// beyond counts a version of a cell.
func (s *stats) beyond(fam int, version uint64) {
	if version > 1 {
		// Beyond rank 1, 2, 4, 8: version v counts for every power below it.
		f := &s.families[fam]
		for i := 0; i < min(bits.Len64(version-1), len(f.Beyond)); i++ {
			f.Beyond[i]++
		}
	}
}

func (s *stats) endRun() {
	if s.runCells == 0 {
		return
	}
	f := &s.families[s.runFam]
	f.Cells += s.runCells
	f.Bytes += s.runBytes
	f.MinTS, f.MaxTS = min(f.MinTS, s.runTS), max(f.MaxTS, s.runTS)
	f.Ages.Add(s.runTS, s.runBytes)
	s.runCells, s.runBytes = 0, 0
}

func (s *stats) fill(p *Properties) {
	s.endRun()
	p.Rows, p.Ranges, p.Deletes, p.Holes = s.rows, s.ranges, s.deletes, s.holes
	p.MinTS, p.MaxTS, p.LogicalBytes = math.MaxInt64, 0, s.logical
	p.Families = slices.Clone(s.families)
	for i := range p.Families {
		f := &p.Families[i]
		p.Cells += f.Cells
		p.LogicalBytes += f.Bytes
		p.MinTS, p.MaxTS = min(p.MinTS, f.MinTS), max(p.MaxTS, f.MaxTS)
	}
	if p.Cells == 0 {
		p.MinTS = 0
	}
}

// familyBit is the bit of family number i in a zone map.
func familyBit(i int) uint64 { return 1 << min(uint(i), 63) }

// entryOf turns a delete into the entry that stands for it in a block; lo backs the value.
func entryOf(d cell.Delete, lo *[8]byte) cell.Cell {
	c := cell.Cell{Col: d.Col, TS: d.Hi, Kind: kindDelete}
	if d.Lo > 0 {
		binary.BigEndian.PutUint64(lo[:], uint64(d.Lo))
		c.Value = lo[:]
	}
	return c
}

// rangeEntry turns a range into the entry that stands for it in a block.
func rangeEntry(r cell.Range) cell.Cell {
	if r.To == nil {
		return cell.Cell{Col: r.From, Kind: kindOpenRange}
	}
	return cell.Cell{Col: r.From, Value: r.To, Kind: kindRange}
}
