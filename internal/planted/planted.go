// Package planted builds tests with a bug put in, to prove that they would find it: in one file of the repository a text that
// stands there exactly once is replaced by another, by the compiler's overlay, so that nothing on disk is touched.
package planted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Bug is one wrong version of the code.
type Bug struct{ Name, File, Old, New string }

// Source is the file as it should be compiled. root is the repository's directory.
func (b Bug) Source(root string) ([]byte, error) {
	p, err := os.ReadFile(filepath.Join(root, b.File))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(p, []byte(b.Old)); n != 1 {
		return nil, fmt.Errorf("%s: the text to replace is found %d times in %s: %s", b.Name, n, b.File, b.Old)
	}
	return bytes.Replace(p, []byte(b.Old), []byte(b.New), 1), nil
}

// Build compiles the tests of a package (a directory relative to root) with the bug. dir takes the files; the binary's path is
// returned.
func (b Bug) Build(root, pkg, dir string) (string, error) {
	src, err := b.Source(root)
	if err != nil {
		return "", err
	}
	file, err := filepath.Abs(filepath.Join(root, b.File))
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: filepath.Join(dir, "bug.go")}})
	if err != nil {
		return "", err
	}
	for name, p := range map[string][]byte{"bug.go": src, "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), p, 0o666); err != nil {
			return "", err
		}
	}
	bin := filepath.Join(dir, "bug.test")
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"), "-o", bin, ".")
	cmd.Dir = filepath.Join(root, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not build: %w\n%s", err, out)
	}
	return bin, nil
}

// FirstLine is the first complaint in a test's output.
func FirstLine(out []byte) string {
	for _, l := range strings.Split(string(out), "\n") {
		if strings.Contains(l, "_test.go:") {
			return strings.TrimSpace(l)
		}
	}
	return string(out)
}
