package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/identity"
)

// The bounds of connections to the upstream.
const (
	dialTimeout    = 2 * time.Second
	keepAlive      = 30 * time.Second
	idleUpstream   = 90 * time.Second
	maxIdle        = 512
	maxAnswerHead  = 256 << 10
	expectTimeout  = time.Second
	handshakeLimit = 5 * time.Second
)

func (c *Config) transport() *http.Transport {
	var protocols http.Protocols
	if c.Upstream.Scheme == "h2c" {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	}
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
		Protocols:              &protocols,
		TLSClientConfig:        c.UpstreamTLS,
		TLSHandshakeTimeout:    handshakeLimit,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleUpstream,
		ResponseHeaderTimeout:  c.AnswerTimeout,
		ExpectContinueTimeout:  expectTimeout,
		MaxResponseHeaderBytes: maxAnswerHead,
		DisableCompression:     true, // what is compressed is between client and upstream
	}
}

// The headers that only proxies write.
const (
	prefixForwarded = "X-Forwarded-"
	prefixOriginal  = "X-Original-"
	headerFor       = "X-Forwarded-For"
	headerProto     = "X-Forwarded-Proto"
	headerHost      = "X-Forwarded-Host"
	headerForwarded = "Forwarded"
	headerRealIP    = "X-Real-Ip"
)

// rewrite makes the upstream's request of the client's. ReverseProxy has taken the
// hop-by-hop headers out already, with those that the client named in Connection.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	target := *p.config.Upstream
	if target.Scheme == "h2c" {
		target.Scheme = "http"
	}
	r.SetURL(&target)
	if p.config.PreserveHost {
		r.Out.Host = r.In.Host
	}
	facts := identity.Facts{Peer: r.In.RemoteAddr, Header: r.In.Header}
	trusted := p.config.Identity.Trusts(&facts)
	out := r.Out.Header
	for name := range out {
		if ofProxies(name) && (!trusted || strings.Contains(name, "_")) {
			delete(out, name)
		}
	}
	delete(out, headerFor)
	// Also where the client named it in Connection.
	out[headerRequestID] = r.In.Header[headerRequestID]
	proto, host := r.In.Header[headerProto], r.In.Header[headerHost]
	rfc7239 := p.config.Identity.Forwarding() == headerForwarded
	if trusted && !rfc7239 {
		// The proxies in front of this one append here too. Where they write the other
		// header, this one is their client's text.
		out[headerFor] = r.In.Header[headerFor]
	}
	r.SetXForwarded()
	if trusted && !rfc7239 && len(proto) == 1 {
		out[headerProto] = proto
	}
	if trusted && !rfc7239 && len(host) == 1 {
		out[headerHost] = host
	}
	if trusted && rfc7239 {
		out[headerForwarded] = append(slices.Clone(r.In.Header[headerForwarded]), element(r.In.RemoteAddr))
	}
}

// ofProxies reports whether a header is one that only proxies write. An underscore is
// read as a hyphen, as upstreams do that hand headers on in variables (CGI, WSGI, PHP).
func ofProxies(name string) bool {
	if strings.Contains(name, "_") {
		name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
	}
	return strings.HasPrefix(name, prefixForwarded) || strings.HasPrefix(name, prefixOriginal) || name == headerRealIP
}

// element is a peer as a hop of RFC 7239.
func element(peer string) string {
	host, _, err := net.SplitHostPort(peer)
	switch {
	case err != nil:
		return "for=unknown"
	case strings.Contains(host, ":"):
		return `for="[` + host + `]"`
	}
	return "for=" + host
}

// answered sees the head of an answer before the client does.
func (p *Proxy) answered(resp *http.Response) error {
	x := exchangeOf(resp.Request.Context())
	if p.guard != nil {
		now := p.elapsed()
		refused := resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests
		p.guard.answered(now, refused, now-x.began)
	}
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
	return nil
}

// readCost takes the cost that the answer tells. What is none leaves the estimate.
func (x *exchange) readCost(lines []string) {
	const maxCost = 1_000_000_000
	if len(lines) != 1 {
		return
	}
	cost, err := strconv.ParseInt(lines[0], 10, 64)
	if err != nil || cost < 0 || cost > maxCost {
		return
	}
	x.cost, x.told = cost, true
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
		writeProblem(w, http.StatusRequestTimeout, "request_timeout", "The body did not arrive in time", "")
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		// The client is gone, or the proxy is stopping: it is nobody's failure.
		writeProblem(w, http.StatusBadGateway, "canceled", "Canceled", "the request ended before its answer")
	case errors.As(err, &slow) && slow.Timeout() || errors.Is(err, context.DeadlineExceeded):
		p.counts.timeouts.Add(1)
		if p.guard != nil {
			now := p.elapsed()
			p.guard.answered(now, false, now-x.began)
		}
		p.config.Log.Warn("the upstream did not answer in time", "error", err)
		writeProblem(w, http.StatusGatewayTimeout, "upstream_timeout", "The upstream did not answer in time", "")
	default:
		p.counts.unreachable.Add(1)
		p.config.Log.Warn("the upstream did not answer", "error", err)
		writeProblem(w, http.StatusBadGateway, "upstream_unavailable", "The upstream did not answer", "")
	}
}

// buffers are the pool that bodies are copied with.
type buffers struct{ pool sync.Pool }

const bufferBytes = 32 << 10

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[bufferBytes]byte); ok {
		return buf[:]
	}
	return make([]byte, bufferBytes)
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(buf []byte) {
	if len(buf) == bufferBytes {
		b.pool.Put((*[bufferBytes]byte)(buf))
	}
}
