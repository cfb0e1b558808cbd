package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// textFiles runs every file of a pattern: run is given the text and returns it with the answers that the store gives. With
// -update these are written down.
func textFiles(t *testing.T, pattern string, run func(t *testing.T, text string) string) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			in, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := run(t, string(in))
			switch {
			case *update:
				if err := os.WriteFile(name, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			case got != string(in):
				g, w := strings.Split(got, "\n"), strings.Split(string(in), "\n")
				for i := range min(len(g), len(w)) {
					if g[i] != w[i] {
						t.Fatalf("%s:%d: got\n%s\nwant\n%s", name, i+1, g[i], w[i])
					}
				}
				t.Fatalf("%s: %d lines, want %d", name, len(g), len(w))
			}
		})
	}
}
