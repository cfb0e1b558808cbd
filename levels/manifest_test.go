package levels

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/io/vfs"
)

// A manifest whose first edit, the whole state, is larger than the usual limit is not full at once.
func TestManifestOfALargeStateIsNotFullAtOnce(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{NoCrash: true})
	if err := fs.MkdirAll("/m"); err != nil {
		t.Fatal(err)
	}
	e := sampleEdit()
	e.Added, e.StoreID, e.CheckpointOf = nil, 5, 0
	for i := range 80 {
		key := append(bytes.Repeat([]byte("k"), 30<<10), 0, 0, 0, 0)
		binary.BigEndian.PutUint32(key[len(key)-4:], uint32(i))
		e.Added = append(e.Added, AddedFile{1, 6, &File{Num: Num(i + 1), ID: 1, Size: 1, FirstSeq: 1, LastSeq: 2, Bounds: cell.Bounds{LoRow: key, HiRow: key}}})
	}
	v, err := NewVersion(nil).Apply(e)
	if err != nil {
		t.Fatal(err)
	}
	m, err := CreateManifest(fs, "/m", 1, v)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.off < rollAt {
		t.Fatalf("the state has only %d bytes", m.off)
	}
	if m.Full() {
		t.Fatal("full after the first edit")
	}
}
