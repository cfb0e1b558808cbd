package engine

import (
	"bytes"
	"path"
	"strings"
	"testing"
)

// Both copies of the manifest are harmed at once: at the same place the store says so or shows what was written, never something
// older; so at different places, where one copy mends the other unless both are harmed in the same edit.
func TestBothCopiesOfTheManifestAreHarmed(t *testing.T) {
	t.Parallel()
	b := newByteStore(t, 10)
	var names []string
	size := 0
	for _, f := range b.files() {
		if strings.HasPrefix(f.Name, "manifest-") {
			names, size = append(names, f.Name), int(f.Size)
		}
	}
	if len(names) != 2 {
		t.Fatal(names)
	}
	harm := func(edits ...func(p []byte) []byte) (verdict, error) {
		mem := b.mem.CrashClone(1, 1)
		for i, name := range names {
			p := edits[i](bytes.Clone(fileBytes(t, mem, path.Join("/store", name))))
			b.must(mem.Remove(path.Join("/store", name)))
			putFile(t, mem, path.Join("/store", name), p)
		}
		return b.judge(mem, "")
	}
	flipAt := func(at int) func(p []byte) []byte {
		return func(p []byte) []byte { p[at] ^= 4; return p }
	}
	step := stride(61)
	refused := 0
	for at := 5 % step; at < size; at += step {
		v, err := harm(flipAt(at), flipAt(at))
		if err != nil {
			t.Errorf("byte %d of both flipped: %v", at, err)
		}
		if !v.opened {
			refused++
		}
		other := (at + size/2) % size
		if _, err := harm(flipAt(at), flipAt(other)); err != nil {
			t.Errorf("byte %d of one and %d of the other flipped: %v", at, other, err)
		}
		cutAt := func(p []byte) []byte { return p[:at] }
		if v, err := harm(cutAt, func(p []byte) []byte { return p }); err != nil || !v.opened || v.failed > 0 {
			t.Errorf("one cut to %d bytes: %+v, %v", at, v, err)
		}
	}
	if refused == 0 {
		t.Error("no flip was ever noticed")
	}
}
