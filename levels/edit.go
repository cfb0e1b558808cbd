package levels

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
)

// Edit is one atomic change of the store's state, drawn in docs/formats/manifest.md. Edits are numbered without gaps.
type Edit struct {
	Num        uint64
	Added      []AddedFile
	Deleted    []DeletedFile
	Flushed    []Flushed
	Collected  []Collected
	Lowered    *Lowered // nil: it is not
	PutTables  []*Table // created or replaced, whole
	DropTables []uint64 // table ids

	// The rest is 0 where the edit says nothing; a version keeps the highest it has seen.
	NextFile   Num
	LastTable  uint64
	LastTree   uint64
	LogStart   uint64
	LastSeq    uint64
	EngineTime int64
	Stamp      int64
	OpenCount  uint64
	StoreID    uint64
	Logged     uint64 // the log was closed, durable through this sequence
	// CheckpointOf says that this directory is a checkpoint of the store with this identity, which is StoreID too: whoever opens
	// it for writing draws a new one first.
	CheckpointOf uint64
}

// AddedFile puts a file into a level.
type AddedFile struct {
	Tree  uint64
	Level int
	File  *File
}

// DeletedFile takes a file out of a level.
type DeletedFile struct {
	Tree  uint64
	Level int
	Num   Num
}

// Flushed records that a tree is in its files through Seq.
type Flushed struct {
	Tree uint64
	Seq  uint64
}

// Collected records that cells of a tree were removed by rules as of a time, microseconds.
type Collected struct {
	Tree uint64
	Time int64
}

// Lowered sets the engine time back to Time, microseconds. What the log says of time up to sequence Seq does not count any more.
type Lowered struct {
	Time int64
	Seq  uint64
}

// Field tags of format 1. A reader that meets another number refuses the edit as a format it does not know. Tags 32 to 39
// are kept free for what format 1 will say later: 34 and 35 blob files added and removed, 36 applied index per scope.
const (
	tagNum        = 1
	tagAdded      = 2
	tagDeleted    = 3
	tagFlushed    = 4
	tagPutTable   = 5
	tagDropTable  = 6
	tagNextFile   = 7
	tagLastTable  = 8
	tagLastTree   = 9
	tagLogStart   = 10
	tagLastSeq    = 11
	tagEngineTime = 12
	tagStamp      = 13
	tagOpenCount  = 14
	tagStoreID    = 15
	tagCollected  = 16
	tagLowered    = 17
	tagCheckpoint = 18
	tagLogged     = 19
)

// Append appends the edit's bytes: fields of <uvarint tag> <uvarint n> <nB payload>, the number first.
func (e *Edit) Append(dst []byte) []byte {
	var p []byte
	field := func(tag uint64) {
		dst = binary.AppendUvarint(dst, tag)
		dst = binary.AppendUvarint(dst, uint64(len(p)))
		dst = append(dst, p...)
		p = p[:0]
	}
	number := func(tag, v uint64) {
		if v != 0 {
			p = binary.AppendUvarint(p, v)
			field(tag)
		}
	}
	number(tagNum, e.Num)
	number(tagStoreID, e.StoreID)
	number(tagCheckpoint, e.CheckpointOf)
	number(tagOpenCount, e.OpenCount)
	number(tagNextFile, e.NextFile)
	number(tagLastTable, e.LastTable)
	number(tagLastTree, e.LastTree)
	number(tagLogStart, e.LogStart)
	number(tagLastSeq, e.LastSeq)
	number(tagLogged, e.Logged)
	number(tagEngineTime, uint64(e.EngineTime))
	number(tagStamp, uint64(e.Stamp))
	for _, id := range e.DropTables {
		number(tagDropTable, id)
	}
	for _, t := range e.PutTables {
		p = appendTable(p, t)
		field(tagPutTable)
	}
	for _, d := range e.Deleted {
		p = binary.AppendUvarint(p, d.Tree)
		p = append(p, byte(d.Level))
		p = binary.AppendUvarint(p, d.Num)
		field(tagDeleted)
	}
	for _, a := range e.Added {
		p = binary.AppendUvarint(p, a.Tree)
		p = append(p, byte(a.Level))
		p = appendFile(p, a.File)
		field(tagAdded)
	}
	for _, f := range e.Flushed {
		p = binary.AppendUvarint(p, f.Tree)
		p = binary.AppendUvarint(p, f.Seq)
		field(tagFlushed)
	}
	for _, c := range e.Collected {
		p = binary.AppendUvarint(p, c.Tree)
		p = binary.AppendUvarint(p, uint64(c.Time))
		field(tagCollected)
	}
	if e.Lowered != nil {
		p = binary.AppendUvarint(p, uint64(e.Lowered.Time))
		p = binary.AppendUvarint(p, e.Lowered.Seq)
		field(tagLowered)
	}
	return dst
}

