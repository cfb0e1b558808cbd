package bloom

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	library "github.com/bits-and-blooms/bloom/v3"

	"github.com/rowandb/rowan/internal/hexdoc"
)

// keyKinds are the ways in which real keys are not random. Each makes the i-th of a sequence of distinct keys.
var keyKinds = map[string]func(i int) []byte{
	"sequential": func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) },
	"decimal":    func(i int) []byte { return fmt.Appendf(nil, "user%012d", i) },
	"long common prefix": func(i int) []byte {
		return fmt.Appendf(bytes.Repeat([]byte("x"), 200), "%09d", i)
	},
	"random": func(i int) []byte {
		p := rand.NewPCG(uint64(i), 99)
		// The number itself keeps the keys distinct whatever the generator does.
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, p.Uint64()), uint64(i))
	},
}

func build(bits, n int, key func(int) []byte) Filter {
	b := Builder{BitsPerKey: bits}
	for i := range n {
		b.Add(HashRow(key(i)))
	}
	f, err := Open(b.Build(nil))
	if err != nil {
		panic(err)
	}
	return f
}

// theory is the false-positive rate of a filter whose keys spread at random over lines: keys per line are Poisson
// distributed, and a line with i keys answers falsely with (1 - (1 - 1/512)^(k*i))^k.
func theory(keys, lines, k int) float64 {
	mean := float64(keys) / float64(lines)
	p, sum := math.Exp(-mean), 0.0
	for i := 0; i < int(mean)*6+60; i++ {
		sum += p * math.Pow(1-math.Pow(1-1.0/lineBits, float64(k*i)), float64(k))
		p *= mean / float64(i+1)
	}
	return sum
}

// ideal is the rate of an unblocked filter with the best number of probes.
func ideal(bits int) float64 { return math.Pow(0.5, float64(bits)*math.Ln2) }

func TestFalsePositivesAreNearTheory(t *testing.T) {
	for name, key := range keyKinds {
		for _, bits := range []int{5, 10, 16, 24} {
			const n = 25_000
			f := build(bits, n, key)
			for i := range n {
				if !f.MayContain(HashRow(key(i))) {
					t.Fatalf("%s, %d bits: key %d is missing", name, bits, i)
				}
			}
			// The probes go on where the inserted keys end, so the two sets are disjoint: each kind's keys are distinct.
			probes := 4 * n
			hits := 0
			for i := n; i < n+probes; i++ {
				if f.MayContain(HashRow(key(i))) {
					hits++
				}
			}
			want := theory(n, f.Lines(), f.K())
			// Four standard deviations of the count itself are allowed on top of the factor.
			if limit := 1.2*want*float64(probes) + 4*math.Sqrt(want*float64(probes)) + 3; float64(hits) > limit {
				t.Errorf("%s, %d bits: %d false positives of %d, theory %.1f", name, bits, hits, probes, want*float64(probes))
			}
			t.Logf("%s, %d bits, k %d: %.5f%%, theory %.5f%%", name, bits, f.K(), 100*float64(hits)/float64(probes), 100*want)
			if bits <= 10 && want > 1.35*ideal(bits) {
				t.Errorf("%d bits: blocked filter %.5f, ideal %.5f", bits, want, ideal(bits))
			}
		}
	}
}

// The rate does not depend on how many keys there are, nor does it stop falling with more bits.
func TestFalsePositivesAtEverySize(t *testing.T) {
	key := keyKinds["sequential"]
	for _, c := range []struct{ keys, bits int }{{1000, 10}, {1000, 24}, {1_000_000, 10}, {1_000_000, 16}} {
		f := build(c.bits, c.keys, key)
		const probes = 500_000
		hits := 0
		for i := c.keys; i < c.keys+probes; i++ { // behind the keys: none of them is one
			if f.MayContain(HashRow(key(i))) {
				hits++
			}
		}
		want := theory(c.keys, f.Lines(), f.K()) * probes
		if limit := 1.2*want + 4*math.Sqrt(want) + 3; float64(hits) > limit {
			t.Errorf("%d keys, %d bits: %d false positives of %d, theory %.1f", c.keys, c.bits, hits, probes, want)
		}
	}
}

func TestKeysOfTheHarnessAreDistinct(t *testing.T) {
	for name, key := range keyKinds {
		seen := map[string]bool{}
		for i := range 20_000 {
			k := string(key(i))
			if seen[k] {
				t.Fatalf("%s: key %d repeats", name, i)
			}
			seen[k] = true
		}
	}
}

// TestBitsSpreadEvenly: chi-square over the bits of a line, over lines, and the fill ratio.
func TestBitsSpreadEvenly(t *testing.T) {
	for name, key := range keyKinds {
		const n = 50_000
		f := build(10, n, key)
		perBit, perLine := make([]int, lineBits), make([]int, f.Lines())
		for i := range n {
			for _, l := range f.Locations(HashRow(key(i))) {
				perBit[l%lineBits]++
			}
			perLine[f.Locations(HashRow(key(i)))[0]/lineBits]++
		}
		check := func(what string, counts []int, total int) {
			mean, chi := float64(total)/float64(len(counts)), 0.0
			for _, c := range counts {
				chi += (float64(c) - mean) * (float64(c) - mean) / mean
			}
			// Chi-square is about normal around the degrees of freedom with variance twice that; six deviations.
			if df := float64(len(counts) - 1); chi > df+6*math.Sqrt(2*df) {
				t.Errorf("%s: %s: chi-square %.0f over %.0f", name, what, chi, df)
			}
		}
		check("bits", perBit, n*f.K())
		check("lines", perLine, n)
		set := 0
		for _, b := range f.lines {
			for ; b != 0; b &= b - 1 {
				set++
			}
		}
		want := 1 - math.Exp(-float64(n*f.K())/float64(f.Lines()*lineBits))
		if got := float64(set) / float64(f.Lines()*lineBits); math.Abs(got-want) > 0.02*want {
			t.Errorf("%s: %.4f of the bits are set, expected about %.4f", name, got, want)
		}
	}
}

