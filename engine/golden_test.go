package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// Old stores open for ever: testdata/golden holds stores as builds of each frozen format wrote them, each with a text of what is in
// it. ROWAN_GOLDEN=write adds those of the present format that are missing; it never changes one that is there. (go-bond/bond #124,
// cockroachdb/pebble #4659: a new version of the library raised the format and barred the way back.)

const goldenDir = "testdata/golden"

// goldenStores are how the stores came about.
var goldenStores = map[string]func(s *testStore){
	"closed": func(s *testStore) {
		s.golden()
		s.must(s.Close())
	},
	// The process died: batches in the log, changes that stand, sources behind them.
	"crashed": func(s *testStore) {
		s.golden()
		t := s.Table("wide")
		s.must(t.ModifyFamilies(ctx, SetGCRule("few", gc.MaxVersionsPolicy(4)), DropFamily("gone"), AddFamily("gone", FamilySpec{})))
		s.must(t.DropRowRange(ctx, NewRange("row-03", "row-06")))
		for i := range 8 {
			s.must(t.Apply(ctx, fmt.Sprintf("row-%02d", i), mut(func(m *Mutation) {
				m.Set("few", "again", Timestamp(100+i), []byte("after the drop"))
				m.Set("gone", "back", 1, nil)
			}), NoSync))
		}
		s.must(s.Sync(ctx))
	},
	"checkpoint": func(s *testStore) {
		s.golden()
		_, err := s.Checkpoint(ctx, "/checkpoint")
		s.must(err)
		s.must(s.Close())
	},
}

// golden writes everything that format 1 can say.
func (s *testStore) golden() {
	s.t.Helper()
	create := func(name string, spec TableSpec) *Table {
		t, err := s.CreateTable(ctx, name, spec)
		s.must(err)
		return t
	}
	wide := create("wide", TableSpec{BlockBytes: 1024, ColumnFilter: true, Families: map[string]FamilySpec{
		"few": {GC: gc.UnionPolicy(gc.MaxVersionsPolicy(2), gc.MaxAgePolicy(1000*time.Hour))}, "all": {}, "gone": {}, "apart": {Group: "g"},
		"sum": {Aggregate: Sum}, "min": {Aggregate: Min, Group: "g"}, "max": {Aggregate: Max},
		"both": {GC: gc.IntersectionPolicy(gc.MaxVersionsPolicy(3), gc.MaxAgePolicy(time.Hour))},
	}})
	create("raw", TableSpec{Codec: CodecNone, BlockBytes: 512, Families: map[string]FamilySpec{"f": {}}})
	create("packed", TableSpec{Codec: CodecZstd, BloomBits: 16, Families: map[string]FamilySpec{"f": {GC: gc.MaxVersionsPolicy(1)}}})
	dropped := create("dropped", TableSpec{Families: map[string]FamilySpec{"f": {}}})
	s.must(dropped.Apply(ctx, "r", set("f", "q", 1, "not to be seen")))
	fill := func(from int) {
		for i := from; i < from+25; i++ {
			s.now = s.now.Add(time.Second)
			b := NewBatch()
			b.Add(wide, fmt.Sprintf("row-%02d", i%9), mut(func(m *Mutation) {
				m.Set("few", fmt.Sprint("q", i%3), Timestamp(i), []byte(strings.Repeat(fmt.Sprint(i, " "), 9)))
				m.Set("all", "", Timestamp(i), nil)
				m.Set("apart", "\x00\xff", ServerTime, []byte{0, byte(i)})
				m.Set("gone", "q", 1, []byte("family"))
				m.Set("both", "b", ServerTime, []byte(fmt.Sprint(i)))
				m.AddIntToCell("sum", "n", 7, int64(i))
				m.AddIntToCell("min", "n", 7, int64(-i))
				m.AddIntToCell("max", "n", 7, int64(i))
				switch i % 6 {
				case 1:
					m.DeleteCellsInColumn("few", "q1")
				case 2:
					m.DeleteTimestampRange("all", "", Timestamp(max(0, i-10)), Timestamp(i-1))
				case 3:
					m.DeleteCellsInFamily("apart")
				}
			}))
			if i%7 == 5 {
				b.Add(wide, fmt.Sprintf("row-%02d", (i+4)%9), mut(func(m *Mutation) { m.DeleteRow() }))
			}
			b.Add(s.Table("raw"), fmt.Sprint("r", i), set("f", "q", 5, strings.Repeat("raw", 40)))
			b.Add(s.Table("packed"), strings.Repeat("key", 30)+fmt.Sprint(i%10), set("f", "q", Timestamp(i), strings.Repeat("packed", 50)))
			s.must(s.Apply(ctx, b))
		}
	}
	fill(0)
	s.must(s.Compact(ctx))
	fill(25)
	// A row that is cut over several files.
	for i := range 40 {
		s.must(s.Table("raw").Apply(ctx, "wide", set("f", fmt.Sprintf("col%03d", i), 1, strings.Repeat("w", 1000)), NoSync))
	}
	s.must(s.Table("raw").Compact(ctx, AllRows()))
	fill(50)
	s.must(s.DropTable(ctx, "dropped"))
	s.now = s.now.Add(time.Hour / 2)
	fill(72)
	s.now = s.now.Add(-time.Minute)
	_, err := s.LowerClock(ctx, s.now)
	s.must(err)
	fill(75)
	s.must(s.Sync(ctx))
}

