package merge

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
)

func sources(raw [][]imaginedRow) (src []cell.Iter) {
	for _, rows := range raw {
		src = append(src, &imagined{rows: rows})
	}
	return src
}

// walk reads m forward and backward and seeks to every row, and returns what it gives.
func walk(t *testing.T, m *Iter, room int) string {
	t.Helper()
	got := ""
	for ok := m.First(); ok; ok = m.Next() {
		got += text(m, room)
	}
	if m.Err() != nil {
		t.Fatal(m.Err())
	}
	back := ""
	for ok := m.Last(); ok; ok = m.Next() {
		back = text(m, room) + back
	}
	if got != back {
		t.Fatalf("backward\n%sforward\n%s", back, got)
	}
	for _, line := range slices.Collect(bytesLines(got)) {
		if !m.SeekGE([]byte(line[:5])) || text(m, room) != line {
			t.Fatalf("seek to %s", line)
		}
	}
	return got
}

// A merge as a source of another one, in any place, gives what its sources there would give.
func TestNestedMergeIsASource(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var raw [][]imaginedRow
		for range 2 + rng.IntN(4) {
			raw = append(raw, randomSource(rng))
		}
		from := rng.IntN(len(raw))
		to := from + 1 + rng.IntN(len(raw)-from)
		src := sources(raw[:from])
		src = append(src, NewNested(New(Config{Families: FrozenFamilies(mergeTable, nil)}, sources(raw[from:to]))))
		src = append(src, sources(raw[to:])...)
		m := New(Config{Families: NewFamilies(mergeTable)}, src)
		if got, want := walk(t, m, 1+rng.IntN(5)), naive(raw); got != want {
			t.Fatalf("seed %d, %d to %d of %d: got\n%swant\n%s", seed, from, to, len(raw), got, want)
		}
		// Its deletes are those of all its sources, also after some cells were read.
		a, b := New(Config{Families: NewFamilies(mergeTable)}, src), New(Config{Families: NewFamilies(mergeTable)}, sources(raw))
		for okA, okB := a.First(), b.First(); okA && okB; okA, okB = a.Next(), b.Next() {
			a.Cells(make([]cell.Cell, 0, 2))
			b.Cells(make([]cell.Cell, 0, 2))
			if got, want := fmt.Sprint(a.Ranges(nil), deletesOf(a)), fmt.Sprint(b.Ranges(nil), deletesOf(b)); got != want {
				t.Fatalf("seed %d, row %s: deletes\n%s\nwant\n%s", seed, a.Row(), got, want)
			}
		}
	}
}

func deletesOf(m *Iter) (out []cell.Delete) {
	d := m.Deletes(nil, nil)
	for {
		ds := d.Next(nil)
		if len(ds) == 0 {
			return out
		}
		out = append(out, ds...)
	}
}

// What a nested merge collects is gone for the outer one, ranks included, wherever cells are sought.
func TestNestedMergeCollectsFirst(t *testing.T) {
	frozen := FrozenFamilies(mergeTable, map[uint64]Frozen{1: {Rule: gc.MaxAgePolicy(2_000_000), AsOf: 2003}, 2: {Rule: gc.MaxVersionsPolicy(1), AsOf: 9}})
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 6))
		var newer, older [][]imaginedRow
		for range 1 + rng.IntN(2) {
			newer = append(newer, randomSource(rng))
		}
		for range 1 + rng.IntN(3) {
			older = append(older, randomSource(rng))
		}
		// The older ones by themselves, written down.
		var rows []imaginedRow
		o := New(Config{Families: frozen}, sources(older))
		for ok := o.First(); ok; ok = o.Next() {
			r := imaginedRow{key: string(o.Row())}
			buf := make([]cell.Cell, 0, 3)
			for buf = o.Cells(buf[:0]); len(buf) > 0; buf = o.Cells(buf[:0]) {
				for _, c := range buf {
					c.Col, c.Value = slices.Clone(c.Col), slices.Clone(c.Value)
					r.cells = append(r.cells, c)
				}
			}
			rows = append(rows, r)
		}
		both := append(slices.Clone(newer), rows)
		m := New(Config{Families: NewFamilies(mergeTable)}, append(sources(newer), NewNested(New(Config{Families: frozen}, sources(older)))))
		if got, want := walk(t, m, 1+rng.IntN(5)), naive(both); got != want {
			t.Fatalf("seed %d: got\n%swant\n%s", seed, got, want)
		}
		// From any place of a row on.
		w := New(Config{Families: NewFamilies(mergeTable)}, sources(both))
		for okM, okW := m.First(), w.First(); okM && okW; okM, okW = m.Next(), w.Next() {
			col := cell.AppendColumn(nil, "b", 2, fmt.Sprint("q", rng.IntN(3)))
			ts := int64(math.MaxInt64)
			if rng.IntN(3) == 0 {
				col = cell.AppendColumn(nil, "a", 1, "q1") // a family without ranks may be entered anywhere
				ts = int64(rng.IntN(6))
			}
			m.SeekCell(col, ts)
			w.SeekCell(col, ts)
			if got, want := text(m, 3), text(w, 3); got != want {
				t.Fatalf("seed %d, from %q@%d: got\n%swant\n%s", seed, col, ts, got, want)
			}
		}
	}
}

