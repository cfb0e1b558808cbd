package engine

import (
	"fmt"

	"github.com/rowandb/rowan/engine/internal/merge"
)

// condition is what a conditional mutation has instead of changes.
type condition struct {
	filter  Filter // nil: any cell
	yes, no *Mutation
}

// NewCondMutation returns a mutation that applies yes if cond passes at least one cell of the row as it is at that moment, and
// no otherwise. Either may be nil, or empty, for "change nothing", but not both. A nil cond passes every cell: it asks whether
// the row exists. Collected cells are not there, whether compaction has removed them or not. Names of families are looked up in
// the branch that is applied only.
//
// yes and no must be plain mutations and must not change until the mutation has been applied for the last time. The mutation
// itself takes no changes. GetCondMutationResult tells which branch was taken.
//
// A batch that comes down to no change waits for nothing: what it saw may be less durable than what it would have written.
func NewCondMutation(cond Filter, yes, no *Mutation) *Mutation {
	return &Mutation{cond: &condition{filter: cond, yes: yes, no: no}}
}

// noChanges is the branch that is not there.
var noChanges = &Mutation{}

func (c *condition) branch(matched bool) *Mutation {
	m := c.no
	if matched {
		m = c.yes
	}
	if m == nil {
		return noChanges
	}
	return m
}

func (m *Mutation) checkCond() (count int, size int64, err error) {
	if len(m.ops) > 0 {
		return 0, 0, fmt.Errorf("%w: it has %d changes beside its branches", ErrCondMutation, len(m.ops))
	}
	for _, matched := range []bool{true, false} {
		b := m.cond.branch(matched)
		if b.cond != nil {
			return 0, 0, fmt.Errorf("%w: the branch for %v is conditional itself", ErrCondMutation, matched)
		}
		n, s, err := b.check()
		if err != nil {
			return 0, 0, fmt.Errorf("if the condition is %v: %w", matched, err)
		}
		count, size = max(count, n), max(size, s)
	}
	if count == 0 {
		return 0, 0, fmt.Errorf("%w: neither branch has a change", ErrCondMutation)
	}
	return count, size, nil
}

// compile makes programs of the batch's conditions. The tables' gates are held, the rows' latches not yet: a pattern that takes
// long to compile holds up nobody.
func (r *run) compile(b *Batch) error {
	for i := range b.items {
		it := &b.items[i]
		var f Filter
		switch {
		case it.mut != nil && it.mut.cond != nil:
			f = it.mut.cond.filter
		case it.more != nil && it.more.require:
			f = it.more.cond
		default:
			continue
		}
		p, err := compilePredicate(r.table(it.table.name), f)
		if err != nil {
			return b.place(i, fmt.Errorf("condition: %w", err))
		}
		r.preds = append(r.preds, p)
	}
	return nil
}

// holds evaluates the batch's next condition.
func (r *run) holds(t *rtable, row []byte) (ok bool, err error) {
	p := r.preds[r.pred]
	r.pred++
	rd := r.reading(t)
	m, err := rd.point(row, p.options(), merge.Config{Families: t.families, AsOf: r.now, Pass: true})
	if err != nil {
		return false, err
	}
	defer closeInto(m, &err)
	r.db.stats.rowReads.Add(0, 1)
	if ok, err = p.matches(m, row); err != nil {
		return false, fmt.Errorf("condition: %w", err)
	}
	return ok, nil
}

func (r *run) require(t *rtable, row []byte, want bool) error {
	ok, err := r.holds(t, row)
	if err != nil {
		return err
	}
	if ok != want {
		return fmt.Errorf("%w: the condition is %v, it must be %v", ErrPrecondition, ok, want)
	}
	return nil
}
