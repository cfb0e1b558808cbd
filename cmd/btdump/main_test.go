package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
)

var ctx = context.Background()

// dump runs the tool and returns its exit code and both outputs.
func dump(fs vfs.FS, args ...string) (int, string, string) {
	var out, errs bytes.Buffer
	code := run(ctx, &tool{out: &out, fs: fs}, &errs, args)
	return code, out.String(), errs.String()
}

func store(t *testing.T, fs vfs.FS) *engine.DB {
	t.Helper()
	db, err := engine.Open("/s", engine.Options{FS: fs, LogSegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	tb, err := db.CreateTable(ctx, "people", engine.TableSpec{Families: map[string]engine.FamilySpec{"info": {GC: gc.MaxVersionsPolicy(2)}, "seen": {Aggregate: engine.Sum}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		m := engine.NewMutation()
		m.Set("info", "name", engine.Timestamp(i), fmt.Appendf(nil, "person %d", i))
		m.DeleteTimestampRange("info", "age", 3, 9)
		if i%60 == 40 {
			m.AddIntToCell("seen", "times", 0, -7)
		}
		if i == 67 {
			m.DeleteCellsInFamily("info")
			m.Set("info", "name", 1, bytes.Repeat([]byte("x"), 100))
		}
		if err := tb.Apply(ctx, fmt.Sprintf("p%03d", i%60), m, engine.NoSync); err != nil {
			t.Fatal(err)
		}
		if i == 49 || i == 79 {
			if err := db.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	return db
}

func TestDumpOfAStoreInUseAndClosed(t *testing.T) {
	fs := vfs.NewMem()
	db := store(t, fs)
	for _, state := range []string{"in use", "closed"} {
		for _, c := range []struct {
			args []string
			want []string
		}{
			{[]string{"verify", "/s"}, []string{"manifest-00000001.a", "2 table files", "80 rows", "no damage found"}},
			{[]string{"files", "/s"}, []string{`table "people"`, "family info, life 1: versions(2)", "L0 00000001.sst", "timestamps ", `"p000" .. "p049"`}},
			{[]string{"cells", "/s"}, []string{`"p019"`, `info/1:"name" @79 = "person 79"`, `delete info/1:"age" @0..9223372036854775807`}},
			{[]string{"cells", "/s", "people", "p040"}, []string{`seen/2:"times" @0 = -7, to be folded with older ones`}},
			{[]string{"cells", "/s", "people", "p007"}, []string{`delete columns "info\x00" .. "info\x01"`, "(100 bytes)"}},
		} {
			code, out, errs := dump(fs, c.args...)
			if code != 0 {
				t.Fatalf("%s, %v: exit %d: %s", state, c.args, code, errs)
			}
			for _, w := range c.want {
				if !strings.Contains(out, w) {
					t.Errorf("%s, %v does not show %s:\n%s", state, c.args, w, out)
				}
			}
		}
		if state == "in use" {
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	db, err := engine.Open("/s", engine.Options{FS: fs})
	if err == nil {
		_, err = db.Checkpoint(ctx, "/c")
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if code, out, errs := dump(fs, "files", "/c"); code != 0 || !strings.Contains(out, "it is a checkpoint") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if _, out, _ := dump(fs, "cells", "/s", "people", "p007"); strings.Contains(out, "p008") {
		t.Error("the row prefix is not obeyed")
	}
}

// One damaged file is told of and does not hide the rest.
func TestDumpOfADamagedStore(t *testing.T) {
	fs := vfs.NewMem()
	if err := store(t, fs).Close(); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open("/s/00000001.sst", vfs.How{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("garbage"), 100); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	code, out, errs := dump(fs, "verify", "/s")
	if code != 1 || !strings.Contains(errs, "00000001.sst") || !strings.Contains(errs, "offset") || !strings.Contains(out, "1 table files") {
		t.Errorf("verify: exit %d\n%s%s", code, out, errs)
	}
	code, out, errs = dump(fs, "cells", "/s")
	if code != 1 || !strings.Contains(errs, "00000001.sst") || !strings.Contains(out, "person 79") {
		t.Errorf("cells: exit %d\n%s%s", code, out, errs)
	}
	if code, _, errs = dump(fs, "files", "/s"); code != 0 {
		t.Errorf("files: exit %d: %s", code, errs)
	}
}

func TestDumpUsage(t *testing.T) {
	fs := vfs.NewMem()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "btdump files"}, {[]string{"help"}, 0, "btdump verify"}, {[]string{"shred", "/s"}, 2, `"shred"`}, {[]string{"verify"}, 2, "usage"},
		{[]string{"files", "/nowhere"}, 1, "/nowhere"}, {[]string{"cells"}, 2, "usage"},
	} {
		code, out, errs := dump(fs, c.args...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%v: exit %d\n%s%s", c.args, code, out, errs)
		}
	}
}
