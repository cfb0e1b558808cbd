package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// heard is what a child told before it died: which batches must be there, and which may be.
type heard struct {
	opened bool
	// Of each writer, numbers of batches: begun, returned from, and known to be durable (a later synchronous batch of anybody makes
	// durable what returned before it began).
	begun, applied, durable []int
	// before[w][n] is applied when writer w began batch n: whoever has that batch must have those too.
	before []map[int][]int
	copies []*copied
}

// copied is a checkpoint.
type copied struct {
	dir   string
	whole bool  // the call returned
	least []int // batches that must be in it
}

func hear(from []int, in io.Reader) (*heard, error) {
	h := &heard{begun: slices.Clone(from), applied: slices.Clone(from), durable: slices.Clone(from)}
	for range from {
		h.before = append(h.before, map[int][]int{})
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := h.line(lines.Text()); err != nil {
			return h, fmt.Errorf("child says %q: %w", lines.Text(), err)
		}
	}
	return h, lines.Err()
}

func (h *heard) line(line string) error {
	what, rest, _ := strings.Cut(line, " ")
	switch what {
	case "opening":
		return nil
	case "open":
		h.opened = true
		return nil
	case "copy":
		h.copies = append(h.copies, &copied{dir: rest, least: slices.Clone(h.applied)})
		return nil
	case "copied":
		for _, c := range h.copies {
			if c.dir == rest {
				c.whole = true
			}
		}
		return nil
	}
	var w, n int
	if _, err := fmt.Sscan(rest, &w, &n); err != nil {
		return err
	}
	if w < 0 || w >= len(h.begun) {
		return fmt.Errorf("no writer %d", w)
	}
	switch what {
	case "begin":
		h.begun[w] = n
		h.before[w][n] = slices.Clone(h.applied)
	case "durable":
		for v, m := range h.before[w][n] {
			h.durable[v] = max(h.durable[v], m)
		}
		h.durable[w] = n
		h.applied[w] = n
	case "applied":
		h.applied[w] = n
	default:
		return fmt.Errorf("unknown word")
	}
	return nil
}

// check says whether a store may hold so many batches of each writer.
func (h *heard) check(have, least []int) error {
	for w, n := range have {
		if n < least[w] {
			return fmt.Errorf("writer %d: %d batches are there, %d were acknowledged as durable", w, n, least[w])
		}
		if n > h.begun[w] {
			return fmt.Errorf("writer %d: %d batches are there, %d were begun", w, n, h.begun[w])
		}
		for v, m := range h.before[w][n] {
			if have[v] < m {
				return fmt.Errorf("batch %d of writer %d is there, and batch %d of writer %d, which was applied before it began, is not", n, w, m, v)
			}
		}
	}
	return nil
}
