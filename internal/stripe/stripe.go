// Package stripe has counters that many goroutines change all the time: each changes a line of memory of its own, so that processors
// do not pass one line to and fro. Reading one is dearer, and sees changes in no particular order.
package stripe

import "sync/atomic"

// count is how many lines a counter has. More goroutines than that share some.
const count = 8

// Slot names the line that a goroutine changes. The zero Slot is as good as any, but others who did not ask use it too.
type Slot uint8

var given atomic.Uint32

// Next returns one slot after the other: for objects that are pooled, and so hardly ever used by two processors at once.
func Next() Slot { return Slot(given.Add(1) % count) }

// Counter is a sum. What is taken away must be taken from the slot that it was added to; then a part that somebody holds is seen by
// every Load that begins and ends meanwhile. Safe for concurrent use.
//
// The lines lie two apart, because processors fetch them in pairs, and apart from what is before and behind the counter.
type Counter struct {
	_     [apart - 8]byte
	lines [count]struct {
		n atomic.Int64
		_ [apart - 8]byte
	}
}

const apart = 128

// Add changes the sum by n.
func (c *Counter) Add(s Slot, n int64) { c.lines[s%count].n.Add(n) }

// Load returns the sum.
func (c *Counter) Load() (n int64) {
	for i := range c.lines {
		n += c.lines[i].n.Load()
	}
	return n
}