// goldenText is what is in a store, in a form that later versions can repeat.
func goldenText(t *testing.T, db *DB) string {
	t.Helper()
	names, err := db.Tables(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range names {
		tb := db.Table(name)
		info, err := tb.Describe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "table %s, codec %s\n", name, info.Codec)
		var fams []string
		for f, spec := range info.Families {
			fams = append(fams, fmt.Sprintf("family %s, rule %s, aggregate %s, group %q\n", f, spec.GC, spec.Aggregate, spec.Group))
		}
		sort.Strings(fams)
		b.WriteString(strings.Join(fams, ""))
		err = tb.ReadRows(ctx, AllRows(), func(r Row) bool {
			for _, c := range r.Cells {
				fmt.Fprintf(&b, "%q %s:%q@%d=%q\n", r.Key, c.Family, c.Qualifier, c.Timestamp, c.Value)
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestGoldenStoresOpen(t *testing.T) {
	if os.Getenv("ROWAN_GOLDEN") == "write" {
		for name, build := range goldenStores {
			writeGolden(t, fmt.Sprintf("format-%d-%s", levels.Format, name), build)
		}
	}
	dirs, err := os.ReadDir(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, d := range dirs {
		seen[d.Name()] = true
		t.Run(d.Name(), func(t *testing.T) { openGolden(t, path.Join(goldenDir, d.Name())) })
	}
	for name := range goldenStores {
		if name = fmt.Sprintf("format-%d-%s", levels.Format, name); !seen[name] {
			t.Errorf("%s is missing; ROWAN_GOLDEN=write makes it, once the format is frozen", name)
		}
	}
}

func goldenOptions(fs vfs.FS, now *time.Time) Options {
	s := rand.New(rand.NewPCG(1, 2))
	return Options{
		FS: fs, Clock: func() time.Time { return *now }, Random: s.Uint64, MemtableBytes: 64 << 10, TableFileBytes: 8 << 10,
		LevelBytes: 32 << 10, LogSegmentBytes: 16 << 10, CacheBytes: 1 << 20, FreeFloor: -1,
	}
}

// openGolden opens a copy of a golden store in every way: nothing of it is lost, and looking changes nothing.
func openGolden(t *testing.T, dir string) {
	want, err := os.ReadFile(path.Join(dir, "content.txt"))
	if err != nil {
		t.Fatal(err)
	}
	fs := vfs.NewMem()
	if err := fs.MkdirAll("/store"); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == "content.txt" {
			continue
		}
		b, err := os.ReadFile(path.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		putFile(t, fs, "/store/"+f.Name(), b)
	}
	bytesBefore := allBytes(t, fs, "/store")
	st, err := inspect.Open(fs, "/store")
	if err != nil {
		t.Fatal(err)
	}
	r, err := st.Verify(ctx, nil)
	if err := errors.Join(append(r.Errors, err)...); err != nil {
		t.Fatal(err)
	}
	now := time.UnixMicro(2_000_000_000)
	o := goldenOptions(fs, &now)
	same := func(db *DB) {
		t.Helper()
		if got := goldenText(t, db); got != string(want) {
			t.Fatalf("it shows\n%.3000s\nwanted\n%.3000s", got, want)
		}
	}
	open := func(o Options) *DB {
		t.Helper()
		db, err := Open("/store", o)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	closed := func(db *DB) {
		t.Helper()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ro := o
	ro.ReadOnly = true
	db := open(ro)
	same(db)
	closed(db)
	if err := fs.Remove("/store/lock"); err != nil {
		t.Fatal(err)
	}
	if after := allBytes(t, fs, "/store"); after != bytesBefore {
		t.Fatal("opening it for reading changed it")
	}
	for range 2 { // for writing, and once more
		db = open(o)
		same(db)
		closed(db)
	}
	db = open(o)
	if err := db.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	same(db)
	if err := db.Table("raw").Apply(ctx, "r0", set("f", "new", 1, "v")); err != nil {
		t.Fatal(err)
	}
	closed(db)
}

// allBytes is every file of a directory.
func allBytes(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	list, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range list {
		fmt.Fprintf(&b, "%s %x\n", e.Name, fileBytes(t, fs, path.Join(dir, e.Name)))
	}
	return b.String()
}

func fileBytes(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name, vfs.How{})
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if size > 0 {
		if _, err := f.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

func putFile(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Open(name, vfs.How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 0 {
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// writeGolden makes a golden store that is not there yet.
func writeGolden(t *testing.T, name string, build func(s *testStore)) {
	t.Helper()
	to := path.Join(goldenDir, name)
	if _, err := os.Stat(to); err == nil {
		return
	}
	s := newStore(t, func(o *Options) {
		now := o.Clock
		var none time.Time
		*o = goldenOptions(o.FS, &none)
		o.Clock = now
	})
	build(s)
	from := "/store"
	if list, err := s.fs.List("/checkpoint"); err == nil && len(list) > 0 {
		from = "/checkpoint"
	}
	image := s.fs.CrashClone(1, 0)
	now := s.now
	o := goldenOptions(image.CrashClone(1, 1), &now)
	o.ReadOnly = true
	db, err := Open(from, o)
	s.must(err)
	text := goldenText(t, db)
	s.must(db.Close())
	s.must(os.MkdirAll(to, 0o755))
	s.must(os.WriteFile(path.Join(to, "content.txt"), []byte(text), 0o644))
	list, err := image.List(from)
	s.must(err)
	for _, e := range list {
		if !slices.Contains([]string{"lock"}, e.Name) {
			s.must(os.WriteFile(path.Join(to, e.Name), fileBytes(t, image, path.Join(from, e.Name)), 0o644))
		}
	}
}
