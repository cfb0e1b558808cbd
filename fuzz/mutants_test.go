package fuzz

import (
	"bytes"
	"context"
	"flag"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/internal/planted"
)

// mutant is one wrong store, see planted.Bug.
type mutant struct{ name, file, old, new string }

func (m mutant) bug() planted.Bug {
	return planted.Bug{Name: m.name, File: m.file, Old: m.old, New: m.new}
}

// mutants must all be found by a short run of the oracle. They are the mistakes that such a store is likely to make.
var mutants = []mutant{
	{"rank off by one", "engine/internal/merge/collect.go", "rank := g.rank\n", "rank := g.rank + 1\n"},
	{"age edge", "gc/rule.go", "return ts < ageFloor(asOf, r.n)", "return ts <= ageFloor(asOf, r.n)"},
	{"one version too many", "gc/rule.go", "return int64(rank) >= r.n && r.n > 0", "return int64(rank) > r.n && r.n > 0"},
	{"union taken for intersection", "gc/rule.go", "return len(r.kids) > 0\n\t}\n\treturn false\n}\n\n// ageFloor", "return false\n\t}\n\treturn false\n}\n\n// ageFloor"},
	{"wide delete dropped early", "engine/internal/compact/compact.go", "if w.job.Older(w.row, r) {", "if w.job.Older(w.row, r) && false {"},
	{"narrow delete dropped early", "engine/internal/compact/compact.go", "if !w.job.Older(w.row, cell.Range{From: col,", "if true || !w.job.Older(w.row, cell.Range{From: col,"},
	{"older L0 files preferred", "engine/sources.go", "g.ofClass(tree.Sub[i], class)", "g.ofClass(tree.Sub[len(tree.Sub)-1-i], class)"},
	{"older L0 files preferred by point reads", "engine/reading.go", "r.candidates(c, g, tree.Sub[i], row", "r.candidates(c, g, tree.Sub[len(tree.Sub)-1-i], row"},
	{"deletes of a newer source ignored", "engine/internal/merge/row.go", "if r.shade && win > 0 && r.shaded(win, c) {", "if r.shade && win > 1 && r.shaded(win, c) {"},
	{"older copy of a cell shown too", "engine/internal/merge/fold.go", "for _, s := range r.src[win+1:] {", "for _, s := range r.src[len(r.src)-1:] {"},
	{"no pin for a hole", "engine/evaluate.go", "if pin >= 0 {", "if pin >= 0 && false {"},
	{"newer sources not asked for holes", "engine/internal/merge/collect.go", "g.byAge = !ok", "g.byAge = ok && !ok"},
	{"replay again what is in files", "engine/open.go", "if seq <= t.FlushedThrough {\n\t\t\treturn nil", "if seq <= t.FlushedThrough && seq%3 != 0 {\n\t\t\treturn nil"},
	{"replay skips one too many", "engine/open.go", "if seq <= t.FlushedThrough {\n\t\t\treturn nil", "if seq <= t.FlushedThrough+1 {\n\t\t\treturn nil"},
	{"drop ignored", "engine/schema.go", "DropTables: []uint64{t.ID}", "DropTables: nil"},
	{"sync not waited for", "engine/apply.go", "if err := db.log.Wait(ctx, seq); err != nil {\n\t\treturn fmt.Errorf(\"%w: the batch is in", "if err := db.log.Wait(ctx, 0); err != nil {\n\t\treturn fmt.Errorf(\"%w: the batch is in"},
	{"flush ahead of the log", "engine/flush.go", "db.log.Wait(context.Background(), m.last)", "db.log.Wait(context.Background(), 0)"},
	{"directory of new files not synced", "engine/parts.go", "if err = db.fs.SyncDir(db.dir); err != nil {", "if err = error(nil); err != nil {"},
	{"snapshot shows the present", "engine/snapshot.go", "rd.seq = min(s.seq, rd.db.visible())", "rd.seq = rd.db.visible()"},
	{"snapshot ages", "engine/snapshot.go", "rd.st, rd.asOf = s.st, s.asOf", "rd.st, rd.asOf = s.st, s.db.clock.now()"},
	{"overwritten cell shown in the memtable", "engine/internal/memtable/iter_cells.go", "p != nil && p.ts == e.ts &&", "p != nil && p.ts == e.ts && p == e &&"},
	{"row delete hides later cells of the memtable", "engine/internal/memtable/iter_cells.go", "r.seq > e.seq && r.Contains(col)", "r.seq > 0 && r.Contains(col)"},
	{"reverse scan skips a row", "engine/internal/memtable/iter.go", "at = s.findAt(p, &k, true) - 1", "at = s.findAt(p, &k, true) - 2"},
	{"read-modify-write of a collected cell", "engine/newest.go", "found && !rule.Drops(0, c.TS, r.now), nil", "found && (!rule.Drops(0, c.TS, r.now) || true), nil"},
	{"read-modify-write of the newest in memory", "engine/newest.go", "found && best.TS >= newestInFiles(", "found || best.TS >= newestInFiles("},
	{"read-modify-write below the old timestamp", "engine/rmw.go", "x.ts = max(x.ts, c.TS)", "x.ts = max(x.ts, 0)"},
	{"condition on collected cells", "engine/cond.go", "merge.Config{Families: t.families, AsOf: r.now, Pass: true}", "merge.Config{Families: t.families, AsOf: r.now, Raw: true}"},
	{"condition before the batch's own changes", "engine/evaluate.go", "r.again = r.again || wrote", "r.again = false"},
	{"Add applied twice", "engine/internal/merge/fold.go", "sum = fold.Join(sum, older)", "sum = fold.Join(fold.Join(sum, older), older)"},
	{"Add folds past a delete", "engine/internal/memtable/fold.go", "|| t.deletedSince(r, old)", ""},
	{"Add folds past an older source's delete", "engine/internal/merge/fold.go", "if r.shade && r.shaded(i, c) {", "if r.shade && r.shaded(i, c) && false {"},
	{"intersection taken for union", "gc/rule.go", "case opIntersec:\n\t\tfor i := range r.kids {\n\t\t\tif !r.kids[i].Drops(rank, ts, asOf) {\n\t\t\t\treturn false", "case opIntersec:\n\t\tfor i := range r.kids {\n\t\t\tif r.kids[i].Drops(rank, ts, asOf) {\n\t\t\t\treturn true"},
	{"interleave without duplicates", "engine/internal/filter/eval.go", "case at == toOutput && r.target < 0:\n\t\tr.done = !r.out.Put(c, m.stripped, m.label)", "case at == toOutput && r.target < 0 && c.Kind != 77:\n\t\tr.done = !r.out.Put(c, m.stripped, m.label)\n\t\tc.Kind = 77"},
	{"condition on another input", "engine/internal/filter/eval.go", "r.inside = true\n\t\t\t\town = p.eval(n.kids[0], c, m)", "r.inside = true\n\t\t\t\town = p.eval(n.kids[0], c, mark{stripped: true})"},
	{"dropped rows not masked in files", "engine/group.go", "if c.Behind(f) {\n\t\t\trows = merge.AddRows(rows", "if c.Behind(f) && false {\n\t\t\trows = merge.AddRows(rows"},
	{"dropped rows not masked in memtables", "engine/group.go", "if last <= c.Seq {\n\t\t\trows = merge.AddRows(rows", "if last < 0 {\n\t\t\trows = merge.AddRows(rows"},
	{"dropped rows replayed", "engine/open.go", "if seq <= c.Seq && c.Has(row) {", "if seq <= c.Seq && c.Has(row) && false {"},
	{"new rule applied to what is behind it", "engine/families.go", "if at < 0 || f.Rule.Tightens(before[at].Rule) {", "if true || at < 0 || f.Rule.Tightens(before[at].Rule) {"},
	{"old rule not frozen", "engine/internal/merge/collect.go", "asOf = g.fam.asOf\n", "asOf = g.fam.asOf + 2000\n"},
	{"family comes back with its old cells", "engine/families.go", "t.HighestLife++\n\tf := levels.Family{Name: name, Life: t.HighestLife,", "t.HighestLife = 127\n\tf := levels.Family{Name: name, Life: 1 + uint64(name[len(name)-1]),"},
	{"batch half refused", "engine/evaluate.go", "return placeOp(j, len(m.ops), err)\n", "break\n"},
}

var mutantFlag = flag.String("mutant", "", "run only the mutants whose name has this in it; \"none\" for none")

const root = ".."

func TestMutantsAreWhereTheyWere(t *testing.T) {
	for _, m := range mutants {
		if _, err := m.bug().Source(root); err != nil {
			t.Error(err)
		}
	}
}

func TestMutantsDie(t *testing.T) {
	for _, m := range mutants {
		if mutantsRun && !testing.Short() && strings.Contains(m.name, *mutantFlag) {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				die(t, m.bug())
			})
		}
	}
}

// die builds the oracle with the mutant and lets it look for a difference.
func die(t *testing.T, m planted.Bug) {
	bin, err := m.Build(root, "fuzz", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	out, err := exec.CommandContext(ctx, bin, "-test.run", "^(TestOracle|TestKnownLists)$", "-ops", "67500", "-shrink=false", "-test.failfast", "-test.cpu=1").CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("the mutant lives:\n%s", out)
	case !bytes.Contains(out, []byte("--- FAIL: Test")):
		t.Errorf("the oracle did not run: %v\n%s", err, out)
	default:
		t.Log(planted.FirstLine(out))
	}
}
