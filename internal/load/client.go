package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of a Target.
const (
	MaxKeys    = 1_000_000
	MaxServers = 1000
	maxAnswer  = 1 << 20
)

// Target is what a Client asks, and whom.
type Target struct {
	// Servers are base URLs, asked in turn.
	Servers []string
	// Domain and Rule name the rule asked for; Domain "" is the default one.
	Domain, Rule string
	// Key is the key asked for; with Keys above 1 a number follows it.
	Key  string
	Keys int
	// Cost is what each check costs.
	Cost int64
	// Timeout bounds one check.
	Timeout time.Duration
}

func (t *Target) validate() error {
	switch {
	case len(t.Servers) == 0 || len(t.Servers) > MaxServers:
		return fmt.Errorf("%w: %d servers are not 1 to %d", ErrPlan, len(t.Servers), MaxServers)
	case t.Rule == "" || t.Key == "":
		return fmt.Errorf("%w: a rule and a key are required", ErrPlan)
	case t.Keys < 1 || t.Keys > MaxKeys:
		return fmt.Errorf("%w: %d keys are not 1 to %d", ErrPlan, t.Keys, MaxKeys)
	case t.Cost < 1:
		return fmt.Errorf("%w: a cost of %d is not 1 or more", ErrPlan, t.Cost)
	case t.Timeout <= 0:
		return fmt.Errorf("%w: a timeout of %s is not above 0", ErrPlan, t.Timeout)
	}
	return nil
}

// Client sends checks over HTTP. It is safe for concurrent use.
type Client struct {
	target   Target
	urls     []string
	http     *http.Client
	admitted []atomic.Int64 // checks that passed, by key

	once  sync.Once
	cause error // of the first failure
}

// NewClient returns a client that keeps at most so many connections to each
// server.
func NewClient(target Target, connections int) (*Client, error) {
	if err := target.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		target: target,
		http: &http.Client{Timeout: target.Timeout, Transport: &http.Transport{
			MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections, DisableCompression: true,
		}},
		admitted: make([]atomic.Int64, target.Keys),
	}
	for _, server := range target.Servers {
		c.urls = append(c.urls, strings.TrimRight(server, "/")+"/v1/ratelimit:check")
	}
	return c, nil
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Check makes check n: servers in turn, and keys in turn over all of them, so
// that each key goes to each server.
func (c *Client) Check(ctx context.Context, n int64) Outcome {
	servers := int64(len(c.urls))
	key := n / servers % int64(c.target.Keys)
	outcome, err := c.ask(ctx, c.urls[n%servers], key)
	if err != nil {
		c.once.Do(func() { c.cause = err })
	}
	if outcome == Allowed || outcome == Degraded {
		c.admitted[key].Add(1)
	}
	return outcome
}

// Cause is why the first check failed that did. It is for after the run.
func (c *Client) Cause() error { return c.cause }

// Admitted returns the tokens that all keys were admitted, and the most that one
// was.
func (c *Client) Admitted() (all, most int64) {
	for i := range c.admitted {
		n := c.admitted[i].Load() * c.target.Cost
		all += n
		most = max(most, n)
	}
	return all, most
}

type question struct {
	Domain  string     `json:"domain,omitempty"`
	Entries [1]asEntry `json:"entries"`
}

type asEntry struct {
	Rule string `json:"rule"`
	Key  string `json:"key"`
	Cost int64  `json:"cost"`
}

func (c *Client) ask(ctx context.Context, url string, key int64) (Outcome, error) {
	name := c.target.Key
	if c.target.Keys > 1 {
		name += strconv.FormatInt(key, 10)
	}
	body, err := json.Marshal(question{c.target.Domain, [1]asEntry{{c.target.Rule, name, c.target.Cost}}})
	if err != nil {
		return Failed, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Failed, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return Failed, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return Failed, err
	}
	return outcomeOf(response.StatusCode, text)
}

// outcomeOf reads an answer.
func outcomeOf(status int, text []byte) (Outcome, error) {
	var answer struct {
		Verdict  string `json:"verdict"`
		Degraded string `json:"degraded"`
	}
	err := json.Unmarshal(text, &answer)
	switch {
	case status != http.StatusOK || err != nil:
		return Failed, fmt.Errorf("status %d: %s", status, bytes.TrimSpace(text[:min(len(text), 300)]))
	case answer.Verdict == "deny":
		return Denied, nil
	case answer.Verdict != "allow":
		return Failed, fmt.Errorf("verdict %q", answer.Verdict)
	case answer.Degraded != "":
		return Degraded, nil
	default:
		return Allowed, nil
	}
}
