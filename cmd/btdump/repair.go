package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/rowandb/rowan/internal/damage"
	"github.com/rowandb/rowan/internal/repair"
	"github.com/rowandb/rowan/io/vfs"
	"github.com/rowandb/rowan/levels"
	"github.com/rowandb/rowan/sstable"
)

func repairStore(ctx context.Context, t *tool, args []string) error {
	o := repair.Options{Random: randomID, Say: func(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) }}
	for len(args) > 0 && args[0] != "" && args[0][0] == '-' {
		switch args[0] {
		case "-drop-bad":
			o.DropBad = true
		case "-force":
			o.Force = true
		default:
			return errUsage
		}
		args = args[1:]
	}
	if len(args) != 2 {
		return errUsage
	}
	r, err := repair.Repair(ctx, t.fs, args[0], args[1], o)
	switch {
	case errors.Is(err, repair.ErrInUse):
		return fmt.Errorf("%w; close it, or say -force", err)
	case errors.Is(err, levels.ErrNoManifest):
		return fmt.Errorf("%w: without one the order of the files is not known, and no store can be made of them; btdump export FILE.sst prints what each holds", err)
	case errors.Is(err, damage.Err):
		return fmt.Errorf("%w (if this is a manifest, btdump export FILE.sst still prints what each table file holds)", err)
	case err != nil:
		return err
	}
	fmt.Fprintf(t.out, "%s is a new store with %d table files as they were, %d rewritten, %d left out, and %d log records; it was verified\n",
		args[1], r.Kept, r.Rewritten, r.Dropped, r.Records)
	if len(r.Lost) > 0 {
		return fmt.Errorf("%w: see the %d lines that begin with LOST", errLost, len(r.Lost))
	}
	fmt.Fprintln(t.out, "nothing is lost")
	return nil
}

// randomID is never 0.
func randomID() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}

func export(ctx context.Context, t *tool, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return errUsage
	}
	id := uint64(0)
	if len(args) == 2 {
		var err error
		if id, err = strconv.ParseUint(args[1], 16, 64); err != nil {
			return errUsage
		}
	}
	f, err := t.fs.Open(args[0], vfs.How{})
	if err != nil {
		return err
	}
	s, err := sstable.Salvage(ctx, f, args[0], id)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "# %s, identity %016x: %d rows, %d cells, %d wide and %d narrow deletes\n", args[0], s.ID, len(s.Rows), s.Cells, s.Ranges, s.Deletes)
	fmt.Fprintln(t.out, "# a delete is about older files; which files are older is not known from one file, and so neither is what its deletes remove")
	for _, r := range s.Rows {
		for _, x := range r.Ranges {
			fmt.Fprintf(t.out, "%q delete columns %q .. %s\n", r.Row, x.From, end(x.To))
		}
		for _, d := range r.Deletes {
			fmt.Fprintf(t.out, "%q delete %s @%d..%d\n", r.Row, column(d.Col), d.Lo, d.Hi)
		}
		for i := range r.Cells {
			c := &r.Cells[i]
			fmt.Fprintf(t.out, "%q %s @%d = %s\n", r.Row, column(c.Col), c.TS, whole(c))
		}
	}
	for _, l := range s.Lost {
		fmt.Fprintf(t.out, "# LOST: %s\n", l)
	}
	if len(s.Lost) > 0 {
		return fmt.Errorf("%w: %d parts of %s do not read", errLost, len(s.Lost), args[0])
	}
	return nil
}
