// Package inspect looks at the files of a store without the engine: it opens nothing for writing, takes no lock, and goes on
// after damage, so that it can tell about all of it. A store in use changes under it; what disappears meanwhile is looked at
// again in the newest manifest.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/io/record"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// Store is a directory with the state that its newest manifest gives.
type Store struct {
	FS  vfs.FS
	Dir string
	levels.Loaded
	// Other lists files that the manifest does not know: outputs of jobs at work, dead files, other people's.
	Other []vfs.Info
}

// Open reads the manifest of dir.
func Open(fsys vfs.FS, dir string) (*Store, error) {
	l, err := levels.Load(fsys, dir, nil)
	if err != nil {
		return nil, err
	}
	return open(fsys, dir, l)
}

// OpenSome reads what can be read of the manifest of dir, see levels.LoadSome.
func OpenSome(fsys vfs.FS, dir string) (*Store, error) {
	l, err := levels.LoadSome(fsys, dir)
	if err != nil {
		return nil, err
	}
	return open(fsys, dir, l)
}

func open(fsys vfs.FS, dir string, l levels.Loaded) (*Store, error) {
	s := &Store{FS: fsys, Dir: dir, Loaded: l}
	list, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{"lock": true, "lost+found": true}
	for _, name := range levels.ManifestCopies(s.Num) {
		known[name] = true
	}
	s.Version.Live(func(_ uint64, _ int, f *levels.File) { known[levels.TableName(f.Num)] = true })
	for _, e := range list {
		if _, slot := record.ParseSlotName(e.Name); !slot && !known[e.Name] && !levels.IsReserve(e.Name) {
			s.Other = append(s.Other, e)
		}
	}
	return s, nil
}

// Table is one table file of the store.
type Table struct {
	Name  string // of the table it belongs to
	Tree  uint64
	Level int
	File  *levels.File
}

// Tables lists the table files: by table, level, and place in the level.
func (s *Store) Tables() []Table {
	var out []Table
	for _, t := range s.Version.Schema.Tables() {
		for _, g := range t.Groups {
			tree := s.Version.Trees[g.Tree]
			for l, files := range tree.Files {
				for _, f := range files {
					out = append(out, Table{Name: t.Name, Tree: g.Tree, Level: l, File: f})
				}
			}
		}
	}
	return out
}

// OpenTable opens a table file by position.
func (s *Store) OpenTable(f *levels.File) (*sstable.Reader, error) {
	name := path.Join(s.Dir, levels.TableName(f.Num))
	h, err := s.FS.Open(name, vfs.How{})
	if err != nil {
		return nil, err
	}
	size, err := h.Size()
	if err == nil && size != f.Size {
		err = &damage.Error{File: name, Part: "table file", Offset: min(size, f.Size), Detail: fmt.Sprintf("%d bytes, the manifest says %d", size, f.Size)}
	}
	var r *sstable.Reader
	if err == nil {
		r, err = sstable.Open(h, sstable.ReaderOptions{Name: name, ID: f.ID, Size: f.Size, Mode: sstable.Positional})
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return r, nil
}

// Report is what Verify checked.
type Report struct {
	Edits, Tables, Records       int
	TableBytes, LogBytes         int64
	Rows, Cells, Ranges, Deletes uint64
	LogIgnored, ManifestIgnored  int64 // bytes of writes that were under way when the store died
	Errors                       []error
}

// Verify checks every byte of every file that counts: the manifest, each table file against its checksums, its order, its
// properties and the manifest, and the log as recovery would read it. Damage goes into the report; an error means that looking
// itself failed. say, if not nil, is told of each file.
func (s *Store) Verify(ctx context.Context, say func(format string, args ...any)) (Report, error) {
	if say == nil {
		say = func(string, ...any) {}
	}
	r := Report{Edits: s.Edits, ManifestIgnored: s.Ignored}
	say("manifest %s and its copy: %d edits, %d bytes of an unfinished one", levels.ManifestName(s.Num), s.Edits, s.Ignored)
	for _, err := range s.Bad {
		say("manifest, one copy: %s", err)
		r.Errors = append(r.Errors, err)
	}
	for _, t := range s.Tables() {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		err := s.verifyTable(ctx, t, &r)
		say("table file %s (%s, level %d): %s", levels.TableName(t.File.Num), t.Name, t.Level, verdict(err))
		if err != nil {
			r.Errors = append(r.Errors, err)
		}
	}
	err := s.verifyLog(ctx, &r)
	say("log from slot %d: %d records, %d bytes: %s", s.Version.LogStart, r.Records, r.LogBytes, verdict(err))
	if err != nil {
		r.Errors = append(r.Errors, err)
	}
	return r, nil
}

func verdict(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// VerifyTable checks every byte of one table file.
func (s *Store) VerifyTable(ctx context.Context, t Table) error {
	return s.verifyTable(ctx, t, &Report{})
}

func (s *Store) verifyTable(ctx context.Context, t Table, r *Report) (err error) {
	tr, err := s.OpenTable(t.File)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tr.Close()) }()
	if err := tr.Verify(ctx, nil); err != nil {
		return err
	}
	r.Tables++
	r.TableBytes += t.File.Size
	p, f := tr.Properties(), t.File
	r.Rows += p.Rows
	r.Cells += p.Cells
	r.Ranges += p.Ranges
	r.Deletes += p.Deletes
	switch {
	case p.Tree != t.Tree:
		return s.differs(f, "tree %d, the manifest says %d", p.Tree, t.Tree)
	case p.Rows != f.Rows || p.Cells != f.Cells || p.Ranges != f.Ranges || p.Deletes != f.Deletes || p.Holes != f.Holes:
		return s.differs(f, "counts that differ from the manifest's")
	case p.FirstSeq != f.FirstSeq || p.LastSeq != f.LastSeq:
		return s.differs(f, "sequences %d to %d, the manifest says %d to %d", p.FirstSeq, p.LastSeq, f.FirstSeq, f.LastSeq)
	case !p.Bounds.Equal(f.Bounds):
		return s.differs(f, "bounds that differ from the manifest's")
	}
	return nil
}

