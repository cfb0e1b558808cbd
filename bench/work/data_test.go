package work

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// Keys are found again by their order: unmix undoes mix, and sorted lists numbers as the keys sort.
func TestSortedIsTheOrderOfKeys(t *testing.T) {
	for i := range uint64(100_000) {
		if x := i * i * 0x123456789; unmix(mix(x)) != x {
			t.Fatalf("unmix does not undo mix of %x", x)
		}
	}
	order := sorted(1000)
	var last, key [KeyBytes]byte
	seen := map[uint64]bool{}
	for at, i := range order {
		Key(i, key[:])
		if at > 0 && bytes.Compare(last[:], key[:]) >= 0 || number(key[:]) != i {
			t.Fatalf("key %x comes behind %x", key, last)
		}
		last, seen[i] = key, true
	}
	if len(seen) != 1000 {
		t.Errorf("%d numbers are listed", len(seen))
	}
}

// Every byte of a key and a value, and the length of a value, change the sum.
func TestSumSeesEveryByte(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 50, 100, 1024} {
		key, value := make([]byte, KeyBytes), make([]byte, n)
		Key(5, key)
		Value(5, 1, value)
		var right Sum
		right.Add(key, value)
		for _, part := range [][]byte{key, value} {
			for i := range part {
				for _, bit := range []byte{1, 0x80} {
					var wrong Sum
					part[i] ^= bit
					wrong.Add(key, value)
					part[i] ^= bit
					if wrong == right {
						t.Fatalf("byte %d of %d does not count", i, len(part))
					}
				}
			}
		}
		var wrong Sum
		if wrong.Add(key, append(slices.Clone(value), 0)); wrong == right {
			t.Errorf("a zero more than %d bytes does not count", n)
		}
	}
}

// A value is a random half and its repetition, and another for every key and generation.
func TestValuesRepeatTheirHalf(t *testing.T) {
	seen := map[string]bool{}
	for i := range uint64(100) {
		for g := range uint64(5) {
			v := make([]byte, ValueBytes)
			Value(i, g, v)
			if !bytes.Equal(v[:50], v[50:]) || seen[string(v)] {
				t.Fatalf("value %d of key %d is %x", g, i, v)
			}
			seen[string(v)] = true
		}
	}
}

// The first ranks are drawn as often as the law says.
func TestZipfIsSkewed(t *testing.T) {
	const n, draws = 1000, 200_000
	z, r, counts := newZipf(n), newRNG(1), make([]float64, n)
	for range draws {
		counts[z.next(r)]++
	}
	for _, rank := range []int{0, 1, 9, 99} {
		want := draws / z.zeta / math.Pow(float64(rank+1), skew)
		if math.Abs(counts[rank]-want) > want/4+5*math.Sqrt(want) {
			t.Errorf("rank %d was drawn %g times, %.0f are right", rank, counts[rank], want)
		}
	}
}

// What the harness itself costs, which all engines pay.

func BenchmarkHash100(b *testing.B) {
	value := make([]byte, ValueBytes)
	Value(1, 0, value)
	var h uint64
	for b.Loop() {
		h += Hash(value)
	}
	_ = h
}

func BenchmarkPair(b *testing.B) {
	key, value := make([]byte, KeyBytes), make([]byte, ValueBytes)
	i := uint64(0)
	for b.Loop() {
		Key(i, key)
		Value(i, 0, value)
		i++
	}
}

func BenchmarkSum(b *testing.B) {
	key, value := make([]byte, KeyBytes), make([]byte, ValueBytes)
	Key(1, key)
	Value(1, 0, value)
	var s Sum
	for b.Loop() {
		s.Add(key, value)
	}
}

// BenchmarkFloor is what a full scan of the kv data set costs at least: the look at every byte of pairs that lie in order, end to end,
// in memory that no processor cache holds.
func BenchmarkFloor(b *testing.B) {
	const pair = KeyBytes + ValueBytes
	data := make([]byte, kv.n*pair)
	for i := range kv.n {
		Key(i, data[i*pair:][:KeyBytes])
		Value(i, 0, data[i*pair+KeyBytes:][:ValueBytes])
	}
	var s Sum
	for b.Loop() {
		for p := data; len(p) > 0; p = p[pair:] {
			s.Add(p[:KeyBytes], p[KeyBytes:pair])
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(s.N), "ns/pair")
}
