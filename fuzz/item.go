package fuzz

import (
	"fmt"
	"strings"

	"github.com/rowandb/rowan/engine"
)

// Item is what a batch does to one row. Which fields count depends on Kind.
type Item struct {
	Kind       ItemKind
	Table, Row string
	Changes    []Change // ItemChange; of ItemIf if the condition holds
	Else       []Change // ItemIf
	Filter     *Filter  // ItemIf, ItemRequire; nil: any cell
	Want       bool     // ItemRequire
	Rules      []Modify // ItemModify
}

// ItemKind says what an item is.
type ItemKind uint8

// The items.
const (
	ItemChange  ItemKind = iota // a mutation
	ItemIf                      // a conditional one
	ItemModify                  // a read-modify-write
	ItemRequire                 // a precondition
)

// Modify is one rule of a read-modify-write.
type Modify struct {
	Family, Qualifier string
	Increment         bool
	N                 int64
	Value             Value // to append
}

func (it Item) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q", it.Table, it.Row)
	changes := func(list []Change) {
		for _, c := range list {
			b.WriteString(" " + c.String())
		}
	}
	switch it.Kind {
	case ItemChange:
		changes(it.Changes)
	case ItemIf:
		b.WriteString(" if " + it.Filter.String() + " then")
		changes(it.Changes)
		b.WriteString(" else")
		changes(it.Else)
	case ItemModify:
		b.WriteString(" rmw")
		for _, m := range it.Rules {
			if m.Increment {
				fmt.Fprintf(&b, " inc %q %q %d", m.Family, m.Qualifier, m.N)
			} else {
				fmt.Fprintf(&b, " append %q %q %dx%d", m.Family, m.Qualifier, m.Value.Len, m.Value.Fill)
			}
		}
	case ItemRequire:
		fmt.Fprintf(&b, " require %v %s", it.Want, it.Filter)
	}
	return b.String()
}

func (p *parser) item() Item {
	it := Item{Table: p.text(), Row: p.text()}
	changes := func(end string) (list []Change) {
		for p.err == nil && p.peek() != "" && p.peek() != ";" && p.peek() != end {
			list = append(list, p.change())
		}
		return list
	}
	switch p.peek() {
	default:
		it.Changes = changes(";")
	case "if":
		p.next()
		it.Kind, it.Filter = ItemIf, p.filter(0)
		if !p.word("then") {
			p.fail("if without then")
		}
		it.Changes = changes("else")
		if !p.word("else") {
			p.fail("if without else")
		}
		it.Else = changes(";")
	case "rmw":
		p.next()
		it.Kind = ItemModify
		for p.err == nil && p.peek() != "" && p.peek() != ";" {
			m := Modify{}
			switch w := p.next(); w {
			case "inc":
				m.Increment = true
				m.Family, m.Qualifier, m.N = p.text(), p.text(), p.number()
			case "append":
				m.Family, m.Qualifier, m.Value = p.text(), p.text(), p.value()
			default:
				p.fail("%q is no rule of a read-modify-write", w)
			}
			it.Rules = append(it.Rules, m)
		}
	case "require":
		p.next()
		it.Kind, it.Want = ItemRequire, p.word("true")
		if !it.Want && !p.word("false") {
			p.fail("require without true or false")
		}
		it.Filter = p.filter(0)
	}
	return it
}

func (p *parser) value() (v Value) {
	w := p.next()
	if n, err := fmt.Sscanf(w, "%dx%d", &v.Len, &v.Fill); n != 2 || err != nil {
		p.fail("%q is no value", w)
	}
	return v
}

func mutation(changes []Change) *engine.Mutation {
	m := engine.NewMutation()
	for _, c := range changes {
		switch c.Kind {
		case Set:
			m.Set(c.Family, c.Qualifier, engine.Timestamp(c.TS), c.Value.Bytes())
		case DeleteColumn:
			m.DeleteCellsInColumn(c.Family, c.Qualifier)
		case DeleteTimes:
			m.DeleteTimestampRange(c.Family, c.Qualifier, engine.Timestamp(c.TS), engine.Timestamp(c.End))
		case DeleteFamily:
			m.DeleteCellsInFamily(c.Family)
		case DeleteRow:
			m.DeleteRow()
		case Add:
			if c.N%2 == 0 {
				m.AddIntToCell(c.Family, c.Qualifier, engine.Timestamp(c.TS), c.N)
			} else {
				m.MergeBytesToCell(c.Family, c.Qualifier, engine.Timestamp(c.TS), state(c.N))
			}
		}
	}
	return m
}

// addTo adds the item to a batch. The row that it returns is the result of a read-modify-write once the batch is applied.
func (it Item) addTo(b *engine.Batch, t *engine.Table) *engine.Row {
	switch it.Kind {
	case ItemIf:
		b.Add(t, it.Row, engine.NewCondMutation(it.Filter.Engine(), mutation(it.Changes), mutation(it.Else)))
	case ItemRequire:
		b.Require(t, it.Row, it.Filter.Engine(), it.Want)
	case ItemModify:
		m := engine.NewReadModifyWrite()
		for _, u := range it.Rules {
			if u.Increment {
				m.Increment(u.Family, u.Qualifier, u.N)
			} else {
				m.AppendValue(u.Family, u.Qualifier, u.Value.Bytes())
			}
		}
		return b.AddReadModifyWrite(t, it.Row, m)
	default:
		b.Add(t, it.Row, mutation(it.Changes))
	}
	return nil
}
