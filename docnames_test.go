package rowan_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that a guide names exists, and the guides that promise something name one in every row of their tables.
func TestGuidesNameTestsThatExist(t *testing.T) {
	exists := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`).FindAllSubmatch(b, -1) {
			exists[string(m[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`(?:[a-z/0-9]+\\.)?((?:Test|Fuzz|Benchmark)\\w+)`")
	guides, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, guide := range append(guides, "README.md") {
		b, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllSubmatch(b, -1) {
			named++
			if !exists[string(m[1])] {
				t.Errorf("%s names %s, which does not exist", guide, m[1])
			}
		}
	}
	if named < 80 {
		t.Errorf("only %d tests are named", named)
	}
	for guide, section := range map[string]string{"docs/durability.md": "## Promise and test", "docs/faults.md": "# Faults"} {
		b, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		_, table, ok := strings.Cut(string(b), section)
		if !ok {
			t.Fatalf("%s has no %q", guide, section)
		}
		rows := 0
		for line := range strings.Lines(table) {
			if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") || strings.HasPrefix(line, "| promise") || strings.HasPrefix(line, "| report") {
				continue
			}
			rows++
			if !name.MatchString(line) {
				t.Errorf("%s promises and names no test: %s", guide, line)
			}
		}
		if rows < 15 {
			t.Errorf("%s: only %d rows", guide, rows)
		}
	}
}
