package main

import (
	"bytes"
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"hash/fnv"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/rowandb/rowan/engine"
)

// page is a directory of the tree that has files.
type page struct {
	row   string // import path
	files []string
}

// site is the tree: its pages in order of row.
type site struct {
	root  string
	pages []page
	files int
}

type crawl struct {
	n  int
	ts engine.Timestamp
}

// walk lists the regular files of a tree.
func walk(root string) (*site, error) {
	s := &site{root: root}
	byRow := map[string][]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		byRow[path.Dir(rel)] = append(byRow[path.Dir(rel)], path.Base(rel))
		s.files++
		return nil
	})
	if err != nil {
		return nil, err
	}
	for row, files := range byRow {
		sort.Strings(files)
		s.pages = append(s.pages, page{row: row, files: files})
	}
	sort.Slice(s.pages, func(i, j int) bool { return s.pages[i].row < s.pages[j].row })
	if s.files < 1000 {
		return nil, fmt.Errorf("%s has %d files, fewer than 1000: not a tree to show anything with", root, s.files)
	}
	return s, nil
}

func (s *site) read(row, file string) ([]byte, error) {
	return os.ReadFile(filepath.Join(s.root, filepath.FromSlash(row), file))
}

// lot is a number below n that depends on the file and the purpose only.
func lot(n uint32, parts ...string) uint32 {
	h := fnv.New32a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return h.Sum32() % n
}

// seen says what crawl n finds of a file: gone, or its text with the edits up to then.
func seen(n int, row, file string, text []byte) (_ []byte, ok, edited bool) {
	switch lot(40, "gone", row, file) {
	case 0: // away for the second crawl only
		if n == 2 {
			return nil, false, false
		}
	case 1: // gone for good at the third
		if n == 3 {
			return nil, false, false
		}
	}
	for k := 2; k <= n; k++ {
		if lot(10, "edit", strconv.Itoa(k), row, file) == 0 {
			text = append(bytes.Clone(text), fmt.Sprintf("\n// edited before crawl %d\n", k)...)
			edited = edited || k == n
		}
	}
	return text, true, edited
}

// imports returns the packages that a Go file imports, with the names it uses. A file that does not parse has none.
func imports(row string, file string, text []byte) map[string]string {
	if !strings.HasSuffix(file, ".go") {
		return nil
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil || p == "" {
			continue
		}
		if strings.HasPrefix(p, ".") {
			p = path.Join(row, p)
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out[p] = name
	}
	return out
}

// anchors collects, per imported package and importing package, the sorted names.
type anchors map[string]map[string][]string

func (a anchors) add(importing string, imported map[string]string) {
	for p, name := range imported {
		m := a[p]
		if m == nil {
			m = map[string][]string{}
			a[p] = m
		}
		if i, ok := slices.BinarySearch(m[importing], name); !ok {
			m[importing] = slices.Insert(m[importing], i, name)
		}
	}
}

func (a anchors) value(imported, importing string) string {
	return strings.Join(a[imported][importing], "\n")
}

// meta is what a crawl notes about a page.
func meta(n int, files int, size int64) string {
	return fmt.Sprintf("crawl %d: %d files, %d bytes", n, files, size)
}

// load writes all crawls.
func (r *report) load(ctx context.Context, db *engine.DB) error {
	t, err := db.CreateTable(ctx, tableName, spec())
	if err != nil {
		return err
	}
	began := time.Now()
	var before anchors
	for _, c := range r.crawls {
		now := anchors{}
		prog := newProgress(fmt.Sprintf("crawl %d", c.n), r.site.files)
		for _, p := range r.site.pages {
			if err := r.loadPage(ctx, t, c, p, now); err != nil {
				return err
			}
			prog.add(len(p.files))
		}
		if err := r.loadAnchors(ctx, t, c, before, now); err != nil {
			return err
		}
		before = now
		if err := db.Sync(ctx); err != nil {
			return err
		}
		prog.done()
	}
	r.anchors = before
	r.loadTime = time.Since(began)
	m := db.Metrics()
	r.direct, r.tablesDirect = m.Log.Direct, m.TablesDirect
	if r.edits == 0 || r.deletes == 0 {
		return fmt.Errorf("%d edits and %d vanished files: nothing to show", r.edits, r.deletes)
	}
	return nil
}

func (r *report) loadPage(ctx context.Context, t *engine.Table, c crawl, p page, links anchors) error {
	m := engine.NewMutation()
	var size int64
	files := 0
	for _, f := range p.files {
		text, err := r.site.read(p.row, f)
		if err != nil {
			return err
		}
		text, ok, edited := seen(c.n, p.row, f, text)
		if !ok {
			m.DeleteCellsInColumn("contents", f)
			r.deletes++
			continue
		}
		if edited {
			r.edits++
		}
		m.Set("contents", f, c.ts, text)
		links.add(p.row, imports(p.row, f, text))
		files++
		size += int64(len(text))
	}
	m.Set("meta", "crawl", c.ts, []byte(meta(c.n, files, size)))
	r.cellsIn += int64(files) + 1
	r.bytesIn += size
	return t.Apply(ctx, p.row, m, engine.NoSync)
}

// loadAnchors writes a crawl's links, and deletes those of the crawl before that are gone.
func (r *report) loadAnchors(ctx context.Context, t *engine.Table, c crawl, before, now anchors) error {
	rows := map[string]*engine.Mutation{}
	mutation := func(row string) *engine.Mutation {
		if rows[row] == nil {
			rows[row] = engine.NewMutation()
		}
		return rows[row]
	}
	for imported, from := range now {
		for importing := range from {
			v := now.value(imported, importing)
			mutation(imported).Set("anchor", importing, c.ts, []byte(v))
			r.cellsIn++
			r.bytesIn += int64(len(v))
		}
	}
	for imported, from := range before {
		for importing := range from {
			if now[imported][importing] == nil {
				mutation(imported).DeleteCellsInColumn("anchor", importing)
				r.deletes++
			}
		}
	}
	for row, m := range rows {
		if err := t.Apply(ctx, row, m, engine.NoSync); err != nil {
			return err
		}
	}
	return nil
}
