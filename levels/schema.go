package levels

import (
	"slices"
	"sort"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/gc"
)

// Schema is every table that exists. It is immutable; With and Without return changed copies.
type Schema struct {
	tables map[string]*Table
	byTree map[uint64]*Table
}

// Table is one table. Immutable.
type Table struct {
	ID          uint64
	Name        string
	HighestLife uint64 // of all families this table ever had; lives are never reused
	Groups      []Group
	Families    []Family // sorted by name
	Options     TableOptions
	LastChange  uint64   // highest number ever given to a change
	Changes     []Change // those that some source may still be behind, by number
}

// Group is a locality group: families that share one tree.
type Group struct {
	Name string
	Tree uint64
}

// Family is one creation of a column family.
type Family struct {
	Name  string
	Life  uint64 // number of this creation, unique in the table
	Group uint64 // index into Groups
	Rule  gc.Rule
	// Fold says how the cells of an aggregate family join; FoldNone for a plain family. Fixed for the life.
	Fold Fold
}

// Fold is how the entries of one (row, column, timestamp) of an aggregate family become one value.
type Fold = cell.Fold

const (
	FoldNone = cell.FoldNone
	FoldSum  = cell.FoldSum
	FoldMin  = cell.FoldMin
	FoldMax  = cell.FoldMax
)

// TableOptions are the per-table choices that shape its files. Zero values mean the defaults of package sstable.
type TableOptions struct {
	Codec        uint8 // block.Codec
	BlockSize    uint32
	BloomBits    uint32
	ColumnFilter bool
}

// Family returns a family by name, or nil.
func (t *Table) Family(name string) *Family {
	i := sort.Search(len(t.Families), func(i int) bool { return t.Families[i].Name >= name })
	if i < len(t.Families) && t.Families[i].Name == name {
		return &t.Families[i]
	}
	return nil
}

// ByLife returns a family by the number of its creation, or nil.
func (t *Table) ByLife(life uint64) *Family {
	for i := range t.Families {
		if t.Families[i].Life == life {
			return &t.Families[i]
		}
	}
	return nil
}

// HasTree reports whether one of the table's groups is kept in the tree.
func (t *Table) HasTree(tree uint64) bool {
	return slices.ContainsFunc(t.Groups, func(g Group) bool { return g.Tree == tree })
}

// Table returns a table by name, or nil.
func (s *Schema) Table(name string) *Table { return s.tables[name] }

// TableOfTree returns the table that a tree belongs to, or nil.
func (s *Schema) TableOfTree(tree uint64) *Table { return s.byTree[tree] }

// Tables returns all tables sorted by name.
func (s *Schema) Tables() []*Table {
	out := make([]*Table, 0, len(s.tables))
	for _, t := range s.tables {
		out = append(out, t)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

func newSchema(n int) *Schema {
	return &Schema{tables: make(map[string]*Table, n), byTree: make(map[uint64]*Table, n)}
}

func (s *Schema) with(t *Table) *Schema {
	c := s.without("")
	if old := c.tables[t.Name]; old != nil {
		c.remove(old)
	}
	c.tables[t.Name] = t
	for _, g := range t.Groups {
		c.byTree[g.Tree] = t
	}
	return c
}

func (s *Schema) without(name string) *Schema {
	c := newSchema(len(s.tables) + 1)
	for n, t := range s.tables {
		if n == name {
			continue
		}
		c.tables[n] = t
		for _, g := range t.Groups {
			c.byTree[g.Tree] = t
		}
	}
	return c
}

func (s *Schema) remove(t *Table) {
	delete(s.tables, t.Name)
	for _, g := range t.Groups {
		delete(s.byTree, g.Tree)
	}
}
