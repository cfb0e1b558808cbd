package sstable

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rowandb/rowan/bloom"
	"github.com/rowandb/rowan/cell"
)

// Blocks may be left out for what their zone maps say, never a wanted cell or a delete, whichever way the iterator moves; and
// what is left out is not read.
func TestZonesLeaveOutOnlyWhatIsUnwanted(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			tab := timedTable(r)
			o := randOptions(r)
			o.BlockSize = 512
			b, props := write(t, tab, o)
			rd := open(t, r, b)
			must(t, rd.Verify(t.Context(), nil))
			for range 6 {
				o := cell.IterOptions{NoFill: true, Stats: new(cell.ReadStats)}
				if r.IntN(3) > 0 {
					span := props.MaxTS - props.MinTS + 1
					o.MinTS = props.MinTS + r.Int64N(span)
					if o.MaxTS = o.MinTS + r.Int64N(1+span/4); r.IntN(3) == 0 {
						o.MinTS = 0
					} else if r.IntN(3) == 0 {
						o.MaxTS = 0
					}
				}
				if r.IntN(2) == 0 {
					p := cell.AppendFamilyLife(nil, []string{"fam", "fam-1", "z"}[r.IntN(3)], 1)
					o.Columns = cell.Range{From: p, To: cell.PrefixEnd(p)}
					o.Wanted = []cell.Range{o.Columns}
				}
				z := zoneMover{t: t, r: r, rd: rd, it: rd.NewIter(o), tab: tab, o: o}
				z.run(120)
				must(t, z.it.Close())
				o.Point = true
				z.it = rd.NewIter(o)
				z.points(60)
				must(t, z.it.Close())
			}
		})
	}
}

// timedTable has rows of very different sizes whose timestamps grow with the rows, and families that lie in stretches of them.
func timedTable(r *rand.Rand) (tab refTable) {
	ts := int64(1000)
	for i := range 150 {
		row := refRow{key: fmt.Appendf(nil, "row%04d", i)}
		n := r.IntN(12)
		if r.IntN(12) == 0 {
			n = 100 + r.IntN(200)
		}
		fam := []string{"fam", "fam-1", "z"}[(i/20+r.IntN(10)/9)%3]
		for c := range n {
			col := cell.AppendColumn(nil, fam, 1, fmt.Sprintf("q%04d", c/2))
			at := ts + int64(n-c)
			row.cells = append(row.cells, cell.Cell{Col: col, TS: at, Value: make([]byte, r.IntN(40)), Kind: cell.KindSet})
		}
		ts += int64(r.IntN(100))
		if r.IntN(15) == 0 {
			row.ranges = []cell.Range{{From: []byte("fam\x00"), To: []byte("fam\x01")}}
		}
		if r.IntN(15) == 0 {
			row.dels = []cell.Delete{{Col: cell.AppendColumn(nil, "z", 1, "q"), Hi: math.MaxInt64}}
		}
		if n > 0 || len(row.ranges) > 0 || len(row.dels) > 0 {
			tab = append(tab, row)
		}
	}
	return tab
}

type zoneMover struct {
	rd  *Reader
	t   *testing.T
	r   *rand.Rand
	it  *Iter
	tab refTable
	o   cell.IterOptions
}

func (z *zoneMover) wants(c *cell.Cell) bool {
	if c.TS < z.o.MinTS || z.o.MaxTS > 0 && c.TS > z.o.MaxTS {
		return false
	}
	return z.o.Wanted == nil || z.o.Wanted[0].Contains(c.Col)
}

func (z *zoneMover) needs(i int) bool {
	row := &z.tab[i]
	for j := range row.cells {
		if z.wants(&row.cells[j]) {
			return true
		}
	}
	return len(row.ranges) > 0 || len(row.dels) > 0
}

