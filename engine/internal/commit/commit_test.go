package commit

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// Whatever the order in which batches finish, they become visible in the order of their sequences, and Done returns when its
// batch is.
func TestPublishInOrder(t *testing.T) {
	var p Publisher
	p.Start(10)
	var mu sync.Mutex // the order of places
	next := uint64(11)
	var wg sync.WaitGroup
	var inside atomic.Int64
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 500 {
				mu.Lock()
				last := next + rng.Uint64N(5)
				next = last + 1
				ticket := p.Enter(last)
				inside.Add(1)
				mu.Unlock()
				for range rng.IntN(3) {
					runtime.Gosched()
				}
				if p.Seq() >= last {
					t.Errorf("%d is visible before its batch is done", last)
				}
				inside.Add(-1)
				p.Done(ticket)
				if p.Seq() < last {
					t.Errorf("Done returned at %d, before %d is visible", p.Seq(), last)
				}
			}
		})
	}
	wg.Go(func() { p.Wait(11) })
	wg.Wait()
	if p.Seq() != next-1 {
		t.Fatalf("%d is visible, %d was the last", p.Seq(), next-1)
	}
	p.Wait(next - 1)
}

// Stamps of a stripe strictly increase, whatever the clock says.
func TestStampsIncreasePerStripe(t *testing.T) {
	var l Latches
	set := l.Lock([]uint16{7, 3, 7})
	if len(set) != 2 || set[0] != 3 {
		t.Fatalf("latches %v", set)
	}
	a := l.Stamp(set, 100, 0)
	b := l.Stamp(set, 50, 0)
	c := l.Stamp(set[:1], 50, 500)
	d := l.Stamp(set, 50, 0)
	l.Unlock(set)
	if a != 100 || b != 101 || c != 500 || d != 501 {
		t.Fatalf("stamps %d %d %d %d", a, b, c, d)
	}
	set = l.Lock(set) // they were let go
	l.Unlock(set)
}

// Raise waits for who entered before it, and for nobody else.
func TestRaiseWaitsForOlderEpochs(t *testing.T) {
	var e Epochs
	old := e.Enter()
	raised := make(chan struct{})
	go func() { e.Raise(); close(raised) }()
	for {
		if young := e.Enter(); young > old {
			defer e.Leave(young) // stays inside
			break
		} else {
			e.Leave(young)
		}
		runtime.Gosched()
	}
	select {
	case <-raised:
		t.Fatal("Raise returned while an older batch is inside")
	default:
	}
	e.Leave(old)
	<-raised
}