func (s *Store) differs(f *levels.File, format string, args ...any) error {
	return &damage.Error{File: path.Join(s.Dir, levels.TableName(f.Num)), Part: "properties", Offset: -1, Detail: fmt.Sprintf(format, args...)}
}

// verifyLog reads the log as recovery does, and each record as replay does.
func (s *Store) verifyLog(ctx context.Context, r *Report) error {
	return s.Records(ctx, func(rec []byte) error {
		r.Records++
		r.LogBytes += int64(len(rec))
		rd, err := cell.ReadRecord(rec)
		if err != nil {
			return err
		}
		for e, ok := rd.Next(); ok; e, ok = rd.Next() {
			if e.Tree > s.Version.LastTree {
				return damage.New("batch record", -1, "an entry is for tree %d, the highest ever made is %d", e.Tree, s.Version.LastTree)
			}
		}
		return rd.Err()
	}, &r.LogIgnored)
}

// LogReaches returns a damage error if the log ends, with what its records and headers tell, before the sequence through which it
// was durable when it was closed: it was cut off, or is an older one.
func LogReaches(seq uint64, v *levels.Version) error {
	if seq >= v.Logged {
		return nil
	}
	return damage.New("log", -1, "ends at sequence %d, the manifest says that it was closed at %d", seq, v.Logged)
}

// Records calls fn for each record of the log that recovery would replay.
func (s *Store) Records(ctx context.Context, fn func(rec []byte) error, ignored *int64) error {
	found, err := record.FindSlots(s.FS, s.Dir, s.Version.StoreID)
	defer func() {
		for _, f := range found {
			_ = f.File.Close() // only read
		}
	}()
	if err != nil {
		return err
	}
	var slots, orphans []record.Slot
	for _, f := range found {
		switch {
		case !f.Begun:
			orphans = append(orphans, f.Slot)
		case f.First.Slot >= s.Version.LogStart:
			slots = append(slots, f.Slot)
		}
	}
	chain, err := record.Chain(slots, s.Version.LogStart)
	if err != nil {
		return record.Suspect(err, s.Dir, found)
	}
	if len(chain) == 0 && (s.Version.OpenCount > 1 || s.Version.LastTable > 0) {
		return &damage.Error{File: s.Dir, Part: "log", Offset: -1, Detail: "no slot-*.log is there"}
	}
	rd := record.NewReader(s.Version.StoreID, chain, orphans)
	last := uint64(0)
	for {
		rec, seq, err := rd.Next()
		if errors.Is(err, io.EOF) {
			*ignored = rd.Ignored()
			if len(chain) == 0 {
				return nil
			}
			ends := s.Dir
			for _, f := range found {
				if f.Begun && f.First.Slot == rd.Place().Slot {
					ends = f.Name
				}
			}
			return damage.At(LogReaches(max(last, rd.State().DurableSeq), s.Version), ends, 0)
		}
		last = max(last, seq)
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = fn(rec)
		}
		if err != nil {
			return damage.At(err, s.Dir, 0)
		}
	}
}

// Gone reports whether an error says that a file vanished, as they do in a store in use.
func Gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
