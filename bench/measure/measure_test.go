package measure

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// Quantiles are those of the sorted list, at most 1/32 too high and never too low.
func TestQuantilesAreThoseOfTheList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 100, 20_000} {
		var h, a, b Histogram
		var list []time.Duration
		for i := range n {
			d := time.Duration(r.Uint64N(1 << (1 + r.UintN(40))))
			list = append(list, d)
			h.Add(d)
			if i%2 == 0 {
				a.Add(d)
			} else {
				b.Add(d)
			}
		}
		slices.Sort(list)
		for _, q := range append([]float64{0, 1}, Quantiles...) {
			exact, got := list[min(int(q*float64(n)), n-1)], h.Quantile(q)
			if got < exact || float64(got) > float64(exact)*(1+1./32)+1 {
				t.Errorf("of %d durations quantile %g is %v, not %v", n, q, exact, got)
			}
		}
		if h.Max() != list[n-1] || h.Count() != uint64(n) {
			t.Errorf("of %d durations the longest is %v, not %v; %d were counted", n, list[n-1], h.Max(), h.Count())
		}
		if a.Merge(&b); a != h {
			t.Errorf("two halves of %d durations do not add up to the whole", n)
		}
	}
	var empty Histogram
	if empty.Quantile(0.5) != 0 || empty.Max() != 0 {
		t.Error("an empty histogram has quantiles")
	}
}

// Every bucket begins behind the one before it, and a duration lies in its bucket, up to the longest there is.
func TestBucketsCoverEveryDuration(t *testing.T) {
	last := int64(-1)
	for b := range buckets {
		if high := top(b); high <= last || bucket(high) != b || bucket(last+1) != b {
			t.Fatalf("bucket %d ends at %d, the one before at %d", b, high, last)
		} else {
			last = high
		}
	}
	if last != 1<<63-1 {
		t.Errorf("the last bucket ends at %d", last)
	}
	if bucket(-5) != 0 {
		t.Error("a clock that runs backwards is not counted as 0")
	}
}

// A recorder counts the operations of all callers, each in its step of time, and finds the pause in which none ended.
func TestRecorderFindsTheStall(t *testing.T) {
	const callers, each = 4, 1000
	r := NewRecorder(callers)
	r.Begin()
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for range each {
				r.Caller(c).Done(3)
			}
		})
	}
	all.Wait()
	time.Sleep(150 * time.Millisecond)
	end := r.Caller(1).Done(3)
	if n := r.Latencies().Count(); n != callers*each+1 {
		t.Errorf("%d operations were recorded", n)
	}
	line := r.Line(end)
	sum := uint32(0)
	for _, n := range line {
		sum += n
	}
	if sum != 3*(callers*each+1) || line[len(line)-1] != 3 {
		t.Errorf("the time line is %v", line)
	}
	if s := r.Stall(); s < 148*time.Millisecond || s > end {
		t.Errorf("the longest pause was %v of %v", s, end)
	}
}

// What the system says of this process: processor time and memory grow with use, the disk use of a directory is that of its files.
func TestUsageIsThatOfTheProcess(t *testing.T) {
	before, err := Now()
	if err != nil {
		t.Fatal(err)
	}
	peak := WatchPeak()
	memory := make([]byte, 64<<20)
	for i := range memory {
		memory[i] = byte(i)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), memory[:1<<20], 0o666); err != nil {
		t.Fatal(err)
	}
	after, err := Now()
	if err != nil {
		t.Fatal(err)
	}
	if u := after.Sub(before); u.CPU <= 0 || u.MajorFaults < 0 {
		t.Errorf("usage is %+v", u)
	}
	if high := peak.Stop(); high >= 0 && high < 64<<20 {
		t.Errorf("64 MB were allocated, the peak of memory is %d bytes", high)
	}
	n, err := DiskBytes(dir)
	if err != nil || n < 0 || n > 2<<20 {
		t.Errorf("a file of 1 MB takes %d bytes: %v", n, err)
	}
	memory[0] = 1
}
