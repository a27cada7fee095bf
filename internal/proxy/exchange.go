package proxy

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/rules"
)

// exchange is what the proxy knows of one request on its way.
type exchange struct {
	// header is the client's answer's: the limit headers in it are ours.
	header http.Header
	// names are those of the headers that only the proxy writes, and own their values
	// when the request was sent on.
	names []string
	own   [maxOwn][]string
	// hidden is a header of the upstream that no client sees; "" for none.
	hidden string
	// began is when the request went to the upstream.
	began time.Duration
	// matched and ids are the rules that back-pressure holds it to.
	matched []*rules.Compiled
	ids     []string

	// id is the request's, status its answer's; 0 where the upstream gave none.
	id     string
	status int
	tail   tail

	hold Hold
	// cost is the estimate, or what the answer told; text is what it told that is none.
	cost  int64
	costs costs
	text  string
	// lost says that the upstream was not reached.
	lost bool
	// stalled says that the client did not send its body, malformed that it was none.
	stalled, malformed atomic.Bool
}

type exchangeKey struct{}

// exchangeOf returns the exchange of a request's context. Every request has one.
func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

const headerRequestID = "X-Request-Id"

// ServeHTTP is the path of a request, up to the limiter.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.underWay.enter() {
		writeProblem(w, http.StatusServiceUnavailable, "closed", "Not ready", "the proxy is stopping")
		return
	}
	defer p.underWay.leave()
	id := requestID(r.Header)
	w.Header()[headerRequestID] = []string{id}
	if p.inflight.Add(1) > int64(p.config.MaxInflight) {
		p.inflight.Add(-1)
		p.counts.overloaded.Add(1)
		writeProblem(w, http.StatusServiceUnavailable, "overloaded", "Too many requests in flight",
			fmt.Sprintf("more than %d requests are under way", p.config.MaxInflight))
		return
	}
	defer p.inflight.Add(-1)
	x := &exchange{header: w.Header(), names: p.ours, hidden: p.config.CostHeader, id: id}
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	r.Header[headerRequestID] = []string{id}
	defer p.settle(r.Context(), x) // also when an answer breaks off, which is a panic
	s := newStalling(w, p.config.StallTimeout, r.ProtoMajor > 1)
	s.inform = x
	if r.ProtoMajor == 1 && r.Body != http.NoBody {
		r.Body = &slowBody{ReadCloser: r.Body, control: s.control, timeout: p.config.StallTimeout, exchange: x}
	}
	p.limited.ServeHTTP(s, r)
	s.end()
}

// forward sends an admitted request on.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r.Context())
	x.keep()
	x.began = p.elapsed()
	if up := r.Header.Get("Upgrade"); p.framed || !printable(up) {
		// A server may pass over an Upgrade. HTTP/2 knows none, and what is no word would
		// not reach the upstream.
		delete(r.Header, "Upgrade")
	}
	p.reverse.ServeHTTP(w, r)
}

// maxOwn bounds the headers that only the proxy writes.
const maxOwn = 8

// keep notes the headers that the answer has so far: where the upstream sends an answer
// before its answer (100, 103), [httputil.ReverseProxy] adds its headers to them, and
// then has none left.
func (x *exchange) keep() {
	for i, name := range x.names {
		x.own[i] = x.header[name]
	}
}

// claim makes the answer's header say what the proxy says, and nobody else.
func (x *exchange) claim() {
	for i, name := range x.names {
		if x.own[i] != nil {
			x.header[name] = x.own[i]
		}
	}
	if x.hidden != "" {
		delete(x.header, x.hidden)
	}
}

// settleTimeout bounds the call that tells a cost: the client has its answer already,
// and what is not told in time ends by itself.
const settleTimeout = time.Second

// settle makes what is reserved what it was. A client that is gone changes nothing.
func (p *Proxy) settle(ctx context.Context, x *exchange) {
	if x.hold == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	var err error
	switch {
	case x.lost:
		err = x.hold.Cancel(ctx)
	default:
		p.tally(x)
		err = x.hold.Commit(ctx, x.cost)
	}
	if err != nil {
		p.counts.lostCosts.Add(1)
	}
}

// requestID returns the client's id where it has one that may stand in a log, or else
// a new one.
func requestID(h http.Header) string {
	const maxID = 128
	if ids := h[headerRequestID]; len(ids) == 1 && len(ids[0]) > 0 && len(ids[0]) <= maxID && plain(ids[0]) {
		return ids[0]
	}
	return rand.Text()
}

// printable reports whether a text is what may name a protocol.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func plain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.', c == ':', c == '/', c == '+', c == '=':
		default:
			return false
		}
	}
	return true
}
