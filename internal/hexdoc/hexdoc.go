// Package hexdoc reads the hand-written samples in docs/formats, so that tests can hold the documents to the code.
package hexdoc

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// Sample returns the bytes of the fenced block of file that opens with "```hex name". In each line, what follows a '|' is a
// remark; the rest is hexadecimal digits with blanks between them at will.
func Sample(file, name string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var digits strings.Builder
	in := false
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if !in {
			in = line == "```hex "+name
			continue
		}
		if line == "```" {
			return hex.DecodeString(digits.String())
		}
		line, _, _ = strings.Cut(line, "|")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s has no sample %q", file, name)
}
