package engine

import (
	"testing"

	"github.com/rowandb/rowan/internal/yardstick"
)

// What the machine can do, to be read beside the other figures.
func BenchmarkYardstick(b *testing.B) { yardstick.Bench(b) }
