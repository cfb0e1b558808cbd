package engine

import (
	"fmt"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
)

// What the store asks of the file system for one step, call by call: testdata/calls_*.txt. The order of these calls is what
// durability hangs on (content before its name, a name before the directory, both before the manifest, the manifest before a
// removal), so a change of it is seen and meant. -update rewrites them.
func TestCallsOfEachStep(t *testing.T) {
	type step struct {
		prepare func(s *testStore)
		do      func(s *testStore)
		made    string // what a call of the step must contain, or the step is not what its name says
	}
	put := func(s *testStore, from, n int) {
		for i := from; i < from+n; i++ {
			s.must(s.Table("t").Apply(ctx, fmt.Sprintf("row%03d", i), set("f", "q", 1, strings.Repeat("v", 400))))
		}
	}
	inSlot := func(s *testStore) int {
		list, err := s.fs.List("/store")
		s.must(err)
		n := 0
		for _, e := range list {
			if strings.HasPrefix(e.Name, "slot-") {
				n++
			}
		}
		return n
	}
	steps := map[string]step{
		"open": {
			prepare: func(s *testStore) {
				put(s, 0, 5)
				s.must(s.Flush(ctx))
				put(s, 5, 5)
				s.must(s.Close())
			},
			do:   func(s *testStore) { s.open() },
			made: "lock /store/lock",
		},
		"create": {
			prepare: func(s *testStore) {
				s.must(s.Close())
				list, err := s.fs.List("/store")
				s.must(err)
				for _, e := range list {
					s.must(s.fs.Remove(path.Join("/store", e.Name)))
				}
			},
			do:   func(s *testStore) { s.open() },
			made: "create /store/manifest-",
		},
		"flush": {
			prepare: func(s *testStore) { put(s, 0, 10) },
			do:      func(s *testStore) { s.must(s.Flush(ctx)) },
			made:    "create /store/00000001.sst",
		},
		"compact": {
			prepare: func(s *testStore) {
				for i := range 2 {
					put(s, i, 10)
					s.must(s.Flush(ctx))
				}
			},
			do:   func(s *testStore) { s.must(s.Compact(ctx)) },
			made: "remove /store/00000001.sst",
		},
		"logswitch": {
			prepare: func(s *testStore) { put(s, 0, 1) },
			do: func(s *testStore) {
				for i, n := 1, inSlot(s); inSlot(s) == n; i++ {
					if i > 1000 {
						s.t.Fatal("the log does not go to another slot")
					}
					put(s, i, 1)
				}
			},
			made: "create /store/slot-",
		},
		"manifestroll": {
			prepare: func(s *testStore) {
				put(s, 0, 1)
				s.must(s.Flush(ctx))
			},
			do: func(s *testStore) {
				s.manifest.RollAt = 1 // the next edit is the last of its manifest
				s.must(s.Table("t").ModifyFamilies(ctx, AddFamily("g", FamilySpec{})))
			},
			made: "create /store/manifest-00000002.a",
		},
		"checkpoint": {
			prepare: func(s *testStore) {
				put(s, 0, 5)
				s.must(s.Flush(ctx))
				put(s, 5, 5)
			},
			do: func(s *testStore) {
				_, err := s.Checkpoint(ctx, "/backup")
				s.must(err)
			},
			made: "link /backup",
		},
	}
	for name, st := range steps {
		t.Run(name, func(t *testing.T) {
			var rec *recorder
			s := newStore(t, func(o *Options) {
				rec = &recorder{FS: faultfs.New(o.FS, faultfs.Options{Record: true})}
				o.FS, o.FreeFloor, o.LogSegmentBytes, o.MemtableBytes = rec, -1, 16<<10, 256<<10
			})
			// Without a codec: what one compresses to is not the same on every kind of machine.
			_, err := s.CreateTable(ctx, "t", TableSpec{Codec: CodecNone, Families: map[string]FamilySpec{"f": {GC: gc.MaxVersionsPolicy(1)}}})
			s.must(err)
			st.prepare(s)
			rec.restart()
			st.do(s)
			got := rec.text()
			if !strings.Contains(got, st.made) {
				t.Fatalf("no %q among the calls:\n%s", st.made, got)
			}
			file := path.Join("testdata", "calls_"+name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the calls are not those of %s; if that is meant: go test ./engine -run CallsOfEachStep -update\n%s", file, got)
			}
		})
	}
}

// recorder is a file system that tells the calls made since a moment.
type recorder struct {
	*faultfs.FS
	from int
}

func (r *recorder) restart() { r.from = len(r.Calls()) }

// text is one call a line; calls that repeat are told once, with their number.
func (r *recorder) text() string {
	var b strings.Builder
	calls := r.Calls()[r.from:]
	for i := 0; i < len(calls); {
		n := 1
		for i+n < len(calls) && calls[i+n].String() == calls[i].String() && calls[i+n].Direct == calls[i].Direct {
			n++
		}
		b.WriteString(calls[i].String())
		if calls[i].Direct {
			b.WriteString(" direct")
		}
		if n > 1 {
			fmt.Fprintf(&b, " (%d times)", n)
		}
		b.WriteByte('\n')
		i += n
	}
	return b.String()
}
