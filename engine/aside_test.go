package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/io/faultfs"
	"github.com/rowandb/rowan/levels"
)

// inThree is a store whose only table has three files below L0, of rows a, m and z, each with two versions.
func inThree(t *testing.T, lines *logLines) (s *testStore, files []*levels.File) {
	s = newStore(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(lines, nil))
		o.TableFileBytes = 16 << 10
	})
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	for _, p := range []string{"a", "m", "z"} {
		for i := range 20 {
			s.must(tb.Apply(ctx, fmt.Sprintf("%s%02d", p, i), set("f", "q", 1, noise(fmt.Sprint(p, i)))))
		}
		s.must(s.Flush(ctx))
		s.must(tb.Compact(ctx, NewClosedRange(p, p+"~")))
	}
	for _, run := range s.states.cur.Load().version.Trees[1].Files {
		files = append(files, run...)
	}
	if len(files) < 3 {
		t.Fatalf("%d files", len(files))
	}
	return s, files
}

func (s *testStore) rows(tb *Table, set RowSet, opts ...ReadOption) (string, error) {
	var b strings.Builder
	err := tb.ReadRows(ctx, set, func(r Row) bool {
		b.WriteString(r.Key + " ")
		return true
	}, opts...)
	return b.String(), err
}

// A table file that is missing, short or long does not stop the store from opening: it is set aside and named, with its table,
// rows and cause; reads of its rows give its error and all else works; the option returns the rest and says what was left out;
// dropping its rows or its table ends it.
func TestStoreOpensWithoutATableFile(t *testing.T) {
	for _, harm := range []string{"missing", "short", "empty", "long"} {
		for _, end := range []string{"rows", "table"} {
			var lines logLines
			s, files := inThree(t, &lines)
			bad := files[0]
			for _, f := range files {
				if f.Bounds.ContainsRow([]byte("m05")) {
					bad = f
				}
			}
			s.must(s.Close())
			name := path.Join("/store", levels.TableName(bad.Num))
			switch harm {
			case "missing":
				s.must(s.fs.Remove(name))
			case "short":
				cut(t, s.fs, name)
			case "empty":
				edit(t, s.fs, name, func([]byte) []byte { return nil })
			case "long":
				edit(t, s.fs, name, func(b []byte) []byte { return append(b, 0) })
			}
			s.open()
			tb := s.Table("t")
			h := s.Health()
			if h.State != StateDegraded || !errors.Is(h.Cause, ErrDamaged) || !strings.Contains(h.Advice, "btdump repair") || len(h.SetAside) != 1 {
				t.Fatalf("%s: health %+v", harm, h)
			}
			if f := h.SetAside[0]; f.File != name || f.Table != "t" || f.From != string(bad.Bounds.LoRow) || f.To != string(bad.Bounds.HiRow) || f.Level == 0 ||
				errors.Is(f.Cause, fs.ErrNotExist) != (harm == "missing") {
				t.Fatalf("%s: set aside %+v", harm, f)
			}
			for range 3 {
				for _, row := range []string{string(bad.Bounds.LoRow), "m05"} {
					if _, err := tb.ReadRow(ctx, row); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), name) {
						t.Fatalf("%s: row %s: %v", harm, row, err)
					}
				}
			}
			for _, row := range []string{"a00", "z19", "nothing here"} {
				if r, err := tb.ReadRow(ctx, row); err != nil || len(r.Cells) == 0 != (row == "nothing here") {
					t.Fatalf("%s: row %s: %v, %v", harm, row, r, err)
				}
			}
			if _, err := s.rows(tb, AllRows()); !errors.Is(err, ErrDamaged) {
				t.Fatalf("%s: scan: %v", harm, err)
			}
			var out LeftOut
			got, err := s.rows(tb, AllRows(), LeaveOutDamaged(&out))
			if err != nil || len(out.Files) != 1 || out.Files[0].File != name || !strings.HasPrefix(got, "a00 ") || !strings.HasSuffix(got, "z19 ") || strings.Contains(got, "m05") {
				t.Fatalf("%s: what is left: %s, %v, %v", harm, got, out, err)
			}
			if r, err := tb.ReadRow(ctx, "m05", LeaveOutDamaged(&out)); err != nil || len(r.Cells) > 0 || len(out.Files) != 1 {
				t.Fatalf("%s: %v, %v, %v", harm, r, out, err)
			}
			// Writes over it are blind, and stay while it is there.
			s.must(tb.Apply(ctx, "m05", mut(func(m *Mutation) { m.DeleteRow() })))
			s.must(tb.Apply(ctx, "a05", mut(func(m *Mutation) { m.DeleteRow() })))
			s.must(s.Flush(ctx))
			s.must(tb.Compact(ctx, NewClosedRange("a", "a~")))
			if err := s.Compact(ctx); !errors.Is(err, ErrDamaged) {
				t.Fatalf("%s: compacting all: %v", harm, err)
			}
			deletes := uint64(0)
			s.states.cur.Load().version.Live(func(_ uint64, _ int, f *levels.File) {
				if f.Num != bad.Num {
					deletes += f.Ranges
				}
			})
			if deletes == 0 {
				t.Fatalf("%s: the delete over the file was forgotten", harm)
			}
			if n := lines.count("set aside"); n != 1 {
				t.Fatalf("%s: %d log lines", harm, n)
			}
			if end == "rows" {
				s.must(tb.DropRowRange(ctx, NewClosedRange(string(bad.Bounds.LoRow), string(bad.Bounds.HiRow))))
			} else {
				s.must(s.DropTable(ctx, "t"))
			}
			if h := s.Health(); h.State != StateOK || len(h.SetAside) != 0 {
				t.Fatalf("%s: after the drop: %+v", harm, h)
			}
			if end == "rows" {
				s.must(s.Compact(ctx))
				got, err := s.rows(tb, AllRows())
				if err != nil || !strings.Contains(got, "a00") || strings.Contains(got, "m05") {
					t.Fatalf("%s: after the drop: %s, %v", harm, got, err)
				}
			}
			s.must(s.Close())
		}
	}
}

