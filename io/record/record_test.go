package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/vfs"
)

const testStore = 77

type entry struct {
	seq uint64
	rec []byte
}

// image is a log in memory.
type image struct {
	slots map[uint64][]byte
	size  int64
}

func (m *image) write(num uint64, p []byte, off int64) {
	if m.slots[num] == nil {
		m.slots[num] = make([]byte, m.size)
	}
	copy(m.slots[num][off:], p)
}

func (m *image) read(from uint64) ([]entry, *Reader, error) {
	var slots, orphans []Slot
	for num := uint64(1); num < 1000; num++ {
		b := m.slots[num]
		if b == nil {
			continue
		}
		s := Slot{R: bytes.NewReader(b), Name: fmt.Sprint("slot", num), Size: int64(len(b))}
		var err error
		if s.First, err = ReadHeader(b, testStore, 0); err != nil {
			orphans = append(orphans, s)
		} else {
			slots = append(slots, s)
		}
	}
	chain, err := Chain(slots, from)
	if err != nil {
		return nil, nil, err
	}
	r := NewReader(testStore, chain, orphans)
	var es []entry
	for {
		rec, seq, err := r.Next()
		if err == io.EOF {
			return es, r, nil
		}
		if err != nil {
			return es, r, err
		}
		es = append(es, entry{seq, bytes.Clone(rec)})
	}
}

// build writes groups of records; after each group all is durable. A negative size stands for a mark.
func build(t testing.TB, m *image, b *Builder, num *uint64, seq uint64, groups [][]int) []entry {
	t.Helper()
	var es []entry
	flush := func() {
		p, off := b.Pending()
		m.write(*num, p, off)
		b.Written()
	}
	next := func(gap bool) {
		end := b.Pos()
		*num++
		b.Reset(*num, 1, m.size, gap, end)
	}
	for _, g := range groups {
		durable := Pos{}
		for _, n := range g {
			if n < 0 {
				for !b.Mark() {
					flush()
					if b.n < BlockSize { // nothing was freed: the slot is full
						next(true)
					}
				}
				continue
			}
			seq++
			rec := bytes.Repeat([]byte{byte(seq)}, n)
			es = append(es, entry{seq, rec})
			if b.Full() {
				flush()
				next(false)
			}
			b.Start(seq, rec)
			for !b.Fill() {
				flush()
				if b.Full() {
					next(false)
				}
			}
			durable = b.Pos()
			b.State.EngineTime = int64(seq) * 10
		}
		flush()
		if durable != (Pos{}) {
			b.State.Durable, b.State.DurableSeq = durable, seq
		}
	}
	return es
}

func newBuilder(t testing.TB, bufBlocks int) (*image, *Builder, *uint64) {
	m := &image{slots: map[uint64][]byte{}, size: 6 * BlockSize}
	b, err := NewBuilder(testStore, make([]byte, bufBlocks*BlockSize), BlockSize)
	if err != nil {
		t.Fatal(err)
	}
	num := new(uint64)
	*num = 1
	b.Reset(1, 1, m.size, false, Pos{})
	return m, b, num
}

func same(a, b []entry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].seq != b[i].seq || !bytes.Equal(a[i].rec, b[i].rec) {
			return false
		}
	}
	return true
}

func randomGroups(r *rand.Rand, n int) [][]int {
	edges := []int{1, BlockSize - HeaderSize - FrameSize, BlockSize - HeaderSize - FrameSize - 1, BlockSize - HeaderSize,
		BlockSize - HeaderSize - FrameSize + 1, 2*(BlockSize-HeaderSize) - FrameSize, 30_000}
	gs := make([][]int, n)
	for i := range gs {
		for range 1 + r.IntN(4) {
			n := 1 + r.IntN(300)
			switch r.IntN(12) {
			case 0:
				n = edges[r.IntN(len(edges))]
			case 1:
				n = -1
			}
			gs[i] = append(gs[i], n)
		}
	}
	return gs
}

