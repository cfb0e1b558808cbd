package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rowandb/rowan/io/vfs"
)

// Samples ascend, end with the range's end and all bytes before it, and divide the rows into parts of about the same size.
func TestSampleRowKeys(t *testing.T) {
	db, err := Open("/store", Options{FS: vfs.NewMem(vfs.MemOptions{NoCrash: true}), TableFileBytes: 64 << 10, MemtableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tb, err := db.CreateTable(ctx, "t", TableSpec{BlockBytes: 1024, Families: map[string]FamilySpec{"f": {}, "g": {Group: "g"}}})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := tb.SampleRowKeys(ctx, AllRows()); err != nil || len(s) != 1 || s[0] != (RowSample{}) {
		t.Fatalf("samples of an empty table: %v, %v", s, err)
	}
	const rows = 5000
	key := func(i int) string { return fmt.Sprintf("row%05d", i) }
	for i := range rows {
		m := NewMutation()
		m.Set("f", "q", 1, make([]byte, 100))
		m.Set("g", "q", 1, make([]byte, 10))
		if err := tb.Apply(ctx, key(i), m, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := tb.SampleRowKeys(ctx, AllRows())
	if err != nil {
		t.Fatal(err)
	}
	if len(s) < 20 || len(s) > samplesMax+1 {
		t.Fatalf("%d samples", len(s))
	}
	var disk int64
	for _, l := range db.Metrics().Levels {
		disk += l.Bytes
	}
	if end := s[len(s)-1]; end.Key != "" || end.Offset != disk {
		t.Fatalf("the end is %+v, want %d bytes", end, disk)
	}
	worst, last := 0, 0
	for i, x := range s[:len(s)-1] {
		if i > 0 && (x.Key <= s[i-1].Key || x.Offset <= s[i-1].Offset) {
			t.Fatalf("sample %d is %+v after %+v", i, x, s[i-1])
		}
		n := last
		for n < rows && key(n) < x.Key {
			n++
		}
		worst, last = max(worst, n-last), n
	}
	if worst = max(worst, rows-last); worst > rows/5 {
		t.Fatalf("a part of %d samples has %d of %d rows", len(s), worst, rows)
	}
	// A range: its end comes last, nothing lies outside.
	part, err := tb.SampleRowKeys(ctx, NewRange(key(1000), key(2000)))
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range part {
		if x.Key <= key(1000) || x.Key > key(2000) {
			t.Fatalf("sample %d of a range is %+v", i, x)
		}
	}
	if end := part[len(part)-1]; end.Key != key(2000) || end.Offset <= disk/10 || end.Offset >= disk/2 {
		t.Fatalf("a range ends with %+v of %d bytes", end, disk)
	}
	if _, err := tb.SampleRowKeys(ctx, NewRange("b", "a")); !errors.Is(err, ErrRange) {
		t.Fatalf("inverted range: %v", err)
	}
	if _, err := db.Table("none").SampleRowKeys(ctx, AllRows()); !errors.Is(err, ErrNoTable) {
		t.Fatalf("no table: %v", err)
	}
}
