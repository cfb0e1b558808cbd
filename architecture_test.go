// Package rowan_test holds what is true of the repository as a whole.
package rowan_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/rowandb/rowan"

// floors of the house, see docs/architecture.md: a package may import what is on a lower floor. The longest match counts.
var floors = map[string]int{
	"cmd/btstress":       100,
	"bench":              100,
	"bench/report":       97,
	"bench/work":         96,
	"bench/measure":      92,
	"bench/store":        92,
	"fuzz":               100,
	"examples":           100,
	"engine":             90,
	"engine/internal":    85,
	"cmd/btdump":         80,
	"internal/inspect":   75,
	"internal/repair":    77,
	"levels":             70,
	"sstable":            65,
	"block":              60,
	"gc":                 50,
	"cache":              45,
	"bloom":              40,
	"io/record":          25,
	"io/faultfs":         24,
	"io/direct":          23,
	"io/mapped":          22,
	"io/vfs":             20,
	"cell":               10,
	"internal/damage":    0,
	"internal/stripe":    0,
	"internal/yardstick": 0,
	"internal/planted":   0,
	"internal/prefetch":  0,
}

// never lists imports that the floors would allow and the design does not.
var never = map[string][]string{
	"levels":     {"sstable", "block"},    // it opens no table file
	"block":      {"io/vfs", "io/direct"}, // it touches no file
	"gc":         {"io/vfs", "cache"},     // it is pure
	"cmd/btdump": {"engine"},              // it must work where the engine does not
	"cache":      {"block", "bloom"},      // it knows no format
	"io/record":  {"io/faultfs", "cell"},  // it frames bytes, whatever they say
	"sstable":    {"gc", "levels"},        // a file does not know where it stands
	"io/vfs":     {"cell", "io/direct"},   // the seam knows nothing of the store
}

func floorOf(pkg string) (int, error) {
	for p := pkg; p != "."; p = path.Dir(p) {
		if f, ok := floors[p]; ok {
			return f, nil
		}
	}
	return 0, fmt.Errorf("package %s is on no floor of the house: add it to the map", pkg)
}

// arrow says whether package from may import package to, both relative to the module.
func arrow(from, to string) error {
	a, err := floorOf(from)
	if err != nil {
		return err
	}
	b, err := floorOf(to)
	if err != nil {
		return err
	}
	inside := strings.HasPrefix(from, "engine") && strings.HasPrefix(to, "engine/internal/")
	switch {
	case b > a, b == a && !inside && path.Dir(from) != to:
		return fmt.Errorf("%s (floor %d) imports %s (floor %d): arrows go down", from, a, to, b)
	case b == 100:
		return fmt.Errorf("%s imports %s, which is nobody's room below", from, to)
	}
	for _, n := range never[from] {
		if to == n || strings.HasPrefix(to, n+"/") {
			return fmt.Errorf("%s must never import %s", from, to)
		}
	}
	return nil
}

func TestImportsGoDown(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(name), "go.mod")); err == nil && filepath.Dir(name) != "." {
			return nil // a module of its own
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			to, ours := strings.CutPrefix(p, module+"/")
			if !ours {
				continue
			}
			seen++
			if err := arrow(filepath.ToSlash(filepath.Dir(name)), to); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 50 {
		t.Fatalf("only %d imports seen", seen)
	}
}

// The check itself must be able to fail.
func TestForbiddenImportsAreRefused(t *testing.T) {
	for _, c := range [][2]string{
		{"cell", "io/vfs"}, {"levels", "engine"}, {"levels", "sstable"}, {"cmd/btdump", "engine"}, {"cmd/btdump", "engine/internal/wal"},
		{"block", "io/vfs"}, {"gc", "engine"}, {"cache", "block"}, {"engine", "examples/webtable"}, {"nowhere", "cell"}, {"engine", "fuzz"},
	} {
		if arrow(c[0], c[1]) == nil {
			t.Errorf("%s may import %s", c[0], c[1])
		}
	}
	for _, c := range [][2]string{{"engine", "levels"}, {"engine", "engine/internal/wal"}, {"sstable", "block"}, {"cmd/btdump", "sstable"}} {
		if err := arrow(c[0], c[1]); err != nil {
			t.Error(err)
		}
	}
}

// Only the types of sync/atomic are used, never its functions on plain integers: those panic on 32-bit machines where a 64-bit field
// is not aligned (nutsdb/nutsdb #603; spacemeshos/go-spacemesh #2336).
func TestAtomicsAreTyped(t *testing.T) {
	check := func(name string, src any) (calls []string, types int) {
		f, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); !ok || x.Name != "atomic" || x.Obj != nil {
				return true
			}
			switch s.Sel.Name {
			case "Bool", "Int32", "Int64", "Uint32", "Uint64", "Uintptr", "Pointer", "Value":
				types++
			default:
				calls = append(calls, s.Sel.Name)
			}
			return true
		})
		return calls, types
	}
	if calls, _ := check("x.go", "package x\nimport \"sync/atomic\"\nvar n int64\nfunc f() { atomic.AddInt64(&n, 1) }"); len(calls) != 1 {
		t.Fatal("the check cannot fail")
	}
	seen := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		calls, types := check(name, nil)
		if seen += types; len(calls) > 0 {
			t.Errorf("%s calls atomic.%s", name, strings.Join(calls, ", "))
		}
		return nil
	})
	if err != nil || seen < 20 {
		t.Fatalf("%d typed atomics seen, %v", seen, err)
	}
}
