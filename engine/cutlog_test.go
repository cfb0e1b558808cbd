package engine

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

// After a clean close a log file that is cut at any length, or replaced by zeros, is noticed, and never taken for a log that ends
// there: the manifest says how far it went.
func TestLogThatIsCutAfterACleanCloseIsNoticed(t *testing.T) {
	s := newStore(t, func(o *Options) { o.LogSegmentBytes = 16 << 10 })
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	put := func(from int) {
		for i := from; i < from+30; i++ {
			s.must(tb.Apply(ctx, fmt.Sprint("r", i), set("f", "q", 1, strings.Repeat("v", 700))))
		}
	}
	put(0)
	s.reopen()
	tb = s.Table("t")
	put(30)
	want := s.scan(tb)
	s.must(s.Close())
	list, err := s.fs.List("/store")
	s.must(err)
	noticed := 0
	for _, e := range list {
		if _, ok := record.ParseSlotName(e.Name); !ok {
			continue
		}
		for n := int64(0); n <= e.Size; n += 512 {
			if raceEnabled && n%4096 != 512 && n%4096 != 0 {
				continue
			}
			for _, zeros := range []bool{false, true} {
				image := s.fs.CrashClone(1, 1)
				f, err := image.Open(path.Join("/store", e.Name), vfs.How{Write: true})
				s.must(err)
				s.must(f.Truncate(n))
				if zeros {
					s.must(f.Truncate(e.Size))
				}
				s.must(f.Close())
				o := s.opts
				o.FS, o.ReadOnly = image, true
				db, err := Open("/store", o)
				if errors.Is(err, ErrDamaged) {
					noticed++
					continue
				}
				s.must(err)
				got := *s
				got.DB = db
				if got.scan(db.Table("t")) != want {
					t.Fatalf("%s cut at %d of %d, zeros %v: rows are missing and nothing is said", e.Name, n, e.Size, zeros)
				}
				s.must(db.Close())
			}
		}
	}
	if noticed < 50 && !raceEnabled {
		t.Errorf("only %d cuts were noticed", noticed)
	}
	s.open()
}
