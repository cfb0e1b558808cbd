package block

import (
	"testing"

	"github.com/rowandb/rowan/internal/hexdoc"
)

func sample(t *testing.T, name string) []byte {
	t.Helper()
	p, err := hexdoc.Sample("../docs/formats/block.md", name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
