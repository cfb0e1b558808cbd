package memtable

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/rowandb/rowan/cell"
)

// model is what a Table promises, in the plainest form: all changes in a list per row.
type model struct {
	rows map[string][]change
	keys []string // sorted
}

func (m *model) add(row string, c change) {
	if m.rows == nil {
		m.rows = map[string][]change{}
	}
	if _, ok := m.rows[row]; !ok {
		i := sort.SearchStrings(m.keys, row)
		m.keys = slices.Insert(m.keys, i, row)
	}
	if c.fold != cell.FoldNone {
		c.val = m.folded(row, c)
	}
	m.rows[row] = append(m.rows[row], c)
}

// folded is what Add c makes of the cell: going back, the first change of the cell decides.
func (m *model) folded(row string, c change) []byte {
	for _, old := range slices.Backward(m.rows[row]) {
		switch {
		case old.kind == kindRangeUp && bytes.Compare(old.col, c.col) <= 0,
			old.kind == kindRange && bytes.Compare(old.col, c.col) <= 0 && bytes.Compare(c.col, old.val) < 0,
			old.kind == kindDelete && bytes.Equal(old.col, c.col) && loOf(old) <= c.ts && c.ts <= old.ts:
			return c.val
		case old.kind == cell.KindMerge && bytes.Equal(old.col, c.col) && old.ts == c.ts:
			return be8(c.fold.Join(stateOf(c), stateOf(old)))
		}
	}
	return c.val
}

type rowView struct {
	cells   []string
	deletes []string
	ranges  []string
}

func textCell(c cell.Cell) string {
	return fmt.Sprintf("%q@%d kind %d = %.20q (%d)", c.Col, c.TS, c.Kind, c.Value, len(c.Value))
}
func textDelete(d cell.Delete) string { return fmt.Sprintf("%q %d..%d", d.Col, d.Lo, d.Hi) }
func textRange(r cell.Range) string   { return fmt.Sprintf("%q..%q %v", r.From, r.To, r.To == nil) }

// view resolves a row as of seq; ok is false if nothing is there.
func (m *model) view(row string, seq uint64) (v rowView, ok bool) {
	type at struct {
		col string
		ts  int64
	}
	alive := map[at]change{}
	dels := map[string][]cell.Delete{}
	var ranges []cell.Range
	for _, c := range m.rows[row] {
		if c.seq > seq {
			break
		}
		ok = true
		switch c.kind {
		case kindDelete:
			d := cell.Delete{Col: c.col, Lo: loOf(c), Hi: c.ts}
			dels[string(c.col)] = cell.AddDelete(dels[string(c.col)], c.col, d.Lo, d.Hi)
			for k := range alive {
				if k.col == string(c.col) && d.Covers(k.ts) {
					delete(alive, k)
				}
			}
		case kindRange, kindRangeUp:
			r := cell.Range{From: c.col}
			if c.kind == kindRange {
				r.To = c.val
			}
			ranges = cell.AddRange(ranges, r)
			for k := range alive {
				if r.Contains([]byte(k.col)) {
					delete(alive, k)
				}
			}
		default:
			alive[at{string(c.col), c.ts}] = c
		}
	}
	var cells []change
	for _, c := range alive {
		cells = append(cells, c)
	}
	slices.SortFunc(cells, func(a, b change) int { return cell.Compare(a.col, a.ts, b.col, b.ts) })
	for _, c := range cells {
		v.cells = append(v.cells, textCell(cell.Cell{Col: c.col, TS: c.ts, Kind: c.kind, Value: c.val}))
	}
	var cols []string
	for col := range dels {
		cols = append(cols, col)
	}
	sort.Strings(cols)
	for _, col := range cols {
		for _, d := range dels[col] {
			v.deletes = append(v.deletes, textDelete(d))
		}
	}
	for _, r := range ranges {
		v.ranges = append(v.ranges, textRange(r))
	}
	return v, ok
}

func loOf(c change) int64 {
	lo := int64(0)
	for i := range 8 {
		lo |= int64(c.val[i]) << (8 * i)
	}
	return lo
}

