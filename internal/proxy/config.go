package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/httplimit"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/rules"
)

// Rules are what back-pressure looks at: the rules in force.
type Rules interface {
	Snapshot() *rules.Snapshot
}

// Reserver decides requests whose cost only the upstream's answer tells.
type Reserver interface {
	// Reserve decides check at its estimated cost, into v. The hold is nil where nothing
	// is set aside; else it is committed or canceled once.
	Reserve(ctx context.Context, check tallygate.Check, v *tallygate.Verdict) (Hold, error)
}

// Hold is what is reserved for one request. It ends by itself if it is forgotten.
type Hold interface {
	// Commit makes the cost what it was: 0 to 10^9, also above the estimate.
	Commit(ctx context.Context, cost int64) error
	// Cancel gives all of it back.
	Cancel(ctx context.Context) error
}

// Config says what a [Proxy] stands in front of and how.
type Config struct {
	// Upstream is where requests go: http://host:port, https://… or h2c://… for HTTP/2
	// in clear. A path is put before that of the request. Required. Trailers of requests
	// do not reach it, nor by h2c an Upgrade.
	Upstream *url.URL
	// Limit is the limit in front; its Limiter is required. Identity, OnError and
	// Limiter are wrapped or replaced by what follows.
	Limit httplimit.Config
	// Identity says who asks, and which peers are proxies whose X-Forwarded headers are
	// passed on. Nil believes the socket.
	Identity *identity.Resolver
	// Domain returns the domain of the rules for a request that comes now, where that may
	// change. Nil means Limit.Domain.
	Domain func() string
	// Rules turns back-pressure on, for rules that have a shed_floor. Nil is off.
	Rules Rules
	// LatencyTarget is what the 95th percentile of the upstream's latency, to its
	// headers, may be before back-pressure begins. 0 means that only 503 and 429 do.
	LatencyTarget time.Duration
	// CostHeader is the header of an answer that tells the request's cost in tokens, or
	// where its head has none the trailer. It needs Reserver, and is not passed on. "" is
	// none.
	CostHeader string
	// Reserver holds the estimate (Limit.Cost) until the answer is there: [Reservations].
	Reserver Reserver
	// PreserveHost sends the client's Host on, not the upstream's.
	PreserveHost bool
	// AnswerTimeout bounds the wait for the head of an answer; beyond it the client
	// gets 504. 0 means 30 s. The body may take as long as it likes.
	AnswerTimeout time.Duration
	// StallTimeout is how long a client may take nothing of its answer or, in HTTP/1.1,
	// send nothing of its body. 0 means 60 s.
	StallTimeout time.Duration
	// MaxInflight bounds the requests under way, streams among them; more get 503 at
	// once. 0 means 16,384.
	MaxInflight int
	// TLS has the proxy speak TLS to clients, UpstreamTLS says whom it believes behind;
	// nil means plain HTTP, and the system's roots.
	TLS, UpstreamTLS *tls.Config
	// Drain is how long requests are taken on after the end is known, Finish how long
	// those under way may take after that. 0 means not at all, and 10 s.
	Drain, Finish time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log gets the HTTP server's own errors and the upstream's, and those of Limit where
	// that has no Log of its own. Nil means none.
	Log *slog.Logger
}

// The defaults, and the bounds against clients that are slow on purpose.
const (
	defaultAnswer   = 30 * time.Second
	defaultStall    = time.Minute
	defaultInflight = 16 << 10
	defaultFinish   = 10 * time.Second

	readHeaderTimeout = 5 * time.Second
	idleTimeout       = time.Minute
	maxHeaderBytes    = 32 << 10
	// maxStreams bounds what one connection of HTTP/2 may have under way.
	maxStreams = 250
)

// validate says what is wrong, and sets what is not given.
func (c *Config) validate() error {
	switch {
	case c.Upstream == nil:
		return errors.New("proxy: Upstream is required, such as http://127.0.0.1:3000")
	case c.Limit.Limiter == nil:
		return errors.New("proxy: Limit.Limiter is required")
	case (c.CostHeader == "") != (c.Reserver == nil):
		return errors.New("proxy: CostHeader and Reserver need each other; set both or neither")
	case c.LatencyTarget < 0 || c.AnswerTimeout < 0 || c.StallTimeout < 0 || c.Drain < 0 || c.Finish < 0 || c.MaxInflight < 0:
		return errors.New("proxy: a time or MaxInflight is below 0; 0 means the default")
	}
	if err := CheckUpstream(c.Upstream); err != nil {
		return fmt.Errorf("proxy: Upstream: %w", err)
	}
	if err := CheckCostHeader(c.CostHeader); err != nil {
		return fmt.Errorf("proxy: CostHeader: %w", err)
	}
	c.CostHeader = http.CanonicalHeaderKey(c.CostHeader)
	c.AnswerTimeout = orDefault(c.AnswerTimeout, defaultAnswer)
	c.StallTimeout = orDefault(c.StallTimeout, defaultStall)
	c.Finish = orDefault(c.Finish, defaultFinish)
	c.MaxInflight = orDefault(c.MaxInflight, defaultInflight)
	if c.Identity == nil {
		c.Identity = &identity.Resolver{}
	}
	c.Limit.Identity = c.Identity
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Limit.Log == nil {
		c.Limit.Log = c.Log
	}
	return nil
}

// CheckUpstream says what keeps a URL from being an upstream; its sentence names neither
// password nor field.
func CheckUpstream(u *url.URL) error {
	shown := u.Redacted()
	switch {
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return fmt.Errorf("%.200q has a scheme %.40q that is none of http, https and h2c; write http://HOST:PORT", shown, u.Scheme)
	case u.Hostname() == "":
		return fmt.Errorf("%.200q names no host; write %s://HOST:PORT", shown, u.Scheme)
	case !isPort(u.Port()):
		return fmt.Errorf("%.200q has a port %.20q that is not within 1 and 65535", shown, u.Port())
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fmt.Errorf("%.200q has a user, query or fragment, which no request would carry; remove it", shown)
	}
	return nil
}

// isPort reports whether a URL's port is one, or none.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

// CheckCostHeader says what keeps a header from telling costs; "" is none, which is
// right. It refuses what is no header's name, and headers that are ours or belong to the
// message: the one that tells costs is dropped from the answer.
func CheckCostHeader(name string) error {
	const most = 128
	if len(name) > most {
		return fmt.Errorf("%.40q… has %d bytes; a header's name has at most %d here", name, len(name), most)
	}
	for _, c := range name {
		if letter := c | 0x20; (letter < 'a' || letter > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.!#$%&'*+^`|~", c) {
			return fmt.Errorf("%q is no header's name: %q stands in none; write it as the upstream does, such as X-Tokens", name, c)
		}
	}
	key := http.CanonicalHeaderKey(name)
	if slices.Contains(headers.CanonicalNames(), key) || key == headerRequestID || strings.HasPrefix(key, "Content-") ||
		slices.Contains([]string{"Connection", "Date", "Location", "Set-Cookie", "Trailer", "Transfer-Encoding", "Upgrade"}, key) {
		return fmt.Errorf("%q says something else, and clients need it; take one of the upstream's own, such as X-Tokens", name)
	}
	return nil
}

func orDefault[T ~int | ~int64](v, usual T) T {
	if v == 0 {
		return usual
	}
	return v
}
