package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
)

// smallTable has every kind of part: three lanes, two index levels, cut rows, both filters, raw and compressed sections.
func smallTable(t testing.TB, codec block.Codec) []byte {
	r := rand.New(rand.NewPCG(7, 6))
	tab := randTable(r, shape{rows: 10, colsMax: 3, versionsMax: 2, valueMax: 40, deletes: 0.5, wide: 30, tsSpread: 1000})
	b, p := write(t, tab, WriterOptions{ID: 0x1122334455667788, BlockSize: 512, Codec: codec, ColumnFilter: true, fanout: 1, Rules: "f=2"})
	if p.Ranges == 0 || p.Deletes == 0 || p.Holes == 0 || len(b) > 16<<10 {
		t.Fatalf("%d B, %+v", len(b), p)
	}
	r0, err := Open(&byteFile{b: b}, ReaderOptions{})
	must(t, err)
	for i, l := range r0.toc.lanes {
		if l.levels != 2 && i != laneRanges {
			t.Fatalf("%s lane has %d levels", laneNames[i], l.levels)
		}
	}
	must(t, r0.Close())
	return b
}

// openAndVerify is what must notice any damage. It reads everything through an iterator too, which must not panic.
func openAndVerify(b []byte, mode ReadMode) error {
	r, err := Open(&byteFile{b: b, direct: mode == Direct}, ReaderOptions{Mode: mode})
	if err != nil {
		return err
	}
	defer r.Close()
	err = r.Verify(context.Background(), nil)
	it := r.NewIter(cell.IterOptions{})
	defer it.Close()
	buf := make([]cell.Cell, 0, 64)
	dels := make([]cell.Delete, 0, 64)
	for ok := it.First(); ok; ok = it.Next() {
		r.MayContainRow(1)
		it.Ranges(nil)
		for len(it.Cells(buf)) > 0 {
		}
		for len(it.Deletes(dels)) > 0 {
		}
	}
	for ok := it.Last(); ok; ok = it.Prev() {
		it.SeekCell([]byte("fam\x00\x01q0000"), 5)
		it.Cells(buf)
	}
	if err == nil {
		err = it.Err()
	}
	return err
}

func TestEveryFlippedByteIsNoticed(t *testing.T) {
	for _, codec := range []block.Codec{block.CodecNone, block.CodecS2} {
		b := smallTable(t, codec)
		must(t, openAndVerify(b, Mapped))
		for i := range b {
			c := bytes.Clone(b)
			c[i] ^= 1 << (i % 8)
			err := openAndVerify(c, ReadMode(i%3))
			checkDamage(t, err, fmt.Sprintf("byte %d of %d", i, len(b)))
		}
	}
}

func checkDamage(t *testing.T, err error, what string) {
	t.Helper()
	var d *damage.Error
	switch {
	case err == nil:
		t.Fatalf("%s: not noticed", what)
	case errors.Is(err, damage.ErrFormat):
		// A version that this build does not read; the checksum covers it, so this cannot happen by a flip.
		t.Fatalf("%s: taken for another format: %v", what, err)
	case !errors.As(err, &d):
		t.Fatalf("%s: no damage error: %v", what, err)
	case d.Part == "" || d.File == "" || !strings.Contains(err.Error(), d.File):
		t.Fatalf("%s: error does not say where: %v", what, err)
	}
}

func TestEveryTruncationIsNoticed(t *testing.T) {
	b := smallTable(t, block.CodecS2)
	for n := range b {
		checkDamage(t, openAndVerify(b[:n:n], ReadMode(n%3)), fmt.Sprintf("cut to %d of %d", n, len(b)))
	}
	checkDamage(t, openAndVerify(append(bytes.Clone(b), 0), Mapped), "one byte longer")
}

// TestFileCutWhileOpen: positional reads of a file that shrank report damage.
func TestFileCutWhileOpen(t *testing.T) {
	b := smallTable(t, block.CodecS2)
	for n := 0; n < len(b)-footerLen; n += 37 {
		f := &byteFile{b: b}
		r, err := Open(f, ReaderOptions{Mode: Positional})
		must(t, err)
		f.b = b[:n:n]
		it := r.NewIter(cell.IterOptions{})
		for ok := it.First(); ok; ok = it.Next() {
			for len(it.Cells(make([]cell.Cell, 0, 8))) > 0 {
			}
		}
		if err := it.Err(); n == 0 {
			checkDamage(t, err, "cut to nothing")
		} else if err != nil {
			checkDamage(t, err, fmt.Sprintf("cut to %d while open", n))
		}
		must(t, it.Close())
		must(t, r.Close())
	}
}

