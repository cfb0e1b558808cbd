// Package vfs is the seam between the store and the file system. Everything that touches a file goes through FS and File:
// the real operating system (OS), an in-memory twin with a crash model (Mem), and wrappers of either that fail, tear, delay
// and count (package faultfs).
package vfs

import (
	"errors"
	"io"
)

// Errors that callers decide on. Others come from the operating system, wrapped.
var (
	// ErrLocked: another open handle, in this process or another, holds the lock.
	ErrLocked = errors.New("locked: it is open already, in this process or another")
	// ErrDirect: the file system refuses direct I/O, at open or at first write.
	ErrDirect = errors.New("direct I/O refused")
	// ErrMap: the file cannot be mapped; use positional reads.
	ErrMap = errors.New("mapping refused")
	// ErrUnsupported: this operating system cannot run the store.
	ErrUnsupported = errors.New("unsupported platform")
)

// How says how a file is opened. The zero value opens an existing file for reading.
type How struct {
	Write  bool // reading and writing
	Create bool // the file must not exist and is created; implies Write
	// Direct bypasses the page cache. Offsets, lengths and buffers must be multiples of File.Align. Where it is refused the
	// open fails with ErrDirect (and may leave an empty file behind, which Create removes where it can); a refusal at the
	// first write comes from WriteAt, also as ErrDirect.
	Direct bool
	// DSync makes every WriteAt durable when it returns (data and what is needed to read it back; not the directory entry).
	DSync bool
}

// Info describes a directory entry.
type Info struct {
	Name string // base name
	Size int64
	Dir  bool
}

// FS is a file system. Paths are slash-separated and are used as given. Safe for concurrent use.
type FS interface {
	Open(name string, how How) (File, error)
	// Remove unlinks a file; an open file lives on until it is closed.
	Remove(name string) error
	// Rename replaces newName atomically.
	Rename(oldName, newName string) error
	// Link makes a second name for a file.
	Link(oldName, newName string) error
	// MkdirAll creates a directory and its parents.
	MkdirAll(dir string) error
	// List returns the entries of a directory, sorted by name.
	List(dir string) ([]Info, error)
	// Stat describes one file; errors.Is(err, fs.ErrNotExist) when it is missing.
	Stat(name string) (Info, error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on a file, creating it if needed, or fails at once with ErrLocked. Two locks from one
	// process exclude each other too.
	Lock(name string) (io.Closer, error)
	// Free is the number of bytes that can still be written in dir's file system.
	Free(dir string) (int64, error)
}

// File is an open file. ReadAt and WriteAt are safe for concurrent use on disjoint ranges.
type File interface {
	io.ReaderAt // short reads give io.EOF, as in package io
	io.WriterAt
	io.Closer
	// Sync makes the file's data, size and extents durable; not its directory entry.
	Sync() error
	Size() (int64, error)
	Truncate(size int64) error
	// Preallocate reserves space for [0, size) and leaves Size alone; an error other than ENOSPC may be ignored.
	Preallocate(size int64) error
	// Align is the alignment, in bytes, that direct I/O on this file needs: a power of two, at least 4096.
	Align() int
	// Map maps the first size bytes read-only, advised for random access. Fails with ErrMap where that is impossible.
	// The mapping outlives the file's Close.
	Map(size int64) (Mapping, error)
	// Name is the path that the file was opened with.
	Name() string
}

// Mapping is a read-only view of a file's bytes.
type Mapping interface {
	// Bytes is valid until Close.
	Bytes() []byte
	// Populate loads [off, off+n) into memory; a hint, errors are ignored by callers.
	Populate(off, n int64) error
	Close() error
}
