package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// stalling is a ResponseWriter that gives up on a client which takes nothing of its
// answer. A bound on the whole answer would cut off streams; this one is on each
// write, so that a client which reads, however long, is never cut off.
type stalling struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	// framed says that the deadline is a stream's of HTTP/2, which ends it even while
	// nothing is written, so that it must not stand between writes.
	framed bool
	// inform is whose answers before the answer go to the client.
	inform *exchange
}

func newStalling(w http.ResponseWriter, timeout time.Duration, framed bool) *stalling {
	s := &stalling{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout, framed: framed}
	if !framed {
		s.begin() // the connection may still have the deadline of its last answer
	}
	return s
}

// begin allows for a write from now on. Connections that know no deadline have none.
func (s *stalling) begin() { _ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) }

func (s *stalling) done() {
	if s.framed {
		_ = s.control.SetWriteDeadline(time.Time{})
	}
}

// end allows for what net/http still has to write after the handler.
func (s *stalling) end() { s.begin() }

// WriteHeader implements [http.ResponseWriter]. An answer before the answer says of
// limits and costs what the answer will.
func (s *stalling) WriteHeader(code int) {
	if code < http.StatusOK && code != http.StatusSwitchingProtocols && s.inform != nil {
		s.inform.claim()
	}
	s.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (s *stalling) Write(b []byte) (int, error) {
	s.begin()
	defer s.done()
	return s.ResponseWriter.Write(b)
}

// FlushError is how [http.ResponseController] flushes.
func (s *stalling) FlushError() error {
	s.begin()
	defer s.done()
	return s.control.Flush()
}

// Unwrap lets [http.ResponseController] find the rest, hijacking above all.
func (s *stalling) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// slowBody is the body of a request that gives up on a client which sends nothing of
// it. It is for HTTP/1.1: a stream of HTTP/2 may be quiet for as long as it likes (gRPC's
// are), and costs no connection.
type slowBody struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
	closed  atomic.Bool
	// exchange is told why there is no more of it.
	exchange *exchange
}

// Read implements [io.Reader]. No deadline stands between reads: net/http reads on by
// itself, to learn that the client has gone.
func (b *slowBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	_ = b.control.SetReadDeadline(time.Now().Add(b.timeout))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.exchange.stalled.Store(true)
		return n, err // the connection is lost: what comes would be taken for a request
	}
	if err != nil && !errors.Is(err, io.EOF) && !b.closed.Load() {
		b.exchange.malformed.Store(true)
	}
	_ = b.control.SetReadDeadline(time.Time{})
	return n, err
}

// Close implements [io.Closer].
func (b *slowBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}
