package proxy

import "sync"

// crowd is the requests under way. Unlike a sync.WaitGroup's, its end may come while
// another one begins: net/http starts those of HTTP/2 up to the last moment.
type crowd struct {
	mu    sync.Mutex
	n     int
	ended bool
	// empty is closed when the last one has left after the end.
	empty chan struct{}
}

func newCrowd() *crowd { return &crowd{empty: make(chan struct{})} }

// enter reports whether a request may begin. One that may has to leave.
func (c *crowd) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.n++
	return true
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.ended {
		close(c.empty)
	}
}

// end lets nobody in any more and returns when all have left. It is called once.
func (c *crowd) end() {
	c.mu.Lock()
	c.ended = true
	if c.n == 0 {
		close(c.empty)
	}
	c.mu.Unlock()
	<-c.empty
}
