package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testport"
)

// Proxy stands between clients and one server and plays a bad network. At first
// everything passes. What it does else is changed at run time, for connections
// that are open as for new ones; the last call decides. A connection of which
// something was swallowed is reset when the fault ends, as a peer does that has
// forgotten it: otherwise a client would take a later reply for an earlier call's.
type Proxy struct {
	// Addr is where clients connect, Port its port.
	Addr string
	Port int

	port *testport.Port
	to   atomic.Pointer[string] // the server's address
	// servers are addresses whose connections are not clients': replicas follow
	// through the announced port, and would be part of every fault otherwise.
	servers netip.Prefix

	weather         atomic.Pointer[weather]
	accepted        atomic.Int64
	asked, answered atomic.Int64
	dialing         context.Context //nolint:containedctx // ends with the proxy, and connecting with it
	cancel          context.CancelFunc

	mu       sync.Mutex // guards what follows
	listener net.Listener
	links    map[*link]struct{}
	cuts     int // how often Cut was called: a connection being made meanwhile is cut too
	dice     *rand.Rand
	closed   bool
	group    sync.WaitGroup
}

// weather is what a proxy does with what passes. It does not change: another one
// takes its place.
type weather struct {
	kind    kind
	delay   time.Duration
	part    float64       // of reads from the server that are delayed
	changed chan struct{} // closed when another is in force
}

type kind int

const (
	passing    kind = iota
	stalled         // both ways wait
	swallowing      // both ways vanish
	losing          // requests pass, replies vanish
	cutting         // the same, and the first reply that vanishes ends its connection
)

// NewProxy starts a proxy in front of a server for this test, on a port of its own.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	p, err := startProxy(anyHost, netip.Prefix{})
	if err != nil {
		t.Fatal(err)
	}
	p.to.Store(&to)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// startProxy starts a proxy that does not know its server yet: until then it resets
// who comes. Connections from servers are no client's.
func startProxy(host func(port int) string, servers netip.Prefix) (*Proxy, error) {
	held, err := takePort()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		Addr: join(host(held.Number), held.Number), Port: held.Number, port: held, servers: servers,
		links: map[*link]struct{}{}, dice: rand.New(rand.NewPCG(1, 1)),
	}
	p.weather.Store(&weather{changed: make(chan struct{})})
	p.dialing, p.cancel = context.WithCancel(context.Background())
	if err := p.open(); err != nil {
		held.Release()
		return nil, err
	}
	return p, nil
}

// Pass ends every fault: what was held flows, the port is open again.
func (p *Proxy) Pass(t testing.TB) {
	t.Helper()
	p.set(weather{})
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
}

// Delay makes every reply late by d, at any throughput.
func (p *Proxy) Delay(d time.Duration) { p.set(weather{delay: d, part: 1}) }

// DelaySome makes a part of the replies late by d, drawn from a seed. A reply
// behind a late one on the same connection is late too; replies that come in one
// read count as one.
func (p *Proxy) DelaySome(d time.Duration, part float64, seed uint64) {
	p.mu.Lock()
	p.dice = rand.New(rand.NewPCG(seed, seed))
	p.mu.Unlock()
	p.set(weather{delay: d, part: part})
}

// Stall holds what comes either way until something else is asked for.
func (p *Proxy) Stall() { p.set(weather{kind: stalled}) }

// Swallow is a black hole: connections are accepted and nothing gets anywhere.
func (p *Proxy) Swallow() { p.set(weather{kind: swallowing}) }

// LoseReplies lets the server see requests and do them, and nobody its replies.
// With cut, the first lost reply of a connection resets it.
func (p *Proxy) LoseReplies(cut bool) {
	if cut {
		p.set(weather{kind: cutting})
	} else {
		p.set(weather{kind: losing})
	}
}

// Cut resets all connections of clients. New ones are as before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts++
	for l := range p.links {
		if !l.exempt {
			l.end(true)
		}
	}
}

// Refuse closes the port; Pass opens it again. Connections stay: with Cut after
// it, it is a server that has died.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closePort()
}

// Accepted is how many connections of clients were accepted so far.
func (p *Proxy) Accepted() int64 { return p.accepted.Load() }

// Open is how many connections of clients are open.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		if !l.exempt {
			n++
		}
	}
	return n
}

// Bytes is how many bytes clients and the server have sent so far.
func (p *Proxy) Bytes() (asked, answered int64) { return p.asked.Load(), p.answered.Load() }

// Close ends all connections, gives the port back and returns when every
// goroutine is gone. It may be called more than once.
func (p *Proxy) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.cancel()
	p.closePort()
	for l := range p.links {
		l.end(true)
	}
	p.mu.Unlock()
	p.group.Wait()
	if first {
		p.port.Release()
	}
	return nil
}

// set puts other weather in force, and ends connections of which something is
// missing.
func (p *Proxy) set(w weather) {
	w.changed = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.weather.Swap(&w).changed)
	for l := range p.links {
		if l.spoiled.Load() {
			l.end(true)
		}
	}
}

// open listens, unless it does.
func (p *Proxy) open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(p.dialing, "tcp", p.Addr)
	if err != nil {
		return fmt.Errorf("open the proxy's port: %w", err)
	}
	p.listener = listener
	p.group.Go(func() { p.accept(listener) })
	return nil
}

func (p *Proxy) closePort() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.serve(client) })
	}
}

// serve makes a link of a client's connection and lives as long as it.
func (p *Proxy) serve(client net.Conn) {
	from, err := netip.ParseAddrPort(client.RemoteAddr().String())
	exempt := err == nil && p.servers.Contains(from.Addr().Unmap())
	if !exempt {
		p.accepted.Add(1)
	}
	p.mu.Lock()
	cuts := p.cuts
	p.mu.Unlock()
	l := newLink(p, client, exempt)
	if !exempt && p.weather.Load().kind == swallowing {
		l.spoiled.Store(true) // it never sees the server
	} else if l.server, err = p.dial(); err != nil {
		l.end(true)
		return
	}
	p.mu.Lock()
	p.links[l] = struct{}{}
	late := p.closed || p.cuts != cuts && !exempt || l.spoiled.Load() && p.weather.Load().kind != swallowing
	p.mu.Unlock()
	if late {
		l.end(true)
	}
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *Proxy) dial() (net.Conn, error) {
	to := p.to.Load()
	if to == nil {
		return nil, errors.New("the proxy has no server yet")
	}
	return new(net.Dialer).DialContext(p.dialing, "tcp", *to)
}

// delay is how late a read of the server's words is to be.
func (p *Proxy) delay() time.Duration {
	w := p.weather.Load()
	if w.delay == 0 || w.part >= 1 {
		return w.delay
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dice.Float64() < w.part {
		return w.delay
	}
	return 0
}
