package sstable

import (
	"testing"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
)

// onceWrong turns a bit over in the n-th read, as a bad cable does.
type onceWrong struct {
	*byteFile
	n, reads int
	off      int64 // of that read
}

func (f *onceWrong) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.byteFile.ReadAt(p, off)
	if f.reads++; f.reads == f.n && n > 0 {
		p[n/2] ^= 4
		f.off = off
	}
	return n, err
}

// A bit that turned over on its way from the disk is not damage: what a second read of the block does not show is not reported.
func TestBitsThatTurnOverOnTheWayAreReadAgain(t *testing.T) {
	for _, codec := range []block.Codec{block.CodecNone, block.CodecS2} {
		b := smallTable(t, codec)
		scan := func(f *onceWrong) (cells int, err error) {
			r, err := Open(f, ReaderOptions{Mode: Positional})
			if err != nil {
				return 0, err
			}
			defer r.Close()
			it := r.NewIter(cell.IterOptions{})
			defer it.Close()
			buf := make([]cell.Cell, 0, 64)
			for ok := it.First(); ok; ok = it.Next() {
				for {
					cs := it.Cells(buf)
					if len(cs) == 0 {
						break
					}
					for _, c := range cs {
						cells += 1 + len(c.Value)
					}
				}
			}
			return cells, it.Err()
		}
		whole := &onceWrong{byteFile: &byteFile{b: b}}
		want, err := scan(whole)
		must(t, err)
		if whole.reads < 10 {
			t.Fatalf("%d reads", whole.reads)
		}
		for n := 1; n <= whole.reads; n++ {
			f := &onceWrong{byteFile: &byteFile{b: b}, n: n}
			got, err := scan(f)
			if f.off == int64(len(b))-footerLen && err != nil {
				continue // the file is opened again for the next read
			}
			if err != nil || got != want {
				t.Errorf("codec %d, read %d at %d: %d, %v; want %d", codec, n, f.off, got, err, want)
			}
		}
	}
}
