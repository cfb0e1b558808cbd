package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/levels"
)

func cells(ctx context.Context, t *tool, args []string) error {
	if len(args) < 1 || len(args) > 3 {
		return errUsage
	}
	s, err := inspect.Open(t.fs, args[0])
	if err != nil {
		return err
	}
	prefix := ""
	if len(args) == 3 {
		prefix = args[2]
	}
	if len(args) > 1 && s.Version.Schema.Table(args[1]) == nil {
		return fmt.Errorf("the store has no table %q", args[1])
	}
	var damaged []error
	for _, x := range s.Tables() {
		if len(args) > 1 && x.Name != args[1] {
			continue
		}
		fmt.Fprintf(t.out, "%s: table %q, level %d\n", levels.TableName(x.File.Num), x.Name, x.Level)
		if err := fileCells(ctx, t, s, x.File, prefix); err != nil {
			if err := ctx.Err(); err != nil {
				return err
			}
			// One bad file does not hide the others.
			fmt.Fprintf(t.out, "  %v\n", err)
			damaged = append(damaged, err)
		}
	}
	return errors.Join(damaged...)
}

func fileCells(ctx context.Context, t *tool, s *inspect.Store, f *levels.File, prefix string) (err error) {
	r, err := s.OpenTable(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	it := r.NewIter(cell.IterOptions{NoFill: true})
	defer func() { err = errors.Join(err, it.Close()) }()
	var ranges []cell.Range
	deletes, buf := make([]cell.Delete, 0, 16), make([]cell.Cell, 0, 64)
	for ok := it.SeekGE([]byte(prefix)); ok && bytes.HasPrefix(it.Row(), []byte(prefix)); ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		fmt.Fprintf(t.out, "  %q\n", it.Row())
		ranges = it.Ranges(ranges[:0])
		for _, w := range ranges {
			fmt.Fprintf(t.out, "    delete columns %q .. %s\n", w.From, end(w.To))
		}
		for deletes = it.Deletes(deletes[:0]); len(deletes) > 0; deletes = it.Deletes(deletes[:0]) {
			for _, d := range deletes {
				fmt.Fprintf(t.out, "    delete %s @%d..%d\n", column(d.Col), d.Lo, d.Hi)
			}
		}
		for buf = it.Cells(buf[:0]); len(buf) > 0; buf = it.Cells(buf[:0]) {
			for _, c := range buf {
				fmt.Fprintf(t.out, "    %s @%d = %s\n", column(c.Col), c.TS, value(&c))
			}
		}
	}
	return it.Err()
}

func end(to []byte) string {
	if to == nil {
		return "end"
	}
	return fmt.Sprintf("%q", to)
}

func column(col []byte) string {
	f, life, q, err := cell.SplitColumn(col)
	if err != nil {
		return fmt.Sprintf("%q (%v)", col, err)
	}
	return fmt.Sprintf("%s/%d:%q", f, life, q)
}

func value(c *cell.Cell) string {
	const shown = 64
	if len(c.Value) > shown {
		return fmt.Sprintf("%q... (%d bytes)", c.Value[:shown], len(c.Value))
	}
	return whole(c)
}

// whole is the value in full.
func whole(c *cell.Cell) string {
	if n, ok := cell.State(c.Value); ok && c.Kind == cell.KindMerge {
		return fmt.Sprintf("%d, to be folded with older ones", n)
	}
	return fmt.Sprintf("%q", c.Value)
}
