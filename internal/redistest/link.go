package redistest

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxRead bounds one read of either side.
	maxRead = 32 << 10
	// maxQueue bounds what a link holds for later, in reads. Beyond it the server
	// is read no further, as by a peer whose window is full.
	maxQueue = 4_096
	// maxHeld bounds what a stall holds of one client's words, holdStep is how often
	// it looks whether it is over.
	maxHeld  = 1 << 20
	holdStep = 5 * time.Millisecond
)

// link is one connection through a Proxy: a goroutine reads requests, one reads
// replies into a queue with the time at which each is due, one writes them.
type link struct {
	p      *Proxy
	client net.Conn
	server net.Conn // nil for a client that a black hole accepted
	exempt bool     // between servers: no weather
	// spoiled says that something was swallowed.
	spoiled atomic.Bool
	queue   chan words
	ended   sync.Once
	done    chan struct{} // closed by end
}

// words are some bytes of the server and when the client is to see them.
type words struct {
	text []byte
	due  time.Time
}

func newLink(p *Proxy, client net.Conn, exempt bool) *link {
	return &link{p: p, client: client, exempt: exempt, queue: make(chan words, maxQueue), done: make(chan struct{})}
}

// run copies until one side has hung up or end is called.
func (l *link) run() {
	defer l.end(false)
	if l.server == nil {
		_, _ = io.Copy(io.Discard, l.client)
		return
	}
	var group sync.WaitGroup
	group.Go(l.listen)
	group.Go(l.answer)
	l.ask()
	l.end(false)
	group.Wait()
}

// end closes both connections: by a reset, or as one does.
func (l *link) end(reset bool) {
	l.ended.Do(func() {
		close(l.done)
		if tcp, ok := l.client.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
		_ = l.client.Close()
		if l.server != nil {
			_ = l.server.Close()
		}
	})
}

// ask carries requests.
func (l *link) ask() {
	buf := make([]byte, maxRead)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			return
		}
		l.countAsked(n)
		text, w := l.hold(buf[:n])
		switch {
		case w == nil:
			return
		case w.kind == swallowing:
			l.lose(w)
			continue
		}
		if _, err := l.server.Write(text); err != nil {
			return
		}
	}
}

// hold waits like wait, and goes on reading meanwhile: a client that hangs up on
// a stalled server is gone, and so is its link.
func (l *link) hold(text []byte) ([]byte, *weather) {
	if l.exempt || l.p.weather.Load().kind != stalled {
		return text, l.wait()
	}
	text = slices.Clone(text)
	more := make([]byte, 4<<10)
	defer func() { _ = l.client.SetReadDeadline(time.Time{}) }() // a closed one needs none
	for len(text) < maxHeld {
		if w := l.p.weather.Load(); w.kind != stalled {
			return text, w
		}
		_ = l.client.SetReadDeadline(time.Now().Add(holdStep)) // Read tells if it failed
		n, err := l.client.Read(more)
		text = append(text, more[:n]...)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil
		}
		l.countAsked(n)
	}
	return text, l.wait()
}

func (l *link) countAsked(n int) {
	if !l.exempt {
		l.p.asked.Add(int64(n))
	}
}

// listen reads replies and says when each is due. At the end what is queued is
// still written: a server may say why it hangs up.
func (l *link) listen() {
	defer close(l.queue)
	buf := make([]byte, maxRead)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.end(true)
			}
			return
		}
		next := words{text: slices.Clone(buf[:n])}
		if !l.exempt {
			l.p.answered.Add(int64(n))
			if d := l.p.delay(); d > 0 {
				next.due = time.Now().Add(d)
			}
		}
		select {
		case l.queue <- next:
		case <-l.done:
			return
		}
	}
}

// answer writes replies when they are due.
func (l *link) answer() {
	defer l.end(false)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := range l.queue {
		if wait := time.Until(next.due); !next.due.IsZero() && wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-l.done:
				return
			}
		}
		w := l.wait()
		switch {
		case w == nil:
			return
		case w.kind == cutting:
			l.end(true)
			return
		case w.kind == swallowing || w.kind == losing:
			l.lose(w)
			continue
		}
		if _, err := l.client.Write(next.text); err != nil {
			return
		}
	}
}

// wait returns the weather once it is not a stall, or nil when the link has ended.
func (l *link) wait() *weather {
	if l.exempt {
		return &weather{}
	}
	for {
		w := l.p.weather.Load()
		if w.kind != stalled {
			return w
		}
		select {
		case <-w.changed:
		case <-l.done:
			return nil
		}
	}
}

// lose remembers that something is missing under this weather. If that has
// changed meanwhile, nobody else will end the link.
func (l *link) lose(w *weather) {
	l.spoiled.Store(true)
	if l.p.weather.Load() != w {
		l.end(true)
	}
}
