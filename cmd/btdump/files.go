package main

import (
	"context"
	"fmt"

	"github.com/rowandb/rowan/internal/inspect"
	"github.com/rowandb/rowan/levels"
)

func files(_ context.Context, t *tool, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	s, err := inspect.Open(t.fs, args[0])
	if err != nil {
		return err
	}
	v := s.Version
	fmt.Fprintf(t.out, "store %016x, opened %d times for writing; manifest %d, edit %d; log from slot %d; engine time %d\n",
		v.StoreID, v.OpenCount, s.Num, v.EditNum, v.LogStart, v.EngineTime)
	if v.CheckpointOf != 0 {
		fmt.Fprintln(t.out, "it is a checkpoint: the first opening for writing makes it a store of its own")
	}
	for _, err := range s.Bad {
		fmt.Fprintf(t.out, "one copy of the manifest: %v\n", err)
	}
	listed := s.Tables()
	for _, table := range v.Schema.Tables() {
		fmt.Fprintf(t.out, "table %q, id %d\n", table.Name, table.ID)
		for _, f := range table.Families {
			fmt.Fprintf(t.out, "  family %s, life %d: %s\n", f.Name, f.Life, f.Rule)
		}
		for i := range table.Changes {
			fmt.Fprintf(t.out, "  %s\n", table.Changes[i].String())
		}
		for _, g := range table.Groups {
			name := ""
			if g.Name != "" {
				name = fmt.Sprintf(" of group %s", g.Name)
			}
			fmt.Fprintf(t.out, "  tree %d%s, flushed through sequence %d\n", g.Tree, name, v.Trees[g.Tree].FlushedThrough)
			for _, x := range listed {
				if x.Tree == g.Tree {
					printFile(t, x)
				}
			}
		}
	}
	for _, e := range s.Other {
		fmt.Fprintf(t.out, "not in the manifest: %s, %d bytes\n", e.Name, e.Size)
	}
	return nil
}

func printFile(t *tool, x inspect.Table) {
	f := x.File
	times := "none"
	if f.MinTS <= f.MaxTS {
		times = fmt.Sprintf("%d-%d", f.MinTS, f.MaxTS)
	}
	fmt.Fprintf(t.out, "    L%d %s  id %016x  %d bytes  rows %d cells %d wide deletes %d narrow %d holes %d  sequences %d-%d  timestamps %s  %s\n",
		x.Level, levels.TableName(f.Num), f.ID, f.Size, f.Rows, f.Cells, f.Ranges, f.Deletes, f.Holes, f.FirstSeq, f.LastSeq, times, bounds(f))
}

func bounds(f *levels.File) string {
	s := fmt.Sprintf("%.60q", f.Bounds.LoRow)
	if len(f.Bounds.LoCol) > 0 {
		s += fmt.Sprintf("/%.40q", f.Bounds.LoCol)
	}
	s += fmt.Sprintf(" .. %.60q", f.Bounds.HiRow)
	if f.Bounds.HiCol != nil {
		s += fmt.Sprintf("/%.40q", f.Bounds.HiCol)
	}
	return s
}
