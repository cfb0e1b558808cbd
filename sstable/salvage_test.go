package sstable

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
)

const salvageID = 0x1122334455667788 // of smallTable

// salvagedLines lists what a salvage gave, one entry a line, with its row.
func salvagedLines(s *Salvaged) (out []string) {
	for _, r := range s.Rows {
		for _, x := range r.Ranges {
			out = append(out, fmt.Sprintf("%q range %q %q %v", r.Row, x.From, x.To, x.To == nil))
		}
		for _, d := range r.Deletes {
			out = append(out, fmt.Sprintf("%q delete %q %d %d", r.Row, d.Col, d.Lo, d.Hi))
		}
		for _, c := range r.Cells {
			out = append(out, fmt.Sprintf("%q cell %q %d %d %q", r.Row, c.Col, c.TS, c.Kind, c.Value))
		}
	}
	return out
}

func salvageOf(t testing.TB, b []byte, id uint64) *Salvaged {
	t.Helper()
	s, err := Salvage(context.Background(), &byteFile{b: b}, "t", id)
	must(t, err)
	return s
}

// rewritten writes what was salvaged into a fresh file, which must verify.
func rewritten(t testing.TB, s *Salvaged) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf, WriterOptions{ID: 5})
	for _, r := range s.Rows {
		must(t, w.StartRow(r.Row))
		must(t, w.AddRanges(r.Ranges))
		must(t, w.AddDeletes(r.Deletes))
		must(t, w.AddCells(r.Cells))
	}
	if len(s.Rows) == 0 {
		return nil
	}
	_, err := w.Finish(cell.Bounds{LoRow: s.Rows[0].Row, HiRow: s.Rows[len(s.Rows)-1].Row}, 1, 2)
	must(t, err)
	return buf.Bytes()
}

// Nothing is lost of a good file, with its footer's identity or a given one, nor of one whose footer, index, filters and properties
// are cut off.
func TestSalvageOfAGoodFileIsTheFile(t *testing.T) {
	for _, codec := range []block.Codec{block.CodecNone, block.CodecS2, block.CodecZstd} {
		b := smallTable(t, codec)
		all := salvageOf(t, b, 0)
		r, err := Open(&byteFile{b: b}, ReaderOptions{})
		must(t, err)
		p := r.Properties()
		if len(all.Lost) > 0 || all.Moved > 0 || all.ID != salvageID || all.Cells != p.Cells || all.Ranges != p.Ranges || all.Deletes != p.Deletes ||
			uint64(len(all.Rows)) != p.Rows || all.Blocks == 0 {
			t.Fatalf("%+v", all)
		}
		if again := rewritten(t, all); !slices.Equal(salvagedLines(salvageOf(t, again, 0)), salvagedLines(all)) {
			t.Fatal("written again, something else is there")
		}
		end := 0
		for off := int64(0); off < int64(len(b)); { // behind the last block
			s := salvage{b: b}
			h, q, ok := s.part(off, salvageID)
			if !ok {
				break
			}
			if off += int64(len(q)); h.Part <= block.PartValues {
				end = int(off)
			}
		}
		if got := salvageOf(t, b[:end], salvageID); !slices.Equal(salvagedLines(got), salvagedLines(all)) {
			t.Fatal("without its end it gives something else")
		}
		must(t, r.Close())
	}
}

