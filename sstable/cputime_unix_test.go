//go:build unix

package sstable

import (
	"syscall"
	"time"
)

// cpuTime is the processor time of this process: on a busy machine it says more than the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