// DecodeEdit reads an edit. Errors match damage.Err, or damage.ErrFormat for a field of a newer format.
func DecodeEdit(b []byte) (*Edit, error) {
	e := &Edit{}
	d := decoder{b: b, part: "manifest edit"}
	for d.err == nil && d.off < len(d.b) {
		tag := d.uvarint("tag")
		p := d.bytes("field", math.MaxInt32)
		if d.err != nil {
			break
		}
		f := decoder{b: p, base: d.off - len(p), part: d.part}
		switch tag {
		case tagNum:
			e.Num = f.uvarint("edit number")
		case tagStoreID:
			e.StoreID = f.uvarint("store id")
		case tagCheckpoint:
			if e.CheckpointOf = f.uvarint("store of a checkpoint"); f.err == nil && e.CheckpointOf == 0 {
				f.fail("a checkpoint of store 0")
			}
		case tagOpenCount:
			e.OpenCount = f.uvarint("open count")
		case tagNextFile:
			e.NextFile = f.uvarint("next file")
		case tagLastTable:
			e.LastTable = f.uvarint("last table")
		case tagLastTree:
			e.LastTree = f.uvarint("last tree")
		case tagLogStart:
			e.LogStart = f.uvarint("log start")
		case tagLastSeq:
			e.LastSeq = f.uvarint("last sequence")
		case tagLogged:
			e.Logged = f.uvarint("logged sequence")
		case tagEngineTime:
			e.EngineTime = f.time("engine time")
		case tagStamp:
			e.Stamp = f.time("stamp")
		case tagDropTable:
			id := f.uvarint("dropped table")
			if f.err == nil && id == 0 {
				f.fail("table 0 is dropped, ids begin at 1")
			}
			e.DropTables = append(e.DropTables, id)
		case tagPutTable:
			e.PutTables = append(e.PutTables, f.table())
		case tagDeleted:
			e.Deleted = append(e.Deleted, DeletedFile{Tree: f.uvarint("tree"), Level: f.level(), Num: f.uvarint("file number")})
		case tagAdded:
			e.Added = append(e.Added, AddedFile{Tree: f.uvarint("tree"), Level: f.level(), File: f.file()})
		case tagFlushed:
			e.Flushed = append(e.Flushed, Flushed{Tree: f.uvarint("tree"), Seq: f.uvarint("sequence")})
		case tagCollected:
			e.Collected = append(e.Collected, Collected{Tree: f.uvarint("tree"), Time: f.time("time of a collection")})
		case tagLowered:
			e.Lowered = &Lowered{Time: f.time("lowered time"), Seq: f.uvarint("sequence")}
		default:
			return nil, fmt.Errorf("%w: manifest edit has field %d, which this build does not know", damage.ErrFormat, tag)
		}
		if f.err == nil && f.off != len(f.b) {
			f.fail("%d bytes after field %d", len(f.b)-f.off, tag)
		}
		d.err = f.err
	}
	if d.err == nil && e.Num == 0 {
		d.fail("no edit number")
	}
	if d.err != nil {
		return nil, d.err
	}
	return e, nil
}

