package stripe

import (
	"sync"
	"testing"
	"unsafe"
)

func TestSumOverSlots(t *testing.T) {
	var c Counter
	var wg sync.WaitGroup
	for range 2 * count {
		wg.Go(func() {
			s := Next()
			for range 1000 {
				c.Add(s, 3)
				c.Add(s, -1)
			}
		})
	}
	wg.Wait()
	if n := c.Load(); n != 2*count*2000 {
		t.Errorf("sum %d", n)
	}
	c.Add(200, 1) // a slot that Next never gives is one all the same
	if n := c.Load(); n != 2*count*2000+1 {
		t.Errorf("sum %d", n)
	}
}

func TestSlotsLieApart(t *testing.T) {
	var c Counter
	if d := uintptr(unsafe.Pointer(&c.lines[1])) - uintptr(unsafe.Pointer(&c.lines[0])); d < apart || unsafe.Offsetof(c.lines) < apart-8 {
		t.Errorf("%d bytes apart", d)
	}
	seen := map[Slot]bool{}
	for range count {
		seen[Next()] = true
	}
	if len(seen) != count {
		t.Errorf("%d slots given", len(seen))
	}
}

// What is held is never missed, though others come and go.
func TestLoadSeesWhatIsHeld(t *testing.T) {
	var c Counter
	c.Add(3, 1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			s := Next()
			for {
				select {
				case <-stop:
					return
				default:
					c.Add(s, 1)
					c.Add(s, -1)
				}
			}
		})
	}
	for range 10_000 {
		if c.Load() < 1 {
			t.Error("nothing held")
			break
		}
	}
	close(stop)
	wg.Wait()
}