func TestRoundTrip(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		m, b, num := newBuilder(t, 1+r.IntN(4))
		want := build(t, m, b, num, 0, randomGroups(r, 30))
		got, rd, err := m.read(1)
		if err != nil || !same(got, want) {
			t.Fatalf("seed %d: %d of %d records, %v", seed, len(got), len(want), err)
		}
		if len(want) > 0 && rd.Ignored() != 0 {
			t.Fatalf("seed %d: %d bytes ignored of a clean log", seed, rd.Ignored())
		}
		// It goes on in a fresh slot that names the end, with a higher open count, as often as it likes.
		end := rd.Place()
		*num += 1 + uint64(r.IntN(3))
		b.Reset(*num, 2, m.size, true, end)
		b.open = 1 // build uses 1 for what follows
		b.Reset(*num, 1, m.size, true, end)
		want = append(want, build(t, m, b, num, uint64(len(want)), randomGroups(r, 10))...)
		got, rd, err = m.read(0)
		if err != nil || !same(got, want) {
			t.Fatalf("seed %d: %d of %d records, %v", seed, len(got), len(want), err)
		}
		if rd.State().EngineTime > int64(len(want))*10 || rd.Open() != 1 {
			t.Fatalf("%+v", rd.State())
		}
	}
}

// Any flipped byte of a log that was marked at its end is found, or lies where nothing counts; a log is never silently shorter.
func TestFlipEveryByte(t *testing.T) {
	m, b, num := newBuilder(t, 2)
	want := build(t, m, b, num, 0, [][]int{{10, 20}, {5000, 7}, {3, -1, 100}, {12_000}, {40}, {-1}})
	if *num < 2 {
		t.Fatal("one slot only")
	}
	if got, _, err := m.read(1); err != nil || !same(got, want) {
		t.Fatal(len(got), err)
	}
	found, harmless := 0, 0
	for n, s := range m.slots {
		for i := range s {
			if i%BlockSize > HeaderSize+2*FrameSize && i%7 != 0 {
				continue // inside a record one byte is like the other
			}
			s[i] ^= 0x10
			got, _, err := m.read(1)
			switch {
			case err == nil && same(got, want):
				harmless++ // padding, or a header that is a witness only
			case err != nil:
				var d *damage.Error
				if !errors.As(err, &d) {
					t.Fatal(err)
				}
				found++
			default:
				t.Fatalf("slot %d, byte %d: %d of %d records and no error", n, i, len(got), len(want))
			}
			s[i] ^= 0x10
		}
	}
	if found < 2_000 || harmless == 0 {
		t.Fatal(found, harmless)
	}
}

// The last write before a crash may be torn in any way without being damage; with it go only the records it held.
func TestTornLastWrite(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		m, b, num := newBuilder(t, 8)
		want := build(t, m, b, num, 0, randomGroups(r, 5))
		before := bytes.Clone(m.slots[*num])
		last := *num
		more := build(t, m, b, num, uint64(len(want)), [][]int{{100, 2000, 3000}})
		if *num != last || before == nil {
			continue
		}
		now := m.slots[last]
		for off := 0; off < len(now); off += 512 {
			if r.IntN(2) == 0 {
				copy(now[off:off+512], before[off:])
			}
		}
		all := append(want[:len(want):len(want)], more...)
		got, _, err := m.read(1)
		if err != nil || len(got) < len(want) || !same(got, all[:len(got)]) {
			t.Fatalf("seed %d: %d of %d+%d: %v", seed, len(got), len(want), len(more), err)
		}
	}
}

func TestChainMissing(t *testing.T) {
	m, b, num := newBuilder(t, 2)
	build(t, m, b, num, 0, [][]int{{20_000}, {20_000}, {20_000}, {20_000}})
	for _, from := range []uint64{1, 2, 3} {
		if _, _, err := m.read(from); from == 1 && err != nil || err != nil && !errors.Is(err, damage.Err) {
			t.Fatal(from, err)
		}
	}
	if _, _, err := m.read(50); !errors.Is(err, damage.Err) {
		t.Fatal(err)
	}
	delete(m.slots, 2)
	if _, _, err := m.read(1); !errors.Is(err, damage.Err) {
		t.Fatal(err)
	}
	if es, _, err := (&image{}).read(0); err != nil || len(es) > 0 {
		t.Fatal("empty log:", err)
	}
}

