package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
)

// Bytes on disk that are not what was written: whatever is done to the files of a store, each read gives what was written, or an
// error that names the damage; the store never panics, hangs, answers wrongly, or harms a healthy file. ROWAN_SWEEP=full does all
// of it; otherwise a part is done, the same one every time.

// byteStore is a closed store that has every kind of file, and what is in it.
type byteStore struct {
	t    *testing.T
	mem  *vfs.Mem
	rows map[string]map[string]string // table, row, what show says
	live map[string]liveFile          // the table files that the manifest names
}

// liveFile is a table file of a byteStore.
type liveFile struct {
	*levels.File
	table string
}

func newByteStore(t *testing.T, seed uint64) *byteStore {
	t.Helper()
	b := &byteStore{t: t, mem: vfs.NewMem(), rows: map[string]map[string]string{}}
	s := b.sweepOn(b.mem, seed)
	db, err := Open("/store", s.opts)
	b.must(err)
	_, err = db.CreateTable(ctx, "t", TableSpec{BlockBytes: 1024, ColumnFilter: true, Families: map[string]FamilySpec{
		"f": {GC: gc.MaxVersionsPolicy(2)}, "g": {Group: "x"}, "n": {Aggregate: Sum},
	}})
	b.must(err)
	_, err = db.CreateTable(ctx, "u", TableSpec{Codec: CodecNone, Families: map[string]FamilySpec{"f": {}}})
	b.must(err)
	rng := rand.New(rand.NewPCG(seed, 9))
	load := func(from, n int) {
		for i := from; i < from+n; i++ {
			m := NewMutation()
			value := make([]byte, 100) // does not compress, so that there are several files
			for k := range value {
				value[k] = byte('!' + rng.IntN(90))
			}
			m.Set("f", fmt.Sprint("q", i%3), Timestamp(i), value)
			m.Set("g", "", Timestamp(i), []byte{byte(i)})
			m.AddIntToCell("n", "n", 1, int64(i))
			switch i % 9 {
			case 2:
				m.DeleteCellsInColumn("f", "q1")
			case 4:
				m.DeleteTimestampRange("f", "q2", Timestamp(i/2), Timestamp(i))
			case 6:
				m.DeleteCellsInFamily("g")
			}
			batch := NewBatch()
			batch.Add(db.Table("t"), fmt.Sprintf("row%02d", i%23), m)
			batch.Add(db.Table("u"), fmt.Sprintf("u%03d", i%40), set("f", "q", 1, fmt.Sprint(i)))
			b.must(db.Apply(ctx, batch))
		}
	}
	load(0, 60)
	b.must(db.Compact(ctx))
	load(60, 20)
	b.must(db.Table("t").DropRowRange(ctx, NewRange("row20", "row22")))
	load(80, 20)
	b.must(db.Flush(ctx))
	load(100, 12)
	for _, name := range []string{"t", "u"} {
		b.rows[name] = map[string]string{}
		b.must(db.Table(name).ReadRows(ctx, AllRows(), func(r Row) bool { b.rows[name][r.Key] = show(r); return true }))
	}
	b.must(db.Close())
	l, err := levels.Load(b.mem, "/store", nil)
	b.must(err)
	b.live = map[string]liveFile{}
	l.Version.Live(func(tree uint64, _ int, f *levels.File) {
		b.live[levels.TableName(f.Num)] = liveFile{f, l.Version.Schema.TableOfTree(tree).Name}
	})
	if len(b.live) < 5 {
		t.Fatalf("only %d table files", len(b.live))
	}
	return b
}

func (b *byteStore) must(err error) {
	if err != nil {
		b.t.Helper()
		b.t.Fatal(err)
	}
}

func (b *byteStore) sweepOn(mem *vfs.Mem, seed uint64) *sweep {
	s := newSweep(mem, seed, faultfs.Options{})
	s.opts.TableFileBytes, s.opts.LevelBytes, s.opts.FreeFloor = 4<<10, 8<<10, -1
	return s
}

// known reports whether an error is one that damaged bytes may give.
func known(err error) bool {
	return errors.Is(err, ErrDamaged) || errors.Is(err, ErrFormat) || errors.Is(err, ErrNotStore)
}

