package repair

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/rowandb/rowan/block"
	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

// table takes one table file over: whole, in part, or not at all.
func (j *job) table(ctx context.Context, t inspect.Table) error {
	f := t.File
	name := levels.TableName(f.Num)
	bad := j.s.VerifyTable(ctx, t)
	if err := ctx.Err(); err != nil {
		return err
	}
	if bad == nil {
		to := path.Join(j.to, name)
		if err := vfs.Copy(ctx, j.fs, path.Join(j.from, name), to, f.Size); err != nil {
			return err
		}
		j.made = append(j.made, to)
		j.added = append(j.added, levels.AddedFile{Tree: t.Tree, Level: t.Level, File: f})
		j.report.Kept++
		j.o.Say("table file %s: good", name)
		return nil
	}
	where := fmt.Sprintf("table file %s of table %q, level %d, rows %q to %q", name, t.Name, t.Level, short(f.Bounds.LoRow), short(f.Bounds.HiRow))
	if j.o.DropBad || errors.Is(bad, fs.ErrNotExist) {
		j.lose("%s, all of it: %v%s", where, bad, deletesOf(f.Ranges, f.Deletes))
		j.report.Dropped++
		return nil
	}
	j.o.Say("%s: %v", where, bad)
	got, err := j.salvage(ctx, f)
	if err != nil {
		if ended := ctx.Err(); ended != nil {
			return ended
		}
		j.lose("%s, all of it: %v%s", where, err, deletesOf(f.Ranges, f.Deletes))
		j.report.Dropped++
		return nil
	}
	p, err := j.rewrite(t, got)
	if err != nil {
		return err
	}
	j.o.Say("%s: %d good blocks; %d rows with %d cells, %d wide and %d narrow deletes are saved", where, got.Blocks, p.Rows, p.Cells, p.Ranges, p.Deletes)
	if got.Moved > 0 {
		j.o.Say("%s: %d entries were out of order, or twice there, and are put in their places", where, got.Moved)
	}
	if p.Cells == f.Cells && p.Ranges == f.Ranges && p.Deletes == f.Deletes {
		return nil // what was damaged held nothing of the contents
	}
	for _, l := range got.Lost {
		j.lose("%s: %s", where, l)
	}
	j.lose("%s: %d of %d cells%s", where, minus(f.Cells, p.Cells), f.Cells, deletesOf(minus(f.Ranges, p.Ranges), minus(f.Deletes, p.Deletes)))
	return nil
}

func minus(a, b uint64) uint64 { return max(a, b) - b }

func short(b []byte) []byte { return b[:min(len(b), 64)] }

// deletesOf says what the loss of deletes means.
func deletesOf(wide, narrow uint64) string {
	if wide+narrow == 0 {
		return "; no deletes were in it"
	}
	return fmt.Sprintf("; with %d wide and %d narrow deletes: what they deleted in older files may be seen again", wide, narrow)
}

func (j *job) salvage(ctx context.Context, f *levels.File) (*sstable.Salvaged, error) {
	name := path.Join(j.from, levels.TableName(f.Num))
	h, err := j.fs.Open(name, vfs.How{})
	if err != nil {
		return nil, err
	}
	got, err := sstable.Salvage(ctx, h, name, f.ID)
	return got, errors.Join(err, h.Close())
}

// rewrite makes a new file, at the old one's place among the others, of what was saved. It speaks for the same rows. The properties
// are those of the file; there is none if nothing was saved.
func (j *job) rewrite(t inspect.Table, got *sstable.Salvaged) (p sstable.Properties, err error) {
	old := t.File
	rows := got.Rows[:0]
	for _, r := range got.Rows {
		if cols, ok := old.Bounds.Columns(r.Row); ok {
			if r = clipped(r, cols); len(r.Ranges)+len(r.Deletes)+len(r.Cells) > 0 {
				rows = append(rows, r)
			}
		}
	}
	if got.Rows = rows; len(rows) == 0 {
		j.report.Dropped++
		return p, nil
	}
	f := &levels.File{
		Num: j.next, ID: j.o.Random(), Bounds: old.Bounds.Clone(), FirstSeq: old.FirstSeq, LastSeq: old.LastSeq, Settled: old.Settled,
	}
	j.next++
	name := path.Join(j.to, levels.TableName(f.Num))
	h, err := j.fs.Open(name, vfs.How{Create: true})
	if err != nil {
		return p, err
	}
	j.made = append(j.made, name)
	table := j.s.Version.Schema.TableOfTree(t.Tree)
	w := &fileWriter{f: h}
	buf := bufio.NewWriterSize(w, 1<<20)
	p, err = fill(sstable.NewWriter(buf, sstable.WriterOptions{
		ID: f.ID, Tree: t.Tree, TreeName: t.Name, Level: t.Level, Codec: block.CodecS2, BlockSize: int(table.Options.BlockSize),
		BloomBits: int(table.Options.BloomBits), ColumnFilter: table.Options.ColumnFilter,
	}), got.Rows, f)
	if err == nil {
		err = buf.Flush()
	}
	if err == nil {
		err = h.Sync()
	}
	if err = errors.Join(err, h.Close()); err != nil {
		return p, fmt.Errorf("write %s: %w", name, err)
	}
	f.Size = w.off
	f.Rows, f.Cells, f.Ranges, f.Deletes, f.Holes = p.Rows, p.Cells, p.Ranges, p.Deletes, p.Holes
	f.MinTS, f.MaxTS, f.LogicalBytes = p.MinTS, p.MaxTS, p.LogicalBytes
	for i := range p.Families {
		f.Lives |= levels.LifeBit(p.Families[i].Life)
	}
	j.added = append(j.added, levels.AddedFile{Tree: t.Tree, Level: t.Level, File: f})
	j.report.Rewritten++
	return p, nil
}

// clipped leaves out of a row what the file does not speak for.
func clipped(r sstable.SalvagedRow, cols cell.Range) sstable.SalvagedRow {
	out := sstable.SalvagedRow{Row: r.Row}
	for _, x := range r.Ranges {
		if x, ok := x.Clip(cols.From, cols.To); ok {
			out.Ranges = append(out.Ranges, x)
		}
	}
	for _, d := range r.Deletes {
		if cols.Contains(d.Col) {
			out.Deletes = append(out.Deletes, d)
		}
	}
	for _, c := range r.Cells {
		if cols.Contains(c.Col) {
			out.Cells = append(out.Cells, c)
		}
	}
	return out
}

func fill(w *sstable.Writer, rows []sstable.SalvagedRow, f *levels.File) (sstable.Properties, error) {
	for _, r := range rows {
		if err := w.StartRow(r.Row); err != nil {
			return sstable.Properties{}, err
		}
		if err := errors.Join(w.AddRanges(r.Ranges), w.AddDeletes(r.Deletes), w.AddCells(r.Cells)); err != nil {
			return sstable.Properties{}, err
		}
	}
	return w.Finish(f.Bounds, f.FirstSeq, f.LastSeq)
}

// fileWriter appends to a file.
type fileWriter struct {
	f   vfs.File
	off int64
}

func (w *fileWriter) Write(p []byte) (int, error) {
	n, err := w.f.WriteAt(p, w.off)
	w.off += int64(n)
	return n, err
}