func TestFrames(t *testing.T) {
	var b []byte
	var offs []int64
	for i := 1; i < 20; i++ {
		offs = append(offs, int64(len(b)))
		b = AppendFrame(b, 5, bytes.Repeat([]byte{byte(i)}, i*i))
	}
	last := offs[len(offs)-1]
	count := func(b []byte, seed uint64) (n int, end int64, err error) {
		end, _, err = ReadFrames([][]byte{b}, seed, func(off int64, p []byte) error {
			if off != offs[n] || len(p) != (n+1)*(n+1) {
				t.Fatal(off, len(p))
			}
			n++
			return nil
		})
		return n, end, err
	}
	if n, end, err := count(b, 5); n != 19 || end != int64(len(b)) || err != nil {
		t.Fatal(n, end, err)
	}
	if n, end, err := count(b, 6); n != 0 || end != 0 || err != nil {
		t.Fatal("another file's frames:", n, end, err)
	}
	for cut := range b {
		if _, end, err := count(b[:cut], 5); err != nil || end > int64(cut) {
			t.Fatal(cut, err)
		}
	}
	for i := range b {
		b[i] ^= 1
		n, _, err := count(b, 5)
		if int64(i) < last {
			if !errors.Is(err, damage.Err) || n == 19 {
				t.Fatal(i, n, err)
			}
		} else if err != nil || n != 18 {
			t.Fatal(i, n, err)
		}
		b[i] ^= 1
	}
	if n, _, err := count(append(b, make([]byte, 500)...), 5); n != 19 || err != nil {
		t.Fatal("zeros at the end are a torn tail:", err)
	}
	if _, _, err := ReadFrames([][]byte{b}, 5, func(int64, []byte) error { return io.ErrShortBuffer }); !errors.Is(err, io.ErrShortBuffer) {
		t.Fatal(err)
	}
}

// The hand-written sample of docs/formats/log.md decodes to what the page says.
func TestDocSample(t *testing.T) {
	page, err := os.ReadFile("../../docs/formats/log.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```hex\n")
	sample, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("no sample")
	}
	var b []byte
	for line := range strings.Lines(sample) {
		line, _, _ = strings.Cut(line, "|")
		x, err := hex.DecodeString(strings.Join(strings.Fields(line), ""))
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, x...)
	}
	block := make([]byte, 2*BlockSize)
	copy(block, b)
	m := &image{slots: map[uint64][]byte{7: block}}
	es, r, err := m.read(7)
	if err != nil || len(es) != 1 || es[0].seq != 43 || string(es[0].rec) != "hello" {
		t.Fatal(es, err)
	}
	h, err := ReadHeader(block, testStore, 0)
	if err != nil || h.Slot != 7 || h.Open != 3 || h.First != 80 || !h.Gap || h.End != (Pos{5, 4200}) || h.Durable != (Pos{5, 4200}) ||
		h.DurableSeq != 42 || h.EngineTime != 1_700_000_000_000_000 || h.Stamp != 1_700_000_000_000_001 || r.Open() != 3 {
		t.Fatalf("%+v %v", h, err)
	}
}

func FuzzReader(f *testing.F) {
	m, b, num := newBuilder(f, 2)
	build(f, m, b, num, 0, [][]int{{10, 20}, {5000, 7}, {30, -1, 100}})
	f.Add(m.slots[1], uint16(0), byte(0))
	f.Add(m.slots[1], uint16(4100), byte(3))
	f.Fuzz(func(t *testing.T, file []byte, at uint16, x byte) {
		file = bytes.Clone(file)
		if len(file) > 0 {
			file[int(at)%len(file)] ^= x
		}
		es, r, err := (&image{slots: map[uint64][]byte{1: file}}).read(0)
		if err != nil && !errors.Is(err, damage.Err) {
			t.Fatal(err)
		}
		n := 0
		for _, e := range es {
			n += len(e.rec)
		}
		if n > len(file) {
			t.Fatal("more bytes out than in")
		}
		if r != nil && cap(r.rec) > 4*len(file)+4096 {
			t.Fatalf("%d bytes held for %d", cap(r.rec), len(file))
		}
	})
}