// verdict is how a harmed store behaved.
type verdict struct {
	opened bool
	failed int // reads that gave an error
	read   int
	err    error // the first
}

// judge opens an image, reads all of it in several ways, compacts, reads again, closes, and opens it once more. Only a wrong answer,
// or an error that is none of damage, is an error. harmed is the file that was changed, "" for several.
func (b *byteStore) judge(mem *vfs.Mem, harmed string) (verdict, error) {
	var v verdict
	note := func(what string, err error) error {
		if err == nil {
			return nil
		}
		v.failed++
		if v.err == nil {
			v.err = err
		}
		if !known(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
		named := harmed
		if kind, _, ok := strings.Cut(harmed, "-"); ok {
			named = kind + "-" // which of the copies, or of the slots in a chain, is at fault cannot always be told
		}
		if !strings.Contains(err.Error(), "/store/"+named) {
			return fmt.Errorf("%s: the error does not name the file: %w", what, err)
		}
		if f, ok := b.live[harmed]; ok {
			table, row, isRow := strings.Cut(what, " row ")
			if isRow && (table != f.table || !f.Bounds.ContainsRow([]byte(row))) {
				return fmt.Errorf("%s is not in the harmed file, which holds %s of table %s: %w", what, f.Bounds, f.table, err)
			}
		}
		return nil
	}
	before := storeFiles(b.t, mem)
	for round := range 2 {
		s := b.sweepOn(mem, uint64(round)+50)
		db, err := Open("/store", s.opts)
		if err != nil {
			if round == 0 && !maps.Equal(before, storeFiles(b.t, mem)) {
				return v, fmt.Errorf("it changed files and then did not open: %w", err)
			}
			return v, note("open", err)
		}
		v.opened = true
		err = b.readAll(db, &v, note)
		if err == nil && round == 0 {
			err = b.same(before, mem, b.live)
		}
		if err == nil && round == 0 {
			err = note("compact", db.Compact(ctx))
			if f, ok := b.live[harmed]; ok && err == nil && v.failed > 0 {
				err = b.same(before, mem, map[string]liveFile{harmed: f}) // a damaged file is left for a repair
			}
			if e := b.readAll(db, &v, note); err == nil {
				err = e
			}
		}
		h := db.Health()
		if err == nil && h.State != StateOK && !known(h.Cause) {
			err = fmt.Errorf("health %s: %w", h.State, h.Cause)
		}
		if e := note("close", db.Close()); err == nil {
			err = e
		}
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

// storeFiles are the bytes of all files of a store, but those whose bytes mean nothing.
func storeFiles(t *testing.T, mem *vfs.Mem) map[string]string {
	t.Helper()
	list, err := mem.List("/store")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range list {
		if e.Name != lockName && !levels.IsReserve(e.Name) {
			files[e.Name] = string(fileBytes(t, mem, path.Join("/store", e.Name)))
		}
	}
	return files
}

// same checks that files have the bytes that they had before.
func (b *byteStore) same(before map[string]string, mem *vfs.Mem, files map[string]liveFile) error {
	after := storeFiles(b.t, mem)
	for name := range files {
		was, had := before[name]
		if is, has := after[name]; had && (!has || is != was) {
			return fmt.Errorf("file %s, which the manifest names, is not what it was (there: %t)", name, has)
		}
	}
	return nil
}

func (b *byteStore) readAll(db *DB, v *verdict, note func(string, error) error) error {
	for name, rows := range b.rows {
		t := db.Table(name)
		got := ""
		for key, want := range rows {
			r, err := t.ReadRow(ctx, key)
			if err != nil {
				if err := note(name+" row "+key, err); err != nil {
					return err
				}
				continue
			}
			v.read++
			if got = show(r); got != want {
				return fmt.Errorf("table %s shows %q, written was %q", name, got, want)
			}
		}
		if r, err := t.ReadRow(ctx, "row21"); name == "t" && err == nil && show(r) != b.row("t", "row21") {
			return fmt.Errorf("a dropped row is back: %s", show(r))
		}
		for _, opts := range [][]ReadOption{nil, {ReverseScan()}} {
			n, wrong := 0, ""
			err := t.ReadRows(ctx, AllRows(), func(r Row) bool {
				n++
				if show(r) != rows[r.Key] {
					wrong = show(r)
				}
				return wrong == ""
			}, opts...)
			switch {
			case wrong != "":
				return fmt.Errorf("a scan of table %s shows %s", name, wrong)
			case err == nil && n != len(rows):
				return fmt.Errorf("a scan of table %s shows %d rows of %d", name, n, len(rows))
			}
			if err := note("scan", err); err != nil {
				return err
			}
		}
		var out LeftOut
		if err := note("what is left", t.ReadRows(ctx, AllRows(), func(Row) bool { return true }, LeaveOutDamaged(&out))); err != nil {
			return err
		}
	}
	return nil
}

func (b *byteStore) row(table, key string) string {
	if r, ok := b.rows[table][key]; ok {
		return r
	}
	return key + "\n"
}

// files lists the store's files, but the lock.
func (b *byteStore) files() []vfs.Info {
	b.t.Helper()
	list, err := b.mem.List("/store")
	b.must(err)
	var out []vfs.Info
	for _, e := range list {
		if e.Name != lockName && !levels.IsReserve(e.Name) {
			out = append(out, e)
		}
	}
	return out
}

// change works on a copy of the store with one file changed.
func (b *byteStore) change(name string, edit func(p []byte) []byte) *vfs.Mem {
	b.t.Helper()
	mem := b.mem.CrashClone(1, 1)
	p := edit(fileBytes(b.t, mem, path.Join("/store", name)))
	b.must(mem.Remove(path.Join("/store", name)))
	putFile(b.t, mem, path.Join("/store", name), p)
	return mem
}

func fullSweep() bool { return os.Getenv("ROWAN_SWEEP") == "full" }

// stride is the distance of the places that are tried in the short form: a prime.
func stride(n int) int {
	switch {
	case fullSweep():
		return 1
	case raceEnabled:
		return 31 * n
	}
	return n
}

func TestBytesAreFlippedUnderTheEngine(t *testing.T) {
	t.Parallel()
	b := newByteStore(t, 1)
	for _, f := range b.files() {
		opened, refused, noticed := 0, 0, 0
		step := stride(401)
		if strings.HasPrefix(f.Name, "manifest-") {
			step = stride(29)
		}
		for at := 3 % step; at < int(f.Size); at += step {
			v, err := b.judge(b.change(f.Name, func(p []byte) []byte { p[at] ^= 1 << (at % 8); return p }), f.Name)
			if err != nil {
				t.Fatalf("%s, byte %d flipped: %v", f.Name, at, err)
			}
			switch {
			case !v.opened:
				refused++
			case v.failed > 0:
				noticed++
				if v.read == 0 {
					t.Fatalf("%s, byte %d flipped: nothing can be read any more: %v", f.Name, at, v.err)
				}
			default:
				opened++
			}
		}
		t.Logf("%s, %d bytes: %d flips did not matter, %d were met by reads, %d kept the store shut", f.Name, f.Size, opened, noticed, refused)
		if refused > 0 && !strings.HasPrefix(f.Name, "slot-") {
			t.Errorf("one flipped byte of %s keeps the store shut", f.Name)
		}
	}
}

func TestFilesAreCutUnderTheEngine(t *testing.T) {
	t.Parallel()
	b := newByteStore(t, 2)
	for _, f := range b.files() {
		step := stride(int(f.Size)/11 | 1)
		for n := 0; n < int(f.Size); n += step {
			v, err := b.judge(b.change(f.Name, func(p []byte) []byte { return p[:n] }), f.Name)
			if err != nil {
				t.Fatalf("%s cut to %d bytes: %v", f.Name, n, err)
			}
			if strings.HasSuffix(f.Name, ".sst") && (!v.opened || v.failed == 0 || v.read == 0) {
				t.Fatalf("%s cut to %d bytes: %+v", f.Name, n, v)
			}
			if strings.HasPrefix(f.Name, "manifest-") && (!v.opened || v.failed > 0) {
				t.Fatalf("%s cut to %d bytes: %+v", f.Name, n, v)
			}
		}
	}
}

func TestPagesOfZerosUnderTheEngine(t *testing.T) {
	t.Parallel()
	b := newByteStore(t, 3)
	for _, size := range []int{512, 4096} {
		for _, f := range b.files() {
			step := size
			if !fullSweep() && size == 512 {
				step *= 5
			}
			if raceEnabled {
				step *= 7
			}
			for at := 0; at < int(f.Size); at += step {
				mem := b.change(f.Name, func(p []byte) []byte { clear(p[at:min(at+size, len(p))]); return p })
				if _, err := b.judge(mem, f.Name); err != nil {
					t.Fatalf("%s, %d bytes of zeros at %d: %v", f.Name, size, at, err)
				}
			}
		}
	}
}

// Files of one kind change places; a slot of the log comes from another store, or from an earlier life of this one.
func TestFilesInTheWrongPlace(t *testing.T) {
	t.Parallel()
	b, other := newByteStore(t, 4), newByteStore(t, 5)
	files := b.files()
	for i, f := range files {
		for _, g := range files[:i] {
			if path.Ext(f.Name) != path.Ext(g.Name) || raceEnabled && i%4 > 0 {
				continue
			}
			mem := b.mem.CrashClone(1, 1)
			x, y := fileBytes(t, mem, "/store/"+f.Name), fileBytes(t, mem, "/store/"+g.Name)
			for name, p := range map[string][]byte{f.Name: y, g.Name: x} {
				b.must(mem.Remove("/store/" + name))
				putFile(t, mem, "/store/"+name, p)
			}
			if _, err := b.judge(mem, ""); err != nil {
				t.Fatalf("%s and %s swapped: %v", f.Name, g.Name, err)
			}
		}
		theirs, err := other.mem.Stat("/store/" + f.Name)
		if err != nil {
			continue
		}
		p := fileBytes(t, other.mem, "/store/"+theirs.Name)
		v, err := b.judge(b.change(f.Name, func([]byte) []byte { return p }), f.Name)
		if err != nil {
			t.Fatalf("%s of another store: %v", f.Name, err)
		}
		if strings.HasSuffix(f.Name, ".sst") && v.failed == 0 {
			t.Fatalf("%s of another store is not noticed", f.Name)
		}
	}
	// The log as it was before the last life of the store.
	s := b.sweepOn(b.mem.CrashClone(1, 1), 6)
	db, err := Open("/store", s.opts)
	b.must(err)
	b.must(db.Table("u").Apply(ctx, "u000", set("f", "q", 1, "later")))
	b.rows["u"]["u000"] = "u000 f:q@1=later\n"
	b.must(db.Close())
	for _, f := range files {
		if !strings.HasPrefix(f.Name, "slot-") {
			continue
		}
		mem := s.mem.CrashClone(1, 1)
		putBack := fileBytes(t, b.mem, "/store/"+f.Name)
		b.must(mem.Remove("/store/" + f.Name))
		putFile(t, mem, "/store/"+f.Name, putBack)
		if _, err := b.judge(mem, f.Name); err != nil {
			t.Fatalf("%s of an earlier life: %v", f.Name, err)
		}
	}
}

// Files that claim a newer format are refused as that, not as damage, where their checksum is right.
func TestNewerFormatsAreRefused(t *testing.T) {
	b := newByteStore(t, 7)
	for _, f := range b.files() {
		var mem *vfs.Mem
		switch {
		case strings.HasPrefix(f.Name, "manifest-"):
			mem = b.change(f.Name, func(p []byte) []byte {
				binary.LittleEndian.PutUint32(p[8:], levels.Format+1)
				binary.LittleEndian.PutUint64(p[32:], xxhash.Sum64(p[:32]))
				return p
			})
		case strings.HasPrefix(f.Name, "slot-"):
			id := b.storeID()
			mem = b.change(f.Name, func(p []byte) []byte {
				for i := 0; i+4096 <= len(p); i += 4096 {
					if head := p[i : i+80]; head[8] != 0 {
						sum := func() uint64 { return xxhash.Sum64(head[8:]) ^ mix(mix(id+2)+uint64(i/4096)) }
						if binary.LittleEndian.Uint64(head) != sum() {
							t.Fatalf("%s: the test does not know the header's checksum", f.Name)
						}
						head[8]++
						binary.LittleEndian.PutUint64(head, sum())
					}
				}
				return p
			})
		default:
			mem = b.change(f.Name, func(p []byte) []byte {
				foot := p[len(p)-64:]
				id := binary.LittleEndian.Uint64(foot[16:])
				sum := func() uint64 {
					d := xxhash.NewWithSeed(block.Seed(id, int64(len(p))-64))
					_, _ = d.Write(foot[8:])
					return d.Sum64()
				}
				if binary.LittleEndian.Uint64(foot) != sum() {
					t.Fatalf("%s: the test does not know the footer's checksum", f.Name)
				}
				binary.LittleEndian.PutUint32(foot[8:], levels.Format+1)
				binary.LittleEndian.PutUint64(foot, sum())
				return p
			})
		}
		v, err := b.judge(mem, f.Name)
		_, table := b.live[f.Name]
		if err != nil || v.opened != table || !errors.Is(v.err, ErrFormat) {
			t.Errorf("%s: %+v, %v", f.Name, v, err)
		}
	}
}

// storeID is the identity of the store, which seeds the checksums of its log.
func (b *byteStore) storeID() uint64 {
	l, err := levels.Load(b.mem, "/store", nil)
	b.must(err)
	return l.Version.StoreID
}

// mix is the finalizer of splitmix64, as docs/formats/log.md has it.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Files that have our names and were not written by us are no store and are not touched.
func TestForeignFilesWithOurNames(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 40 {
		mem := vfs.NewMem()
		if err := mem.MkdirAll("/store"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"00000001.sst", "slot-0001.log", "manifest-00000001.a", "manifest-00000001.b", "manifest-00000002.a"} {
			if rng.IntN(2) == 0 {
				p := make([]byte, 1+rng.IntN(9000))
				for k := range p {
					p[k] = byte(rng.Uint32())
				}
				putFile(t, mem, "/store/"+name, p)
			}
		}
		before := allBytes(t, mem, "/store")
		if before == "" {
			continue
		}
		s := newSweep(mem, 1, faultfs.Options{})
		db, err := Open("/store", s.opts)
		if err == nil {
			_ = db.Close()
		}
		if !known(err) {
			t.Fatalf("%d: %v", i, err)
		}
		if err := mem.Remove("/store/lock"); err != nil {
			t.Fatal(err)
		}
		if allBytes(t, mem, "/store") != before {
			t.Fatalf("%d: they were changed", i)
		}
	}
	// In a store's directory random files with our names, that nothing points to, do no harm.
	c := newByteStore(t, 9)
	for _, name := range []string{"00000900.sst", "00000001.sst", "slot-0003.log", "slot-0100.log", "manifest-00000000.a", "manifest-00000001.c", "manifest-00000900.a", "manifest-00000900.b"} {
		for _, size := range []int{0, 1, 80, 4096, 9000} {
			if _, err := c.mem.Stat("/store/" + name); err == nil {
				continue
			}
			mem := c.mem.CrashClone(1, 1)
			p := make([]byte, size)
			for k := range p {
				p[k] = byte(rng.Uint32())
			}
			putFile(t, mem, "/store/"+name, p)
			v, err := c.judge(mem, name)
			if err != nil {
				t.Fatalf("%s with %d random bytes: %v", name, size, err)
			}
			if !v.opened && !strings.HasPrefix(name, "manifest-") || v.opened && v.failed > 0 {
				t.Fatalf("%s with %d random bytes: %+v", name, size, v)
			}
		}
	}
	// Beside a store, outputs of jobs that never ended look the same and are removed; what has other names stays.
	b := newByteStore(t, 8)
	mem := b.mem.CrashClone(1, 1)
	putFile(t, mem, "/store/notes.txt", []byte("mine"))
	putFile(t, mem, "/store/slot-0900.log", []byte(strings.Repeat("x", 10000)))
	if v, err := b.judge(mem, ""); err != nil || v.failed > 0 {
		t.Fatal(v, err)
	}
	if got := string(fileBytes(t, mem, "/store/notes.txt")); got != "mine" {
		t.Fatal(got)
	}
}
