package engine

import (
	"sync/atomic"

	"github.com/rowandb/rowan/engine/internal/filter"
)

// rowFilter is the option of RowFilter. It may be used by many reads at once.
type rowFilter struct {
	f     Filter
	seen  atomic.Pointer[rtable] // for which it was compiled last
	ready atomic.Pointer[compiled]
}

// compiled is a filter's program for one table as of one schema. It is copied, never run.
type compiled struct {
	table *rtable
	prog  filter.Program
}

func (o *rowFilter) apply(r *readOptions) { r.filter, r.option = o.f, o }

// compile makes p the filter's program for a table. Compiling takes longer than many a point read; an option that comes again with the
// same schema has it done once.
func (o *rowFilter) compile(p *filter.Program, t *rtable) error {
	if c := o.ready.Load(); c != nil && c.table == t {
		p.Copy(&c.prog)
		return nil
	}
	options := filter.Options{Clipped: true}
	if err := p.Compile(o.f.spec(), t, options); err != nil {
		return err
	}
	if o.seen.Swap(t) == t {
		c := &compiled{table: t}
		if err := c.prog.Compile(o.f.spec(), t, options); err != nil {
			return err
		}
		o.ready.Store(c)
	}
	return nil
}
