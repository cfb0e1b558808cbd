package levels

import (
	"errors"
	"reflect"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/internal/hexdoc"
)

func sampleEdit() *Edit {
	return &Edit{
		Num: 7, StoreID: 77, CheckpointOf: 77, NextFile: 10, LastSeq: 300, Logged: 290,
		PutTables: []*Table{{
			ID: 1, Name: "t", HighestLife: 1, Groups: []Group{{Tree: 1}}, Families: []Family{{Name: "f", Life: 1, Rule: gc.MaxVersionsPolicy(2)}},
			LastChange: 2, Changes: []Change{
				{Num: 1, Kind: ChangeRule, Seq: 200, Tree: 1, Life: 1, Time: 100},
				{Num: 2, Kind: ChangeRows, Seq: 299, Lo: []byte("a"), Hi: []byte("b")},
			},
		}},
		Added: []AddedFile{{1, 0, &File{
			Num: 9, ID: 0x1122, Size: 8192, FirstSeq: 1, LastSeq: 300, Settled: 1, Rows: 2, Cells: 3, Deletes: 1, Lives: 2, MinTS: 5, MaxTS: 6, LogicalBytes: 50,
			Bounds: cell.Bounds{LoRow: []byte("a"), LoCol: []byte{}, HiRow: []byte("b")},
		}}},
		Flushed: []Flushed{{1, 300}}, Collected: []Collected{{1, 99}}, Lowered: &Lowered{99, 5},
	}
}

// The hand-written sample of docs/formats/manifest.md decodes to what the page says, and encodes to itself.
func TestDocSample(t *testing.T) {
	b, err := hexdoc.Sample("../docs/formats/manifest.md", "manifest")
	if err != nil {
		t.Fatal(err)
	}
	e, err := DecodeEdit(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(e, sampleEdit()) {
		t.Errorf("sample says %+v", e)
	}
	if string(sampleEdit().Append(nil)) != string(b) {
		t.Errorf("encoded: %x", sampleEdit().Append(nil))
	}
}

func TestEditOfANewerFormatIsRefused(t *testing.T) {
	b := append(sampleEdit().Append(nil), 32, 1, 0)
	if _, err := DecodeEdit(b); !errors.Is(err, damage.ErrFormat) {
		t.Fatal(err)
	}
}

// Cut at every length and with every byte flipped: an error, or another edit, never a panic.
func TestDamagedEdits(t *testing.T) {
	b := sampleEdit().Append(nil)
	for i := range b {
		if i > 0 {
			_, _ = DecodeEdit(b[:i])
		}
		for bit := range 8 {
			c := append([]byte(nil), b...)
			c[i] ^= 1 << bit
			_, _ = DecodeEdit(c)
		}
	}
	if _, err := DecodeEdit(nil); !errors.Is(err, damage.Err) {
		t.Fatal(err)
	}
}

func FuzzDecodeEdit(f *testing.F) {
	f.Add(sampleEdit().Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEdit(b)
		if err != nil {
			if !errors.Is(err, damage.Err) && !errors.Is(err, damage.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeEdit(e.Append(nil))
		if err != nil || !reflect.DeepEqual(e, again) {
			t.Fatalf("%+v became %+v: %v", e, again, err)
		}
	})
}
