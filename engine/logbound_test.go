package engine

import (
	"fmt"
	"testing"

	"github.com/rowandb/rowan/gc"
)

// A table that is hardly written must not keep the log of one that is written all the time.
func TestLogStaysInItsBoundBesideAnIdleTable(t *testing.T) {
	s := newStore(t, func(o *Options) { o.LogBytes = 256 << 10 })
	idle := s.table("idle", map[string]gc.Rule{"f": gc.NoPolicy()})
	busy := s.table("busy", map[string]gc.Rule{"f": gc.NoPolicy()})
	s.must(idle.Apply(ctx, "r", set("f", "q", 1, "v")))
	value := string(make([]byte, 1000))
	for i := range 4000 {
		s.must(busy.Apply(ctx, fmt.Sprintf("r%06d", i), set("f", "q", 1, value)))
	}
	if got := s.Metrics().Log.Bytes; got > 1<<20 {
		t.Fatalf("the log has %d bytes, its bound is %d", got, s.opts.LogBytes)
	}
}

// Nor may many tables together, none of which is ever full.
func TestLogStaysInItsBoundWithManyTables(t *testing.T) {
	s := newStore(t, func(o *Options) { o.MemtableBytes, o.LogBytes = 1<<20, 256<<10 })
	var tables []*Table
	for i := range 16 {
		tables = append(tables, s.table(fmt.Sprint("t", i), map[string]gc.Rule{"f": gc.NoPolicy()}))
	}
	value := string(make([]byte, 1000))
	for i := range 4000 {
		s.must(tables[i%len(tables)].Apply(ctx, fmt.Sprintf("r%06d", i), set("f", "q", 1, value)))
	}
	if got := s.Metrics().Log.Bytes; got > 1<<20 {
		t.Fatalf("the log has %d bytes, its bound is %d", got, s.opts.LogBytes)
	}
}
