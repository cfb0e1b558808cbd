package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

func TestLoadForASecond(t *testing.T) {
	var out, errs bytes.Buffer
	args := []string{"load", "-dir", t.TempDir(), "-seconds", "1", "-writers", "3", "-rows", "100", "-reopen", "200ms", "-seed", "7", "-memtable", "65536"}
	if code := run(context.Background(), &out, &errs, args); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	t.Log(out.String())
	for _, part := range []string{"seed 7", "no differences", "batches", "reopenings"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in\n%s", part, out.String())
		}
	}
}

// A tool that looks for differences must be able to find one.
func TestLoadFindsADifference(t *testing.T) {
	var out bytes.Buffer
	o := loadOptions{dir: t.TempDir(), seconds: 10, writers: 2, rows: 10, value: 100, seed: 3, reopen: time.Second, memtable: 64 << 10, lie: 50}
	err := o.run(context.Background(), &out)
	if err == nil || !strings.Contains(err.Error(), "difference in table") || !strings.Contains(err.Error(), "seed 3: writer 0, operation") {
		t.Fatalf("%v\n%s", err, out.String())
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
	}{
		{nil, 2}, {[]string{"help"}, 0}, {[]string{"nonsense"}, 2}, {[]string{"load", "-h"}, 0}, {[]string{"load", "-writers", "0"}, 2},
		{[]string{"load", "-nonsense"}, 2}, {[]string{"load", "-dir", "/dev/null/x"}, 1},
	} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), &out, &errs, c.args); code != c.code {
			t.Errorf("%v: exit code %d, want %d\n%s%s", c.args, code, c.code, out.String(), errs.String())
		}
	}
}
