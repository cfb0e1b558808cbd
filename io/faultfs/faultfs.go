// Package faultfs wraps any file system: it fails, tears and delays calls, counts and records them, refuses direct I/O and
// mapping, and demands strict alignment. It is for tests and for reports of how many calls a job makes.
package faultfs

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowandb/rowan/io/vfs"
)

// Kind is a kind of call.
type Kind uint8

const (
	Open Kind = iota // of an existing file
	Create
	Remove
	Rename
	Link
	Mkdir
	List
	Stat
	SyncDir
	Lock
	Free
	Read
	Write
	Sync
	Truncate
	Preallocate
	Map
	Close
	kinds
)

var kindNames = [kinds]string{"open", "create", "remove", "rename", "link", "mkdir", "list", "stat", "syncdir", "lock", "free", "read",
	"write", "sync", "truncate", "preallocate", "map", "close"}

func (k Kind) String() string { return kindNames[k] }

// Mutating reports whether the call changes what is stored or makes it durable.
func (k Kind) Mutating() bool {
	switch k {
	case Create, Remove, Rename, Link, Mkdir, SyncDir, Write, Sync, Truncate, Preallocate:
		return true
	}
	return false
}

// Op is one call.
type Op struct {
	Kind   Kind
	Name   string // path; of a rename or link the new one
	Off    int64  // of a read or write; the size of a truncate, preallocate or map
	Len    int    // bytes of a read or write
	Direct bool
	N      int // number among the mutating calls, from 1; 0 for others
}

func (o Op) String() string {
	s := o.Kind.String() + " " + o.Name
	switch o.Kind {
	case Read, Write:
		s += fmt.Sprintf(" %d+%d", o.Off, o.Len)
	case Truncate, Preallocate, Map:
		s += fmt.Sprintf(" %d", o.Off)
	}
	return s
}

// Errors that a rule gives for a special kind of failure. Errors that wrap one work as well.
var (
	// ErrShort lets half of the bytes of a write through and then fails with io.ErrShortWrite.
	ErrShort = errors.New("short write")
	// ErrDone: the call does its work and fails all the same, as when the answer of a disk is lost.
	ErrDone = errors.New("failed after it was done")
	// ErrLost, of a file's sync: what was not durable passes for clean from then on. It is read as before, the next sync
	// succeeds and proves nothing, and a power cut loses it. Of other calls it is an error like others.
	ErrLost = errors.New("sync failed and lost what was written")
	// ErrFlipped, of a read: it succeeds, with one bit that is wrong.
	ErrFlipped = errors.New("flipped bit")
)

// Rule decides the fate of a call before it is made: nil lets it pass, an error makes it fail (a write or read then changes
// nothing, but see ErrShort). Called from many goroutines at once.
type Rule func(Op) error

// FailAt fails the n-th mutating call, from 1, with err.
func FailAt(n int, err error) Rule {
	return func(o Op) error {
		if o.N == n {
			return err
		}
		return nil
	}
}

// FailFrom fails the n-th mutating call and all later ones.
func FailFrom(n int, err error) Rule {
	return func(o Op) error {
		if o.N >= n {
			return err
		}
		return nil
	}
}

// FailIf fails the calls of a kind whose name contains part.
func FailIf(kind Kind, part string, err error) Rule {
	return func(o Op) error {
		if o.Kind == kind && strings.Contains(o.Name, part) {
			return err
		}
		return nil
	}
}

// Delay waits before every call of a kind.
func Delay(kind Kind, d time.Duration) Rule {
	return func(o Op) error {
		if o.Kind == kind {
			time.Sleep(d)
		}
		return nil
	}
}

// Options of an FS; all may be combined.
type Options struct {
	Rules       []Rule
	Record      bool // keep the list of calls
	RefuseOpen  bool // opens with How.Direct fail with ErrDirect
	RefuseWrite bool // ... or only their writes do
	RefuseMap   bool
	MapError    error // why, if not nil: EINVAL, ENODEV, ENOMEM
	Align       int   // what files say they need, 0 = what they say themselves; enforced on direct handles
}

// FS is a wrapped file system. Safe for concurrent use.
type FS struct {
	fs     vfs.FS
	o      Options
	rules  atomic.Pointer[[]Rule]
	counts [kinds]atomic.Int64
	bytes  [kinds]atomic.Int64
	n      atomic.Int64
	fired  atomic.Int64
	mu     sync.Mutex
	log    []Op
}

