package sstable

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/bloom"
	"github.com/rowandb/rowan/cache"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/mapped"
	"github.com/rowandb/rowan/io/vfs"
)

// ReadMode says how blocks are read.
type ReadMode uint8

const (
	// Mapped reads through a mapping: parts stored raw are used in place. A block is read positionally once, which brings it
	// into memory and checks it, and through the map from then on, so that a page fault hardly ever reads a disk.
	// Operations must run under the guard of package mapped, because a file that shrinks makes mapped reads fault.
	Mapped ReadMode = iota
	// Positional reads with ReadAt.
	Positional
	// Direct reads with aligned offsets, lengths and buffers, for a file opened with vfs.How.Direct.
	Direct
)

func (m ReadMode) String() string {
	switch m {
	case Mapped:
		return "mapped"
	case Positional:
		return "positional"
	case Direct:
		return "direct"
	}
	return "unknown"
}

// ReaderOptions say how a file is opened.
type ReaderOptions struct {
	Name  string       // for errors; "" means the file's own
	ID    uint64       // expected identity; 0: any
	Size  int64        // expected size in bytes; 0: ask the file
	Cache *cache.Cache // of decoded parts; nil: none
	Mode  ReadMode
}

// Reader is an open file. Safe for concurrent use; its iterators are not.
type Reader struct {
	f     vfs.File
	name  string
	size  int64
	id    uint64
	mode  ReadMode
	props Properties
	toc   toc
	lanes [lanes]lane
	parts int // slots of all lanes

	m      *mapped.Mapped
	view   []byte          // of the mapping; nil in other modes
	seen   []atomic.Uint32 // a bit per part: checked, and read into memory, since the last Age; mapped mode only
	guides guides

	cache  *cache.Cache
	cached *cache.File

	filters [2]lazyFilter

	refs   atomic.Int64 // the reader itself and its iterators; at 0 the file is closed
	closed atomic.Bool
}

// lane is the reading side of a lane: its index.
type lane struct {
	n         int
	info      laneInfo
	root      *block.Index
	firstPart int
	blocks    int
	// With two levels: the leaves, loaded when needed and kept, the number of the first block and part of each.
	leaves    []atomic.Pointer[block.Index]
	leafBlock []int
}

type lazyFilter struct {
	once sync.Once
	f    bloom.Filter
	err  error
	n    int64
}

// Open reads the footer, properties and indexes of a file. On success the reader owns f; on failure the caller still does.
// Damage errors match damage.Err and name the part.
func Open(f vfs.File, o ReaderOptions) (*Reader, error) {
	r := &Reader{f: f, name: o.Name, size: o.Size, mode: o.Mode, cache: o.Cache}
	if r.name == "" {
		r.name = f.Name()
	}
	r.refs.Store(1)
	if err := r.open(o); err != nil {
		r.unload()
		return nil, fmt.Errorf("open table: %w", damage.At(err, r.name, 0))
	}
	return r, nil
}

func (r *Reader) open(o ReaderOptions) error {
	size, err := r.f.Size()
	if err != nil {
		return err
	}
	if o.Size != 0 && size != o.Size {
		return damage.New("file", size, "%d bytes long, expected %d", size, o.Size)
	}
	if r.size = size; size < footerLen {
		return damage.New("footer", 0, "file of %d bytes is too short", size)
	}
	p, _, err := r.readAt(nil, size-footerLen, footerLen)
	if err != nil {
		return err
	}
	ft, err := readFooter(p, size)
	if err != nil {
		return damage.At(err, r.name, size-footerLen)
	}
	if r.id = ft.id; o.ID != 0 && o.ID != ft.id {
		return damage.New("footer", size-footerLen+16, "identity %016x, expected %016x", ft.id, o.ID)
	}
	raw, err := r.loadPart(block.PartProperties, place{ft.propsOff, ft.propsLen})
	if err != nil {
		return err
	}
	props, t, err := readProperties(raw)
	if err != nil {
		return damage.At(err, r.name, ft.propsOff+block.HeadLen)
	}
	props.ID = ft.id
	r.props, r.toc = *props, *t
	for i := range r.lanes {
		if err := r.openLane(i, ft.propsOff); err != nil {
			return err
		}
	}
	r.guides.init(r.cache, r.lanes[laneCells].blocks)
	if r.cache != nil {
		r.cached = r.cache.NewFile(r.parts)
	}
	if r.mode == Mapped {
		return r.openMap()
	}
	return nil
}

