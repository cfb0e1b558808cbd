package fuzz

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/io/vfs"
)

var updateReads = flag.Bool("update-reads", false, "write what the text tests of reads answer into their files")

// The files of testdata/reads say what reads give. Lines that begin with ">" are answers:
//
//	table f v2 ...                    a new table t with families of these names, whose rules are those of Families
//	set "row" f "qualifier" 5 "value" a cell; delete "row" deletes a row
//	versions "row" f "qualifier" N    versions 1 to N of a column; columns "row" f N columns 0001 to N at timestamp 1
//	flush                             moves what was written into a file
//	read all|RANGE... OPTION...       rows; ranges as in lists of operations
//
// with the options limit N, cells N, bytes N, reverse, after "row" [f "qualifier" 5 [copies]], filter FILTER. A read is run row
// by row and as a stream of cells, and where it has a filter it must give what the filter's definition gives.
func TestReadText(t *testing.T) {
	files, err := filepath.Glob("testdata/reads/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			r := readText{t: t}
			defer r.close()
			var out []string
			lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
			for i := 0; i < len(lines); {
				line := lines[i]
				i++
				out = append(out, line)
				if line == "" || line[0] == '#' {
					continue
				}
				got := r.run(line)
				out = append(out, got...)
				at := i
				for i < len(lines) && strings.HasPrefix(lines[i], ">") {
					i++
				}
				if !*updateReads && !slices.Equal(got, lines[at:i]) {
					t.Errorf("%s:%d: %s\n got\n%s\nwant\n%s", f, at, line, strings.Join(got, "\n"), strings.Join(lines[at:i], "\n"))
				}
			}
			if *updateReads {
				if err := os.WriteFile(f, []byte(strings.Join(out, "\n")+"\n"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

type readText struct {
	t  *testing.T
	db *engine.DB
	tb *engine.Table
}

func (r *readText) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *readText) close() {
	if r.db != nil {
		r.must(r.db.Close())
	}
}

func (r *readText) run(line string) []string {
	p := &parser{line: line}
	defer func() {
		if p.err != nil {
			r.t.Fatalf("%s: %v", line, p.err)
		}
	}()
	switch cmd := p.next(); cmd {
	case "table":
		r.close()
		var err error
		r.db, err = engine.Open("/store", base(engine.Options{
			FS: vfs.NewMem(vfs.MemOptions{NoCrash: true}), Clock: func() time.Time { return time.UnixMicro(Start) },
		}))
		r.must(err)
		spec := engine.TableSpec{BlockBytes: 512, Families: map[string]engine.FamilySpec{}}
		for p.peek() != "" {
			name := p.next()
			spec.Families[name] = engine.FamilySpec{GC: Families[name].Rule.Policy()}
		}
		r.tb, err = r.db.CreateTable(ctx, "t", spec)
		r.must(err)
	case "set":
		m := engine.NewMutation()
		row, f, q, ts, v := p.text(), p.next(), p.text(), p.number(), p.text()
		m.Set(f, q, engine.Timestamp(ts), []byte(v))
		r.must(r.tb.Apply(ctx, row, m))
	case "versions":
		row, f, q, n, m := p.text(), p.next(), p.text(), p.number(), engine.NewMutation()
		for i := range n {
			m.Set(f, q, engine.Timestamp(i+1), []byte(fmt.Sprint(i+1)))
		}
		r.must(r.tb.Apply(ctx, row, m))
	case "columns":
		row, f, n, m := p.text(), p.next(), p.number(), engine.NewMutation()
		for i := range n {
			m.Set(f, fmt.Sprintf("%04d", i+1), 1, []byte(fmt.Sprint(i+1)))
		}
		r.must(r.tb.Apply(ctx, row, m))
	case "delete":
		m := engine.NewMutation()
		m.DeleteRow()
		r.must(r.tb.Apply(ctx, p.text(), m))
	case "flush":
		r.must(r.db.Flush(ctx))
	case "read":
		return r.read(p)
	default:
		p.fail("unknown command")
	}
	return nil
}

func (r *readText) read(p *parser) []string {
	set, rows, reverse, single := engine.RowSet(engine.AllRows()), engine.Rows{}, false, ""
	var opts []engine.ReadOption
	var f *Filter
	paged := false
	var next engine.Position
	for p.peek() != "" && p.err == nil {
		switch w := p.peek(); w {
		case "all":
			p.next()
		case "none":
			p.next()
			set = engine.RowList{}
		case "list":
			p.next()
			var l engine.RowList
			for strings.HasPrefix(p.peek(), `"`) {
				l = append(l, p.text())
			}
			rows = append(rows, l)
		case "limit", "cells", "bytes":
			p.next()
			n := p.number()
			opts = append(opts, map[string]func(int64) engine.ReadOption{
				"limit": engine.LimitRows, "cells": engine.LimitCells, "bytes": engine.LimitBytes}[w](n))
			paged = true
		case "reverse":
			p.next()
			reverse = true
			opts = append(opts, engine.ReverseScan())
		case "after":
			p.next()
			pos := engine.Position{Row: p.text()}
			if f := p.peek(); f != "" && f != "cells" && f != "limit" && f != "filter" && f != "reverse" {
				pos.Family, pos.Qualifier, pos.Timestamp = p.next(), p.text(), engine.Timestamp(p.number())
				if p.word("copies") {
					pos.Copies = int(p.number())
				}
			}
			opts = append(opts, engine.After(pos))
			paged = true
		case "filter":
			p.next()
			f = p.filter(0)
			opts = append(opts, engine.RowFilter(f.Engine()))
		default:
			k := p.keyRange()
			single = ""
			if k.StartAt == 's' && len(rows) == 0 {
				single = k.Start
			}
			rows = append(rows, rowRange(k))
		}
	}
	if len(rows) > 0 {
		set = rows
	}
	opts = append(opts, engine.ContinueAt(&next))
	var got []string
	err := r.tb.ReadRows(ctx, set, func(row engine.Row) bool {
		got = append(got, "> "+fromFiltered(row).String())
		return true
	}, opts...)
	if err != nil {
		return []string{"> error: " + err.Error()}
	}
	pos := next
	var streamed []filteredRow
	r.must(r.tb.ReadCellsBorrowed(ctx, set, func(c *engine.BorrowedCell) bool {
		if n := len(streamed); n == 0 || streamed[n-1].key != string(c.Row) {
			streamed = append(streamed, filteredRow{key: string(c.Row)})
		}
		x := engine.Cell{Family: string(c.Family), Qualifier: string(c.Qualifier), Timestamp: c.Timestamp, Value: []byte(string(c.Value)), Labels: slices.Clone(c.Labels)}
		last := &streamed[len(streamed)-1]
		last.cells = append(last.cells, fromFiltered(engine.Row{Cells: []engine.Cell{x}}).cells...)
		return true
	}, opts...))
	r.same("as a stream", got, streamed)
	if next != pos {
		r.t.Errorf("the stream continues at %+v, the rows at %+v", next, pos)
	}
	if single != "" && len(rows) == 1 {
		row, err := r.tb.ReadRow(ctx, single, opts...)
		r.must(err)
		if next != pos && next != (engine.Position{}) { // a limit of rows does not end a read of one
			r.t.Errorf("one row continues at %+v, rows at %+v", next, pos)
		}
		var one []filteredRow
		if len(row.Cells) > 0 {
			one = append(one, fromFiltered(row))
		}
		r.same("as one row", got, one)
	}
	if f != nil && !paged {
		var want []filteredRow
		all := []engine.ReadOption{}
		if reverse {
			all = append(all, engine.ReverseScan())
		}
		r.must(r.tb.ReadRows(ctx, set, func(row engine.Row) bool {
			in := fromEngine(row)
			if cells := f.Apply(row.Key, in.Cells); len(cells) > 0 {
				want = append(want, filteredRow{row.Key, cells})
			}
			return true
		}, all...))
		r.same("by definition", got, want)
	}
	if (pos != engine.Position{}) {
		got = append(got, fmt.Sprintf("> next %q %s %q %d copies %d", pos.Row, pos.Family, pos.Qualifier, pos.Timestamp, pos.Copies))
	}
	return got
}

func (r *readText) same(how string, got []string, rows []filteredRow) {
	r.t.Helper()
	var want []string
	for _, x := range rows {
		want = append(want, "> "+x.String())
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("%s:\n%s\nand row by row\n%s", how, strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}

func FuzzParseFilter(f *testing.F) {
	files, err := filepath.Glob("testdata/reads/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n") {
			if _, x, ok := strings.Cut(line, " filter "); ok {
				f.Add(x)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := ParseFilter(text)
		if err != nil {
			return
		}
		y, err := ParseFilter(x.String())
		if err != nil || y.String() != x.String() {
			t.Fatalf("%q reads back as %q, %v", x, y, err)
		}
		x.Engine()
	})
}