func appendFile(p []byte, f *File) []byte {
	for _, v := range []uint64{f.Num, f.ID, uint64(f.Size), f.FirstSeq, f.LastSeq, f.Settled, f.Rows, f.Cells, f.Ranges, f.Deletes, f.Holes, f.Lives, f.LogicalBytes} {
		p = binary.AppendUvarint(p, v)
	}
	p = binary.AppendVarint(p, f.MinTS)
	p = binary.AppendVarint(p, f.MaxTS)
	return appendBounds(p, f.Bounds)
}

func appendBounds(p []byte, b cell.Bounds) []byte {
	p = appendBytes(p, b.LoRow)
	p = appendBytes(p, b.LoCol)
	p = appendBytes(p, b.HiRow)
	if b.HiCol == nil {
		return append(p, 0)
	}
	return appendBytes(append(p, 1), b.HiCol)
}

func appendTable(p []byte, t *Table) []byte {
	p = binary.AppendUvarint(p, t.ID)
	p = appendBytes(p, []byte(t.Name))
	p = binary.AppendUvarint(p, t.HighestLife)
	p = append(p, t.Options.Codec)
	p = binary.AppendUvarint(p, uint64(t.Options.BlockSize))
	p = binary.AppendUvarint(p, uint64(t.Options.BloomBits))
	if t.Options.ColumnFilter {
		p = append(p, 1)
	} else {
		p = append(p, 0)
	}
	p = binary.AppendUvarint(p, uint64(len(t.Groups)))
	for _, g := range t.Groups {
		p = appendBytes(p, []byte(g.Name))
		p = binary.AppendUvarint(p, g.Tree)
	}
	p = binary.AppendUvarint(p, uint64(len(t.Families)))
	for _, f := range t.Families {
		p = appendBytes(p, []byte(f.Name))
		p = binary.AppendUvarint(p, f.Life)
		p = binary.AppendUvarint(p, f.Group)
		p = append(p, byte(f.Fold))
		p = f.Rule.Append(p)
	}
	p = binary.AppendUvarint(p, t.LastChange)
	p = binary.AppendUvarint(p, uint64(len(t.Changes)))
	for i := range t.Changes {
		p = appendChange(p, &t.Changes[i])
	}
	return p
}

func appendBytes(p, b []byte) []byte {
	return append(binary.AppendUvarint(p, uint64(len(b))), b...)
}

// decoder reads with one sticky error, so that callers check once.
type decoder struct {
	b    []byte
	off  int
	base int // offset of b in what the error should speak of
	part string
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = damage.New(d.part, int64(d.base+d.off), format, args...)
	}
}

// wrap takes an error of another decoder that read from off on.
func (d *decoder) wrap(err error) { d.err = damage.At(err, "", int64(d.base+d.off)) }

func (d *decoder) uvarint(what string) uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b[d.off:])
	if n <= 0 {
		d.fail("bad %s", what)
		return 0
	}
	d.off += n
	return v
}

func (d *decoder) varint(what string) int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.b[d.off:])
	if n <= 0 {
		d.fail("bad %s", what)
		return 0
	}
	d.off += n
	return v
}

func (d *decoder) time(what string) int64 {
	v := d.uvarint(what)
	if v > math.MaxInt64 {
		d.fail("%s %d is too large", what, v)
	}
	return int64(v)
}

func (d *decoder) byte(what string) byte {
	if d.err == nil && d.off >= len(d.b) {
		d.fail("no %s", what)
	}
	if d.err != nil {
		return 0
	}
	d.off++
	return d.b[d.off-1]
}

func (d *decoder) bytes(what string, limit int) []byte {
	n := d.uvarint(what)
	if d.err != nil {
		return nil
	}
	if n > uint64(limit) || n > uint64(len(d.b)-d.off) {
		d.fail("%s of %d bytes, %d are left", what, n, len(d.b)-d.off)
		return nil
	}
	d.off += int(n)
	return append([]byte{}, d.b[d.off-int(n):d.off]...)
}

