package engine

import (
	"errors"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// A store whose directory is moved or removed while it is open says so at the next file that it makes, in Health, and when it is
// closed (vorot93/libmdbx-rs #36: everything still "succeeded").
func TestDirectoryThatVanishesIsTold(t *testing.T) {
	for name, vanish := range map[string]func(dir string) error{
		"moved":   func(dir string) error { return os.Rename(dir, dir+"-moved") },
		"removed": os.RemoveAll,
	} {
		dir := path.Join(t.TempDir(), "store")
		db := openDisk(t, dir, Options{})
		tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
		if err := tb.Apply(ctx, "r", set("f", "q", 1, strings.Repeat("v", 1000))); err != nil {
			t.Fatal(err)
		}
		if err := vanish(dir); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(ctx); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: flush: %v", name, err)
		}
		if h := db.Health(); h.State == StateOK || !errors.Is(h.Cause, os.ErrNotExist) {
			t.Errorf("%s: %+v", name, h)
		}
		if err := db.Close(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: close: %v", name, err)
		}
	}
}
