package merge

import (
	"bytes"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
)

// folder joins the states that several sources have for one cell of an aggregate family.
type folder struct {
	prefix []byte // of the family found last
	fold   cell.Fold
	room   []byte // states handed out since reuse
	err    error
}

// reuse says that no state handed out so far is needed any more.
func (f *folder) reuse() { f.room = f.room[:0] }

// put returns a state's bytes, which stay until reuse.
func (f *folder) put(n int64) []byte {
	if cap(f.room)-len(f.room) < cell.StateLen {
		f.room = make([]byte, 0, max(2*cap(f.room), 64*cell.StateLen)) // those handed out stay in the old memory
	}
	at := len(f.room)
	f.room = f.room[:at+cell.StateLen]
	p := f.room[at : at+cell.StateLen : at+cell.StateLen]
	cell.PutState(p, n)
	return p
}

// of is the fold of a column.
func (f *folder) of(fams *Families, col []byte) cell.Fold {
	if f.prefix != nil && bytes.HasPrefix(col, f.prefix) {
		return f.fold
	}
	if fams == nil {
		return cell.FoldNone
	}
	fam, err := fams.find(col)
	if err != nil || fam == nil {
		return cell.FoldNone // the rules will say what is wrong with it
	}
	f.prefix, f.fold = fam.prefix, fam.fold
	return f.fold
}

// takeSame moves the cell that win stands on to dst and passes over the older copies. States are joined: a delete in a source says
// nothing about those of the same source, and hides those of all older ones.
func (r *Row) takeSame(dst []cell.Cell, win int) []cell.Cell {
	out := r.src[win].buf[r.src[win].pos]
	hidden := r.shade && win > 0 && r.shaded(win, &out)
	if out.Kind == cell.KindMerge && !hidden {
		r.join(win, &out)
	}
	r.src[win].pos++
	for _, s := range r.src[win+1:] {
		if s.pos < len(s.buf) && cell.Compare(s.buf[s.pos].Col, s.buf[s.pos].TS, out.Col, out.TS) == 0 {
			s.pos++
		}
	}
	if hidden || r.folds.err != nil || !r.cfg.plain() && !r.gc.keep(r.key, &out) {
		return dst
	}
	r.src[win].used = true
	return append(dst, out)
}

// join folds into out what sources older than win have for the same cell.
func (r *Row) join(win int, out *cell.Cell) {
	if out.Value == nil {
		return // a walk over keys
	}
	sum, ok := cell.State(out.Value)
	folded := false
	fold := cell.FoldNone
	for i := win + 1; i < len(r.src) && ok; i++ {
		s := r.src[i]
		if s.pos == len(s.buf) {
			continue
		}
		c := &s.buf[s.pos]
		if c.Kind != cell.KindMerge || cell.Compare(c.Col, c.TS, out.Col, out.TS) != 0 {
			continue
		}
		if r.shade && r.shaded(i, c) {
			break // and from all older sources
		}
		if !folded {
			fold, folded = r.folds.of(r.cfg.Families, out.Col), true
		}
		var older int64
		if older, ok = cell.State(c.Value); ok {
			sum = fold.Join(sum, older)
		}
	}
	if !ok {
		r.folds.err = damage.New("cell", -1, "row %.40q, column %.40x at %d: a state that has not %d bytes", r.key, out.Col, out.TS, cell.StateLen)
		return
	}
	if folded {
		out.Value = r.folds.put(sum)
	}
}
