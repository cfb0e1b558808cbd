package engine

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/vfs"
)

// The newer of two checkpoints, put together elsewhere from an older copy and what NewFilesSince lists, is the newer one.
func TestIncrementalBackup(t *testing.T) {
	s := newStore(t, nil)
	s.ofEveryKind()
	_, err := s.Checkpoint(ctx, "/monday")
	s.must(err)
	before := wholeStore(t, s.DB)
	for i := range 100 {
		s.must(s.Table("other").Apply(ctx, fmt.Sprint("tuesday", i), set("f", "q", 1, strings.Repeat("t", 900)), NoSync))
	}
	s.must(s.Flush(ctx))
	s.must(s.Table("other").Apply(ctx, "last", set("f", "q", 1, "in the log")))
	_, err = s.Checkpoint(ctx, "/tuesday")
	s.must(err)
	after := wholeStore(t, s.DB)

	list, err := NewFilesSince("/monday", "/tuesday", s.fs)
	s.must(err)
	if len(list.New) == 0 || len(list.Shared) == 0 || len(list.Whole) < 2 {
		t.Fatalf("%+v", list)
	}
	s.must(s.fs.MkdirAll("/away"))
	bring := func(from string, files []BackupFile) {
		for _, f := range files {
			s.must(vfs.Copy(ctx, s.fs, path.Join(from, f.Name), path.Join("/away", f.Name), f.Size))
		}
	}
	bring("/monday", list.Shared)
	bring("/tuesday", list.New)
	bring("/tuesday", list.Whole)
	_, err = Restore(ctx, "/away", "/back", RestoreOptions{FS: s.fs, VerifyBlocks: true})
	s.must(err)
	s.want(s.lookInto("/back", nil), after)

	if list, err = NewFilesSince("/tuesday", "/tuesday", s.fs); err != nil || len(list.New) != 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	s.want(s.lookInto("/monday", nil), before) // a store of its own from now on
	if _, err = NewFilesSince("/monday", "/tuesday", s.fs); !errors.Is(err, ErrNotCheckpoint) {
		t.Fatal(err)
	}
	db := s.at("/monday", nil)
	_, err = db.Checkpoint(ctx, "/other")
	s.must(err)
	s.must(db.Close())
	if list, err = NewFilesSince("/other", "/tuesday", s.fs); err != nil || len(list.Shared) != 0 {
		t.Fatalf("checkpoints of two stores share files: %+v, %v", list, err)
	}
}

// On the operating system's file system a checkpoint shares the table files, with a store that runs in another process or this.
func TestCheckpointOnTheOperatingSystem(t *testing.T) {
	dir := t.TempDir()
	db := openDisk(t, path.Join(dir, "store"), diskOptions())
	tb := create(t, db, "t", map[string]gc.Rule{"f": {}})
	for i := range 500 {
		if err := tb.Apply(ctx, fmt.Sprint("r", i), set("f", "q", 1, strings.Repeat("v", 500)), NoSync); err != nil {
			t.Fatal(err)
		}
		if i == 300 {
			if err := db.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	info, err := db.Checkpoint(ctx, path.Join(dir, "backup"))
	if err != nil || info.Linked == 0 || info.Linked != info.Tables {
		t.Fatalf("%+v, %v", info, err)
	}
	want := wholeStore(t, db)
	again := openDisk(t, path.Join(dir, "backup"), diskOptions())
	if wholeStore(t, again) != want {
		t.Error("the checkpoint shows something else")
	}
	if err := errors.Join(again.Compact(ctx), db.Compact(ctx)); err != nil {
		t.Fatal(err)
	}
	if wholeStore(t, again) != want || wholeStore(t, db) != want {
		t.Error("after compactions something else is there")
	}
	if err := errors.Join(again.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
}
