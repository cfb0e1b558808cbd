package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowandb/rowan/bench/measure"
	"github.com/rowandb/rowan/bench/work"
)

var names = []string{"rowan", "pebble", "bbolt"}

// made is a result as a run leaves it.
func made(workload, engine string, run int, rate float64) measure.Result {
	return measure.Result{Profile: "full", Workload: workload, Engine: engine, Run: run, Scale: 1, Machine: "m", Version: "v", Tree: "t", Ops: 1000,
		Rate: rate, WorkRate: rate * 1.1, P50: 1, P99: 5, P999: 9, Max: 20, CPU: 1000 / rate, RSS: 100 << 20, Disk: 10 << 20, Written: 5,
		UserData: 1000, Tables: int64(1e6 / rate), Curve: make([]float64, len(measure.Quantiles)), Line: []uint32{1, 2, 3, 0, 0, 4, 5, 6, 7, 8}}
}

func everyWorkload() (list []measure.Result) {
	for _, w := range work.All() {
		for run := range 3 {
			list = append(list, made(w.Name, "rowan", run, float64(200+run)), made(w.Name, "pebble", run, float64(100+run)), made(w.Name, "bbolt", run, float64(50+run)))
		}
	}
	return list
}

// What was added is there again when the file is opened again; a line that was cut off is not, and what is added then is whole.
func TestStateSurvivesAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	s, err := OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := made("w", "rowan", 0, 1), made("w", "rowan", 1, 2), made("w", "pebble", 0, 3)
	b.Failed = "it did"
	for _, r := range []measure.Result{a, b, c} {
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, whole[:len(whole)-20], 0o666); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenState(path); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.Find(a.Key()); !ok || got.Rate != 1 {
		t.Error("a result is lost")
	}
	if _, ok := s.Find(b.Key()); ok {
		t.Error("a run that failed counts as made")
	}
	if _, ok := s.Find(c.Key()); ok {
		t.Error("a line that was cut off counts as a result")
	}
	other := a.Key()
	other.Tree = "another"
	if _, ok := s.Find(other); ok {
		t.Error("a result of another tree counts")
	}
	if err := s.Add(c); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(path); !bytes.Equal(again, whole) {
		t.Errorf("the file is\n%s\nand not\n%s", again, whole)
	}
}

func TestDamagedStateIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	if err := os.WriteFile(path, []byte("{}\nnonsense\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenState(path); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("the error is %v", err)
	}
}

// The median counts, the ratio is to the best peer, failures and gaps are named.
func TestSummaryTakesTheMedian(t *testing.T) {
	w := work.All()[0]
	lame := made(w.Name, "bbolt", 0, 0)
	lame.Failed = "out of memory"
	rows := Summary(names, []work.Workload{w}, []measure.Result{made(w.Name, "rowan", 0, 300), made(w.Name, "rowan", 1, 900), made(w.Name, "rowan", 2, 100),
		made(w.Name, "pebble", 0, 100), lame})
	r := rows[0]
	if r.Ratio != 3 || r.Best != "pebble" || r.Engines[0].Low != 100 || r.Engines[0].High != 900 || r.Engines[0].Runs != 3 {
		t.Errorf("the summary is %+v", r)
	}
	if got := r.Engines[2].None; got != "FAILED: out of memory" {
		t.Errorf("a failed engine is shown as %q", got)
	}
	var out bytes.Buffer
	Table(&out, "title", "", names, rows)
	for _, want := range []string{"3.00  pebble", "FAILED", "out of memory", w.Name} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the table:\n%s", want, &out)
		}
	}
	w.Without = map[string]string{"bbolt": "a good reason"}
	out.Reset()
	Table(&out, "title", "", names, Summary(names, []work.Workload{w}, nil))
	if !strings.Contains(out.String(), "bbolt: left out: a good reason") {
		t.Errorf("the reason is not in the table:\n%s", &out)
	}
}

// The table has every workload, and the mark of the quick profile.
func TestTableHasEveryWorkload(t *testing.T) {
	var out bytes.Buffer
	Table(&out, "title", NoEvidence, names, Summary(names, work.All(), everyWorkload()))
	for _, w := range work.All() {
		if strings.Count(out.String(), w.Name) < 4 { // rates, and the cost of each engine
			t.Errorf("%s is not in the table", w.Name)
		}
	}
	if !strings.Contains(out.String(), "NO EVIDENCE") {
		t.Error("the quick profile is not marked")
	}
}