func (z *zoneMover) run(steps int) {
	at, n := -1, len(z.tab)
	for range steps {
		var ok bool
		from, dir := 0, 1 // the first row that may be the one moved to, and where others lie
		switch k := z.r.IntN(10); {
		case k == 0:
			ok = z.it.First()
		case k == 1:
			ok, from, dir = z.it.Last(), n-1, -1
		case k < 4:
			from = z.r.IntN(n)
			ok = z.it.SeekGE(z.tab[from].key)
		case k < 6:
			i := z.r.IntN(n)
			ok, from, dir = z.it.SeekLT(z.tab[i].key), i-1, -1
		case at < 0:
			continue
		case k < 8:
			ok, from = z.it.Next(), at+1
		default:
			ok, from, dir = z.it.Prev(), at-1, -1
		}
		must(z.t, z.it.Err())
		at = -1
		if ok {
			at = z.tab.search(z.it.Row())
			if at == n || !bytes.Equal(z.tab[at].key, z.it.Row()) || (at-from)*dir < 0 {
				z.t.Fatalf("on row %q, from %d in direction %d", z.it.Row(), from, dir)
			}
		}
		for i := from; i >= 0 && i < n && i != at; i += dir {
			if z.needs(i) {
				z.t.Fatalf("row %q left out; on %d from %d in direction %d", z.tab[i].key, at, from, dir)
			}
		}
		if ok {
			z.row(at)
		}
	}
}

// points seeks single rows: each that has something wanted is found, with all of it.
func (z *zoneMover) points(steps int) {
	for range steps {
		at := z.r.IntN(len(z.tab))
		key := z.tab[at].key
		var spot Spot
		if z.r.IntN(2) == 0 {
			spot = z.rd.Locate(key)
		}
		if z.it.SeekRow(key, bloom.HashRow(key), spot) {
			if !bytes.Equal(z.it.Row(), key) {
				z.t.Fatalf("row %q found for %q", z.it.Row(), key)
			}
			z.row(at)
		} else if must(z.t, z.it.Err()); z.needs(at) {
			z.t.Fatalf("row %q left out", key)
		}
	}
}

func (z *zoneMover) row(at int) {
	row := &z.tab[at]
	var want, got []string
	from := 0
	if z.r.IntN(3) == 0 && len(row.cells) > 0 {
		from = z.r.IntN(len(row.cells))
		z.it.SeekCell(row.cells[from].Col, row.cells[from].TS)
	}
	for i := range row.cells[from:] {
		if c := &row.cells[from+i]; z.wants(c) {
			want = append(want, fmt.Sprintf("%q@%d", c.Col, c.TS))
		}
	}
	buf := make([]cell.Cell, 0, 1+z.r.IntN(20))
	for {
		cells := z.it.Cells(buf)
		if len(cells) == 0 {
			break
		}
		for i := range cells {
			if c := &cells[i]; z.wants(c) {
				got = append(got, fmt.Sprintf("%q@%d", c.Col, c.TS))
			}
		}
	}
	must(z.t, z.it.Err())
	if fmt.Sprint(got) != fmt.Sprint(want) {
		z.t.Fatalf("row %q from cell %d of %d:\n got %v\nwant %v", row.key, from, len(row.cells), got, want)
	}
	if z.o.Wanted == nil {
		checkRanges(z.t, z.it.Ranges(nil), row.ranges)
		if got := z.it.Deletes(make([]cell.Delete, 0, 4)); len(got) != len(row.dels) {
			z.t.Fatalf("row %q has %d deletes, want %d", row.key, len(got), len(row.dels))
		}
	}
}

// A scan of the newest hundredth of what was written in the order of time reads few blocks.
func TestTimeWindowReadsFewBlocks(t *testing.T) {
	var tab refTable
	for i := range 20_000 {
		tab = append(tab, refRow{key: fmt.Appendf(nil, "row%06d", i), cells: []cell.Cell{
			{Col: cell.AppendColumn(nil, "fam", 1, "q"), TS: int64(i + 1), Value: []byte("value"), Kind: cell.KindSet}}})
	}
	b, _ := write(t, tab, WriterOptions{BlockSize: 1024})
	rd := open(t, rand.New(rand.NewPCG(1, 1)), b)
	read := func(o cell.IterOptions) (rows int, blocks, left uint64) {
		o.Stats = new(cell.ReadStats)
		it := rd.NewIter(o)
		for ok := it.First(); ok; ok = it.Next() {
			rows++
		}
		must(t, it.Close())
		return rows, uint64(o.Stats.Blocks.Load()), uint64(o.Stats.LeftOut.Load())
	}
	_, all, _ := read(cell.IterOptions{})
	rows, some, left := read(cell.IterOptions{MinTS: 19_801})
	if rows < 200 || all < 100 || some*20 >= all || some+left != all {
		t.Fatalf("%d rows from %d of %d blocks, %d left out", rows, some, all, left)
	}
}
