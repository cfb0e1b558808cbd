package levels

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
)

// Format is the number of the format that this build reads and writes.
const Format = 1

const (
	manifestMagic  = "ROWANMAN"
	manifestHeader = 40
	// manifestMax bounds what is read of a manifest at once, and rollAt is the size at which a new one is started.
	manifestMax = 1 << 30
	rollAt      = 4 << 20
)

// Manifest is the file that edits are appended to, drawn in docs/formats/manifest.md. Its first edit is the whole state. Used
// by one goroutine at a time.
type Manifest struct {
	fs    vfs.FS
	dir   string
	num   uint64
	store uint64
	f     vfs.File
	off   int64
	buf   []byte

	RollAt int64 // size from which on Full is true: 4 MiB, or twice the first edit if that is more, unless changed
	// EditMax is the largest edit, in bytes, that Append takes: what a record takes, unless changed.
	EditMax int
}

// seed is what the checksums of a manifest's frames start from.
func seed(store, num uint64) uint64 { return store ^ num*0x9e3779b97f4a7c15 }

// CreateManifest starts manifest num with the state of v, which is durable when it returns. Older manifests stay.
func CreateManifest(fsys vfs.FS, dir string, num uint64, v *Version) (*Manifest, error) {
	m := &Manifest{fs: fsys, dir: dir, num: num, store: v.StoreID, RollAt: rollAt, EditMax: record.PayloadMax}
	name := path.Join(dir, ManifestName(num))
	state := v.Snapshot().Append(nil)
	if len(state) > record.PayloadMax {
		return nil, fmt.Errorf("create manifest: %w: %d bytes, the most is %d", ErrTooLarge, len(state), record.PayloadMax)
	}
	f, err := fsys.Open(name, vfs.How{Create: true, DSync: true})
	if err != nil {
		return nil, fmt.Errorf("create manifest: %w", err)
	}
	m.f = f
	b := append([]byte(manifestMagic), 0, 0, 0, 0, 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(b[8:], Format)
	b = binary.LittleEndian.AppendUint64(b, num)
	b = binary.LittleEndian.AppendUint64(b, m.store)
	b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
	b = record.AppendFrame(b, seed(m.store, num), state)
	err = m.write(b)
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("create manifest %s: %w", name, err)
	}
	m.RollAt = max(m.RollAt, 2*m.off) // or a large store would write its whole state with every edit
	return m, nil
}

// ErrTooLarge: a state or an edit does not fit into one frame. Nothing was written.
var ErrTooLarge = errors.New("manifest edit is too large")

// Append makes an edit durable. After an error other than ErrTooLarge the manifest takes no more: whether the edit is on disk is
// unknown.
func (m *Manifest) Append(e *Edit) error {
	p := e.Append(nil)
	if len(p) > m.EditMax {
		return fmt.Errorf("%w: %d bytes, the most is %d", ErrTooLarge, len(p), m.EditMax)
	}
	m.buf = record.AppendFrame(m.buf[:0], seed(m.store, m.num), p)
	return m.write(m.buf)
}

func (m *Manifest) write(b []byte) error {
	if _, err := m.f.WriteAt(b, m.off); err != nil {
		return err
	}
	if err := m.f.Sync(); err != nil { // the handle's DSync covers the data; this covers the size where that is apart
		return err
	}
	m.off += int64(len(b))
	return nil
}

// Full reports whether it is time to start a new manifest.
func (m *Manifest) Full() bool { return m.off >= m.RollAt }

// Num is the manifest's number.
func (m *Manifest) Num() uint64 { return m.num }

// Close closes the file.
func (m *Manifest) Close() error { return m.f.Close() }

// Snapshot returns an edit that makes an empty version into v.
func (v *Version) Snapshot() *Edit {
	e := &Edit{
		Num: max(v.EditNum, 1), NextFile: v.NextFile, LastTable: v.LastTable, LastTree: v.LastTree, LogStart: v.LogStart,
		LastSeq: v.LastSeq, EngineTime: v.EngineTime, Stamp: v.Stamp, OpenCount: v.OpenCount, StoreID: v.StoreID,
		CheckpointOf: v.CheckpointOf,
	}
	if v.LoweredAt > 0 {
		e.Lowered = &Lowered{Time: v.EngineTime, Seq: v.LoweredAt}
	}
	e.PutTables = v.Schema.Tables()
	for _, t := range e.PutTables {
		for _, g := range t.Groups {
			tree := v.Trees[g.Tree]
			if tree == nil {
				continue
			}
			for l, files := range tree.Files {
				for _, f := range files {
					e.Added = append(e.Added, AddedFile{Tree: tree.ID, Level: l, File: f})
				}
			}
			if tree.FlushedThrough > 0 {
				e.Flushed = append(e.Flushed, Flushed{Tree: tree.ID, Seq: tree.FlushedThrough})
			}
			if tree.Collected > 0 {
				e.Collected = append(e.Collected, Collected{Tree: tree.ID, Time: tree.Collected})
			}
		}
	}
	return e
}