// With any byte flipped, and cut at any length, all parts that are whole are there, and nothing that was not in the file.
func TestSalvageOfADamagedFile(t *testing.T) {
	b := smallTable(t, block.CodecS2)
	all := salvagedLines(salvageOf(t, b, 0))
	have := map[string]bool{}
	for _, l := range all {
		have[l] = true
	}
	check := func(what string, b []byte) (lines int) {
		s := salvageOf(t, b, salvageID)
		got := salvagedLines(s)
		for _, l := range got {
			if !have[l] {
				t.Fatalf("%s: %s was never there", what, l)
			}
		}
		if len(got) < len(all) && len(s.Lost) == 0 {
			t.Fatalf("%s: %d of %d entries, and nothing is said to be lost", what, len(got), len(all))
		}
		rewritten(t, s)
		return len(got)
	}
	least := len(all)
	step := 1
	if testing.Short() || raceEnabled {
		step = 17
	}
	for i := 0; i < len(b); i += step {
		c := bytes.Clone(b)
		c[i] ^= 1 << (i % 8)
		least = min(least, check(fmt.Sprintf("byte %d", i), c))
	}
	if least == len(all) || least < len(all)/2 {
		t.Errorf("one byte costs up to %d of %d entries", len(all)-least, len(all))
	}
	before := 0
	for i := 0; i <= len(b); i += 11 {
		n := check(fmt.Sprintf("cut at %d", i), b[:i])
		if n < before {
			t.Fatalf("cut at %d gives less than cut before", i)
		}
		before = n
	}
}

