package engine

import (
	"errors"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// Who asks for a snapshot and has none must not be shown the present.
func TestNilSnapshotIsRefused(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	s.must(tb.Apply(ctx, "r", set("f", "q", 1, "v")))
	if row, err := tb.ReadRow(ctx, "r", AtSnapshot(nil)); !errors.Is(err, ErrOption) {
		t.Fatal(row, err)
	}
}