// The page is well formed, needs nothing from elsewhere, and shows every workload with its charts.
func TestPageHasEveryWorkload(t *testing.T) {
	results := everyWorkload()
	for i := range results {
		for k := range results[i].Curve {
			results[i].Curve[k] = float64(k + 1)
		}
	}
	rows := Summary(names, work.All(), results)
	var out bytes.Buffer
	if err := Page(&out, "the title", NoEvidence, names, rows, Judge(rows, wantedHere(t))); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if strings.Contains(text, "http://") || strings.Contains(text, "https://") || strings.Contains(text, "<script") {
		t.Error("the page needs something from elsewhere")
	}
	sections, charts := map[string]bool{}, 0
	d := xml.NewDecoder(&out)
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta", "!doctype"}, xml.HTMLEntity
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if e.Name.Local == "section" && a.Name.Local == "data-workload" {
					sections[a.Value] = true
				}
			}
			if e.Name.Local == "svg" {
				charts++
			}
		}
	}
	for _, w := range work.All() {
		if !sections[w.Name] {
			t.Errorf("%s is not on the page", w.Name)
		}
	}
	if charts != 3*len(work.All()) {
		t.Errorf("%d charts are on the page, 3 for each of %d workloads are right", charts, len(work.All()))
	}
	if !strings.Contains(text, "NO EVIDENCE") {
		t.Error("the quick profile is not marked")
	}
}

func wantedHere(t *testing.T) []Wanted {
	f, err := os.Open("../wanted.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := ReadWanted(f)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Every workload that something is wanted of is there.
func TestWantedNamesWorkloads(t *testing.T) {
	known := map[string]bool{}
	for _, w := range work.All() {
		known[w.Name] = true
	}
	list := wantedHere(t)
	for _, w := range list {
		if !known[w.Workload] {
			t.Errorf("nothing can be wanted of %q: there is no such workload", w.Workload)
		}
	}
	if len(list) < 40 {
		t.Errorf("only %d ratios are wanted", len(list))
	}
}

// Ratios that are met pass, those that are missed are named, and so are those without a figure.
func TestMissedIsNamed(t *testing.T) {
	w := work.All()[0]
	rows := Summary(names, []work.Workload{w}, []measure.Result{made(w.Name, "rowan", 0, 300), made(w.Name, "pebble", 0, 100), made(w.Name, "bbolt", 0, 200)})
	cases := []struct {
		line string
		met  bool
		got  string
	}{
		{w.Name + "; rate; >= 1.5", true, "1.50 of bbolt"},
		{w.Name + "; rate; >= 1.6", false, "1.50 of bbolt"},
		{w.Name + "; cpu; <= 0.34", true, "0.33 of pebble"}, // a tree is no measure of an engine with tables
		{w.Name + "; cpu; <= 0.3", false, "0.33 of pebble"},
		{w.Name + "; amplification; <= 0.4", true, "0.33 of pebble"},
		{w.Name + "; stall ms; <= 100", true, "0.00"},
		{w.Name + "; faults per 100; <= -1", false, "0.00"},
	}
	for _, c := range cases {
		list, err := ReadWanted(strings.NewReader(c.line + " # and a comment\n\n"))
		if err != nil {
			t.Fatal(err)
		}
		err = Missed(Judge(rows, list))
		if (err == nil) != c.met {
			t.Errorf("%s: %v", c.line, err)
		}
		if err != nil && (!strings.Contains(err.Error(), w.Name) || !strings.Contains(err.Error(), c.got)) {
			t.Errorf("%s: the error %q does not tell %q", c.line, err, c.got)
		}
	}
	none := Summary(names, []work.Workload{w}, []measure.Result{made(w.Name, "pebble", 0, 100)})
	err := Missed(Judge(none, []Wanted{{Workload: w.Name, Metric: "rate", Value: 1}}))
	if err == nil || !strings.Contains(err.Error(), "no figure") {
		t.Errorf("without a figure the error is %v", err)
	}
	for _, bad := range []string{"a; rate", "a; speed; >= 1", "a; rate; 1", "a; rate; >= x"} {
		if _, err := ReadWanted(strings.NewReader("\n" + bad)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: the error is %v", bad, err)
		}
	}
}
