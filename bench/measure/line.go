package measure

import (
	"sync/atomic"
	"time"
)

// Step is the width of a point of a time line.
const Step = 100 * time.Millisecond

const points = 4096 // of a time line: what comes later is counted in the last

// Recorder takes the operations of several callers that work at once: their latencies, how many ended when, and the longest time
// in which none did.
type Recorder struct {
	began   time.Time
	last    atomic.Int64 // end of an operation, ns since began, at most slack before the end of the last one
	gap     atomic.Int64
	callers []*Caller
}

// slack is the error of a stall: it spares callers a write to shared memory with every operation.
const slack = time.Millisecond

// Caller records what one caller does. Not safe for concurrent use, but callers do not disturb each other.
type Caller struct {
	r      *Recorder
	start  time.Duration
	hist   Histogram
	counts [points]uint32
}

// NewRecorder returns a recorder for n callers. Its time begins with Begin.
func NewRecorder(n int) *Recorder {
	r := &Recorder{callers: make([]*Caller, n)}
	for i := range r.callers {
		r.callers[i] = &Caller{r: r}
	}
	return r
}

// Begin begins the time; no caller may be at work yet.
func (r *Recorder) Begin() { r.began = time.Now() }

// Caller returns the i-th caller.
func (r *Recorder) Caller(i int) *Caller { return r.callers[i] }

// Done records that n operations, which began together when the ones before had ended, have just ended, and returns the time
// since Begin.
func (c *Caller) Done(n int) time.Duration {
	now := time.Since(c.r.began)
	c.hist.Add(now - c.start)
	c.start = now
	c.counts[min(int(now/Step), points-1)] += uint32(n)
	if last := c.r.last.Load(); int64(now)-last > int64(slack) {
		c.r.ended(last, int64(now))
	}
	return now
}

// Pause ends what is not recorded: the next operation begins now.
func (c *Caller) Pause() { c.start = time.Since(c.r.began) }

func (r *Recorder) ended(last, now int64) {
	if !r.last.CompareAndSwap(last, now) {
		return // another caller has just ended one: this gap is its to tell
	}
	for gap := r.gap.Load(); now-last > gap && !r.gap.CompareAndSwap(gap, now-last); gap = r.gap.Load() {
	}
}

// Latencies adds up the histograms of all callers.
func (r *Recorder) Latencies() *Histogram {
	h := new(Histogram)
	for _, c := range r.callers {
		h.Merge(&c.hist)
	}
	return h
}

// Line is how many operations ended in each Step up to end, the time since Begin.
func (r *Recorder) Line(end time.Duration) []uint32 {
	out := make([]uint32, min(int(end/Step)+1, points))
	for _, c := range r.callers {
		for i := range out {
			out[i] += c.counts[i]
		}
	}
	return out
}

// Stall is the longest time in which no operation ended, a millisecond more or less.
func (r *Recorder) Stall() time.Duration { return time.Duration(r.gap.Load()) }
