package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowandb/rowan/internal/inspect"
)

// tries is how often a store in use is looked at anew when files vanish under the look.
const tries = 3

func verify(ctx context.Context, t *tool, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	for try := 1; ; try++ {
		s, err := inspect.Open(t.fs, args[0])
		if err != nil {
			return err
		}
		r, err := s.Verify(ctx, func(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) })
		if err != nil {
			return err
		}
		err = errors.Join(r.Errors...)
		if err != nil && inspect.Gone(err) && try < tries {
			fmt.Fprintln(t.out, "a file vanished: the store is in use; looking again")
			continue
		}
		fmt.Fprintf(t.out, "checked: %d manifest edits; %d table files with %d bytes, %d rows, %d cells, %d wide and %d narrow deletes; %d log records with %d bytes\n",
			r.Edits, r.Tables, r.TableBytes, r.Rows, r.Cells, r.Ranges, r.Deletes, r.Records, r.LogBytes)
		if r.LogIgnored+r.ManifestIgnored > 0 {
			fmt.Fprintf(t.out, "ignored: %d bytes of the log and %d of the manifest, writes that were under way when the store died\n", r.LogIgnored, r.ManifestIgnored)
		}
		if err != nil {
			return fmt.Errorf("%d files are damaged: %w", len(r.Errors), err)
		}
		fmt.Fprintln(t.out, "no damage found")
		return nil
	}
}