// visible lists the rows that exist as of seq.
func (m *model) visible(seq uint64) []string {
	var out []string
	for _, k := range m.keys {
		if m.rows[k][0].seq <= seq {
			out = append(out, k)
		}
	}
	return out
}

func stateOf(c change) int64 {
	n, _ := cell.State(c.val)
	return n
}

func be8(n int64) []byte {
	p := make([]byte, cell.StateLen)
	cell.PutState(p, n)
	return p
}

func le8(v int64) []byte {
	p := make([]byte, 8)
	for i := range p {
		p[i] = byte(v >> (8 * i))
	}
	return p
}

func (m *model) apply(t testing.TB, tab *Table, row string, c change) {
	t.Helper()
	var err error
	switch c.kind {
	case kindDelete:
		err = tab.Delete([]byte(row), cell.Delete{Col: c.col, Lo: loOf(c), Hi: c.ts}, c.seq)
	case kindRange:
		err = tab.DeleteRange([]byte(row), cell.Range{From: c.col, To: c.val}, c.seq)
	case kindRangeUp:
		err = tab.DeleteRange([]byte(row), cell.Range{From: c.col}, c.seq)
	case cell.KindMerge:
		err = tab.Add([]byte(row), c.col, c.ts, c.fold, stateOf(c), c.seq)
	default:
		err = tab.Set([]byte(row), c.col, c.ts, c.kind, c.val, c.seq)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.add(row, c)
}

// readRow collects the current row in chunks of random size.
func readRow(it *Iter, r *rand.Rand) (v rowView) {
	for {
		cs := it.Cells(make([]cell.Cell, 0, 1+r.IntN(5)))
		if len(cs) == 0 {
			break
		}
		for _, c := range cs {
			v.cells = append(v.cells, textCell(c))
		}
	}
	for {
		ds := it.Deletes(make([]cell.Delete, 0, 1+r.IntN(3)))
		if len(ds) == 0 {
			break
		}
		for _, d := range ds {
			v.deletes = append(v.deletes, textDelete(d))
		}
	}
	for _, x := range it.Ranges(make([]cell.Range, 0, r.IntN(3))) {
		v.ranges = append(v.ranges, textRange(x))
	}
	return v
}

func (m *model) checkRow(t testing.TB, it *Iter, seq uint64, r *rand.Rand) {
	t.Helper()
	row := string(it.Row())
	want, ok := m.view(row, seq)
	if !ok {
		t.Fatalf("row %q as of %d should not be there", row, seq)
	}
	if got := readRow(it, r); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("row %q as of %d:\ngot  %q\nwant %q", row, seq, got, want)
	}
}

type shape struct {
	name         string
	rows, ops    int
	cols, stamps int
	prefix       string
	deletes      int // percent
	ordered      bool
}

var shapes = []shape{
	{name: "few rows of many Adds", rows: 3, ops: 3000, cols: 16, stamps: 5, deletes: 30},
	{name: "few rows of many versions", rows: 3, ops: 3000, cols: 5, stamps: 12, deletes: 30},
	{name: "one wide row", rows: 1, ops: 4000, cols: 1500, stamps: 3, deletes: 10},
	{name: "one row of one column", rows: 1, ops: 2000, cols: 1, stamps: 3000, deletes: 5},
	{name: "many rows", rows: 6000, ops: 9000, cols: 3, stamps: 4, deletes: 20},
	{name: "long prefixes", rows: 4000, ops: 6000, cols: 40, stamps: 2, prefix: "com.example.www/a/long/prefix/of/all/rows/", deletes: 10},
	{name: "ascending rows", rows: 5000, ops: 5000, cols: 2, stamps: 2, prefix: "r", ordered: true},
}

