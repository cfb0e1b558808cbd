package engine

import (
	"fmt"
	"strings"
	"testing"
)

// A small model of what a crash leaves of two trees with one log: batches that add to both, memtables sealed and flushed in two
// steps, a drop of the rows of the first, the table of the second dropped, files rewritten, and crashes, in every order. After a crash
// there must be a prefix of the batches, the same in both trees, each once, at least all that was durable, and nothing that a
// drop has removed; a drop that is there stands on everything before it.

const dropBatches = 3

// dropWorld is one state of the model. Batches are bits and, as sequences, numbers from 1.
type dropWorld struct {
	placed, durable uint8
	trees           [2]dropTree
	drop            uint8 // sequence of the drop of rows; 0 none yet
	stands          bool  // the drop is still in the table's record
	gone            bool  // the second table is dropped
	goneAt          uint8
	crashes         uint8
}

type dropTree struct {
	active, sealed uint8 // batches in memtables
	through        uint8 // flushed through this sequence
	file, later    dropFile
	job            dropJob // a flush between its first step and its last
}

type dropFile struct {
	bits    uint8
	settled bool // its contents have gone through the drop
}

type dropJob struct {
	runs bool
	dropFile
	last uint8
}

// dropRules are the rules that keep crashes right; each can be broken.
type dropRules struct {
	flushEarly   bool // a flush does not wait for the log
	dropEarly    bool // a drop of rows does not wait for the log
	tableEarly   bool // a drop of a table does not wait for the log
	replayAll    bool // replay does not look at what is flushed
	replayDrops  bool // replay does not look at the drop
	forgetAlone  bool // the drop is forgotten without saying that the tree is flushed through it
	jobIsSettled bool // a flush that ran across the drop is taken for one that has gone through it
	noMask       bool // what is behind the drop is not hidden
}

func high(bits uint8) (n uint8) {
	for ; bits != 0; bits >>= 1 {
		n++
	}
	return n
}

func upTo(n uint8) uint8 { return 1<<n - 1 }

// behind are the batches of a file that the drop hides.
func (w *dropWorld) behind(f dropFile) bool {
	return w.drop > 0 && f.bits != 0 && high(f.bits) <= w.drop && !f.settled
}

// recovered is what a tree holds after a crash: from files and from the log.
func (w *dropWorld) recovered(t int, r dropRules) (files, mem uint8) {
	tr := &w.trees[t]
	for _, f := range []dropFile{tr.file, tr.later} {
		if t == 1 || !(w.stands && w.behind(f)) || r.noMask {
			files |= f.bits
		}
	}
	for seq := uint8(1); seq <= w.durable; seq++ {
		if seq <= tr.through && !r.replayAll || t == 0 && w.stands && seq <= w.drop && !r.replayDrops {
			continue
		}
		mem |= 1 << (seq - 1)
	}
	return files, mem
}

// wrong says what is wrong after a crash now.
func (w *dropWorld) wrong(r dropRules) string {
	var got [2]uint8
	for t := range 2 {
		files, mem := w.recovered(t, r)
		if t == 1 && w.gone {
			continue
		}
		if files&mem != 0 {
			return fmt.Sprintf("tree %d holds batches twice: %b in files, %b from the log", t, files, mem)
		}
		got[t] = files | mem
	}
	least := w.durable
	if w.drop > 0 {
		least = max(least, w.drop)
	}
	if w.gone {
		least = max(least, w.goneAt)
	}
	for p := least; p <= w.placed; p++ {
		if got[0] == upTo(p)&^upTo(w.drop) && (w.gone || got[1] == upTo(p)) {
			return ""
		}
	}
	return fmt.Sprintf("trees hold %b and %b; %d of %d batches durable, drop at %d, table gone %v at %d", got[0], got[1], w.durable, w.placed, w.drop, w.gone, w.goneAt)
}

// forget takes the drop out of the record when nothing is behind it.
func (w *dropWorld) forget(r dropRules) {
	tr := &w.trees[0]
	if !w.stands || (tr.active|tr.sealed)&upTo(w.drop) != 0 || w.behind(tr.file) || w.behind(tr.later) {
		return
	}
	w.stands = false
	if !r.forgetAlone {
		tr.through = max(tr.through, w.drop)
	}
}

