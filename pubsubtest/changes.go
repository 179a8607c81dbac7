package pubsubtest

import (
	"sync"
	"time"
)

// changes lets goroutines wait for something to change. The zero value is ready.
type changes struct {
	mu   sync.Mutex    // guards next
	next chan struct{} // closed at the next change; nil when nobody waits
}

// announce lets all who wait look again. It does not block.
func (c *changes) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

func (c *changes) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// await calls look, and again after each change, until it returns true, which await
// then returns too. When timeout has passed or ended is closed it looks a last time.
func (c *changes) await(timeout time.Duration, ended <-chan struct{}, look func() bool) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		changed := c.wait() // before the look, so that no change is missed
		if look() {
			return true
		}
		select {
		case <-changed:
		case <-ended:
			return look()
		case <-timer.C:
			return look()
		}
	}
}
