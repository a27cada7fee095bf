package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"slices"
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
	r.Out.Trailer = nil // see [Config.Upstream]
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
