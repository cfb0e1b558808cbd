package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rowandb/rowan/gc"
	"github.com/rowandb/rowan/levels"
)

// A schema that the manifest cannot take is refused, and the store goes on.
func TestTooLargeSchemaIsRefused(t *testing.T) {
	s := newStore(t, nil)
	tb := s.table("t", map[string]gc.Rule{"f": {}})
	s.must(tb.Apply(ctx, "r", set("f", "q", 1, "x")))
	s.manifest.EditMax = 4 << 10
	spec := TableSpec{Families: map[string]FamilySpec{}}
	var changes []FamilyChange
	for i := range 500 {
		name := fmt.Sprintf("family-%d", i)
		spec.Families[name] = FamilySpec{}
		changes = append(changes, AddFamily(name, FamilySpec{}))
	}
	if _, err := s.CreateTable(ctx, "u", spec); !errors.Is(err, levels.ErrTooLarge) || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("create: %v", err)
	}
	if err := tb.ModifyFamilies(ctx, changes...); !errors.Is(err, levels.ErrTooLarge) || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("modify: %v", err)
	}
	if h := s.Health(); h.State != StateOK {
		t.Fatal(h.Cause)
	}
	s.must(tb.Apply(ctx, "r", set("f", "q", 2, "y")))
	s.everywhere(func(string) { s.want(s.scan(s.Table("t")), "r f:q@2=y f:q@1=x\n") })
	if names, err := s.Tables(ctx); err != nil || len(names) != 1 {
		t.Error(names, err)
	}
}
