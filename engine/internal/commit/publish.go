package commit

import (
	"sync"
	"sync/atomic"
)

// Publisher makes batches visible in the order of their sequences, whatever the order in which they finish.
type Publisher struct {
	seq atomic.Uint64 // everything through seq is in the memtables

	mu         sync.Mutex // guards what follows
	head, tail *Ticket
	waiters    []waiter
	pool       sync.Pool
}

type waiter struct {
	seq uint64
	ch  chan struct{}
}

// Ticket is one batch's place in the queue.
type Ticket struct {
	last uint64
	done bool
	next *Ticket
	ch   chan struct{} // made when the owner has to wait for batches before it
}

// Start sets the sequence that recovery ended with. Before any Enter.
func (p *Publisher) Start(seq uint64) { p.seq.Store(seq) }

// Seq is the last visible sequence.
func (p *Publisher) Seq() uint64 { return p.seq.Load() }

// Enter queues a batch whose last sequence is last. Calls come in sequence order.
func (p *Publisher) Enter(last uint64) *Ticket {
	t, _ := p.pool.Get().(*Ticket)
	if t == nil {
		t = new(Ticket)
	}
	*t = Ticket{last: last}
	p.mu.Lock()
	if p.tail == nil {
		p.head = t
	} else {
		p.tail.next = t
	}
	p.tail = t
	p.mu.Unlock()
	return t
}

// Done says that the batch's entries are in the memtables, and returns when it is visible.
func (p *Publisher) Done(t *Ticket) {
	p.mu.Lock()
	t.done = true
	if p.head != t {
		t.ch = make(chan struct{})
		p.mu.Unlock()
		<-t.ch
		p.pool.Put(t)
		return
	}
	for p.head != nil && p.head.done {
		h := p.head
		p.seq.Store(h.last)
		if p.head = h.next; p.head == nil {
			p.tail = nil
		}
		if h.ch != nil {
			close(h.ch)
		}
	}
	seq := p.seq.Load()
	keep := p.waiters[:0]
	for _, w := range p.waiters {
		if w.seq <= seq {
			close(w.ch)
		} else {
			keep = append(keep, w)
		}
	}
	clear(p.waiters[len(keep):])
	p.waiters = keep
	p.mu.Unlock()
	p.pool.Put(t)
}

// Wait returns when everything through seq is visible; seq must have been entered.
func (p *Publisher) Wait(seq uint64) {
	if p.seq.Load() >= seq {
		return
	}
	p.mu.Lock()
	if p.seq.Load() >= seq {
		p.mu.Unlock()
		return
	}
	w := waiter{seq: seq, ch: make(chan struct{})}
	p.waiters = append(p.waiters, w)
	p.mu.Unlock()
	<-w.ch
}
