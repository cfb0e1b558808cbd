package levels

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

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

// room is how far ahead space is reserved, so that an edit which says what is not needed any more finds some on a full disk too;
// it is reserved again when less than half of that is left.
const room = 128 << 10

// Manifest is the file that edits are appended to, drawn in docs/formats/manifest.md. Its first edit is the whole state. It is
// kept in two copies of the same bytes: what is lost of one is read from the other. Used by one goroutine at a time.
type Manifest struct {
	fs       vfs.FS
	dir      string
	num      uint64
	store    uint64
	copies   []vfs.File
	off      int64
	reserved int64 // the size through which the copies have their space
	buf      []byte

	RollAt int64 // size from which on Full is true: 4 MiB, or twice the first edit if that is more, unless changed
	// EditMax is the largest edit, in bytes, that Append takes: what a record takes, unless changed.
	EditMax int
}

// seed is what the checksums of a manifest's frames start from.
func seed(store, num uint64) uint64 { return store ^ num*0x9e3779b97f4a7c15 }

// CreateManifest starts manifest num with the state of v, which is durable when it returns. Older manifests stay. After
// ErrNotWritten there is nothing of it; after another error the copies may have been written, and count.
func CreateManifest(fsys vfs.FS, dir string, num uint64, v *Version) (*Manifest, error) {
	m := &Manifest{fs: fsys, dir: dir, num: num, store: v.StoreID, RollAt: rollAt, EditMax: record.PayloadMax}
	state := v.Snapshot().Append(nil)
	if len(state) > record.PayloadMax {
		return nil, fmt.Errorf("create manifest: %w: %d bytes, the most is %d", ErrTooLarge, len(state), record.PayloadMax)
	}
	b := append([]byte(manifestMagic), 0, 0, 0, 0, 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(b[8:], Format)
	b = binary.LittleEndian.AppendUint64(b, num)
	b = binary.LittleEndian.AppendUint64(b, m.store)
	b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
	b = record.AppendFrame(b, seed(m.store, num), state)
	err := m.make(int64(len(b)))
	if err == nil {
		if err = m.write(b); err == nil {
			err = fsys.SyncDir(dir)
		}
	}
	if err != nil {
		_ = m.Close() // the first error is the one to tell
		return nil, fmt.Errorf("create manifest %s: %w", path.Join(dir, ManifestName(num)), err)
	}
	m.RollAt = max(m.RollAt, 2*m.off) // or a large store would write its whole state with every edit
	return m, nil
}

// make creates the copies, empty, and reserves their space. What it has made is gone after an error, if that is possible: empty
// files are no manifest.
func (m *Manifest) make(size int64) error {
	var made []string
	err := func() error {
		for _, name := range ManifestCopies(m.num) {
			name = path.Join(m.dir, name)
			f, err := m.fs.Open(name, vfs.How{Create: true, DSync: true})
			if err != nil {
				return err
			}
			made = append(made, name)
			m.copies = append(m.copies, f)
		}
		return m.reserve(size)
	}()
	if err == nil {
		return nil
	}
	for _, name := range made {
		if e := m.fs.Remove(name); e != nil {
			return errors.Join(err, e)
		}
	}
	if vfs.NoSpace(err) {
		err = fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	return err
}

// reserve makes sure that the copies have space for size bytes, and for some more if that can be had. A file system that reserves
// nothing is written to all the same.
func (m *Manifest) reserve(size int64) error {
	if m.reserved-size >= room/2 {
		return nil
	}
	for _, want := range []int64{size + room, size} {
		if want <= m.reserved {
			return nil
		}
		var err error
		for _, f := range m.copies {
			if e := f.Preallocate(want); vfs.NoSpace(e) {
				err = e
			}
		}
		if err == nil {
			m.reserved = want
			return nil
		}
		if want == size {
			return err
		}
	}
	return nil
}

// Errors after which nothing was written and the manifest takes further edits. ErrTooLarge: a state or an edit does not fit into
// one frame. Of the other one vfs.NoSpace is true.
var (
	ErrTooLarge   = errors.New("manifest edit is too large")
	ErrNotWritten = errors.New("no space for the manifest")
)

// Append makes an edit durable, in the first copy and then in the second. After an error other than ErrTooLarge and ErrNotWritten
// the manifest takes no more: whether the edit is on disk is unknown.
func (m *Manifest) Append(e *Edit) error {
	p := e.Append(nil)
	if len(p) > m.EditMax {
		return fmt.Errorf("%w: %d bytes, the most is %d", ErrTooLarge, len(p), m.EditMax)
	}
	m.buf = record.AppendFrame(m.buf[:0], seed(m.store, m.num), p)
	if err := m.reserve(m.off + int64(len(m.buf))); err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	return m.write(m.buf)
}

func (m *Manifest) write(b []byte) error {
	for _, f := range m.copies {
		if _, err := f.WriteAt(b, m.off); err != nil {
			return err
		}
		if err := f.Sync(); err != nil { // the handle's DSync covers the data; this covers the size where that is apart
			return err
		}
	}
	m.off += int64(len(b))
	return nil
}

// Full reports whether it is time to start a new manifest.
func (m *Manifest) Full() bool { return m.off >= m.RollAt }

// Num is the manifest's number.
func (m *Manifest) Num() uint64 { return m.num }

// Size is the number of bytes in each of its copies.
func (m *Manifest) Size() int64 { return m.off }

// Close closes the files.
func (m *Manifest) Close() error {
	var errs []error
	for _, f := range m.copies {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// RemoveManifest removes the copies of a manifest that does not count any more. That one is not there is no error.
func RemoveManifest(fsys vfs.FS, dir string, num uint64) error {
	var errs []error
	for _, name := range ManifestCopies(num) {
		if err := fsys.Remove(path.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Snapshot returns an edit that makes an empty version into v.
func (v *Version) Snapshot() *Edit {
	e := &Edit{
		Num: max(v.EditNum, 1), NextFile: v.NextFile, LastTable: v.LastTable, LastTree: v.LastTree, LogStart: v.LogStart,
		LastSeq: v.LastSeq, EngineTime: v.EngineTime, Stamp: v.Stamp, OpenCount: v.OpenCount, StoreID: v.StoreID,
		CheckpointOf: v.CheckpointOf, Logged: v.Logged,
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
	// Bad tells what is wrong with a copy of the manifest where the other one is right: nothing is lost, and the next opening for
	// writing makes a fresh pair.
	Bad []error
	// Cut is the damage at which LoadSome stopped reading; nil if all was read.
	Cut error

	some bool // take the edits before a damaged one
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
		if n, _, ok := ParseManifestName(e.Name); ok && !slices.Contains(nums, n) {
			nums = append(nums, n)
			l.Newest = max(l.Newest, n)
		}
	}
	slices.Sort(nums)
	for i := len(nums) - 1; i >= 0 && l.Version == nil; i-- {
		if err := l.read(fsys, dir, nums[i], obsolete); err != nil {
			return l, damage.At(err, path.Join(dir, ManifestName(nums[i])), 0)
		}
	}
	if l.Version == nil {
		return l, fmt.Errorf("%s: %w", dir, ErrNoManifest)
	}
	return l, nil
}

// LoadSome is Load for a repair: where the newest manifest is damaged it takes the edits before the damage, or an older manifest
// where not even the first edit reads, and says so in Cut. The state that it gives is one that the store once had.
func LoadSome(fsys vfs.FS, dir string) (Loaded, error) {
	l, err := Load(fsys, dir, nil)
	if err == nil || errors.Is(err, ErrNoManifest) || !errors.Is(err, damage.Err) {
		return l, err
	}
	list, listErr := fsys.List(dir)
	if listErr != nil {
		return l, listErr
	}
	var nums []uint64
	for _, e := range list {
		if n, _, ok := ParseManifestName(e.Name); ok && !slices.Contains(nums, n) {
			nums = append(nums, n)
		}
	}
	slices.Sort(nums)
	for i := len(nums) - 1; i >= 0; i-- {
		some := Loaded{Newest: l.Newest, some: true}
		if readErr := some.read(fsys, dir, nums[i], nil); readErr == nil && some.Version != nil {
			if some.Cut == nil {
				some.Cut = err // that of the newer one
			}
			return some, nil
		}
	}
	return l, err
}

// read reads one manifest. It leaves l.Version nil when a crash cut the manifest's creation short.
func (l *Loaded) read(fsys vfs.FS, dir string, num uint64, obsolete func(*File)) error {
	var bodies [][]byte
	var names []string
	var store uint64
	var failed []error
	for _, name := range ManifestCopies(num) {
		name = path.Join(dir, name)
		b, err := readAll(fsys, name)
		var id uint64
		if err == nil {
			if len(b) < manifestHeader || allZero(b[:manifestHeader]) {
				names, bodies = append(names, name), append(bodies, nil)
				continue
			}
			id, err = readHeader(b, num)
		}
		if errors.Is(err, damage.ErrFormat) {
			return err
		}
		if err != nil {
			failed = append(failed, damage.At(err, name, 0))
			continue
		}
		if len(bodies) > 0 && store != 0 && id != store {
			return damage.At(damage.New("manifest header", 24, "store id %x, the other copy says %x", id, store), name, 0)
		}
		store = id
		names, bodies = append(names, name), append(bodies, b[manifestHeader:])
	}
	if store == 0 { // no header is good
		for _, err := range failed {
			if len(bodies) == 0 || !errors.Is(err, fs.ErrNotExist) {
				return errors.Join(failed...)
			}
		}
		return nil // what is there of it was never written
	}
	v := NewVersion(nil) // nothing is given up while history is replayed
	edits := 0
	end, bad, err := record.ReadFrames(bodies, seed(store, num), func(off int64, payload []byte) error {
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
	if err = damage.At(err, names[0], manifestHeader); err != nil {
		if !l.some || edits == 0 || !errors.Is(err, damage.Err) {
			return err
		}
		l.Cut = err
	}
	if edits == 0 {
		return nil
	}
	if v.StoreID != store {
		return damage.New("manifest header", 24, "store id %x, the edits say %x", store, v.StoreID)
	}
	v.obsolete = obsolete
	l.Version, l.Num, l.Edits = v, num, edits
	for _, b := range bodies {
		l.Ignored = max(l.Ignored, int64(len(b))-end)
	}
	l.Bad = nil
	for _, b := range bad {
		if !b.Torn {
			l.Bad = append(l.Bad, damage.At(b.Err, names[b.Copy], manifestHeader))
		}
	}
	for _, err := range failed {
		// A crash between the creations of the two leaves the first alone, with one edit.
		if edits > 1 || !errors.Is(err, fs.ErrNotExist) {
			l.Bad = append(l.Bad, err)
		}
	}
	return nil
}

// readHeader checks a copy's header and returns the store's identity.
func readHeader(b []byte, num uint64) (store uint64, err error) {
	h := b[:manifestHeader]
	sumOK := xxhash.Sum64(h[:32]) == binary.LittleEndian.Uint64(h[32:])
	if string(h[:8]) == manifestMagic && sumOK {
		if f := binary.LittleEndian.Uint32(h[8:]); f != Format {
			return 0, fmt.Errorf("%w: manifest of format %d, this build knows format %d", damage.ErrFormat, f, Format)
		}
	}
	if string(h[:8]) != manifestMagic || !sumOK || binary.LittleEndian.Uint64(h[16:]) != num {
		return 0, damage.New("manifest header", 0, "magic, number or checksum is wrong")
	}
	return binary.LittleEndian.Uint64(h[24:]), nil
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
