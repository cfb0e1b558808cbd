package levels

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// TestPicker runs testdata/*.txt. A case is
//
//	pick l0=2 level=100 factor=10         or: plan FROM..TO  (PlanRange; "all" for everything; "done"
//	                                      after it: files without deletes are as a merge would leave them)
//	L0 1:a..f=10 2:c..k=10                files of a level as number:from..to=size; L0 oldest first, numbers are ages
//	L1 7:a..b=50+d                        +d: has deletes
//	rule 2 seq=50                         change 2 is one of a rule, made at sequence 50; file n has sequences 10n to 10n+9
//	drop 2 seq=50 b..f                    change 2 dropped rows; a file that has +s2 has gone through change 2
//	busy 7                                files that are held
//	running 3 4 -> 1                      a job that runs: its inputs and output level
//	----
//	L0 2 1, L1 7 -> 1 (L0)                inputs newest first, output, reason; "move" before a move
//	debt 70
func TestPicker(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no test data", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range strings.Split(string(data), "\n\n") {
			lines := slices.DeleteFunc(strings.Split(c, "\n"), func(l string) bool { return l == "" || l[0] == '#' })
			if len(lines) == 0 {
				continue
			}
			cut := slices.Index(lines, "----")
			if cut < 0 {
				t.Fatalf("%s: no ---- in\n%s", name, c)
			}
			p := pickCase{t: t, o: PickOptions{FileBytes: 1, OldestMem: NoMem}}
			if got, want := p.run(lines[:cut]), strings.Join(lines[cut+1:], "\n"); got != want {
				t.Errorf("%s:\n%s\ngot:\n%s", name, c, got)
			}
		}
	}
}

type pickCase struct {
	t    *testing.T
	o    PickOptions
	tree Tree
	busy Busy
}

func (p *pickCase) num(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.t.Fatalf("%q is no number", s)
	}
	return n
}

func (p *pickCase) run(lines []string) string {
	p.tree.ID = 1
	head := strings.Fields(lines[0])
	for _, l := range lines[1:] {
		w := strings.Fields(l)
		switch {
		case w[0] == "busy":
			for _, n := range w[1:] {
				p.busy.Hold(Num(p.num(n)))
			}
		case w[0] == "rule" || w[0] == "drop":
			p.change(w)
		case w[0] == "running":
			p.running(w[1:])
		default:
			p.level(w)
		}
	}
	p.tree.Sub = sublevels(p.tree.Files[0])
	if err := p.tree.order(); err != nil {
		p.t.Fatal(err)
	}
	if head[0] == "plan" {
		var b *cell.Bounds
		if lo, hi, ok := strings.Cut(head[1], ".."); ok {
			b = &cell.Bounds{LoRow: []byte(lo), HiRow: []byte(hi)}
		}
		plan, ok := PlanRange(&p.tree, &p.busy, b, p.o.Changes, func(f *File) bool { return len(head) > 2 && !f.HasDeletes() })
		switch {
		case !ok:
			return "in the way"
		case len(plan.Inputs) == 0:
			return "nothing"
		}
		return p.show(plan)
	}
	for _, w := range head[1:] {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "l0":
			p.o.L0Files = int(p.num(v))
		case "level":
			p.o.LevelBytes = p.num(v)
		case "factor":
			p.o.Factor = int(p.num(v))
		case "mem":
			p.o.OldestMem = uint64(p.num(v))
		}
	}
	plan, ok := Pick(&p.tree, p.o, &p.busy)
	out := "nothing"
	if ok {
		out = p.show(plan)
	}
	return out + fmt.Sprintf("\ndebt %d", Debt(&p.tree, p.o))
}

// level reads "L0 1:a..f=10+d ...".
func (p *pickCase) level(w []string) {
	l := int(p.num(strings.TrimPrefix(w[0], "L")))
	for _, f := range w[1:] {
		num, rest, _ := strings.Cut(f, ":")
		span, size, _ := strings.Cut(rest, "=")
		lo, hi, _ := strings.Cut(span, "..")
		size, age, _ := strings.Cut(size, "@")
		size, settled, _ := strings.Cut(size, "+s")
		size, dels := strings.CutSuffix(size, "+d")
		n := uint64(p.num(num))
		file := &File{Num: n, Size: p.num(size), Bounds: cell.Bounds{LoRow: []byte(lo), HiRow: []byte(hi)}, FirstSeq: n * 10, LastSeq: n*10 + 9}
		if dels {
			file.Ranges = 1
		}
		if age != "" {
			file.FirstSeq, file.LastSeq = uint64(p.num(age)*10), uint64(p.num(age)*10+9)
		}
		if settled != "" {
			file.Settled = uint64(p.num(settled))
		}
		p.tree.Files[l] = append(p.tree.Files[l], file)
	}
}

// change reads "drop 2 seq=50 b..f".
func (p *pickCase) change(w []string) {
	c := &Change{Num: uint64(p.num(w[1])), Kind: ChangeRule, Seq: uint64(p.num(strings.TrimPrefix(w[2], "seq=")))}
	if w[0] == "drop" {
		lo, hi, _ := strings.Cut(w[3], "..")
		c.Kind, c.Lo, c.Hi = ChangeRows, []byte(lo), []byte(hi)
	}
	p.o.Changes = append(p.o.Changes, c)
}

// running reads "3 4 -> 1".
func (p *pickCase) running(w []string) {
	at := slices.Index(w, "->")
	plan := Plan{Tree: 1, Output: int(p.num(w[at+1]))}
	for _, n := range w[:at] {
		for l, files := range p.tree.Files {
			for _, f := range files {
				if f.Num == Num(p.num(n)) {
					plan.Inputs = append(plan.Inputs, Input{l, f})
				}
			}
		}
	}
	p.busy.Add(&plan)
}

func (p *pickCase) show(plan Plan) string {
	var b strings.Builder
	if plan.Move {
		b.WriteString("move ")
	}
	last := -1
	for _, in := range plan.Inputs {
		if in.Level != last {
			if last >= 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "L%d", in.Level)
			last = in.Level
		}
		fmt.Fprintf(&b, " %d", in.File.Num)
	}
	fmt.Fprintf(&b, " -> %d (%s)", plan.Output, plan.Why)
	// Whatever is planned must pass the checker.
	e := Edit{}
	first, lastSeq := plan.Inputs[0].File.FirstSeq, uint64(0)
	for _, in := range plan.Inputs {
		e.Deleted = append(e.Deleted, DeletedFile{1, in.Level, in.File.Num})
		first, lastSeq = min(first, in.File.FirstSeq), max(lastSeq, in.File.LastSeq)
	}
	out := &File{Num: 1000, Bounds: plan.Bounds(), FirstSeq: first, LastSeq: lastSeq}
	if plan.Move {
		out = plan.Inputs[0].File
	}
	e.Added = []AddedFile{{1, plan.Output, out}}
	if err := Check(&p.tree, &p.tree, &e); err != nil {
		fmt.Fprintf(&b, "\nrefused: %v", err)
	}
	return b.String()
}