// A source turns around in the middle, as cell.Iter promises.
func TestNestedMergeTurns(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 7))
	raw := [][]imaginedRow{randomSource(rng), randomSource(rng)}
	n := NewNested(New(Config{Families: FrozenFamilies(mergeTable, nil)}, sources(raw)))
	var keys []string
	for ok := n.First(); ok; ok = n.Next() {
		keys = append(keys, string(n.Row()))
	}
	n.First()
	at := 0
	for range 200 {
		if forward := rng.IntN(2) == 0; forward && at+1 < len(keys) {
			at++
			if !n.Next() || string(n.Row()) != keys[at] {
				t.Fatalf("forward to %s", keys[at])
			}
		} else if !forward && at > 0 {
			at--
			if !n.Prev() || string(n.Row()) != keys[at] {
				t.Fatalf("back to %s", keys[at])
			}
		}
	}
}

// Hidden rows are not there, whichever way one comes, and batches end before them.
func TestMaskedSource(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 8))
		raw := [][]imaginedRow{randomSource(rng), randomSource(rng), randomSource(rng)}
		var hidden []Rows
		for range 1 + rng.IntN(3) {
			lo := rng.IntN(12)
			r := Rows{Lo: fmt.Appendf(nil, "row%02d", lo)}
			if rng.IntN(6) == 0 {
				r.Lo = nil
			}
			if rng.IntN(6) > 0 {
				r.Hi = fmt.Appendf(nil, "row%02d", lo+1+rng.IntN(4))
			}
			hidden = AddRows(hidden, r)
		}
		for i := range hidden[1:] {
			if hidden[i].Hi == nil || string(hidden[i].Hi) >= string(hidden[i+1].Lo) {
				t.Fatalf("ranges overlap or touch: %q", hidden)
			}
		}
		src := sources(raw)
		for _, i := range rng.Perm(3)[:1+rng.IntN(3)] {
			src[i] = NewMasked(src[i], hidden)
			raw[i] = slices.DeleteFunc(slices.Clone(raw[i]), func(r imaginedRow) bool { _, in := FindRows(hidden, []byte(r.key)); return in })
		}
		m := New(Config{Families: NewFamilies(mergeTable)}, src)
		if got, want := walk(t, m, 2), naive(raw); got != want {
			t.Fatalf("seed %d, hidden %q: got\n%swant\n%s", seed, hidden, got, want)
		}
	}
}

// Groups side by side: their cells come in order, and a delete concerns its own group only, whatever it covers.
func TestGroupsShadeTheirOwn(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		only := func(families string) [][]imaginedRow {
			var raw [][]imaginedRow
			for range 1 + rng.IntN(3) {
				rows := randomSource(rng)
				for i := range rows {
					rows[i].cells = slices.DeleteFunc(rows[i].cells, func(c cell.Cell) bool { return !strings.Contains(families, string(c.Col[:1])) })
				}
				raw = append(raw, rows)
			}
			return raw
		}
		a, b := only("ab"), only("de")
		m := New(Config{Families: NewFamilies(mergeTable)}, append(sources(a), sources(b)...))
		m.Groups([]int{len(a), len(a) + len(b)})
		want := map[string]string{}
		for _, part := range []string{naive(a), naive(b)} {
			for line := range bytesLines(part) {
				want[line[:6]] += strings.TrimSuffix(line[6:], "\n")
			}
		}
		all := ""
		for k := range 12 {
			key := fmt.Sprintf("row%02d:", k)
			if cells, ok := want[key]; ok {
				all += key + cells + "\n"
			}
		}
		if got := walk(t, m, 1+rng.IntN(5)); got != all {
			t.Fatalf("seed %d: got\n%swant\n%s", seed, got, all)
		}
	}
}