func (s shape) row(i int) string {
	switch {
	case s.ordered:
		return fmt.Sprintf("%s%08d", s.prefix, i)
	case i%7 == 3:
		return fmt.Sprintf("%s\x00%d", s.prefix, i) // zero bytes look like the padding of a head
	case i%7 == 4:
		return s.prefix + string(bytes.Repeat([]byte{0}, i%40+1))
	case i%7 == 5:
		return s.prefix + "\xff\xff\xff\xff\xff\xff\xff\xff" + fmt.Sprint(i)
	}
	return fmt.Sprintf("%s%d", s.prefix, int64(i)*2654435761%1000003)
}

func (s shape) col(r *rand.Rand) []byte { return colOf(r.IntN(s.cols)) }

// colOf is the i-th column; every fourth one takes Adds.
func colOf(i int) []byte { return fmt.Appendf(nil, "fam\x00\x01%0*d", i%5, i) }

func (s shape) change(r *rand.Rand, seq uint64) change {
	n := r.IntN(s.cols)
	c := change{seq: seq, col: colOf(n)}
	ts := func() int64 {
		switch r.IntN(20) {
		case 0:
			return 0
		case 1:
			return math.MaxInt64
		}
		return int64(r.IntN(s.stamps))
	}
	switch p := r.IntN(100); {
	case p >= s.deletes:
		c.kind, c.ts, c.val = cell.KindSet, ts(), fmt.Appendf(nil, "v%d", seq)
		if r.IntN(50) == 0 {
			c.kind, c.val = cell.KindBlob, nil
		}
		if n%4 == 3 {
			c.kind, c.fold, c.val = cell.KindMerge, cell.Fold(1+n/4%3), be8(int64(r.IntN(2000)-1000))
		}
	case p < s.deletes/20:
		c.kind, c.col = kindRangeUp, nil
	case p < s.deletes/5:
		c.kind, c.val = kindRange, s.col(r)
		if c := &c; bytes.Compare(c.col, c.val) >= 0 {
			c.val = append(bytes.Clone(c.col), 1)
		}
	default:
		lo, hi := ts(), ts()
		if r.IntN(2) == 0 {
			lo = hi
		}
		c.kind, c.ts, c.val = kindDelete, max(lo, hi), le8(min(lo, hi))
	}
	return c
}

func TestTableAgreesWithModel(t *testing.T) {
	for i, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			pool := NewPool(8 << 20)
			defer pool.Close()
			if !offHeap && s.ops > 3000 {
				s.ops = 3000
			}
			every, moves := uint64(97), 2000
			if s.rows < 10 {
				every, moves = 301, 100 // resolving a long row in the model is slow
			}
			for round := range 2 { // the second on dirty memory
				tab, m := New(Options{Pool: pool}), &model{}
				for seq := uint64(1); seq <= uint64(s.ops); seq++ {
					row := r.IntN(s.rows)
					if s.ordered {
						row = int(seq) * s.rows / (s.ops + 1)
					}
					m.apply(t, tab, s.row(row), s.change(r, seq))
					if seq%every == 0 {
						m.walkRandomly(t, tab, r, s, seq, 8)
					}
				}
				m.checkAll(t, tab, math.MaxUint64, r)
				m.checkAll(t, tab, uint64(s.ops)/2, r)
				m.checkBatches(t, tab, math.MaxUint64, r)
				m.checkBatches(t, tab, uint64(s.ops)/2, r)
				m.walkRandomly(t, tab, r, s, uint64(s.ops), moves)
				m.checkStats(t, tab)
				if err := tab.Release(); err != nil {
					t.Fatal(err)
				}
				if round == 0 && offHeap && pool.Idle() == 0 {
					t.Fatal("nothing went back to the pool")
				}
			}
		})
	}
}

func (m *model) checkAll(t testing.TB, tab *Table, seq uint64, r *rand.Rand) {
	t.Helper()
	it := tab.NewIter(seq, cell.IterOptions{})
	defer it.Close()
	want := m.visible(seq)
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n == len(want) || string(it.Row()) != want[n] {
			t.Fatalf("row %d is %q", n, it.Row())
		}
		m.checkRow(t, it, seq, r)
		n++
	}
	if n != len(want) {
		t.Fatalf("%d rows, want %d", n, len(want))
	}
	for ok := it.Last(); ok; ok = it.Prev() {
		if n--; n < 0 || string(it.Row()) != want[n] {
			t.Fatalf("backwards row %d is %q", n, it.Row())
		}
	}
	if n != 0 {
		t.Fatalf("%d rows missing backwards", n)
	}
}

