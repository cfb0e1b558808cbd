// Package filter evaluates filters over the cells of a row: a tree of rules is checked, analyzed for what a store need not
// read, and compiled into a program that looks at one cell at a time. It knows nothing of a store.
//
// A filter maps the ordered cells of one row to others. Every rule looks at a cell and passes none, one or several copies of
// it on at once, so that copies of a cell stay together, the output is in order, and nothing of a row has to be held. What
// needs to know the row before its first cell is decided, a condition, is answered by a pass over the row of its own.
package filter

import "errors"

// ErrInvalid matches every refusal of a filter but for a family that does not exist.
var ErrInvalid = errors.New("invalid filter")

// DepthMax bounds how deep filters nest.
const DepthMax = 256

// WorkMax bounds how often a filter may look at one cell: its rules, each as often as there may be copies of the cell that reach it.
const WorkMax = 100_000

// Op is a rule.
type Op uint8

const (
	Pass Op = iota
	Block
	Chain
	Interleave
	Condition // Kids: predicate, then, else; a nil branch passes nothing
	Sink
	RowPattern
	RowSample
	FamilyPattern
	FamilyExact
	QualifierPattern
	Columns // of Family, qualifiers in [From, To)
	Times   // [Lo, Hi], both included
	ValuePattern
	Values // [From, To)
	ValueMask
	LatestN
	RowLimit
	RowOffset
	StripValue
	Label
)

var opNames = [...]string{
	Pass: "pass all", Block: "block all", Chain: "chain", Interleave: "interleave", Condition: "condition", Sink: "sink",
	RowPattern: "row key pattern", RowSample: "row sample", FamilyPattern: "family pattern", FamilyExact: "family",
	QualifierPattern: "column pattern", Columns: "column range", Times: "timestamp range", ValuePattern: "value pattern",
	Values: "value range", ValueMask: "value bitmask", LatestN: "cells per column", RowLimit: "cells per row limit",
	RowOffset: "cells per row offset", StripValue: "strip value", Label: "label",
}

// Spec is a filter as the caller built it. It is not changed.
type Spec struct {
	Op       Op
	Kids     []*Spec
	Text     string // pattern, family or label
	From, To []byte // To nil: no end
	Empty    bool   // From..To has nothing in it
	Lo, Hi   int64
	N        int64
	P        float64
	Seed     uint64
	Err      error // what was wrong with the arguments
}

// Table is what a filter must know of a table.
type Table interface {
	// FamilyPrefix returns what all columns of a family begin with, or an error that says that there is no such family.
	FamilyPrefix(name string) ([]byte, error)
	// FamilyCount and FamilyAt list the families in order of their names.
	FamilyCount() int
	FamilyAt(i int) (name string, prefix []byte)
}
