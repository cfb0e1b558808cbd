// Command btstress puts a store under load and compares all that it answers with a model kept in memory. It ends with 1 at
// the first difference.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// command is one room of the tool.
type command struct {
	name, about string
	run         func(ctx context.Context, out io.Writer, args []string) error
}

var commands = []command{
	{"load", "random batches and reads by many writers, checked, with flushes, compactions, snapshots and reopenings in between", load},
	{"crash", "a process that loads the store is killed again and again; after each kill everything acknowledged must be there", crash},
}

func main() {
	os.Exit(run(context.Background(), os.Stdout, os.Stderr, os.Args[1:]))
}

func run(ctx context.Context, out, errOut io.Writer, args []string) int {
	if len(args) == 2 && args[0] == childCommand {
		return crashChild(out, errOut, args[1])
	}
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage(out)
		if len(args) == 0 {
			return 2
		}
		return 0
	}
	for _, c := range commands {
		if c.name != args[0] {
			continue
		}
		err := c.run(ctx, out, args[1:])
		switch {
		case errors.Is(err, flag.ErrHelp):
			return 0
		case errors.Is(err, errUsage):
			fmt.Fprintf(errOut, "btstress %s: %v\n", c.name, err)
			return 2
		case err != nil:
			fmt.Fprintf(errOut, "btstress %s: %v\n", c.name, err)
			return 1
		}
		return 0
	}
	fmt.Fprintf(errOut, "btstress: unknown command %q\n", args[0])
	usage(errOut)
	return 2
}

var errUsage = errors.New("wrong arguments")

func usage(w io.Writer) {
	fmt.Fprintln(w, "btstress loads a store and checks its answers. Give -h after a command for its flags.")
	for _, c := range commands {
		fmt.Fprintf(w, "  btstress %s [flags]\n        %s\n", c.name, c.about)
	}
}
