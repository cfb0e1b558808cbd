package work

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rowandb/rowan/bench/store"
)

// Every engine does every workload on the same data and ends with the same answers. What a workload must read is computed, so each
// run checks itself; here the checks are compared too.
func TestEnginesAgreeOnEveryWorkload(t *testing.T) {
	data := map[string]string{} // directory by engine and set
	for _, w := range All() {
		if w.Crash != nil {
			continue // a process of its own is killed for it: see cmd/compare
		}
		t.Run(w.Name, func(t *testing.T) {
			var want *Run
			for _, e := range store.Engines() {
				if w.Without[e.Name] != "" {
					continue
				}
				r := tiny(e, filepath.Join(t.TempDir(), e.Name))
				if w.Data != "" {
					key := e.Name + w.Data
					if data[key] == "" {
						data[key] = makeData(t, e, w.Data)
					}
					if w.Changes {
						if err := os.CopyFS(r.Dir, os.DirFS(data[key])); err != nil {
							t.Fatal(err)
						}
					} else {
						r.Dir = data[key]
					}
				}
				if err := w.Run(r); err != nil {
					t.Fatalf("%s: %v", e.Name, err)
				}
				o := r.Out
				if o.Ops == 0 || o.Rate <= 0 || o.Disk <= 0 || len(o.Line) == 0 || o.P50 < 0 || o.Max < o.P999 || o.Hash == "" {
					t.Errorf("%s: figures are missing: %+v", e.Name, o)
				}
				if want == nil {
					want = r
				}
				if o.Entries != want.Out.Entries || o.Hash != want.Out.Hash || o.Ops != want.Out.Ops {
					t.Errorf("%s has %d entries %s after %g operations, %s has %d entries %s after %g", e.Name, o.Entries, o.Hash, o.Ops,
						want.Engine.Name, want.Out.Entries, want.Out.Hash, want.Out.Ops)
				}
			}
		})
	}
}

// tiny is a run that takes milliseconds. Buffers are small, so that flushes and compactions come to pass.
func tiny(e store.Engine, dir string) *Run {
	o := store.Options{WriteBuffer: 256 << 10, Cache: 4 << 20, BloomBits: 10, Jobs: 2}
	return &Run{Engine: e, Options: o, Dir: dir, Scale: 0.0002, Steps: 40, Whole: true}
}

func makeData(t *testing.T, e store.Engine, name string) string {
	dir, err := os.MkdirTemp(dataDir, e.Name+"-*")
	if err != nil {
		t.Fatal(err)
	}
	if err := Datasets[name](tiny(e, dir)); err != nil {
		t.Fatalf("%s, data set %s: %v", e.Name, name, err)
	}
	return dir
}

var dataDir string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "rowan-bench-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		dataDir = dir
		return m.Run()
	}())
}