func FuzzHeader(f *testing.F) {
	m, b, num := newBuilder(f, 2)
	build(f, m, b, num, 0, [][]int{{10, 20}})
	f.Add(m.slots[1][:HeaderSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ReadHeader(b, testStore, 0)
		if err != nil {
			return
		}
		var out [HeaderSize]byte
		h.put(out[:], testStore, 0)
		if !bytes.Equal(out[:], b[:HeaderSize]) {
			t.Fatalf("%x\n%x", out, b)
		}
	})
}

func FuzzFrames(f *testing.F) {
	f.Add(AppendFrame(AppendFrame(nil, 5, []byte("one")), 5, []byte("two")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		end, _, err := ReadFrames([][]byte{b}, 5, func(_ int64, p []byte) error {
			again = AppendFrame(again, 5, p)
			return nil
		})
		if err != nil && !errors.Is(err, damage.Err) {
			t.Fatal(err)
		}
		if !bytes.Equal(again, b[:end]) {
			t.Fatal("frames do not read back")
		}
	})
}

func BenchmarkBuilder(b *testing.B) {
	bl, _ := NewBuilder(1, make([]byte, 1<<20), BlockSize)
	bl.Reset(1, 1, SlotMax, false, Pos{})
	rec := make([]byte, 128)
	b.SetBytes(128)
	for i := range b.N {
		if bl.Full() {
			bl.Reset(1, 1, SlotMax, false, Pos{})
		}
		bl.Start(uint64(i), rec)
		for !bl.Fill() {
			bl.Written()
			if bl.Full() {
				bl.Reset(1, 1, SlotMax, false, Pos{})
			}
		}
	}
}

// A slot of a later format is told as that, and never as a file that may be used; where a slot is missing, the files that it may
// be in are named (palantir/cassandra #133, scylladb/scylladb #15015: errors that do not name the file).
func TestLaterFormatsAndUnreadableSlotsAreNamed(t *testing.T) {
	m := vfs.NewMem()
	put := func(n int, p []byte) {
		f, err := m.Open(SlotName(n), vfs.How{Create: true})
		if err == nil {
			_, err = f.WriteAt(p, 0)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	block := func(slot uint64) []byte {
		p := make([]byte, BlockSize)
		h := Header{Slot: slot, Open: 1, First: HeaderSize}
		h.put(p, 7, 0)
		return p
	}
	find := func() (found []SlotFile, err error) {
		found, err = FindSlots(m, "", 7)
		for _, f := range found {
			if err := f.File.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return found, err
	}
	put(1, make([]byte, BlockSize))
	put(2, block(3))
	found, err := find()
	if err != nil {
		t.Fatal(err)
	}
	_, missing := Chain([]Slot{found[1].Slot}, 1)
	var d *damage.Error
	if err := Suspect(missing, "dir", found); !errors.As(err, &d) || d.File != "slot-0001.log" {
		t.Errorf("with one suspect: %v", err)
	}
	if err := Suspect(missing, "dir", found[1:]); !errors.As(err, &d) || d.File != "dir" {
		t.Errorf("with none: %v", err)
	}
	put(4, block(9)[:40])
	if found, err = find(); err != nil {
		t.Fatal(err)
	}
	if err := Suspect(missing, "dir", found); !errors.As(err, &d) || d.File != "dir" || !strings.Contains(err.Error(), "slot-0001.log, slot-0004.log") {
		t.Errorf("with two: %v", err)
	}
	p := block(2)
	p[8] = '2'
	put(5, p)
	if _, err := find(); err != nil {
		t.Errorf("a magic without its checksum is a file like others: %v", err)
	}
	binary.LittleEndian.PutUint64(p, headerSum(p, 7, 0))
	put(6, p)
	if _, err := find(); !errors.Is(err, damage.ErrFormat) || errors.Is(err, damage.Err) || !strings.Contains(err.Error(), "slot-0006.log: log of format 2") {
		t.Errorf("a slot of format 2: %v", err)
	}
}