// walkRandomly makes moves and compares each with the sorted list of rows.
func (m *model) walkRandomly(t testing.TB, tab *Table, r *rand.Rand, s shape, last uint64, moves int) {
	t.Helper()
	seq := last - min(last-1, uint64(r.IntN(200)))
	opts := cell.IterOptions{KeysOnly: r.IntN(8) == 0}
	if r.IntN(3) == 0 {
		opts.Columns.From = s.col(r)
		if r.IntN(2) == 0 {
			if opts.Columns.To = s.col(r); bytes.Compare(opts.Columns.From, opts.Columns.To) >= 0 {
				opts.Columns.To = nil
			}
		}
	}
	it := tab.NewIter(seq, opts)
	defer it.Close()
	want := m.visible(seq)
	at := -1
	for range moves {
		var ok bool
		switch op := r.IntN(9); {
		case op == 0:
			ok, at = it.First(), 0
		case op == 1:
			ok, at = it.Last(), len(want)-1
		case op < 6 || at < 0 || at >= len(want):
			k := s.row(r.IntN(s.rows))
			if r.IntN(3) == 0 {
				k += "\x00"
			}
			i, found := slices.BinarySearch(want, k)
			switch op % 3 {
			case 0:
				ok, at = it.SeekGE([]byte(k)), i
			case 1:
				ok, at = it.SeekLT([]byte(k)), i-1
			default:
				if ok = it.SeekExact([]byte(k)); ok != found {
					t.Fatalf("SeekExact(%q) = %v, want %v", k, ok, found)
				}
				if at = i; !found {
					at = -1
				}
			}
		case op < 8:
			at++
			ok = it.Next()
		default:
			at--
			ok = it.Prev()
		}
		if ok != (at >= 0 && at < len(want)) {
			t.Fatalf("as of %d at %d of %d: %v", seq, at, len(want), ok)
		}
		if !ok {
			at = -1
			continue
		}
		if string(it.Row()) != want[at] {
			t.Fatalf("as of %d: row %q, want %q", seq, it.Row(), want[at])
		}
		m.checkColumns(t, it, want[at], seq, opts, r, s)
	}
}

// checkColumns looks at a part of the current row, after a SeekCell or SeekDelete now and then.
func (m *model) checkColumns(t testing.TB, it *Iter, row string, seq uint64, o cell.IterOptions, r *rand.Rand, s shape) {
	t.Helper()
	v, _ := m.view(row, seq)
	from, ts := []byte(nil), int64(math.MaxInt64)
	if r.IntN(2) == 0 {
		from, ts = s.col(r), int64(r.IntN(s.stamps+1))
		it.SeekCell(from, ts)
	}
	got := []string{}
	for range 1 + r.IntN(4) {
		for _, c := range it.Cells(make([]cell.Cell, 0, 1+r.IntN(4))) {
			if o.KeysOnly {
				if c.Value != nil {
					t.Fatal("value in a keys-only walk")
				}
				c.Value = []byte("?")
			}
			got = append(got, textCell(c))
		}
	}
	all := m.cells(row, seq, o, from, ts)
	if len(got) > len(all) || len(got) < min(len(all), 1) || !slices.Equal(got, all[:len(got)]) {
		t.Fatalf("%q as of %d from %q@%d in %q..%q:\ngot  %q\nwant %q\nview %q", row, seq, from, ts, o.Columns.From, o.Columns.To, got, all, v)
	}
	if r.IntN(2) == 0 {
		from = s.col(r)
		it.SeekDelete(from)
	} else {
		from = nil
	}
	got = got[:0]
	for _, d := range it.Deletes(make([]cell.Delete, 0, 1+r.IntN(5))) {
		got = append(got, textDelete(d))
	}
	all = m.deletes(row, seq, o, from)
	if len(got) > len(all) || len(got) < min(len(all), 1) || !slices.Equal(got, all[:len(got)]) {
		t.Fatalf("%q as of %d deletes from %q: got %q, want %q", row, seq, from, got, all)
	}
}

