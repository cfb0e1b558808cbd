// Package docsample reads the hand-written hex samples of docs/formats, so that a test can hold drawing and code together.
package docsample

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// Read returns the bytes of the n-th (from 0) ```hex block of a page. Text after | on a line is comment.
func Read(page string, n int) ([]byte, error) {
	b, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(string(b), "```hex\n")
	if n+1 >= len(parts) {
		return nil, fmt.Errorf("%s has %d samples", page, len(parts)-1)
	}
	body, _, ok := strings.Cut(parts[n+1], "```")
	if !ok {
		return nil, fmt.Errorf("%s: sample %d has no end", page, n)
	}
	var out []byte
	for line := range strings.Lines(body) {
		line, _, _ = strings.Cut(line, "|")
		p, err := hex.DecodeString(strings.Join(strings.Fields(line), ""))
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", page, line, err)
		}
		out = append(out, p...)
	}
	return out, nil
}