func (d *decoder) level() int {
	l := d.byte("level")
	if l >= Depth {
		d.fail("level %d", l)
	}
	return int(l)
}

func (d *decoder) file() *File {
	f := &File{
		Num: d.uvarint("file number"), ID: d.uvarint("file id"), Size: d.time("file size"),
		FirstSeq: d.uvarint("first sequence"), LastSeq: d.uvarint("last sequence"), Settled: d.uvarint("last change"),
		Rows: d.uvarint("rows"), Cells: d.uvarint("cells"), Ranges: d.uvarint("ranges"), Deletes: d.uvarint("deletes"),
		Holes: d.uvarint("holes"), Lives: d.uvarint("lives"), LogicalBytes: d.uvarint("logical bytes"), MinTS: d.varint("lowest timestamp"), MaxTS: d.varint("highest timestamp"),
	}
	b := &f.Bounds
	b.LoRow, b.LoCol, b.HiRow = d.bytes("lower row", cell.RowKeyMax), d.bytes("lower column", cell.ColumnMax), d.bytes("upper row", cell.RowKeyMax)
	switch d.byte("upper column flag") {
	case 0:
	case 1:
		b.HiCol = d.bytes("upper column", cell.ColumnMax)
	default:
		d.fail("bad upper column flag")
	}
	if d.err == nil && (len(b.LoRow) == 0 || string(b.LoRow) > string(b.HiRow) || f.Num == 0) {
		d.fail("file %d has bounds out of order", f.Num)
	}
	return f
}

func (d *decoder) table() *Table {
	t := &Table{ID: d.uvarint("table id"), Name: string(d.bytes("table name", 1<<16)), HighestLife: d.uvarint("highest life")}
	t.Options.Codec = d.byte("codec")
	t.Options.BlockSize = d.uint32("block size")
	t.Options.BloomBits = d.uint32("bloom bits")
	t.Options.ColumnFilter = d.byte("column filter") != 0
	for n := d.count("groups"); n > 0 && d.err == nil; n-- {
		t.Groups = append(t.Groups, Group{Name: string(d.bytes("group name", 1<<16)), Tree: d.uvarint("tree")})
	}
	for n := d.count("families"); n > 0 && d.err == nil; n-- {
		f := Family{Name: string(d.bytes("family name", cell.FamilyMax)), Life: d.uvarint("life"), Group: d.uvarint("group"), Fold: Fold(d.byte("fold"))}
		f.Rule = d.rule()
		if d.err != nil {
			break
		}
		if err := cell.CheckFamily(f.Name); err != nil {
			d.fail("%v", err)
		}
		if f.Fold > FoldMax {
			d.fail("family %q: fold %d", f.Name, f.Fold)
		}
		if f.Group >= uint64(len(t.Groups)) || f.Life > t.HighestLife {
			d.fail("family %q: group %d of %d, life %d of %d", f.Name, f.Group, len(t.Groups), f.Life, t.HighestLife)
		}
		if k := len(t.Families); k > 0 && t.Families[k-1].Name >= f.Name {
			d.fail("families out of order at %q", f.Name)
		}
		t.Families = append(t.Families, f)
	}
	t.LastChange = d.uvarint("last change")
	for n := d.count("changes"); n > 0 && d.err == nil; n-- {
		t.Changes = append(t.Changes, d.change(t))
	}
	return t
}

// count reads a number of things that take at least one byte each.
func (d *decoder) count(what string) uint64 {
	n := d.uvarint(what)
	if n > uint64(len(d.b)-d.off) {
		d.fail("%d %s in %d bytes", n, what, len(d.b)-d.off)
		return 0
	}
	return n
}

func (d *decoder) uint32(what string) uint32 {
	v := d.uvarint(what)
	if v > math.MaxUint32 {
		d.fail("%s %d is too large", what, v)
	}
	return uint32(v)
}