func (m *model) cells(row string, seq uint64, o cell.IterOptions, from []byte, ts int64) []string {
	out := []string{}
	one := &model{rows: map[string][]change{row: m.rows[row]}}
	// Resolve first, then cut: walk the resolved cells by reading the model's changes again.
	alive := map[string]change{}
	for _, c := range one.rows[row] {
		if c.seq <= seq && c.kind < kindDelete {
			alive[fmt.Sprintf("%s@%d", c.col, c.ts)] = c
		}
	}
	v, _ := one.view(row, seq)
	keep := map[string]bool{}
	for _, s := range v.cells {
		keep[s] = true
	}
	var cs []change
	for _, c := range alive {
		in := o.Columns.Contains(c.col) && cell.Compare(c.col, c.ts, from, ts) >= 0
		if in && keep[textCell(cell.Cell{Col: c.col, TS: c.ts, Kind: c.kind, Value: c.val})] {
			cs = append(cs, c)
		}
	}
	slices.SortFunc(cs, func(a, b change) int { return cell.Compare(a.col, a.ts, b.col, b.ts) })
	for _, c := range cs {
		x := cell.Cell{Col: c.col, TS: c.ts, Kind: c.kind, Value: c.val}
		if o.KeysOnly {
			x.Value = []byte("?")
		}
		out = append(out, textCell(x))
	}
	return out
}

func (m *model) deletes(row string, seq uint64, o cell.IterOptions, from []byte) []string {
	dels := map[string][]cell.Delete{}
	var cols []string
	for _, c := range m.rows[row] {
		if c.seq <= seq && c.kind == kindDelete && o.Columns.Contains(c.col) && bytes.Compare(c.col, from) >= 0 {
			if dels[string(c.col)] == nil {
				cols = append(cols, string(c.col))
			}
			dels[string(c.col)] = cell.AddDelete(dels[string(c.col)], c.col, loOf(c), c.ts)
		}
	}
	sort.Strings(cols)
	out := []string{}
	for _, col := range cols {
		for _, d := range dels[col] {
			out = append(out, textDelete(d))
		}
	}
	return out
}

func (m *model) checkStats(t testing.TB, tab *Table) {
	t.Helper()
	want := Stats{MinTS: math.MaxInt64, MaxTS: math.MinInt64}
	holes := map[string]bool{}
	for row, cs := range m.rows {
		want.Rows++
		want.Bytes += int64(len(row))
		for _, c := range cs {
			if want.FirstSeq == 0 || c.seq < want.FirstSeq {
				want.FirstSeq = c.seq
			}
			want.LastSeq = max(want.LastSeq, c.seq)
			want.Bytes += int64(len(c.col) + len(c.val))
			switch c.kind {
			case kindDelete:
				want.Deletes++
				if loOf(c) > 0 {
					want.Holes++
					holes[row+"|"+string(c.col)] = true
				}
			case kindRange, kindRangeUp:
				want.Ranges++
			default:
				want.Cells++
				want.MinTS, want.MaxTS = min(want.MinTS, c.ts), max(want.MaxTS, c.ts)
			}
		}
	}
	if got := tab.Stats(); got != want {
		t.Fatalf("stats %+v, want %+v", got, want)
	}
	if tab.HasHoles() != (want.Holes > 0) {
		t.Fatal("HasHoles")
	}
	n := 0
	for row, cs := range m.rows {
		for _, c := range cs {
			if c.kind < kindDelete || c.kind == kindDelete {
				if tab.Holes([]byte(row), c.col) != holes[row+"|"+string(c.col)] {
					t.Fatalf("Holes(%q, %q)", row, c.col)
				}
			}
		}
		if n++; n > 200 {
			break
		}
	}
}
