package engine

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
)

// Files testdata/write*.txt hold what writes mean, case by case. A case is a list of commands, a line "----", and what they
// print; # begins a comment. -update writes down what is printed.
//
//	new f=<rule> s=sum          a new store with table t; a rule as gc.Parse reads it, or sum, min, max
//	clock <us> | flush | compact | reopen | crash | read [raw] | options ...
//	put <row>: <op>; ...        set f:q @ts v | add f:q @ts n | merge f:q @ts bytes | delete f:q [from..to] | delete f | delete | nothing
//	cond <row> <filter>: <op>; ... | <op>; ...
//	rmw <row>: incr f:q n; append f:q v
//	bulk                        followed by indented put and cond, each a mutation of its own
//	batch                       followed by indented items: put, cond, rmw, or require <row> <filter> true|false
//
// @now is ServerTime. A value #n is the number n in 8 bytes. A filter is f, f:q, any (nil), or one with @from..to and =value pattern behind it.
func TestWriteText(t *testing.T) { textFiles(t, "testdata/write*.txt", runWriteText) }

type writeText struct {
	t       *testing.T
	s       *testStore
	tb      *Table
	out     []string
	matched bool
}

func runWriteText(t *testing.T, in string) string {
	w := &writeText{t: t}
	var res []string
	lines := strings.Split(in, "\n")
	for i := 0; i < len(lines); i++ {
		res = append(res, lines[i])
		line := lines[i]
		switch {
		case line == "----":
			res = append(res, w.out...)
			w.out = nil
			for i+1 < len(lines) && lines[i+1] != "" {
				i++ // what was printed when it was written down
			}
		case strings.HasPrefix(line, "#") || line == "":
		case line == "batch":
			b := NewBatch()
			var rows []*Row
			for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], " "); i++ {
				res = append(res, lines[i+1])
				if out := w.item(b, strings.TrimSpace(lines[i+1])); out != nil {
					rows = append(rows, out)
				}
			}
			var opts []ApplyOption
			if b.conds() == 1 {
				opts = append(opts, GetCondMutationResult(&w.matched))
			}
			err := w.s.Apply(ctx, b, opts...)
			w.fail(err)
			for _, r := range rows {
				if err == nil {
					w.row(*r)
				} else if r.Cells != nil {
					t.Errorf("a batch that failed has a result")
				}
			}
		case line == "bulk":
			var rows []string
			var muts []*Mutation
			for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], " "); i++ {
				res = append(res, lines[i+1])
				name, rest, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " ")
				row, m := "", (*Mutation)(nil)
				if name == "cond" {
					row, m = w.cond(rest)
				} else {
					row, m = w.put(rest)
				}
				rows, muts = append(rows, row), append(muts, m)
			}
			errs, err := w.tb.ApplyBulk(ctx, rows, muts)
			w.fail(err)
			for i, err := range errs {
				w.print("%d: %v", i, err)
			}
		default:
			w.command(strings.TrimSpace(line))
		}
	}
	return strings.Join(res, "\n")
}

func (w *writeText) print(format string, args ...any) {
	w.out = append(w.out, fmt.Sprintf(format, args...))
}

func (w *writeText) fail(err error) {
	if err != nil {
		w.print("error: %v", err)
	}
}

func (w *writeText) command(line string) {
	name, rest, _ := strings.Cut(line, " ")
	switch name {
	case "new":
		w.s = newStore(w.t, nil)
		spec := TableSpec{Families: map[string]FamilySpec{}}
		for _, f := range strings.Fields(rest) {
			fam, what, _ := strings.Cut(f, "=")
			switch what {
			case "sum":
				spec.Families[fam] = FamilySpec{Aggregate: Sum}
			case "min":
				spec.Families[fam] = FamilySpec{Aggregate: Min}
			case "max":
				spec.Families[fam] = FamilySpec{Aggregate: Max}
			default:
				rule, err := gc.Parse(what)
				w.s.must(err)
				spec.Families[fam] = FamilySpec{GC: rule}
			}
		}
		var err error
		w.tb, err = w.s.CreateTable(ctx, "t", spec)
		w.s.must(err)
	case "clock":
		w.s.now = time.UnixMicro(w.num(rest))
	case "flush":
		w.s.must(w.s.Flush(ctx))
	case "compact":
		w.s.must(w.s.Compact(ctx))
	case "reopen":
		w.s.reopen()
		w.tb = w.s.Table("t")
	case "read":
		var opts []ReadOption
		if rest == "raw" {
			opts = append(opts, Raw())
		}
		n := len(w.out)
		w.s.must(w.tb.ReadRows(ctx, AllRows(), func(r Row) bool { w.row(r); return true }, opts...))
		if len(w.out) == n {
			w.print("nothing")
		}
	case "put":
		row, m := w.put(rest)
		w.fail(w.tb.Apply(ctx, row, m))
	case "cond":
		row, m := w.cond(rest)
		err := w.tb.Apply(ctx, row, m, GetCondMutationResult(&w.matched))
		w.fail(err)
		if err == nil {
			w.print("%v", w.matched)
		}
	case "rmw":
		row, m := w.rmw(rest)
		r, err := w.tb.ReadModifyWrite(ctx, row, m)
		w.fail(err)
		if err == nil {
			w.row(r)
		}
	default:
		w.t.Fatalf("unknown command %q", line)
	}
}

func (w *writeText) item(b *Batch, line string) *Row {
	name, rest, _ := strings.Cut(line, " ")
	switch name {
	case "put":
		row, m := w.put(rest)
		b.Add(w.tb, row, m)
	case "cond":
		row, m := w.cond(rest)
		b.Add(w.tb, row, m)
	case "rmw":
		row, m := w.rmw(rest)
		return b.AddReadModifyWrite(w.tb, row, m)
	case "require":
		f := strings.Fields(rest)
		b.Require(w.tb, f[0], w.filter(f[1]), f[2] == "true")
	default:
		w.t.Fatalf("unknown item %q", line)
	}
	return nil
}

// key splits "row: rest"; a row "" is the empty key.
func (w *writeText) key(s string) (row, rest string) {
	row, rest, ok := strings.Cut(s, ":")
	if !ok {
		w.t.Fatalf("no row in %q", s)
	}
	return strings.Trim(strings.TrimSpace(row), `"`), strings.TrimSpace(rest)
}

func (w *writeText) put(s string) (string, *Mutation) {
	row, ops := w.key(s)
	return row, w.ops(ops)
}

func (w *writeText) cond(s string) (string, *Mutation) {
	s, ops, _ := strings.Cut(s, ": ")
	row, filter, _ := strings.Cut(s, " ")
	yes, no, _ := strings.Cut(ops, "|")
	return strings.Trim(row, `"`), NewCondMutation(w.filter(filter), w.ops(yes), w.ops(no))
}

// ops is nil for no text.
func (w *writeText) ops(s string) *Mutation {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	m := NewMutation()
	for _, op := range strings.Split(s, ";") {
		f := strings.Fields(op)
		if len(f) == 0 {
			continue
		}
		arg := func(i int) string {
			if i < len(f) {
				return f[i]
			}
			return ""
		}
		fam, q, single := strings.Cut(arg(1), ":")
		switch {
		case f[0] == "nothing": // a mutation without changes
		case f[0] == "set":
			m.Set(fam, q, w.stamp(arg(2)), w.value(arg(3)))
		case f[0] == "add":
			m.AddIntToCell(fam, q, w.stamp(arg(2)), w.num(arg(3)))
		case f[0] == "merge":
			m.MergeBytesToCell(fam, q, w.stamp(arg(2)), w.value(arg(3)))
		case f[0] == "delete" && len(f) == 1:
			m.DeleteRow()
		case f[0] == "delete" && !single:
			m.DeleteCellsInFamily(fam)
		case f[0] == "delete" && len(f) == 2:
			m.DeleteCellsInColumn(fam, q)
		case f[0] == "delete":
			from, to, _ := strings.Cut(arg(2), "..")
			m.DeleteTimestampRange(fam, q, Timestamp(w.num(from)), Timestamp(w.num(to)))
		default:
			w.t.Fatalf("unknown change %q", op)
		}
	}
	return m
}

func (w *writeText) rmw(s string) (string, *ReadModifyWrite) {
	row, rules := w.key(s)
	m := NewReadModifyWrite()
	for _, rule := range strings.Split(rules, ";") {
		f := strings.Fields(rule)
		if len(f) == 0 {
			continue
		}
		fam, q, _ := strings.Cut(f[1], ":")
		switch f[0] {
		case "incr":
			m.Increment(fam, q, w.num(f[2]))
		case "append":
			m.AppendValue(fam, q, w.value(f[2]))
		default:
			w.t.Fatalf("unknown rule %q", rule)
		}
	}
	return row, m
}

func (w *writeText) filter(s string) Filter {
	s, re, pattern := strings.Cut(s, "=")
	s, times, timed := strings.Cut(s, "@")
	var list []Filter
	switch fam, q, column := strings.Cut(s, ":"); {
	case column:
		list = append(list, ColumnExact(fam, q))
	case s != "any":
		list = append(list, FamilyExact(s))
	}
	if timed {
		from, to, _ := strings.Cut(times, "..")
		list = append(list, TimestampRangeFilter(Timestamp(w.num(from)), Timestamp(w.num(to))))
	}
	if pattern {
		list = append(list, ValueFilter(re))
	}
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	if len(list) == 1 {
		return list[0]
	}
	return ChainFilters(list...)
}

func (w *writeText) num(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *writeText) stamp(s string) Timestamp {
	if s == "@now" {
		return ServerTime
	}
	return Timestamp(w.num(strings.TrimPrefix(s, "@")))
}

func (w *writeText) value(s string) []byte {
	if n, ok := strings.CutPrefix(s, "#"); ok {
		p := make([]byte, cell.StateLen)
		cell.PutState(p, w.num(n))
		return p
	}
	return []byte(s)
}

func (w *writeText) row(r Row) {
	line := r.Key
	for _, c := range r.Cells {
		v := string(c.Value)
		if n, ok := cell.State(c.Value); ok {
			v = fmt.Sprint("#", n)
		}
		line += fmt.Sprintf(" %s:%s@%d=%s", c.Family, c.Qualifier, c.Timestamp, v)
	}
	w.print("%s", line)
}
