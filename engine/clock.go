package engine

import (
	"sync/atomic"
	"time"
)

// clock is the store's one time: the host's clock, never below what was handed out before, in this life of the store or an
// earlier one. It is the as-of time of reads, collection and conditions.
type clock struct {
	wall func() time.Time
	mark atomic.Int64 // microseconds
}

// now returns the engine time in microseconds since the epoch, at least 0.
func (c *clock) now() int64 {
	t := max(c.wall().UnixMicro(), 0)
	for {
		m := c.mark.Load()
		if t <= m {
			return m
		}
		if c.mark.CompareAndSwap(m, t) {
			return t
		}
	}
}

// raise makes sure that time is not below t.
func (c *clock) raise(t int64) {
	for {
		m := c.mark.Load()
		if t <= m || c.mark.CompareAndSwap(m, t) {
			return
		}
	}
}
