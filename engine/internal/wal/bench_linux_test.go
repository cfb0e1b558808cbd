package wal

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rowandb/rowan/io/vfs"
)

// yardstick is the usual log: records are appended to a growing file through the page cache and made durable by fdatasync,
// by one leader for all that is queued.
type yardstick struct {
	f       *os.File
	mu      sync.Mutex
	cond    *sync.Cond
	queue   []byte
	spare   []byte
	placed  uint64
	durable uint64
	writing bool
}

func (y *yardstick) commit(rec []byte) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.queue = append(y.queue, rec...)
	y.placed++
	seq := y.placed
	for y.durable < seq {
		if y.writing {
			y.cond.Wait()
			continue
		}
		y.writing = true
		q, to := y.queue, y.placed
		y.queue = y.spare[:0]
		y.mu.Unlock()
		_, err := y.f.Write(q)
		if err == nil {
			err = unix.Fdatasync(int(y.f.Fd()))
		}
		y.mu.Lock()
		if err != nil {
			return err
		}
		y.spare, y.durable, y.writing = q, to, false
		y.cond.Broadcast()
	}
	return nil
}

// BenchmarkCommit compares durable commits of 128-byte records per second with the yardstick's, in turns on one file system.
func BenchmarkCommit(b *testing.B) {
	rec := make([]byte, 128)
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			dir := b.TempDir()
			l, err := Open(Options{FS: vfs.OS(), Dir: dir + "/wal", StoreID: 1, OpenCount: 1}, Recovered{})
			must(b, err)
			f, err := os.Create(dir + "/yardstick")
			must(b, err)
			y := &yardstick{f: f}
			y.cond = sync.NewCond(&y.mu)
			var mu sync.Mutex
			seq := uint64(0)
			ours := func() error {
				mu.Lock()
				seq++
				s := seq
				err := place(l, rec, s, 1, 1)
				mu.Unlock()
				if err != nil {
					return err
				}
				return l.Wait(ctx, s)
			}
			theirs := func() error { return y.commit(rec) }
			run := func(n int, commit func() error) time.Duration {
				start := time.Now()
				var wg sync.WaitGroup
				for g := range writers {
					wg.Go(func() {
						for range (n + g) / writers {
							if err := commit(); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return time.Since(start)
			}
			for range 2 { // let the slots grow and get recycled, as in a store that has lived a while
				run(20*writers, theirs)
				run(20*writers, ours)
			}
			const turns = 8
			n := max(b.N/turns, writers)
			var tOurs, tTheirs time.Duration
			b.ResetTimer()
			for range turns {
				tOurs += run(n, ours)
				b.StopTimer()
				tTheirs += run(n, theirs)
				l.OldestSlotFor(l.Durable())
				must(b, l.Release(l.Durable()))
				b.StartTimer()
			}
			b.StopTimer()
			b.ReportMetric(float64(turns*n)/tOurs.Seconds(), "commits/s")
			b.ReportMetric(float64(turns*n)/tTheirs.Seconds(), "fdatasync-commits/s")
			b.ReportMetric(tTheirs.Seconds()/tOurs.Seconds(), "ratio")
			st := l.Stats()
			b.ReportMetric(float64(st.Records)/float64(max(st.Groups, 1)), "records/group")
			if st.Mode != "direct" {
				b.Log("direct I/O was refused: the figures are of the buffered fallback")
			}
			must(b, l.Close())
			must(b, f.Close())
		})
	}
}

func BenchmarkAppendNoSync(b *testing.B) {
	b.Run("os", func(b *testing.B) { appendNoSync(b, vfs.OS(), b.TempDir()+"/wal") })
	b.Run("mem", func(b *testing.B) { appendNoSync(b, vfs.NewMem(vfs.MemOptions{NoCrash: true}), "wal") })
}

func appendNoSync(b *testing.B, fsys vfs.FS, dir string) {
	l, err := Open(Options{FS: fsys, Dir: dir, StoreID: 1, OpenCount: 1}, Recovered{})
	must(b, err)
	rec := make([]byte, 128)
	b.ResetTimer()
	for i := range b.N {
		if err := place(l, rec, uint64(i+1), 1, 1); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 0 {
			must(b, l.Throttle(ctx))
			l.OldestSlotFor(l.Durable())
			must(b, l.Release(l.Durable()))
		}
	}
	must(b, l.Sync(ctx))
	b.StopTimer()
	b.ReportMetric(float64(l.Stats().Writes), "writes")
	must(b, l.Close())
}

func BenchmarkRecover(b *testing.B) {
	o := Options{FS: vfs.NewMem(vfs.MemOptions{NoCrash: true}), Dir: "w", StoreID: 1, Manual: true}
	l := openNew(b, o)
	const n = 100_000
	for s := range uint64(n) {
		must(b, place(l, recOf(s+1, 128), s+1, 1, 1))
	}
	must(b, l.Close())
	b.SetBytes(n * 128)
	for range b.N {
		r, err := Recover(ctx, o, 0, func([]byte) error { return nil })
		if err != nil || r.Records != n {
			b.Fatal(r.Records, err)
		}
	}
}
