package engine

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
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

// A crash while a new manifest is made leaves one without a whole first edit, above the one in force.
func TestOpenAfterACrashWhileTheManifestWasMade(t *testing.T) {
	for _, content := range []string{"", "ROWANMAN", strings.Repeat("\x00", 100)} {
		s := newStore(t, nil)
		tb := s.table("t", map[string]gc.Rule{"f": {}})
		s.must(tb.Apply(ctx, "r", set("f", "q", 1, "v")))
		s.must(s.Close())
		f, err := s.fs.Open("/store/"+levels.ManifestName(2), vfs.How{Create: true})
		s.must(err)
		_, err = f.WriteAt([]byte(content), 0)
		s.must(errors.Join(err, f.Close()))
		for range 3 {
			s.open()
			s.want(s.scan(s.Table("t")), "r f:q@1=v\n")
			s.must(s.Close())
		}
		s.open()
	}
}