func (r *Reader) openMap() error {
	m, err := mapped.Open(r.f, r.size)
	if errors.Is(err, vfs.ErrMap) {
		r.mode = Positional
		return nil
	}
	if err != nil {
		return err
	}
	r.m, r.view = m, m.Bytes()[:r.size]
	r.seen = make([]atomic.Uint32, (r.parts+31)/32)
	return nil
}

func (r *Reader) openLane(i int, limit int64) error {
	ln := &r.lanes[i]
	ln.n, ln.info, ln.firstPart = i, r.toc.lanes[i], r.parts
	info := ln.info
	if (info.blocks == 0) != (info.levels == 0) {
		return damage.New("properties", -1, "%s lane of %d blocks has %d index levels", laneNames[i], info.blocks, info.levels)
	}
	if info.blocks == 0 {
		return nil
	}
	if info.root.n < block.HeadLen || info.root.off > limit-info.root.n {
		return damage.New("properties", -1, "%s index of %d bytes at %d", laneNames[i], info.root.n, info.root.off)
	}
	part := block.PartIndex
	if info.levels == 2 {
		part = block.PartRoot
	}
	x, err := r.loadIndex(part, info.root, info.root.off)
	if err != nil {
		return err
	}
	ln.root, ln.blocks = x, x.Len()
	if info.levels == 2 {
		ln.leaves = make([]atomic.Pointer[block.Index], x.Len())
		ln.leafBlock = make([]int, x.Len()+1)
		n := int64(0)
		for j := range ln.leaves {
			_, _, count := x.Place(j)
			ln.leafBlock[j] = int(n)
			if n += count; n > int64(info.blocks) {
				break
			}
		}
		ln.leafBlock[x.Len()] = int(n)
		ln.blocks = int(n)
	}
	if uint64(ln.blocks) != info.blocks {
		return damage.New(part.String(), info.root.off, "index of %d %s blocks, properties say %d", ln.blocks, laneNames[i], info.blocks)
	}
	r.parts += x.Parts()
	return nil
}

// loadIndex reads an index block, all of whose places must lie below limit.
func (r *Reader) loadIndex(part block.Part, p place, limit int64) (*block.Index, error) {
	raw, err := r.loadPart(part, p)
	if err != nil {
		return nil, err
	}
	x, err := block.ParseIndex(raw)
	if err != nil {
		return nil, damage.At(err, r.name, p.off+block.HeadLen)
	}
	for i := 0; i < x.Len(); i++ {
		// No block is longer than one huge value and the keys and values that fit before it.
		if off, n, keys := x.Place(i); off > limit-n || n > 2*block.PartMax || part == block.PartIndex && (keys > n || keys < block.HeadLen) {
			return nil, damage.New(part.String(), p.off, "entry %d points to %d+%d (keys %d), limit %d", i, off, n, keys, limit)
		}
	}
	r.charge(int64(x.Bytes()))
	return x, nil
}

func (r *Reader) charge(n int64) {
	if r.cache != nil {
		r.cache.Charge(n)
	}
}

// leaf returns index leaf i of the lane, reading it the first time.
func (r *Reader) leaf(ln *lane, i int) (*block.Index, error) {
	if ln.leaves == nil {
		return ln.root, nil
	}
	if x := ln.leaves[i].Load(); x != nil {
		return x, nil
	}
	off, n, count := ln.root.Place(i)
	x, err := r.loadIndex(block.PartIndex, place{off, n}, off)
	if err != nil {
		return nil, err
	}
	if int64(x.Len()) != count || x.Parts() != ln.root.FirstPart(i+1)-ln.root.FirstPart(i) {
		return nil, damage.At(damage.New("index", 0, "%d blocks of %d parts, root says %d blocks", x.Len(), x.Parts(), count), r.name, off)
	}
	if !ln.leaves[i].CompareAndSwap(nil, x) {
		r.charge(-int64(x.Bytes()))
		return ln.leaves[i].Load(), nil
	}
	return x, nil
}

