//go:build !(linux && (amd64 || arm64 || 386)) && !darwin

package vfs

import "io"

// OS answers ErrUnsupported to everything on this platform.
func OS() FS { return noFS{} }

type noFS struct{}

func (noFS) Open(string, How) (File, error) { return nil, ErrUnsupported }
func (noFS) Remove(string) error            { return ErrUnsupported }
func (noFS) Rename(string, string) error    { return ErrUnsupported }
func (noFS) Link(string, string) error      { return ErrUnsupported }
func (noFS) MkdirAll(string) error          { return ErrUnsupported }
func (noFS) List(string) ([]Info, error)    { return nil, ErrUnsupported }
func (noFS) Stat(string) (Info, error)      { return Info{}, ErrUnsupported }
func (noFS) SyncDir(string) error           { return ErrUnsupported }
func (noFS) Lock(string) (io.Closer, error) { return nil, ErrUnsupported }
func (noFS) Free(string) (int64, error)     { return 0, ErrUnsupported }
