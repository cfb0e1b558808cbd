package vfs_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// On macOS only the full sync, which package os makes, reaches the medium: nothing that is built there syncs by a call of its own
// (facebook/rocksdb #9356; cockroachdb/pebble #1851; tursodatabase/turso #4760: syncs that stopped at the drive's cache).
func TestSyncOfMacOSIsTheFullOne(t *testing.T) {
	c := build.Default
	c.GOOS, c.GOARCH, c.CgoEnabled = "darwin", "arm64", false
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	own := []string{"Fsync", "Fdatasync", "SyncFileRange", "Syncfs", "Sync_file_range", "FcntlInt"}
	full, linux := false, false
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		there, err := c.MatchFile(".", name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, _ := s.X.(*ast.Ident)
			if x != nil && (x.Name == "unix" || x.Name == "syscall") && slices.Contains(own, s.Sel.Name) {
				if there {
					t.Errorf("%s calls %s.%s", name, x.Name, s.Sel.Name)
				} else {
					linux = true
				}
			}
			if inner, ok := s.X.(*ast.SelectorExpr); ok && name == "os_darwin.go" && inner.Sel.Name == "File" && s.Sel.Name == "Sync" {
				full = true
			}
			return true
		})
	}
	if !full || !linux {
		t.Errorf("os_darwin.go syncs through package os: %t; Linux by its own call, which the test must see: %t", full, linux)
	}
}
