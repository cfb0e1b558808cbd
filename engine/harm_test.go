package engine

import (
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/io/vfs"
)

// edit changes a file's bytes in place.
func edit(t *testing.T, fs vfs.FS, name string, change func(b []byte) []byte) {
	t.Helper()
	f, err := fs.Open(name, vfs.How{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	b = change(b)
	if err := f.Truncate(int64(len(b))); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
}

func cut(t *testing.T, fs vfs.FS, name string) {
	edit(t, fs, name, func(b []byte) []byte { return b[:len(b)-1] })
}

func flip(t *testing.T, fs vfs.FS, name string, at int) {
	edit(t, fs, name, func(b []byte) []byte { b[at] ^= 0x10; return b })
}

// format makes a manifest claim the next format, with a good checksum.
func format(t *testing.T, fs vfs.FS, name string) {
	edit(t, fs, name, func(b []byte) []byte {
		binary.LittleEndian.PutUint32(b[8:], 2)
		binary.LittleEndian.PutUint64(b[32:], xxhash.Sum64(b[:32]))
		return b
	})
}