// twenty is a file of twenty blocks of rows, and where each is.
func twenty(t *testing.T) (b []byte, r *Reader) {
	t.Helper()
	var tab refTable
	for i := range 200 {
		tab = append(tab, refRow{key: fmt.Appendf(nil, "row%03d", i), cells: []cell.Cell{
			{Col: []byte("f\x00\x01q"), TS: 5, Kind: cell.KindSet, Value: bytes.Repeat([]byte{byte(i)}, 90)},
		}})
	}
	b, _ = write(t, tab, WriterOptions{ID: 9, BlockSize: 1024})
	r, err := Open(&byteFile{b: b}, ReaderOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	if r.lanes[laneCells].blocks < 20 {
		t.Fatalf("%d blocks", r.lanes[laneCells].blocks)
	}
	return b, r
}

// One bad block of twenty costs that block, whose rows are named (facebook/rocksdb #6678, #6955: all good blocks of a bad table are
// wanted).
func TestSalvageKeepsAllGoodBlocks(t *testing.T) {
	b, r := twenty(t)
	e := r.lanes[laneCells].root.At(7)
	next := r.lanes[laneCells].root.At(8)
	for what, at := range map[string]int64{"keys": e.Off + 3, "values": e.Off + int64(e.KeysLen) + 30} {
		c := bytes.Clone(b)
		c[at] ^= 4
		s := salvageOf(t, c, 0)
		if len(s.Lost) != 1 || s.Lost[0].Cells == 0 || s.Lost[0].Lane != "cell" || !s.Lost[0].Exact {
			t.Fatalf("%s: %+v", what, s.Lost)
		}
		l := s.Lost[0]
		if string(l.From) < string(e.Row) || string(l.To) > string(next.Row) || l.Off != e.Off || !strings.Contains(l.String(), "row0") {
			t.Errorf("%s: %v is said to be lost, the block was for %q to %q", what, l, e.Row, next.Row)
		}
		if s.Cells+l.Cells != 200 {
			t.Errorf("%s: %d cells and %d lost ones", what, s.Cells, l.Cells)
		}
		for _, row := range s.Rows {
			if k := string(row.Row); k > string(l.From) && k < string(l.To) && what == "keys" {
				t.Errorf("row %q is there", k)
			}
		}
		rewritten(t, s)
	}
	// Without an index the rows around the loss are told.
	c := bytes.Clone(b)
	c[e.Off+3] ^= 4
	s := salvageOf(t, c[:r.lanes[laneCells].info.root.off], 9)
	if len(s.Lost) != 2 || s.Lost[0].Exact || string(s.Lost[0].From) >= string(e.Row) || string(s.Lost[0].To) < string(next.Row) {
		t.Errorf("%+v", s.Lost)
	}
}

// A file whose rows are in the wrong order is told to be damaged by readers that look, and salvaging sorts it
// (facebook/rocksdb #8248: stricter checks stopped on tables written wrongly, and there was no tool to mend them).
func TestSalvageSortsWhatIsOutOfOrder(t *testing.T) {
	tab := refTable{}
	for _, k := range []string{"row1", "row2", "row3"} {
		tab = append(tab, refRow{key: []byte(k), cells: []cell.Cell{{Col: []byte("f\x00\x01q"), TS: 5, Kind: cell.KindSet, Value: []byte("of " + k)}}})
	}
	good, _ := write(t, tab, WriterOptions{ID: 9, Codec: block.CodecNone})
	for name, keys := range map[string]string{"swapped": "row213", "twice": "row113"} {
		b := bytes.Clone(good)
		at := bytes.Index(b, []byte("row123"))
		if at < 0 {
			t.Fatal("the keys are not where they were")
		}
		copy(b[at:], keys)
		s := salvage{b: b}
		h, _ := block.ReadHead(b, block.PartKeys)
		p := b[:block.HeadLen+h.Stored]
		copy(p, block.AppendHead(nil, block.Seed(9, 0), h.Part, h.Codec, h.Raw, p[block.HeadLen:])) // as a writer without a check of order would
		if _, _, ok := s.part(0, 9); !ok {
			t.Fatal("the part was not resealed")
		}
		if err := openAndVerify(b, Positional); err == nil || !strings.Contains(err.Error(), "row1") {
			t.Errorf("%s: %v", name, err)
		}
		got := salvageOf(t, b, 0)
		if got.Moved == 0 || len(got.Lost) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
		want := "row1 row2 row3"
		if name == "twice" {
			want = "row1 row3"
		}
		var rows []string
		for _, r := range got.Rows {
			rows = append(rows, string(r.Row))
		}
		if strings.Join(rows, " ") != want || name == "swapped" && string(got.Rows[0].Cells[0].Value) != "of row2" {
			t.Errorf("%s: %q", name, rows)
		}
		rewritten(t, got)
	}
}

func TestSalvageOfNothing(t *testing.T) {
	for _, b := range [][]byte{nil, []byte("short"), bytes.Repeat([]byte{0}, 5000), bytes.Repeat([]byte("rowantbl"), 500)} {
		if s, err := Salvage(context.Background(), &byteFile{b: b}, "t", 0); err == nil {
			t.Errorf("%d bytes gave %+v", len(b), s)
		}
		if s, err := Salvage(context.Background(), &byteFile{b: b}, "t", 7); err != nil || len(s.Rows) > 0 {
			t.Errorf("%d bytes gave %+v, %v", len(b), s, err)
		}
	}
	if _, err := Salvage(context.Background(), failingFile{&byteFile{b: make([]byte, 100)}}, "t", 7); err == nil {
		t.Error("a failing read gave no error")
	}
}

type failingFile struct{ *byteFile }

func (failingFile) ReadAt([]byte, int64) (int, error) { return 0, io.ErrNoProgress }

// badPage is a file of which one page does not read.
type badPage struct {
	*byteFile
	at int64
}

func (f badPage) ReadAt(p []byte, off int64) (int, error) {
	if off <= f.at && f.at < off+int64(len(p)) {
		return 0, io.ErrNoProgress
	}
	return f.byteFile.ReadAt(p, off)
}

// A page that the disk does not give costs the blocks that lie in it.
func TestSalvageAroundABadPage(t *testing.T) {
	b, _ := twenty(t)
	s, err := Salvage(context.Background(), badPage{&byteFile{b: b}, 9000}, "t", 0)
	must(t, err)
	if s.Cells < 120 || s.Cells > 180 || len(s.Lost) == 0 {
		t.Errorf("%d of 200 cells, %v", s.Cells, s.Lost)
	}
}

// Whatever the bytes are: no panic, and what comes out is a file that a writer takes.
func FuzzSalvage(f *testing.F) {
	f.Add(smallTable(f, block.CodecS2), uint64(salvageID))
	f.Add(smallTable(f, block.CodecNone), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, id uint64) {
		if len(b) >= footerLen {
			b = bytes.Clone(b)
			reseal(b)
		}
		s, err := Salvage(context.Background(), &byteFile{b: b}, "t", id)
		if err != nil {
			return
		}
		rewritten(t, s)
	})
}
