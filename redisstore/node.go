package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// redialAfter is the pause after a connection that failed: who waits meanwhile
// gets the same error, or a server that refuses would be dialled for every check.
const redialAfter = 100 * time.Millisecond

// node is one server as we reach it: a client that keeps one pipelined connection
// and dials when it is needed.
type node struct {
	addr    string
	options rueidis.ClientOption
	// strict says that open counts only connections that calls go through, so that
	// none means that the next call would dial. Sentinels are other connections.
	strict bool
	dials  atomic.Int64
	open   atomic.Int64

	mu      sync.Mutex // held while connecting
	client  rueidis.Client
	err     error // of the last attempt
	retryAt time.Time
	closed  bool
}

// newNode returns the server at addr of a cluster, or whatever a client finds by
// options alone.
func newNode(options rueidis.ClientOption, addr string) *node {
	n := &node{addr: addr, options: options, strict: options.Sentinel.MasterSet == ""}
	if n.strict {
		n.options.ForceSingleClient = true
		n.options.InitAddress = []string{addr}
	}
	n.options.DialCtxFn = n.dial
	return n
}

// dial counts the connections that are made and those that are open.
func (n *node) dial(ctx context.Context, addr string, dialer *net.Dialer, secure *tls.Config) (net.Conn, error) {
	var conn net.Conn
	var err error
	if secure != nil {
		conn, err = (&tls.Dialer{NetDialer: dialer, Config: secure}).DialContext(ctx, "tcp", addr)
	} else {
		conn, err = dialer.DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, err
	}
	n.dials.Add(1)
	n.open.Add(1)
	return &counted{Conn: conn, open: &n.open}, nil
}

// counted is a connection that is counted while it is open.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// ready returns the client with a connection, made first where there is none: a
// call must not wait in a client that dials, which would send it long after its
// caller has left.
func (n *node) ready() (rueidis.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return nil, errClosed
	case n.client != nil && (n.open.Load() > 0 || !n.strict):
		return n.client, nil
	case time.Now().Before(n.retryAt):
		return nil, n.err
	}
	n.err = n.connect()
	if n.err != nil {
		n.retryAt = time.Now().Add(redialAfter)
		return nil, n.err
	}
	return n.client, nil
}

func (n *node) connect() error {
	if n.client != nil {
		return n.ping()
	}
	client, err := rueidis.NewClient(n.options)
	if err == nil || client != nil { // a single one may connect later
		n.client = client
	}
	return err
}

// ping has the client connect. One that has not noticed yet that its last connection
// ended tells how that ended, and dials only for the next call: it is asked again, or
// every check until the next attempt would count a failure that is none.
func (n *node) ping() error {
	dials := n.dials.Load()
	ask := func() error { return n.client.Do(context.Background(), n.client.B().Ping().Build()).Error() }
	err := ask()
	if err != nil && sort(err) == lost && n.dials.Load() == dials {
		return ask()
	}
	return err
}

// unused reports whether there never was a connection.
func (n *node) unused() bool { return n.dials.Load() == 0 }

func (n *node) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.client != nil {
		n.client.Close()
	}
}

// do sends one command outside of the lanes, for what no check waits for.
func (n *node) do(words ...string) rueidis.RedisResult {
	client, err := n.ready()
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	return client.Do(context.Background(), client.B().Arbitrary(words...).Build())
}

var errClosed = errors.New("the store is closed")
