package measure

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Usage is what the process has used of the machine since it began.
type Usage struct {
	CPU         time.Duration // user and system
	Written     int64         // bytes sent to storage, -1 if the system does not tell
	MajorFaults int64
}

// Now reads the usage so far.
func Now() (Usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return Usage{}, err
	}
	u := Usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano()), Written: -1, MajorFaults: int64(r.Majflt)}
	if v, ok := field("/proc/self/io", "write_bytes:"); ok {
		u.Written = v
	}
	return u, nil
}

// Sub is the usage since o.
func (u Usage) Sub(o Usage) Usage {
	u.CPU -= o.CPU
	u.MajorFaults -= o.MajorFaults
	if u.Written >= 0 {
		u.Written -= o.Written
	}
	return u
}

// field returns the number behind a name in a file of the proc file system.
func field(file, name string) (int64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
			words := strings.Fields(rest)
			if len(words) == 0 {
				return 0, false
			}
			v, err := strconv.ParseInt(words[0], 10, 64)
			return v, err == nil
		}
	}
	return 0, false
}

// AnonymousRSS is the memory of the process that no file backs, in bytes: what mapped tables take of the page cache is not
// counted, what is allocated is. -1 if the system does not tell.
func AnonymousRSS() int64 {
	kb, ok := field("/proc/self/status", "RssAnon:")
	if !ok {
		return -1
	}
	return kb << 10
}

// Peak samples AnonymousRSS until it is stopped.
type Peak struct {
	stop chan struct{}
	wait sync.WaitGroup
	high int64
}

// WatchPeak begins to sample.
func WatchPeak() *Peak {
	p := &Peak{stop: make(chan struct{}), high: AnonymousRSS()}
	p.wait.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.high = max(p.high, AnonymousRSS())
			case <-p.stop:
				return
			}
		}
	})
	return p
}

// Stop ends the samples and returns the highest, in bytes.
func (p *Peak) Stop() int64 {
	close(p.stop)
	p.wait.Wait()
	return max(p.high, AnonymousRSS())
}

// DiskBytes is the space that the files below dir take on disk, in bytes, holes aside.
func DiskBytes(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += s.Blocks * 512
		}
		return nil
	})
	return sum, err
}