// New wraps a file system.
func New(fsys vfs.FS, o Options) *FS {
	f := &FS{fs: fsys, o: o}
	f.SetRules(o.Rules...)
	return f
}

// SetRules replaces the rules.
func (f *FS) SetRules(rules ...Rule) { f.rules.Store(&rules) }

// Fired is how many calls were made to fail by a rule.
func (f *FS) Fired() int64 { return f.fired.Load() }

// Mutations is the number of mutating calls so far.
func (f *FS) Mutations() int { return int(f.n.Load()) }

// Count is the number of calls of a kind, those that failed included.
func (f *FS) Count(k Kind) int64 { return f.counts[k].Load() }

// Bytes is the number of bytes of reads or writes.
func (f *FS) Bytes(k Kind) int64 { return f.bytes[k].Load() }

// Counts is the number of calls of each kind that occurred.
func (f *FS) Counts() map[string]int64 {
	m := map[string]int64{}
	for k := range f.counts {
		if n := f.counts[k].Load(); n > 0 {
			m[Kind(k).String()] = n
		}
	}
	return m
}

// Calls is the recorded list.
func (f *FS) Calls() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Op(nil), f.log...)
}

func (f *FS) call(o Op) error {
	f.counts[o.Kind].Add(1)
	f.bytes[o.Kind].Add(int64(o.Len))
	if o.Kind.Mutating() {
		o.N = int(f.n.Add(1))
	}
	if f.o.Record {
		f.mu.Lock()
		f.log = append(f.log, o)
		f.mu.Unlock()
	}
	for _, r := range *f.rules.Load() {
		if err := r(o); err != nil {
			f.fired.Add(1)
			return fmt.Errorf("%s: injected: %w", o, err)
		}
	}
	return nil
}

// do makes a call unless a rule fails it before.
func (f *FS) do(o Op, call func() error) error {
	err := f.call(o)
	if err == nil || errors.Is(err, ErrDone) {
		err = errors.Join(err, call())
	}
	return err
}

// Open implements vfs.FS.
func (f *FS) Open(name string, how vfs.How) (vfs.File, error) {
	k := Open
	if how.Create {
		k = Create
	}
	if err := f.call(Op{Kind: k, Name: name, Direct: how.Direct}); errors.Is(err, ErrDone) {
		if file, e := f.fs.Open(name, how); e == nil {
			_ = file.Close() // the injected failure is the one to tell
		}
		return nil, err
	} else if err != nil {
		return nil, err
	}
	if how.Direct && f.o.RefuseOpen {
		return nil, fmt.Errorf("%s: %w", name, vfs.ErrDirect)
	}
	file, err := f.fs.Open(name, how)
	if err != nil {
		return nil, err
	}
	return &wrapped{File: file, f: f, how: how}, nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	return f.do(Op{Kind: Remove, Name: name}, func() error { return f.fs.Remove(name) })
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldName, newName string) error {
	return f.do(Op{Kind: Rename, Name: newName}, func() error { return f.fs.Rename(oldName, newName) })
}

// Link implements vfs.FS.
func (f *FS) Link(oldName, newName string) error {
	return f.do(Op{Kind: Link, Name: newName}, func() error { return f.fs.Link(oldName, newName) })
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(dir string) error {
	return f.do(Op{Kind: Mkdir, Name: dir}, func() error { return f.fs.MkdirAll(dir) })
}

// List implements vfs.FS.
func (f *FS) List(dir string) ([]vfs.Info, error) {
	if err := f.call(Op{Kind: List, Name: dir}); err != nil {
		return nil, err
	}
	return f.fs.List(dir)
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (vfs.Info, error) {
	if err := f.call(Op{Kind: Stat, Name: name}); err != nil {
		return vfs.Info{}, err
	}
	return f.fs.Stat(name)
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(dir string) error {
	return f.do(Op{Kind: SyncDir, Name: dir}, func() error { return f.fs.SyncDir(dir) })
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	if err := f.call(Op{Kind: Lock, Name: name}); err != nil {
		return nil, err
	}
	return f.fs.Lock(name)
}

// Free implements vfs.FS.
func (f *FS) Free(dir string) (int64, error) {
	if err := f.call(Op{Kind: Free, Name: dir}); err != nil {
		return 0, err
	}
	return f.fs.Free(dir)
}