func TestIdentityAndFormatAreChecked(t *testing.T) {
	b := smallTable(t, block.CodecNone)
	if _, err := Open(&byteFile{b: b}, ReaderOptions{ID: 5}); !errors.Is(err, damage.Err) {
		t.Fatalf("foreign identity: %v", err)
	}
	if _, err := Open(&byteFile{b: b}, ReaderOptions{Size: int64(len(b)) + 1}); !errors.Is(err, damage.Err) {
		t.Fatalf("wrong size: %v", err)
	}
	c := bytes.Clone(b)
	foot := c[len(c)-footerLen:]
	foot[8] = 2
	sum := block.Checksum(block.Seed(0x1122334455667788, int64(len(c))-footerLen), nil, foot[8:])
	for i := range 8 {
		foot[i] = byte(sum >> (8 * i))
	}
	if _, err := Open(&byteFile{b: c}, ReaderOptions{}); !errors.Is(err, damage.ErrFormat) || errors.Is(err, damage.Err) {
		t.Fatalf("newer format: %v", err)
	}
}

// FuzzTable opens arbitrary bytes as a table.
func FuzzTable(f *testing.F) {
	f.Add(smallTable(f, block.CodecS2))
	f.Add(smallTable(f, block.CodecNone))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		// A wrong checksum ends most inputs early: those of the footer and properties are put right, to get deeper.
		if len(b) >= footerLen {
			b = bytes.Clone(b)
			reseal(b)
		}
		_ = openAndVerify(b, ReadMode(len(b)%3))
	})
}

// reseal recomputes the checksums of the footer and of the properties, where they can be found.
func reseal(b []byte) {
	le, put := binary.LittleEndian.Uint64, binary.LittleEndian.PutUint64
	foot := b[len(b)-footerLen:]
	id, off, n := le(foot[16:]), le(foot[32:]), le(foot[40:])
	if size := uint64(len(b)); off < size && n >= block.HeadLen && n <= size-off {
		p := b[off : off+n]
		put(p, block.Checksum(block.Seed(id, int64(off)), p[8:block.HeadLen], p[block.HeadLen:]))
	}
	put(foot, block.Checksum(block.Seed(id, int64(len(b))-footerLen), nil, foot[8:]))
}

// FuzzProperties: whatever decodes encodes to something that decodes to the same.
func FuzzProperties(f *testing.F) {
	r, err := Open(&byteFile{b: smallTable(f, block.CodecNone)}, ReaderOptions{})
	must(f, err)
	f.Add(appendProperties(nil, &r.props, &r.toc))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, toc, err := readProperties(b)
		if err != nil {
			return
		}
		again, toc2, err := readProperties(appendProperties(nil, p, toc))
		must(t, err)
		if fmt.Sprintf("%+v %+v", p, toc) != fmt.Sprintf("%+v %+v", again, toc2) {
			t.Fatalf("%+v\n%+v", p, again)
		}
	})
}

// TestWrongContentUnderRightChecksums changes bytes and puts every checksum right: a file that a broken writer could make. It
// may be refused or read as something else, but nothing may panic, hang or leave the file.
func TestWrongContentUnderRightChecksums(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	for _, codec := range []block.Codec{block.CodecNone, block.CodecS2} {
		b := smallTable(t, codec)
		noticed := 0
		const rounds = 800
		for range rounds {
			c := bytes.Clone(b)
			for range 1 + r.IntN(3) {
				i := r.IntN(len(c))
				switch r.IntN(3) {
				case 0:
					c[i] ^= 1 << r.IntN(8)
				case 1:
					c[i] = byte(r.Uint32())
				default:
					c[i]++
				}
			}
			resealAll(c)
			if err := openAndVerify(c, ReadMode(r.IntN(3))); err != nil {
				if !errors.Is(err, damage.Err) && !errors.Is(err, damage.ErrFormat) {
					t.Fatalf("no damage error: %v", err)
				}
				noticed++
			}
		}
		if noticed < rounds/4 {
			t.Errorf("%d of %d changes noticed", noticed, rounds)
		}
	}
}

// resealAll recomputes the checksums of all envelopes, as long as their lengths lead from one to the next.
func resealAll(b []byte) {
	id := binary.LittleEndian.Uint64(b[len(b)-footerLen+16:])
	for off := 0; off < len(b)-footerLen-block.HeadLen; {
		n := int(int32(binary.LittleEndian.Uint32(b[off+12:])))
		if n < 0 || n > len(b)-footerLen-block.HeadLen-off {
			break
		}
		p := b[off:][:block.HeadLen+n]
		binary.LittleEndian.PutUint64(p, block.Checksum(block.Seed(id, int64(off)), p[8:block.HeadLen], p[block.HeadLen:]))
		off += len(p)
	}
	reseal(b)
}
