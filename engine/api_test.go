package engine

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// The exported names of the package, one declaration after the other: the public API is small, and grows on purpose only.
func TestExportedAPI(t *testing.T) {
	set := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	add := func(n any) {
		var b bytes.Buffer
		if err := (&printer.Config{Mode: printer.UseSpaces, Tabwidth: 2}).Fprint(&b, set, n); err != nil {
			t.Fatal(err)
		}
		list = append(list, b.String())
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !ast.FileExports(f) {
			continue
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				d.Body = nil
				if d.Recv == nil || exported(d.Recv.List[0].Type) {
					add(d)
				}
			case *ast.GenDecl:
				if d.Tok != token.IMPORT {
					add(d)
				}
			}
		}
	}
	slices.Sort(list)
	got := strings.Join(list, "\n") + "\n"
	if *update {
		if err := os.WriteFile("testdata/api.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/api.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the exported API differs from testdata/api.txt; if that is meant, run go test ./engine -run ExportedAPI -update. Now:\n%s", got)
	}
}

func exported(e ast.Expr) bool {
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	id, ok := e.(*ast.Ident)
	return ok && id.IsExported()
}
