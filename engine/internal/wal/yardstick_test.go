package wal

import (
	"testing"

	machine "github.com/rowandb/rowan/internal/yardstick"
)

// What the machine can do, to be read beside the other figures.
func BenchmarkYardstick(b *testing.B) { machine.Bench(b) }
