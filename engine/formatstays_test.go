package engine

import (
	"encoding/binary"
	"errors"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/levels"
)

// formatsIn returns the numbers of formats that the files of a directory name, each with a file that does.
func (s *testStore) formatsIn(dir string) map[uint32]string {
	s.t.Helper()
	list, err := s.fs.List(dir)
	s.must(err)
	out := map[uint32]string{}
	for _, e := range list {
		name := path.Join(dir, e.Name)
		edit(s.t, s.fs, name, func(b []byte) []byte {
			le := binary.LittleEndian
			_, table := levels.ParseTableName(e.Name)
			_, slot := record.ParseSlotName(e.Name)
			_, _, manifest := levels.ParseManifestName(e.Name)
			switch {
			case manifest:
				out[le.Uint32(b[8:])] = e.Name
			case table:
				out[le.Uint32(b[len(b)-64+8:])] = e.Name
			case slot && string(b[9:12]) == "RWL":
				out[uint32(b[8]-'0')] = e.Name
			}
			return b
		})
	}
	return out
}

// Opening, writing, compacting, checkpointing and becoming a store of its own leave the format what it is (oxia-db/oxia #748,
// go-bond/bond #124: a newer library raised it and there was no way back).
func TestFormatNeverRisesByItself(t *testing.T) {
	s := newStore(t, nil)
	s.ofEveryKind()
	_, err := s.Checkpoint(ctx, "/backup")
	s.must(err)
	s.must(s.Compact(ctx))
	s.must(s.Sync(ctx))
	for range 2 {
		s.lookInto("/backup", nil)
	}
	for _, dir := range []string{"/store", "/backup"} {
		if f := s.formatsIn(dir); len(f) != 1 || f[levels.Format] == "" || levels.Format != 1 {
			t.Errorf("%s: formats %v", dir, f)
		}
	}
}

// A table file of a newer format is refused by name and number where it is needed, is not called damaged, and nothing touches it;
// the rest of the store goes on.
func TestTableFileOfANewerFormatIsRefused(t *testing.T) {
	s := newStore(t, nil)
	s.ofEveryKind()
	s.must(s.Flush(ctx))
	s.must(s.Close())
	num := s.liveNums("every")[0]
	name := path.Join("/store", levels.TableName(num))
	edit(t, s.fs, name, func(b []byte) []byte {
		foot := b[len(b)-64:]
		binary.LittleEndian.PutUint32(foot[8:], 2)
		id := binary.LittleEndian.Uint64(foot[16:])
		d := xxhash.NewWithSeed(block.Seed(id, int64(len(b))-64))
		_, _ = d.Write(foot[8:])
		binary.LittleEndian.PutUint64(foot, d.Sum64())
		return b
	})
	s.open()
	err := s.Table("every").ReadRows(ctx, AllRows(), func(Row) bool { return true })
	if !errors.Is(err, ErrFormat) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), levels.TableName(num)) || !strings.Contains(err.Error(), "2") {
		t.Errorf("a read gave %v", err)
	}
	s.must(s.Table("other").ReadRows(ctx, AllRows(), func(Row) bool { return true }))
	s.must(s.Table("other").Apply(ctx, "r", set("f", "q", 1, "x")))
	if _, err := s.Checkpoint(ctx, "/backup"); !errors.Is(err, ErrFormat) {
		t.Errorf("a checkpoint gave %v", err)
	}
	r, err := s.Scrub(ctx, ScrubOptions{BytesPerSecond: -1})
	if err != nil || len(r.Bad) != 1 || !errors.Is(r.Bad[0], ErrFormat) {
		t.Errorf("a scrub gave %+v, %v", r, err)
	}
	if _, err := s.fs.Stat(name); errors.Is(err, os.ErrNotExist) {
		t.Error("the file is gone")
	}
}

// liveNums are the numbers of a table's files, read from the manifest.
func (s *testStore) liveNums(table string) (nums []levels.Num) {
	s.t.Helper()
	l, err := levels.Load(s.fs, "/store", nil)
	s.must(err)
	for _, g := range l.Version.Schema.Table(table).Groups {
		for _, files := range l.Version.Trees[g.Tree].Files {
			for _, f := range files {
				nums = append(nums, f.Num)
			}
		}
	}
	return nums
}
