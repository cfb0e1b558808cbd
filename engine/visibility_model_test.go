package engine

import (
	"fmt"
	"strings"
	"testing"
)

// A small model of how a reader comes to see two trees: batches that write to both, memtables that are sealed and flushed, and
// one reader, step by step in every order. A reader must see each batch in both trees or in neither, and every batch that was
// published before it began.

// viewWorld is one state of the model. Batches are numbered from 0; sets of batches are bits.
type viewWorld struct {
	step      [2]uint8    // of each batch: 0 not begun, 1 placed, 2 in the first tree, 3 in both, 4 published
	place     [2][2]uint8 // memtable of batch and tree
	seq       [2]uint8    // place in line of a batch, from 1
	next      uint8       // places given
	published uint8       // the highest place below which all is published
	trees     [2]viewTree // the current state
	gen       uint8       // raised by seals and flushes
	sealed    uint8       // seals done
	contents  [4][2]uint8 // of memtables, by number: batches in each tree's
	reader    uint8       // 0 idle, 1 has a state, 2 has a sequence too, 3 may read
	before    uint8       // batches published when the reader began
	pinned    [2]viewTree
	pinnedGen uint8
	readSeq   uint8
}

// viewTree is what a state lists of a tree: the active memtable, sealed ones and batches in files.
type viewTree struct {
	active uint8
	sealed uint8 // bits of memtables
	files  uint8 // bits of batches
}

// viewRules are the rules that keep readers right; each can be broken.
type viewRules struct {
	seqFirst bool // the sequence is read before the state is pinned
	noCheck  bool // the generation is not looked at again
	noRaise  bool // a seal does not raise it
	anyFlush bool // a memtable is flushed with batches in it that are not published
	twoSwaps bool // a memtable leaves the state before its file is in it
}

func (r viewRules) explore() (worlds int, bad string) {
	seen := map[viewWorld]bool{}
	var visit func(w viewWorld, trace []string) bool
	visit = func(w viewWorld, trace []string) bool {
		if seen[w] || bad != "" {
			return bad == ""
		}
		seen[w] = true
		then := func(what string, n viewWorld) { visit(n, append(trace[:len(trace):len(trace)], what)) }
		for b := range 2 {
			n := w
			switch w.step[b] {
			case 0: // place in line: the active memtables of both trees are chosen
				n.next++
				n.seq[b] = n.next
				n.place[b] = [2]uint8{w.trees[0].active, w.trees[1].active}
			case 1, 2:
				t := w.step[b] - 1
				n.contents[w.place[b][t]][t] |= 1 << b
			case 3:
				if w.published+1 != w.seq[b] {
					continue // in order
				}
				n.published = w.seq[b]
			case 4:
				continue
			}
			n.step[b]++
			then(fmt.Sprintf("batch %d step %d", b, n.step[b]), n)
		}
		for t := range 2 {
			if w.sealed < 2 && w.placedIn(t, w.trees[t].active) {
				n := w
				n.sealed++
				n.trees[t].sealed |= 1 << w.trees[t].active
				n.trees[t].active = n.sealed
				if !r.noRaise {
					n.gen++
				}
				then(fmt.Sprintf("seal %d", t), n)
			}
			for m := range uint8(3) {
				if w.trees[t].sealed&(1<<m) == 0 {
					continue
				}
				n := w
				ready := true
				for b := range 2 {
					if w.step[b] > 0 && w.place[b][t] == m && w.step[b] < 4 {
						ready = false
					}
				}
				if !ready && !r.anyFlush {
					continue
				}
				if r.twoSwaps {
					// Half of the swap alone: what the reader pins now has neither.
					h := w
					h.trees[t].sealed &^= 1 << m
					h.gen++
					if h.reader == 0 {
						h = h.pin(false)
						h.readSeq, h.reader = h.published, 3
						if what := h.wrong(); what != "" {
							bad = what
							return false
						}
					}
				}
				n.trees[t].files |= w.contents[m][t]
				n.trees[t].sealed &^= 1 << m
				n.gen++
				then(fmt.Sprintf("flush %d", t), n)
			}
		}
		switch w.reader {
		case 0:
			n := w.begin()
			if r.seqFirst {
				n.readSeq = w.published
				n.reader = 1
				then("read the sequence", n)
			} else {
				then("pin", n.pin(true))
			}
		case 1:
			n := w
			if r.seqFirst {
				n = w.pin(true)
				n.reader = 3
				then("pin", n)
			} else {
				n.readSeq = w.published
				n.reader = 2
				then("read the sequence", n)
			}
		case 2:
			n := w
			if n.reader = 3; !r.noCheck && w.pinnedGen != w.gen {
				n.reader, n.pinned, n.readSeq, n.pinnedGen = 0, [2]viewTree{}, 0, 0 // again; what was published before still counts
			}
			then("look at the generation again", n)
		case 3:
			if what := w.wrong(); what != "" {
				bad = what + ": " + strings.Join(trace, ", ")
			}
		}
		return bad == ""
	}
	visit(viewWorld{}, nil)
	return len(seen), bad
}

func (w viewWorld) placedIn(t int, m uint8) bool {
	for b := range 2 {
		if w.step[b] > 0 && w.place[b][t] == m {
			return true
		}
	}
	return false
}

func (w viewWorld) begin() viewWorld {
	if w.before == 0 {
		for b := range 2 {
			if w.step[b] == 4 {
				w.before |= 1 << b
			}
		}
	}
	return w
}

func (w viewWorld) pin(step bool) viewWorld {
	w.pinned, w.pinnedGen = w.trees, w.gen
	if step {
		w.reader = 1
	}
	return w
}

// wrong says what the reader sees that it must not.
func (w viewWorld) wrong() string {
	for b := range 2 {
		var sees [2]bool
		for t := range 2 {
			p := w.pinned[t]
			sees[t] = p.files&(1<<b) != 0
			for m := range uint8(3) {
				if (m == p.active || p.sealed&(1<<m) != 0) && w.contents[m][t]&(1<<b) != 0 && w.seq[b] <= w.readSeq {
					sees[t] = true
				}
			}
		}
		if sees[0] != sees[1] {
			return fmt.Sprintf("batch %d is seen in part", b)
		}
		if w.before&(1<<b) != 0 && !sees[0] {
			return fmt.Sprintf("batch %d was published before and is not seen", b)
		}
	}
	return ""
}

// Every order of two batches over two trees, seals, flushes and a reader; and each rule is needed.
func TestReadersOfTwoTreesInEveryOrder(t *testing.T) {
	n, bad := viewRules{}.explore()
	if bad != "" || n < 10_000 {
		t.Fatalf("%d states: %s", n, bad)
	}
	t.Logf("%d states", n)
	for _, r := range []viewRules{{seqFirst: true}, {noCheck: true}, {noRaise: true}, {anyFlush: true}, {twoSwaps: true}} {
		if _, bad := r.explore(); bad == "" {
			t.Errorf("without a rule nothing goes wrong: %+v", r)
		} else {
			t.Logf("%+v: %s", r, bad)
		}
	}
}