// loadPart reads a part that is not a block, checks it and returns its raw bytes.
func (r *Reader) loadPart(part block.Part, p place) ([]byte, error) {
	if p.n < block.HeadLen || p.n > block.PartMax+block.HeadLen || p.off < 0 || p.off > r.size-p.n {
		return nil, damage.At(damage.New(part.String(), 0, "%d bytes in a file of %d", p.n, r.size), r.name, p.off)
	}
	b, _, err := r.readAt(nil, p.off, int(p.n))
	if err != nil {
		return nil, err
	}
	raw, err := block.OpenDecoded(b, block.Seed(r.id, p.off), part)
	if err != nil { // once more, as for a block: the bits may have turned over on their way
		if b, _, e := r.readAt(nil, p.off, int(p.n)); e == nil {
			if raw, e := block.OpenDecoded(b, block.Seed(r.id, p.off), part); e == nil {
				return raw, nil
			}
		}
	}
	return raw, damage.At(err, r.name, p.off)
}

// readAt reads n bytes at off, into buf's memory where that is large enough. It returns the bytes and the memory they are in,
// for the next call.
func (r *Reader) readAt(buf []byte, off int64, n int) (b, mem []byte, err error) {
	if r.mode == Direct {
		return r.readDirect(buf, off, n)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	return buf, buf, r.readErr(off, n, readFull(r.f, buf, off))
}

// readFull reads all of p; a clean end of the file just behind it is no error.
func readFull(f io.ReaderAt, p []byte, off int64) error {
	n, err := readTwice(f, p, off)
	if n == len(p) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// readTwice tries a read again that the disk has refused: only what it refuses twice counts as lost.
func readTwice(f io.ReaderAt, p []byte, off int64) (n int, err error) {
	if n, err = f.ReadAt(p, off); errors.Is(err, syscall.EIO) {
		n, err = f.ReadAt(p, off)
	}
	return n, err
}

func (r *Reader) readErr(off int64, n int, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damage.At(damage.New("file", off, "ends before the %d bytes that should be here", n), r.name, 0)
	}
	if errors.Is(err, syscall.EIO) { // the disk has lost them; under a mapping it would be a fault
		return &damage.Error{File: r.name, Part: "file", Offset: off, Detail: fmt.Sprintf("%d bytes cannot be read", n), Cause: err}
	}
	return fmt.Errorf("%s: read %d bytes at %d: %w", r.name, n, off, err)
}

// readDirect reads the aligned stretch around [off, off+n). The last block of a file may be short.
func (r *Reader) readDirect(buf []byte, off int64, n int) (b, mem []byte, err error) {
	align := int64(r.f.Align())
	from := off &^ (align - 1)
	length := (off + int64(n) - from + align - 1) &^ (align - 1)
	if int64(cap(buf)) < length+align {
		buf = make([]byte, length+align)
	}
	buf = buf[:cap(buf)]
	pad := int(-uintptr(unsafe.Pointer(&buf[0])) & uintptr(align-1))
	p := buf[pad : pad+int(length)]
	got, err := readTwice(r.f, p, from)
	if need := int(off-from) + n; got >= need {
		return p[off-from : need], buf, nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return nil, buf, r.readErr(off, n, err)
}

// Properties are shared: callers must not change them.
func (r *Reader) Properties() *Properties { return &r.props }

// Mode is the mode in force: Positional where mapping was refused.
func (r *Reader) Mode() ReadMode { return r.mode }

// Size is the file's size in bytes; Name its name in errors.
func (r *Reader) Size() int64  { return r.size }
func (r *Reader) Name() string { return r.name }

// HasDeletes reports whether the file holds any wide or narrow delete.
func (r *Reader) HasDeletes() bool { return r.props.Ranges+r.props.Deletes > 0 }

// MayContainRow reports whether the file may have an entry, cell or delete, for the row with this bloom.HashRow. False is
// certain. A file without a filter, or whose filter cannot be read, may contain every row; Verify reports the latter.
func (r *Reader) MayContainRow(hash uint64) bool {
	return r.mayContain(&r.filters[0], r.toc.rowFilter, block.PartRowFilter, hash)
}

// PrefetchRow asks for the memory that MayContainRow will look at.
func (r *Reader) PrefetchRow(hash uint64) {
	l := &r.filters[0]
	if r.toc.rowFilter.n == 0 {
		return
	}
	l.once.Do(func() { r.loadFilter(l, r.toc.rowFilter, block.PartRowFilter) })
	l.f.Prefetch(hash)
}

// MayContainColumn is MayContainRow for the cells of one (row, column), by bloom.HashColumn. It says nothing about deletes.
func (r *Reader) MayContainColumn(hash uint64) bool {
	return r.mayContain(&r.filters[1], r.toc.cellFilter, block.PartCellFilter, hash)
}

func (r *Reader) mayContain(l *lazyFilter, p place, part block.Part, hash uint64) bool {
	if p.n == 0 {
		return true
	}
	l.once.Do(func() { r.loadFilter(l, p, part) })
	return l.err != nil || l.f.MayContain(hash)
}

func (r *Reader) loadFilter(l *lazyFilter, p place, part block.Part) {
	raw, err := r.loadPart(part, p)
	if err == nil {
		l.f, err = bloom.Open(raw)
		if err != nil {
			err = damage.At(&damage.Error{Part: part.String(), Offset: 0, Cause: err}, r.name, p.off)
		}
	}
	if l.err = err; err == nil {
		l.n = int64(len(raw))
		r.charge(l.n)
	}
}

// Age forgets which blocks are in memory and checked: the next touch reads and checks each again. The engine calls it now and
// then, so that blocks the kernel has dropped are not faulted in, and damage that came later is found.
func (r *Reader) Age() {
	for i := range r.seen {
		r.seen[i].Store(0)
	}
}

// Populate loads [off, off+n) of a mapped file into memory; a hint.
func (r *Reader) Populate(off, n int64) error {
	if r.m == nil {
		return nil
	}
	return r.m.Populate(off, n)
}

func (r *Reader) known(slot int) bool {
	return r.seen[slot>>5].Load()&(1<<(slot&31)) != 0
}

func (r *Reader) markKnown(slot int) {
	w, bit := &r.seen[slot>>5], uint32(1)<<(slot&31)
	if w.Load()&bit == 0 {
		w.Or(bit)
	}
}

// Close closes the file once the last iterator is closed. It is idempotent; iterators made afterwards fail with ErrClosed.
func (r *Reader) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	return r.release()
}

func (r *Reader) acquire() bool {
	for {
		n := r.refs.Load()
		if n <= 0 || r.closed.Load() {
			return false
		}
		if r.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release gives up one hold; the last one closes the file.
func (r *Reader) release() error {
	if r.refs.Add(-1) > 0 {
		return nil
	}
	err := r.unload()
	return errors.Join(err, r.f.Close())
}

// unload gives back everything but the file.
func (r *Reader) unload() error {
	if r.cached != nil {
		r.cached.Close()
	}
	for i := range r.lanes {
		ln := &r.lanes[i]
		if ln.root != nil {
			r.charge(-int64(ln.root.Bytes()))
		}
		for j := range ln.leaves {
			if x := ln.leaves[j].Load(); x != nil {
				r.charge(-int64(x.Bytes()))
			}
		}
	}
	for i := range r.filters {
		if n := r.filters[i].n; n > 0 {
			r.charge(-n)
		}
	}
	r.guides.drop()
	if r.m != nil {
		m := r.m
		r.m, r.view = nil, nil
		return m.Close()
	}
	return nil
}