// Loaded is what a directory's newest manifest says.
type Loaded struct {
	Version *Version
	Num     uint64 // of the manifest that counts
	Newest  uint64 // highest number of any manifest, those included that a crash left unborn
	Edits   int
	Ignored int64 // bytes of a torn last append
}

// ErrNoManifest: the directory has none.
var ErrNoManifest = errors.New("no manifest")

// Load reads the newest manifest of dir. A manifest that a crash left without its first edit does not count: the one before
// it was in force then. Errors match damage.Err, damage.ErrFormat or ErrNoManifest, or come from the file system.
func Load(fsys vfs.FS, dir string, obsolete func(*File)) (Loaded, error) {
	var l Loaded
	list, err := fsys.List(dir)
	if err != nil {
		return l, err
	}
	var nums []uint64
	for _, e := range list {
		if n, c, ok := ParseManifestName(e.Name); ok && c == 'a' {
			nums = append(nums, n)
			l.Newest = max(l.Newest, n)
		}
	}
	for i := len(nums) - 1; i >= 0 && l.Version == nil; i-- { // List sorts by name, and so by number
		name := path.Join(dir, ManifestName(nums[i]))
		if err := l.read(fsys, name, nums[i], obsolete); err != nil {
			return l, damage.At(err, name, 0)
		}
	}
	if l.Version == nil {
		return l, fmt.Errorf("%s: %w", dir, ErrNoManifest)
	}
	return l, nil
}

// read reads one manifest. It leaves l.Version nil when a crash cut the manifest's creation short.
func (l *Loaded) read(fsys vfs.FS, name string, num uint64, obsolete func(*File)) error {
	b, err := readAll(fsys, name)
	if err != nil {
		return err
	}
	if len(b) < manifestHeader || allZero(b[:manifestHeader]) {
		return nil
	}
	h := b[:manifestHeader]
	sumOK := xxhash.Sum64(h[:32]) == binary.LittleEndian.Uint64(h[32:])
	if string(h[:8]) == manifestMagic && sumOK {
		if f := binary.LittleEndian.Uint32(h[8:]); f != Format {
			return fmt.Errorf("%w: manifest of format %d, this build knows format %d", damage.ErrFormat, f, Format)
		}
	}
	body := b[manifestHeader:]
	if string(h[:8]) != manifestMagic || !sumOK || binary.LittleEndian.Uint64(h[16:]) != num {
		return damage.New("manifest header", 0, "magic, number or checksum is wrong")
	}
	store := binary.LittleEndian.Uint64(h[24:])
	v := NewVersion(nil) // nothing is given up while history is replayed
	edits := 0
	end, err := record.ReadFrames(body, seed(store, num), func(off int64, payload []byte) error {
		e, err := DecodeEdit(payload)
		if err != nil {
			return err
		}
		if edits > 0 && e.Num != v.EditNum+1 {
			return damage.New("manifest edit", -1, "edit %d follows edit %d", e.Num, v.EditNum)
		}
		next, err := v.Apply(e)
		if err != nil {
			return damage.New("manifest edit", -1, "%v", err)
		}
		v.Unref()
		v = next
		edits++
		return nil
	})
	if err != nil {
		return damage.At(err, name, manifestHeader)
	}
	if edits == 0 {
		return nil
	}
	if v.StoreID != store {
		return damage.New("manifest header", 24, "store id %x, the edits say %x", store, v.StoreID)
	}
	v.obsolete = obsolete
	l.Version, l.Num, l.Edits, l.Ignored = v, num, edits, int64(len(body))-end
	return nil
}

func readAll(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name, vfs.How{})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > manifestMax {
		return nil, damage.New("manifest", -1, "%d bytes, the most is %d", size, manifestMax)
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err == io.EOF {
		err = nil
	}
	return b[:n], err
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
