// Command webtable stores the source tree of the installed Go toolchain as a small web and shows what the store does with
// it. Every directory with a file is a row, keyed by import path:
//
//	contents:<file name>          the file's text at three crawls; the rule keeps two versions
//	anchor:<importing package>    the sorted names under which that package imports this one; one version
//	meta:crawl                    what a crawl saw here; the rule keeps a day and a half, so the first crawl's expires
//
// The later crawls edit some files and find some gone. After loading it closes the store, opens it again, compacts, verifies
// every cell against the tree and the rules, and reports. It exits with 1 at the first difference.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/gc"
)

func main() {
	dir := flag.String("dir", "", "directory of the store (default: a temporary one)")
	src := flag.String("src", "", "source tree to load (default: src of the installed Go toolchain)")
	keep := flag.Bool("keep", false, "keep the store")
	flag.Parse()
	if err := run(*dir, *src, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "webtable:", err)
		os.Exit(1)
	}
}

const tableName = "webtable"

func spec() engine.TableSpec {
	return engine.TableSpec{Families: map[string]engine.FamilySpec{
		"contents": {GC: gc.MaxVersionsPolicy(2)},
		"anchor":   {GC: gc.MaxVersionsPolicy(1)},
		"meta":     {GC: gc.MaxAgePolicy(36 * time.Hour)},
	}}
}

func run(dir, src string, keep bool) (err error) {
	ctx := context.Background()
	if src == "" {
		if src, err = goroot(); err != nil {
			return err
		}
	}
	if src, err = filepath.EvalSymlinks(src); err != nil {
		return err
	}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "webtable-"); err != nil {
			return err
		}
	} else if !keep {
		if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
			return fmt.Errorf("%s is not empty; the store in it would be removed at the end (use -keep, or another directory)", dir)
		}
	}
	if keep {
		fmt.Println("store:", dir)
	} else {
		defer removeStore(dir)
	}
	site, err := walk(src)
	if err != nil {
		return err
	}
	now := time.Now()
	crawls := []crawl{
		{n: 1, ts: engine.Time(now.Add(-48 * time.Hour))},
		{n: 2, ts: engine.Time(now.Add(-24 * time.Hour))},
		{n: 3, ts: engine.Time(now.Add(-time.Minute))},
	}
	r := &report{src: src, site: site, crawls: crawls}

	db, err := engine.Open(dir, engine.Options{CreateOnly: true})
	if err != nil {
		return err
	}
	if err := r.load(ctx, db); err != nil {
		db.Close()
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	if db, err = engine.Open(dir, engine.Options{MustExist: true}); err != nil {
		return err
	}
	defer func() {
		if e := db.Close(); err == nil {
			err = e
		}
	}()
	if err := r.compact(ctx, db); err != nil {
		return err
	}
	if err := r.verify(ctx, db); err != nil {
		return err
	}
	return r.print(ctx, db)
}

// goroot is the source tree of the toolchain that the go command belongs to.
func goroot() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the Go toolchain: %w (name a source tree with -src)", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "src"), nil
}

// removeStore removes what the store made, and the directory if nothing else is in it.
func removeStore(dir string) {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		os.Remove(filepath.Join(dir, e.Name()))
	}
	os.Remove(dir)
}