// Damage that a read meets sets the file aside once, however often it is read, and the option leaves it out from then on; a
// batch that reads meets it too.
func TestDamageMetByReadsSetsTheFileAside(t *testing.T) {
	for _, meet := range []string{"row", "scan", "reverse", "cells", "increment", "condition"} {
		var lines logLines
		s, files := inThree(t, &lines)
		bad := files[len(files)-1]
		row := string(bad.Bounds.LoRow)
		s.must(s.Close())
		name := path.Join("/store", levels.TableName(bad.Num))
		flip(t, s.fs, name, 100)
		s.open()
		tb := s.Table("t")
		for i := range 3 {
			var err error
			switch meet {
			case "row":
				_, err = tb.ReadRow(ctx, row)
			case "scan":
				_, err = s.rows(tb, AllRows())
			case "reverse":
				_, err = s.rows(tb, AllRows(), ReverseScan())
			case "cells":
				err = tb.ReadCellsBorrowed(ctx, AllRows(), func(*BorrowedCell) bool { return true })
			case "increment":
				m := NewReadModifyWrite()
				m.Increment("f", "q", 1)
				_, err = tb.ReadModifyWrite(ctx, row, m)
			case "condition":
				err = tb.Apply(ctx, row, NewCondMutation(ValueFilter("x"), set("f", "q", 2, "y"), nil))
			}
			if h := s.Health(); !errors.Is(err, ErrDamaged) || h.State != StateDegraded || len(h.SetAside) != 1 || h.SetAside[0].File != name {
				t.Fatalf("%s, time %d: %v; %+v", meet, i, err, h)
			}
		}
		if n := lines.count("set aside"); n != 1 {
			t.Fatalf("%s: %d log lines", meet, n)
		}
		var out LeftOut
		if got, err := s.rows(tb, AllRows(), LeaveOutDamaged(&out)); err != nil || len(out.Files) != 1 || strings.Contains(got, row+" ") {
			t.Fatalf("%s: %s, %v, %v", meet, got, out, err)
		}
		flip(t, s.fs, name, 100)
	}
}

