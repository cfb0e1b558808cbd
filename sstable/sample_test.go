package sstable

import (
	"bytes"
	"context"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/hexdoc"
)

// TestSample reads the file that docs/formats/table.md draws, and writes it again.
func TestSample(t *testing.T) {
	p, err := hexdoc.Sample("../docs/formats/table.md", "table")
	must(t, err)
	r, err := Open(&byteFile{b: p}, ReaderOptions{ID: 0x0102030405060708})
	must(t, err)
	defer r.Close()
	must(t, r.Verify(context.Background(), nil))
	want := refTable{
		{key: []byte("row1"), cells: []cell.Cell{{Col: []byte("f\x00\x01a"), TS: 1000, Value: []byte("xyz"), Kind: cell.KindSet}}},
		{key: []byte("row2"), ranges: []cell.Range{cell.FamilyRange("f")}, dels: []cell.Delete{{Col: []byte("g\x00\x01b"), Lo: 7, Hi: 9}}},
	}
	m := mover{t: t, it: r.NewIter(cell.IterOptions{}), tab: want}
	for _, row := range want {
		if !m.it.Next() && !m.it.First() || !bytes.Equal(m.it.Row(), row.key) {
			t.Fatalf("row %q: on %q, %v", row.key, m.it.Row(), m.it.Err())
		}
		checkRanges(t, m.it.Ranges(nil), row.ranges)
		cells := m.it.Cells(make([]cell.Cell, 0, 4))
		if len(cells) != len(row.cells) || len(cells) > 0 && string(cells[0].Value) != "xyz" {
			t.Fatalf("row %q has %v", row.key, cells)
		}
		dels := m.it.Deletes(make([]cell.Delete, 0, 4))
		if len(dels) != len(row.dels) || len(dels) > 0 && (dels[0].Lo != 7 || dels[0].Hi != 9) {
			t.Fatalf("row %q has %v", row.key, dels)
		}
	}
	must(t, m.it.Close())
	var buf bytes.Buffer
	w := NewWriter(&buf, WriterOptions{ID: 0x0102030405060708, Tree: 5, TreeName: "t/d", Level: 1, Epoch: 2, Rules: "r", BloomBits: -1})
	for _, row := range want {
		must(t, w.StartRow(row.key))
		must(t, w.AddCells(row.cells))
		must(t, w.AddRanges(row.ranges))
		must(t, w.AddDeletes(row.dels))
	}
	_, err = w.Finish(cell.Bounds{LoRow: []byte("row1"), HiRow: []byte("row2")}, 3, 4)
	must(t, err)
	if !bytes.Equal(buf.Bytes(), p) {
		t.Errorf("written\n%x\nsample\n%x", buf.Bytes(), p)
	}
	if props := r.Properties(); props.TreeName != "t/d" || props.Rules != "r" || props.Holes != 1 || props.FirstSeq != 3 || props.LastSeq != 4 {
		t.Errorf("%+v", props)
	}
}