func (r dropRules) explore(limit int) (worlds int, bad string) {
	seen := map[dropWorld]bool{}
	var visit func(w dropWorld, trace []string)
	visit = func(w dropWorld, trace []string) {
		if seen[w] || bad != "" || len(seen) > limit {
			return
		}
		seen[w] = true
		if what := w.wrong(r); what != "" {
			bad = what + ": " + strings.Join(trace, ", ")
			return
		}
		then := func(what string, change func(n *dropWorld)) {
			n := w
			change(&n)
			visit(n, append(trace[:len(trace):len(trace)], what))
		}
		if w.placed < dropBatches {
			then("write", func(n *dropWorld) {
				n.placed++
				for t := range n.trees {
					n.trees[t].active |= 1 << (n.placed - 1)
				}
			})
		}
		if w.durable < w.placed {
			then("sync", func(n *dropWorld) { n.durable++ })
		}
		if w.drop == 0 {
			then("drop rows", func(n *dropWorld) {
				if n.placed == 0 {
					return
				}
				if !r.dropEarly {
					n.durable = n.placed
				}
				n.drop, n.stands = n.placed, true
				tr := &n.trees[0]
				tr.sealed, tr.active = tr.sealed|tr.active, 0
				n.forget(r)
			})
		}
		if !w.gone {
			then("drop table", func(n *dropWorld) {
				if !r.tableEarly {
					n.durable = n.placed
				}
				n.gone, n.goneAt = true, n.placed
				n.trees[1] = dropTree{}
			})
		}
		for t := range w.trees {
			tr := w.trees[t]
			if t == 1 && w.gone {
				continue
			}
			if tr.active != 0 && tr.sealed == 0 {
				then(fmt.Sprint("seal ", t), func(n *dropWorld) { n.trees[t].sealed, n.trees[t].active = tr.active, 0 })
			}
			if tr.sealed != 0 && !tr.job.runs && tr.later.bits == 0 && (high(tr.sealed) <= w.durable || r.flushEarly) {
				then(fmt.Sprint("begin to flush ", t), func(n *dropWorld) {
					j := dropJob{runs: true, dropFile: dropFile{bits: tr.sealed}, last: high(tr.sealed)}
					if t == 0 && n.stands && high(tr.sealed) <= n.drop && !r.noMask { // the job sees the drop
						j.bits, j.settled = 0, true
					}
					n.trees[t].job = j
				})
			}
			if tr.job.runs {
				then(fmt.Sprint("end the flush ", t), func(n *dropWorld) {
					d := &n.trees[t]
					f := tr.job.dropFile
					if r.jobIsSettled {
						f.settled = true
					}
					if d.file.bits == 0 {
						d.file = f
					} else {
						d.later = f
					}
					d.sealed &^= upTo(tr.job.last)
					d.through, d.job = max(d.through, tr.job.last), dropJob{}
					n.forget(r)
				})
			}
			if t == 0 && w.stands && w.behind(tr.file) {
				then(fmt.Sprint("rewrite ", t), func(n *dropWorld) { n.trees[t].file = dropFile{}; n.forget(r) })
			}
			if tr.file.bits != 0 && tr.later.bits != 0 {
				then(fmt.Sprint("merge ", t), func(n *dropWorld) {
					d := &n.trees[t]
					for _, f := range []*dropFile{&d.file, &d.later} {
						if t == 0 && n.stands && n.behind(*f) && !r.noMask {
							*f = dropFile{}
						}
					}
					d.file, d.later = dropFile{bits: d.file.bits | d.later.bits, settled: n.drop > 0}, dropFile{}
					n.forget(r)
				})
			}
		}
		if w.crashes < 2 {
			then("crash", func(n *dropWorld) {
				n.crashes++
				for t := range n.trees {
					_, mem := w.recovered(t, r)
					if d := &n.trees[t]; t == 0 || !w.gone {
						d.active, d.sealed, d.job = mem, 0, dropJob{}
					}
				}
				// What the log does not hold any more was never acknowledged: later batches take its places.
				p := n.durable
				if n.drop > 0 {
					p = max(p, n.drop)
				}
				n.placed = p
				n.forget(r)
			})
		}
	}
	visit(dropWorld{}, nil)
	return len(seen), bad
}

// Every order of batches, syncs, seals, flushes in two steps, drops, rewrites and crashes; and each rule is needed.
func TestDroppedRowsStayAwayInEveryOrder(t *testing.T) {
	n, bad := dropRules{}.explore(1 << 20)
	if bad != "" || n < 10_000 || n > 1<<20 {
		t.Fatalf("%d states: %s", n, bad)
	}
	t.Logf("%d states", n)
	for _, r := range []dropRules{
		{flushEarly: true}, {dropEarly: true}, {tableEarly: true}, {replayAll: true}, {replayDrops: true}, {forgetAlone: true},
		{jobIsSettled: true}, {noMask: true},
	} {
		if _, bad := r.explore(1 << 20); bad == "" {
			t.Errorf("without a rule nothing goes wrong: %+v", r)
		} else {
			t.Logf("%+v: %s", r, bad)
		}
	}
}
