package fuzz

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/rowandb/rowan/engine"
)

// ServerTime as the timestamp of a Set.
const ServerTime = int64(engine.ServerTime)

// ChangeKind says what a change does.
type ChangeKind uint8

// The changes.
const (
	Set ChangeKind = iota
	DeleteColumn
	DeleteTimes // from TS, included, to End, excluded; End 0 = no end
	DeleteFamily
	DeleteRow
	Add // of N to an aggregate
	changeKinds
)

// Change is one change of a row.
type Change struct {
	Kind              ChangeKind
	Family, Qualifier string
	TS, End           int64
	Value             Value
	N                 int64 // Add
}

// Value is a value by its length and what fills it, so that lists stay readable.
type Value struct {
	Len  int
	Fill uint32
}

// Bytes returns the value: half of it repeats, half does not.
func (v Value) Bytes() []byte {
	p := make([]byte, v.Len)
	x := v.Fill*2654435761 + 1
	for i := range p {
		if i&4 == 0 {
			x = x*1664525 + 1013904223
		}
		p[i] = byte(x >> 24)
	}
	return p
}

// OpKind says what an operation does.
type OpKind uint8

// The operations.
const (
	OpApply    OpKind = iota
	OpRefused         // a batch with one invalid change: must be refused whole
	OpGet             // ReadRow
	OpScan            // ReadRows
	OpStream          // ReadCellsBorrowed
	OpFlush           // flush everything
	OpCompact         // all of a table, or the rows of Read.Rows
	OpWork            // let background work run
	OpTick            // the clock goes on by N microseconds
	OpSync            // wait until all is durable
	OpSnapshot        // take snapshot N
	OpForget          // close snapshot N
	OpCreate          // create a table
	OpDrop            // drop a table
	OpReopen          // close and open
	OpKill            // cut the power; N is the seed of what the disk keeps
	OpKillIn          // cut the power in the middle of the N-th call from now that makes something durable
	OpRawCheck        // after a compaction of everything: no collectable cell is left
	OpAlter           // change families of a table
	OpDropRows        // drop the rows of a range; all if it has no end
	OpPages           // read in pages of N cells
	OpBack            // the wall clock steps back by N for a while
	opKinds
)

var opNames = [opKinds]string{"apply", "refused", "get", "scan", "stream", "flush", "compact", "work", "tick", "sync", "snapshot",
	"forget", "create", "drop", "reopen", "kill", "killin", "rawcheck", "alter", "droprows",
	"pages", "back"}

var changeNames = [changeKinds]string{"set", "delcol", "deltimes", "delfam", "delrow", "add"}

func (k OpKind) String() string { return opNames[k] }

// Op is one operation. Which fields count depends on Kind.
type Op struct {
	Kind   OpKind
	Table  string
	Items  []Item // OpApply, OpRefused
	NoSync bool
	Read   Read
	N      int64
	Alters []Alter // OpAlter
}

// Read is what a read asks for.
type Read struct {
	Row        string // OpGet
	Rows       KeySet // OpScan, OpStream; one range for OpCompact
	Limit      int
	Reverse    bool
	Snapshot   int64  // 0 = the present
	Family     string // "" = all
	Column     bool   // only Qualifiers of Family
	Qualifiers KeyRange
	Times      bool // only From, included, to To, excluded; To 0 = no end
	From, To   int64
	Latest     int     // only so many versions of each column, if not 0
	LatestLast bool    // chained after Times, not before
	Filter     *Filter // instead of all these
	AsOf       int64   // engine time to read as of, if not 0
}

// KeyRange is a range of strings. Ends are "[" or "(" at the start and "]" or ")" at the end, or "" for none. As rows in a
// KeySet: Prefix takes all that start with Start; Single just Start.
type KeyRange struct {
	Start, End     string
	StartAt, EndAt byte // '[', '(' and ']', ')'; 0 = no bound; StartAt 'p' = prefix, 's' = single
}

// Contains reports whether k is in r.
func (r KeyRange) Contains(k string) bool {
	switch r.StartAt {
	case 'p':
		return strings.HasPrefix(k, r.Start)
	case 's':
		return k == r.Start
	case '[':
		if k < r.Start {
			return false
		}
	case '(':
		if k <= r.Start {
			return false
		}
	}
	switch r.EndAt {
	case ']':
		return k <= r.End
	case ')':
		return k < r.End
	}
	return true
}

// KeySet is a union of ranges.
type KeySet []KeyRange

// Contains reports whether k is in s.
func (s KeySet) Contains(k string) bool {
	return slices.ContainsFunc(s, func(r KeyRange) bool { return r.Contains(k) })
}

