package engine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
)

// Files testdata/schema*.txt hold what collection rules, schema changes and drops mean, case by case, in the form of write*.txt
// (see TestWriteText), with these commands more:
//
//	create t f=<rule> g=<rule>@<group>      a further table in the store; commands go on with it
//	use <table>                             go on with another one
//	modify add f <rule>; drop f; rule f <rule>; a rule may have @<group> behind it, or be sum, min or max where a family is made
//	drop rows <from>..<to> | drop prefix "<prefix>" | drop all | drop table
//	tick <duration>
//	families | tables                       what Describe and Tables say
//	asof <us>                               read as of a time
//	snapshot | look                         keep the present, and read it later
//	work                                    let background work run
//	files                                   whether there are any table files
func TestSchemaText(t *testing.T) { textFiles(t, "testdata/schema*.txt", runSchemaText) }

type schemaText struct {
	writeText
	snap *Snapshot
}

func runSchemaText(t *testing.T, in string) string {
	w := &schemaText{writeText: writeText{t: t}}
	defer w.forget()
	var res []string
	lines := strings.Split(in, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		res = append(res, line)
		switch {
		case line == "----":
			res = append(res, w.out...)
			w.out = nil
			for i+1 < len(lines) && lines[i+1] != "" {
				i++
			}
		case strings.HasPrefix(line, "#") || line == "":
		default:
			w.schemaCommand(strings.TrimSpace(line))
		}
	}
	return strings.Join(res, "\n")
}

func (w *schemaText) forget() {
	if w.snap != nil {
		w.s.must(w.snap.Close())
		w.snap = nil
	}
}

func (w *schemaText) unquoted(s string) string {
	out, err := strconv.Unquote(s)
	w.s.must(err)
	return out
}

func (w *schemaText) rule(s string) gc.Rule {
	r, err := gc.Parse(s)
	w.s.must(err)
	return r
}

func (w *schemaText) spec(s string) FamilySpec {
	rule, group, _ := strings.Cut(s, "@")
	for _, a := range []Aggregate{Sum, Min, Max} {
		if rule == a.String() {
			return FamilySpec{Aggregate: a, Group: group}
		}
	}
	return FamilySpec{GC: w.rule(rule), Group: group}
}

func (w *schemaText) schemaCommand(line string) {
	name, rest, _ := strings.Cut(line, " ")
	switch name {
	case "new":
		w.forget()
		w.command(line)
	case "reopen", "crash":
		name := w.tb.Name()
		w.forget()
		if line == "crash" {
			w.s.must(w.s.Sync(ctx))
			image := w.s.fs.CrashClone(1, 0.5)
			w.s.must(w.s.Close())
			w.s.fs, w.s.opts.FS = image, image
			w.s.open()
		} else {
			w.s.reopen()
		}
		w.tb = w.s.Table(name)
	case "create":
		f := strings.Fields(rest)
		spec := TableSpec{Families: map[string]FamilySpec{}}
		for _, x := range f[1:] {
			fam, what, _ := strings.Cut(x, "=")
			spec.Families[fam] = w.spec(what)
		}
		_, err := w.s.CreateTable(ctx, f[0], spec)
		w.fail(err)
		w.tb = w.s.Table(f[0])
	case "use":
		w.tb = w.s.Table(rest)
	case "modify":
		var changes []FamilyChange
		for _, c := range strings.Split(rest, ";") {
			switch f := strings.Fields(c); f[0] {
			case "add":
				spec := w.spec(f[2])
				changes = append(changes, AddFamily(f[1], spec))
			case "drop":
				changes = append(changes, DropFamily(f[1]))
			case "rule":
				changes = append(changes, SetGCRule(f[1], w.rule(strings.Join(f[2:], " "))))
			default:
				w.t.Fatalf("unknown change %q", c)
			}
		}
		w.fail(w.tb.ModifyFamilies(ctx, changes...))
	case "drop":
		switch what, rows, _ := strings.Cut(rest, " "); what {
		case "rows":
			from, to, _ := strings.Cut(rows, "..")
			r := InfiniteRange(from)
			if to != "" {
				r = NewRange(from, strings.Trim(to, `"`))
			}
			w.fail(w.tb.DropRowRange(ctx, r))
		case "prefix":
			w.fail(w.tb.DropRowRange(ctx, PrefixRange(w.unquoted(rows))))
		case "all":
			w.fail(w.tb.DropAllRows(ctx))
		case "table":
			w.fail(w.s.DropTable(ctx, w.tb.Name()))
		}
	case "tick":
		d, err := time.ParseDuration(rest)
		w.s.must(err)
		w.s.now = w.s.now.Add(d)
	case "families":
		info, err := w.tb.Describe(ctx)
		w.fail(err)
		var list []string
		for _, f := range sortedKeys(info.Families) {
			spec := info.Families[f]
			line := fmt.Sprintf("%s=%v", f, spec.GC)
			if spec.Aggregate != NoAggregate {
				line += " " + spec.Aggregate.String()
			}
			if spec.Group != "" {
				line += "@" + spec.Group
			}
			list = append(list, line)
		}
		if err == nil {
			w.print("%s", strings.Join(list, ", "))
		}
	case "read":
		if rest == "raw" {
			w.look(Raw())
		} else {
			w.look()
		}
	case "tables":
		names, err := w.s.Tables(ctx)
		w.fail(err)
		w.print("%s", strings.Join(names, " "))
	case "asof":
		w.look(AsOf(time.UnixMicro(w.num(rest))))
	case "snapshot":
		w.forget()
		var err error
		w.snap, err = w.s.Snapshot()
		w.s.must(err)
	case "look":
		w.look(AtSnapshot(w.snap))
	case "work":
		w.s.exec.Help()
	case "files":
		m := w.s.Metrics()
		n := 0
		for _, l := range m.Levels {
			n += l.Files
		}
		w.print("%v, %d changes stand", n > 0, m.StandingChanges)
	default:
		w.command(line)
	}
}

func (w *schemaText) look(opts ...ReadOption) {
	n := len(w.out)
	err := w.tb.ReadRows(ctx, AllRows(), func(r Row) bool { w.row(r); return true }, opts...)
	w.fail(err)
	if len(w.out) == n {
		w.print("nothing")
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
