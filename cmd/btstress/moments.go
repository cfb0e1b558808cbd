package main

import (
	"context"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync/atomic"

	"github.com/rowandb/rowan/io/vfs"
)

// The moments at which a child can be told to die.
const (
	anyTime        = "any time"
	atFlush        = "flush"
	atCompaction   = "compaction"
	atLogSwitch    = "log switch"
	atManifest     = "manifest write"
	atManifestRoll = "new manifest"
	atTable        = "table write"
	atRemove       = "removal"
	atDirectory    = "directory sync"
	atCheckpoint   = "checkpoint"
	atOpen         = "opening"
)

var moments = []string{anyTime, atFlush, atCompaction, atLogSwitch, atManifest, atManifestRoll, atTable, atRemove, atDirectory, atCheckpoint, atOpen}

// death kills the process that it is in when a moment comes for the n-th time, before or after what happens there.
type death struct {
	at    string
	left  atomic.Int64
	after bool
}

// do does something that is a moment.
func (d *death) do(what string, f func()) {
	due := d.at == what && d.left.Add(-1) == 0
	if due && !d.after {
		die()
	}
	f()
	if due {
		die()
	}
}

// die ends the process as a crash does: nothing of it runs any more.
func die() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err) // a child that cannot be killed is no crash
	}
	select {}
}

// Handle makes death a log handler, which hears of the store's jobs.
func (d *death) Handle(_ context.Context, r slog.Record) error {
	if what, ok := strings.CutSuffix(r.Message, " begins"); ok && !d.after {
		d.do(what, func() {})
	}
	if what, ok := strings.CutSuffix(r.Message, " ends"); ok && d.after {
		d.do(what, func() {})
	}
	return nil
}

func (d *death) Enabled(context.Context, slog.Level) bool { return true }
func (d *death) WithAttrs([]slog.Attr) slog.Handler       { return d }
func (d *death) WithGroup(string) slog.Handler            { return d }

// deadlyFS is a file system some of whose calls are moments.
type deadlyFS struct {
	vfs.FS
	d *death
}

func (f deadlyFS) Open(name string, how vfs.How) (file vfs.File, err error) {
	base := path.Base(name)
	what := ""
	switch {
	case !how.Write && !how.Create:
		return f.FS.Open(name, how)
	case strings.HasPrefix(base, "manifest-"):
		what = atManifest
		f.d.do(atManifestRoll, func() { file, err = f.FS.Open(name, how) })
	case strings.HasSuffix(base, ".sst"):
		what = atTable
		file, err = f.FS.Open(name, how)
	case strings.HasPrefix(base, "slot-"):
		what = atLogSwitch
		file, err = f.FS.Open(name, how)
	default:
		return f.FS.Open(name, how)
	}
	if err != nil {
		return nil, err
	}
	return &deadlyFile{file, f.d, what}, nil
}

func (f deadlyFS) Remove(name string) (err error) {
	f.d.do(atRemove, func() { err = f.FS.Remove(name) })
	return err
}

func (f deadlyFS) Link(from, to string) (err error) {
	f.d.do(atCheckpoint, func() { err = f.FS.Link(from, to) })
	return err
}

func (f deadlyFS) SyncDir(dir string) (err error) {
	f.d.do(atDirectory, func() { err = f.FS.SyncDir(dir) })
	return err
}

type deadlyFile struct {
	vfs.File
	d    *death
	what string
}

func (f *deadlyFile) WriteAt(b []byte, off int64) (n int, err error) {
	if f.what == atLogSwitch && off != 0 {
		return f.File.WriteAt(b, off)
	}
	f.d.do(f.what, func() { n, err = f.File.WriteAt(b, off) })
	return n, err
}