// Text form. One operation a line; strings are quoted as in Go; a value is LENGTHxFILL.
//
//	apply nosync "t0" "row" set "f" "q" 12 30x7 delcol "f" "q" deltimes "f" "q" 3 9 delfam "f" delrow add "s" "q" 3 -5 ; "t1" "row" ...
//	apply "t0" "row" if FILTER then CHANGES else CHANGES ; "t0" "row" rmw append "f" "q" 3x1 inc "f" "q" 5 ; "t0" "row" require true FILTER
//	alter "t0" add "f" 2 drop "g" rule "h" 0
//	droprows "t0" rows [ "a" "m" )
//	pages "t0" 7 rows - - OPTIONS
//	get "t0" "row" OPTIONS
//	scan "t0" rows [ "a" "m" ) rows s "x" OPTIONS
//	compact "t0" rows - -
//	tick 1000
//
// OPTIONS are snapshot N, limit N, reverse, family "f", column [ "a" "b" ), times 3 9, latest N, latestlast, asof N, filter FILTER.
// FILTER is as Filter.String writes it, "nothing" for none; rules are numbers in Rules.

// String returns the operation's line.
func (o Op) String() string {
	var b strings.Builder
	b.WriteString(o.Kind.String())
	switch o.Kind {
	case OpApply, OpRefused:
		if o.NoSync {
			b.WriteString(" nosync")
		}
		for i, it := range o.Items {
			if i > 0 {
				b.WriteString(" ;")
			}
			b.WriteString(" " + it.String())
		}
	case OpGet:
		fmt.Fprintf(&b, " %q %q%s", o.Table, o.Read.Row, o.Read.options())
	case OpScan, OpStream, OpCompact, OpDropRows, OpPages:
		fmt.Fprintf(&b, " %q", o.Table)
		if o.Kind == OpPages {
			fmt.Fprintf(&b, " %d", o.N)
		}
		for _, r := range o.Read.Rows {
			b.WriteString(" rows " + r.String())
		}
		b.WriteString(o.Read.options())
	case OpTick, OpSnapshot, OpForget, OpKill, OpKillIn, OpWork, OpBack:
		fmt.Fprintf(&b, " %d", o.N)
	case OpCreate, OpDrop:
		fmt.Fprintf(&b, " %q", o.Table)
	case OpAlter:
		fmt.Fprintf(&b, " %q", o.Table)
		for _, a := range o.Alters {
			b.WriteString(" " + a.String())
		}
	}
	return b.String()
}

func (c Change) String() string {
	s := changeNames[c.Kind]
	switch c.Kind {
	case Set:
		return s + fmt.Sprintf(" %q %q %d %dx%d", c.Family, c.Qualifier, c.TS, c.Value.Len, c.Value.Fill)
	case DeleteColumn:
		return s + fmt.Sprintf(" %q %q", c.Family, c.Qualifier)
	case DeleteTimes:
		return s + fmt.Sprintf(" %q %q %d %d", c.Family, c.Qualifier, c.TS, c.End)
	case DeleteFamily:
		return s + fmt.Sprintf(" %q", c.Family)
	case Add:
		return s + fmt.Sprintf(" %q %q %d %d", c.Family, c.Qualifier, c.TS, c.N)
	}
	return s
}

func (r KeyRange) String() string {
	if r.StartAt == 'p' || r.StartAt == 's' {
		return fmt.Sprintf("%c %q", r.StartAt, r.Start)
	}
	s := "-"
	if r.StartAt != 0 {
		s = fmt.Sprintf("%c %q", r.StartAt, r.Start)
	}
	if r.EndAt == 0 {
		return s + " -"
	}
	return s + fmt.Sprintf(" %q %c", r.End, r.EndAt)
}

func (r Read) options() string {
	var b strings.Builder
	if r.Snapshot != 0 {
		fmt.Fprintf(&b, " snapshot %d", r.Snapshot)
	}
	if r.Limit != 0 {
		fmt.Fprintf(&b, " limit %d", r.Limit)
	}
	if r.Reverse {
		b.WriteString(" reverse")
	}
	if r.Family != "" {
		fmt.Fprintf(&b, " family %q", r.Family)
	}
	if r.Column {
		b.WriteString(" column " + r.Qualifiers.String())
	}
	if r.Times {
		fmt.Fprintf(&b, " times %d %d", r.From, r.To)
	}
	if r.Latest != 0 {
		fmt.Fprintf(&b, " latest %d", r.Latest)
	}
	if r.LatestLast {
		b.WriteString(" latestlast")
	}
	if r.AsOf != 0 {
		fmt.Fprintf(&b, " asof %d", r.AsOf)
	}
	if r.Filter != nil {
		b.WriteString(" filter " + r.Filter.String())
	}
	return b.String()
}

// Format writes a list.
func Format(ops []Op) string {
	var b strings.Builder
	for _, o := range ops {
		b.WriteString(o.String() + "\n")
	}
	return b.String()
}

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }
