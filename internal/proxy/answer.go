package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// answered sees the head of an answer before the client does.
func (p *Proxy) answered(resp *http.Response) error {
	x := exchangeOf(resp.Request.Context())
	if p.guard != nil {
		now := p.elapsed()
		refused := resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests
		p.guard.answered(now, refused, now-x.began)
	}
	if resp.StatusCode < 100 || resp.StatusCode > 999 {
		return fmt.Errorf("status %d of its answer is not within 100 and 999", resp.StatusCode) // net/http would panic
	}
	x.status = resp.StatusCode
	if p.config.CostHeader != "" {
		x.readCost(resp.Header[p.config.CostHeader])
		delete(resp.Header, p.config.CostHeader)
	}
	x.claim()
	// Two of one header would leave the client to choose whom it believes.
	for _, name := range p.ours {
		if x.header[name] != nil {
			delete(resp.Header, name)
		}
	}
	if resp.StatusCode != http.StatusSwitchingProtocols { // whose body is a connection, and has no trailers
		p.sift(resp.Trailer)
		x.tail = tail{ReadCloser: resp.Body, proxy: p, exchange: x, resp: resp}
		resp.Body = &x.tail
	}
	return nil
}

// sift takes out of the trailers of an answer what only its head may tell: a client that
// joins the two would read the upstream's limits, or ours twice.
func (p *Proxy) sift(trailer http.Header) {
	for _, name := range p.ours {
		delete(trailer, name)
	}
	if p.config.CostHeader != "" {
		delete(trailer, p.config.CostHeader)
	}
}

// tail is the rest of an answer: its body and trailers.
type tail struct {
	io.ReadCloser
	proxy    *Proxy
	exchange *exchange
	resp     *http.Response
}

// Read implements [io.Reader].
func (t *tail) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err != nil && !errors.Is(err, io.EOF) && t.resp.Request.Context().Err() == nil {
		t.proxy.counts.broken.Add(1)
		t.proxy.warn(t.exchange, "it broke its answer off", err)
	}
	return n, err
}

// Close implements [io.Closer]. The trailers are there after it, also those that the
// head did not announce.
func (t *tail) Close() error {
	err := t.ReadCloser.Close()
	if name := t.proxy.config.CostHeader; name != "" && t.exchange.costs == untold {
		t.exchange.readCost(t.resp.Trailer[name])
	}
	t.proxy.sift(t.resp.Trailer)
	return err
}

// What an answer tells of its request's cost.
type costs uint8

const (
	untold costs = iota
	told
	noCost
)

// readCost takes the cost that the answer tells. What is none leaves the estimate.
func (x *exchange) readCost(lines []string) {
	const maxCost = 1_000_000_000
	if len(lines) == 0 {
		return
	}
	cost, err := strconv.ParseInt(lines[0], 10, 64)
	if len(lines) > 1 || err != nil || cost < 0 || cost > maxCost {
		x.costs, x.text = noCost, lines[0]
		return
	}
	x.cost, x.costs = cost, told
}

// Where the answers tell no cost.
const (
	// manyUntold is how many good answers in a row have no cost header before the log
	// says so: some kinds of answer may well have none.
	manyUntold = 20
	untoldPace = time.Minute
)

// tally counts an answer that should have told its cost.
func (p *Proxy) tally(x *exchange) {
	good := x.status >= http.StatusOK && x.status < http.StatusMultipleChoices
	switch {
	case x.costs == told:
		p.untold.Store(0)
	case x.costs == noCost:
		p.untold.Store(0)
		p.counts.badCosts.Add(1)
		if unlogged, ok := p.badCost.Pass(p.config.Now(), untoldPace); ok {
			p.config.Log.Warn("the cost that an answer told is none, so the estimate stood; a cost is one line, a whole number from 0 to 1000000000",
				"header", p.config.CostHeader, "value", fmt.Sprintf("%.40s", x.text), "unlogged", unlogged)
		}
	case x.status != 0:
		p.counts.missingCosts.Add(1)
		if !good {
			return
		}
		n := p.untold.Add(1)
		if n < manyUntold {
			return
		}
		if _, ok := p.noHeader.Pass(p.config.Now(), untoldPace); ok {
			p.config.Log.Warn("the last answers told no cost, so the estimates stood; is CostHeader (--cost-header) spelt as the upstream writes it?",
				"header", p.config.CostHeader, "answers", n)
		}
	}
}

// unanswered answers where the upstream did not.
func (p *Proxy) unanswered(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	x.claim()
	var op *net.OpError
	x.lost = errors.As(err, &op) && op.Op == "dial"
	var slow net.Error
	switch {
	case x.stalled.Load():
		w.Header().Set("Connection", "close")
		writeProblem(w, http.StatusRequestTimeout, "request_timeout", "The body did not arrive in time", "the body took too long")
	case x.malformed.Load():
		w.Header().Set("Connection", "close")
		writeProblem(w, http.StatusBadRequest, "bad_request", "Malformed request", "the body broke off, or its chunks are malformed")
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		// The client is gone, or the proxy is stopping: it is nobody's failure.
		p.counts.canceled.Add(1)
		writeProblem(w, http.StatusBadGateway, "canceled", "Canceled", "the request ended before its answer")
	case errors.As(err, &slow) && slow.Timeout() || errors.Is(err, context.DeadlineExceeded):
		p.counts.timeouts.Add(1)
		if p.guard != nil {
			now := p.elapsed()
			p.guard.answered(now, false, now-x.began)
		}
		p.warn(x, "it did not answer in time", err)
		writeProblem(w, http.StatusGatewayTimeout, "upstream_timeout", "The upstream did not answer in time", "it may have done what was asked")
	default:
		p.counts.unreachable.Add(1)
		p.warn(x, "it did not answer", err)
		writeProblem(w, http.StatusBadGateway, "upstream_unavailable", "The upstream did not answer", "it cannot be reached, or broke off")
	}
}

// warn says what went wrong upstream, at most once a second.
func (p *Proxy) warn(x *exchange, what string, err error) {
	if unlogged, ok := p.failing.Pass(p.config.Now(), time.Second); ok {
		p.config.Log.Warn("the upstream failed a request", "how", what, "error", err, "request_id", x.id, "unlogged", unlogged)
	}
}
