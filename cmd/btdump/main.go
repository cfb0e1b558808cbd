// Command btdump looks inside a store without opening it: it reads only, takes no lock, survives damaged files, and works on a
// store in use. Its repair builds a new store beside a damaged one, which it only reads. docs/repair.md is the guide.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rowandb/rowan/io/vfs"
)

// command is one room of the tool.
type command struct {
	name, args, about string
	run               func(ctx context.Context, t *tool, args []string) error
}

var commands = []command{
	{"files", "DIR", "list what the manifest knows: tables, families, rules, files by level, and files it does not know", files},
	{"cells", "DIR [TABLE [ROW-PREFIX]]", "print what the table files hold, file by file: deletes and cells as they are stored", cells},
	{"export", "FILE.sst [IDENTITY]", "print what one table file holds, as far as it reads, an entry a line; it needs no manifest, and not even a footer if " +
		"the file's identity is given; exits with 2 if parts of it do not read", export},
	{"repair", "[-drop-bad] [-force] OLD NEW", "make the new store NEW from all that is good in OLD, which is only read; exits with 0 if nothing is lost, 2 if something " +
		"is, which is listed, and 1 if it fails", repairStore},
	{"verify", "DIR", "check every byte of manifest, table files and log; exit with 1 if anything is damaged", verify},
}

// tool is where output goes and where files come from.
type tool struct {
	out io.Writer
	fs  vfs.FS
}

var errUsage = errors.New("wrong arguments")

// errLost ends a command that did its work and has told what is lost.
var errLost = errors.New("something is lost")

func main() {
	os.Exit(run(context.Background(), &tool{out: os.Stdout, fs: vfs.OS()}, os.Stderr, os.Args[1:]))
}

func run(ctx context.Context, t *tool, errOut io.Writer, args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage(t.out)
		if len(args) == 0 {
			return 2
		}
		return 0
	}
	for _, c := range commands {
		if c.name != args[0] {
			continue
		}
		err := c.run(ctx, t, args[1:])
		if errors.Is(err, errUsage) {
			fmt.Fprintf(errOut, "usage: btdump %s %s\n", c.name, c.args)
			return 2
		}
		if err != nil {
			fmt.Fprintf(errOut, "btdump %s: %v\n", c.name, err)
			if errors.Is(err, errLost) {
				return 2
			}
			return 1
		}
		return 0
	}
	fmt.Fprintf(errOut, "btdump: unknown command %q\n", args[0])
	usage(errOut)
	return 2
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "btdump looks inside a store, and makes a new one from a damaged one. It never changes the store that it looks at.")
	for _, c := range commands {
		fmt.Fprintf(w, "  btdump %s %s\n        %s\n", c.name, c.args, c.about)
	}
}
