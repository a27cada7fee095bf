package redistest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// callTimeout bounds one command of a Conn, connecting included.
const callTimeout = 10 * time.Second

// Conn is a plain connection for what a test wants to see or set: it knows
// nothing of clusters, retries or pipelines.
type Conn struct {
	c net.Conn
	r *bufio.Reader
}

// ReplyError is an error a server answered with, such as "NOPERM …".
type ReplyError string

// Error returns the server's text.
func (e ReplyError) Error() string { return string(e) }

func dial(addr string, conf *tls.Config) (*Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var c net.Conn
	var err error
	if conf == nil {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
	} else {
		c, err = (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the test's server: %w", err)
	}
	return &Conn{c: c, r: bufio.NewReader(c)}, nil
}

// Do sends one command and returns its reply: a string, an int64, a []any of
// such, or nil. An error the server answered with is a ReplyError; inside a
// []any it stays an element. After any other error the connection is of no use.
func (c *Conn) Do(args ...string) (any, error) {
	if err := c.c.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c.c, b.String()); err != nil {
		return nil, err
	}
	reply, err := c.read()
	if err != nil {
		return nil, err
	}
	if e, ok := reply.(ReplyError); ok {
		return nil, e
	}
	return reply, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// read returns one RESP2 reply.
func (c *Conn) read() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return ReplyError(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reply %q: %w", line, err)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, b); err != nil {
			return nil, err
		}
		return string(b[:n]), nil
	case kind == '*':
		list := make([]any, n)
		for i := range list {
			if list[i], err = c.read(); err != nil {
				return nil, err
			}
		}
		return list, nil
	default:
		return nil, fmt.Errorf("reply %q: unknown kind", line)
	}
}