// TestLibrarySeesTheSameBits: bits-and-blooms/bloom over the same words gives the same answers, and a filter that it builds
// from our locations has the same words.
func TestLibrarySeesTheSameBits(t *testing.T) {
	key := keyKinds["decimal"]
	b := Builder{}
	for i := range 5000 {
		b.Add(HashRow(key(i)))
	}
	raw := b.Build(nil)
	f, err := Open(raw)
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, f.Lines()*8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(raw[headLen+8*i:])
	}
	lib := library.From(words, uint(f.K()))
	ref := f.Reference()
	if ref.Bits() != lib.BitSet().Count() {
		t.Errorf("%d bits, the library counts %d", ref.Bits(), lib.BitSet().Count())
	}
	built := library.New(uint(len(words)*64), uint(f.K()))
	for i := range 20000 {
		h := HashRow(key(i))
		locs := f.Locations(h)
		if lib.TestLocations(locs) != f.MayContain(h) || ref.MayContain(h) != f.MayContain(h) {
			t.Fatalf("key %d: library says %v", i, !f.MayContain(h))
		}
		if i < 5000 {
			for _, l := range locs {
				built.BitSet().Set(uint(l))
			}
		}
	}
	if !built.BitSet().Equal(lib.BitSet()) {
		t.Error("the library builds other bits")
	}
}

func TestColumnHashes(t *testing.T) {
	seen := map[uint64]string{}
	for r := range 300 {
		row := fmt.Appendf(nil, "r%d", r)
		for c := range 300 {
			col := fmt.Appendf(nil, "r%d", c) // also equal to row
			h := HashColumn(HashRow(row), col)
			if o, ok := seen[h]; ok {
				t.Fatalf("%s/%s and %s collide", row, col, o)
			}
			seen[h] = string(row) + "/" + string(col)
		}
	}
}

func TestEmptyAndRepeated(t *testing.T) {
	var b Builder
	f, err := Open(b.Build(nil))
	if err != nil || f.MayContain(0) || f.MayContain(1) || f.Lines() != 0 {
		t.Fatalf("empty filter: %+v %v", f, err)
	}
	b.Add(7)
	b.Add(7)
	if b.Len() != 1 {
		t.Error("a repeated hash counts twice")
	}
	out := b.Build([]byte("dirty"))
	if string(out[:5]) != "dirty" || len(out) != 5+b.Size() {
		t.Error("Build does not append")
	}
	if (Filter{}).MayContain(3) {
		t.Error("the zero filter contains something")
	}
}

// TestSample decodes the hand-written filter of docs/formats/filter.md.
func TestSample(t *testing.T) {
	p, err := hexdoc.Sample("../docs/formats/filter.md", "filter")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(p)
	if err != nil {
		t.Fatal(err)
	}
	if !f.MayContain(0x0123456789abcdef) || f.MayContain(0xfedcba9876543210) || f.Keys() != 1 || f.K() != 6 {
		t.Errorf("%+v", f)
	}
	b := Builder{}
	b.Add(0x0123456789abcdef)
	if !bytes.Equal(b.Build(nil), p) {
		t.Errorf("built\n%x, sample\n%x", b.Build(nil), p)
	}
}

func FuzzOpen(f *testing.F) {
	b := Builder{}
	b.Add(1)
	f.Add(b.Build(nil), uint64(1))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, p []byte, h uint64) {
		x, err := Open(p)
		if err != nil {
			if !errors.Is(err, ErrFilter) {
				t.Fatal(err)
			}
			return
		}
		x.MayContain(h)
	})
}

func TestProbesAllocateNothing(t *testing.T) {
	f := build(10, 1000, keyKinds["decimal"])
	row := []byte("user000000000001")
	if n := testing.AllocsPerRun(100, func() { f.MayContain(HashColumn(HashRow(row), row)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkProbe(b *testing.B) {
	for _, n := range []int{200_000, 8_000_000} {
		f := build(10, n, keyKinds["sequential"])
		for _, c := range []struct {
			name string
			add  uint64
		}{{"present", 0}, {"absent", 1 << 62}} {
			b.Run(fmt.Sprintf("%dKiB/%s", len(f.lines)>>10, c.name), func(b *testing.B) {
				var row [16]byte
				hits := 0
				for i := 0; b.Loop(); i++ {
					// A fixed stride visits all keys in an order that the prefetcher does not guess.
					binary.BigEndian.PutUint64(row[:], uint64(i*7919%n)+c.add)
					if f.MayContain(HashRow(row[:8])) {
						hits++
					}
				}
			})
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	bl := Builder{}
	for i := range 200_000 {
		bl.Add(HashRow(keyKinds["sequential"](i)))
	}
	buf := make([]byte, 0, bl.Size())
	for b.Loop() {
		buf = bl.Build(buf[:0])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bl.Len()), "ns/key")
}