// Ten times the table's size is overwritten across a file that was set aside: writers go on, since L0 above it is merged inside
// L0, in a bounded number of sublevels, and what lies beside the file goes down (facebook/rocksdb #1208, #8643: a stall without
// end because the stop rule and the start rule disagree).
func TestWritersGoOnOverAFileSetAside(t *testing.T) {
	var lines logLines
	s, files := inThree(t, &lines)
	s.must(s.Close())
	var bad *levels.File
	for _, f := range files {
		if f.Bounds.ContainsRow([]byte("m05")) {
			bad = f
		}
	}
	s.must(s.fs.Remove(path.Join("/store", levels.TableName(bad.Num))))
	s.open()
	tb := s.Table("t")
	most, below := 0, int64(0)
	for round := range 60 {
		for _, p := range []string{"a", "m", "z"} {
			for i := range 20 {
				s.must(tb.Apply(ctx, fmt.Sprintf("%s%02d", p, i), set("f", "q", Timestamp(2+round), noise(fmt.Sprint(p, i, round))), NoSync))
			}
		}
		s.now = s.now.Add(time.Second)
		tree := s.states.cur.Load().version.Trees[1]
		most = max(most, len(tree.Sub))
	}
	s.must(s.Flush(ctx))
	s.exec.Help()
	tree := s.states.cur.Load().version.Trees[1]
	for l := 1; l < levels.Depth; l++ {
		below += tree.Bytes(l)
	}
	t.Logf("at most %d sublevels, %d bytes below L0", most, below)
	if most > 3*defaultL0 {
		t.Errorf("%d sublevels", most)
	}
	if below < 1<<20 {
		t.Errorf("only %d bytes went below L0: what lies beside the file is held up", below)
	}
	if n := s.Metrics().Stalls; n > 0 {
		t.Errorf("%d stalls", n)
	}
	var out LeftOut
	got, err := s.rows(tb, AllRows(), LeaveOutDamaged(&out))
	if err != nil || len(strings.Fields(got)) != 60 || len(out.Files) != 1 {
		t.Fatalf("%d rows, %v, %v", len(strings.Fields(got)), out, err)
	}
	if _, err := tb.ReadRow(ctx, "m05"); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
}

// A disk that cannot read a file is as good as damage: the compaction that needs it does not stand in the way for ever, the file is
// set aside, and writers go on.
func TestFileThatCannotBeReadIsSetAside(t *testing.T) {
	s, faulty := faultyStore(t)
	s.must(s.Close())
	s.opts.Reads, s.opts.CacheBytes = ReadPositional, 1
	s.open()
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	put := func(round int) {
		for i := range 60 {
			s.must(tb.Apply(ctx, fmt.Sprintf("r%02d", i), set("f", "q", Timestamp(round+1), noise(fmt.Sprint(i, round))), NoSync))
		}
	}
	put(0)
	s.must(s.Flush(ctx))
	s.must(s.Compact(ctx))
	s.must(s.Close())
	s.open()
	tb = s.Table("t")
	faulty.SetRules(faultfs.FailIf(faultfs.Read, "00000002.sst", syscall.EIO))
	for round := range 30 {
		put(round + 1)
		s.now = s.now.Add(time.Minute)
	}
	h := s.Health()
	if len(h.SetAside) != 1 || !errors.Is(h.SetAside[0].Cause, syscall.EIO) || s.Metrics().Stalls > 0 {
		t.Errorf("%+v; %d stalls", h, s.Metrics().Stalls)
	}
	if _, err := tb.ReadRow(ctx, "r07"); !errors.Is(err, ErrDamaged) || !errors.Is(err, syscall.EIO) {
		t.Errorf("read: %v", err)
	}
	faulty.SetRules()
	if r, err := tb.ReadRow(ctx, "r07"); err != nil || len(r.Cells) != 31 {
		t.Errorf("read with the disk back: %d cells, %v", len(r.Cells), err)
	}
}
