// Package uplink is how a pod calls the control plane: one base URL, a token, TLS,
// bounded answers, and errors that name the server but never the token. A Client
// starts no goroutine of its own and is safe for concurrent use.
package uplink

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
)

// Config says where the control plane is.
type Config struct {
	// URL is its base, such as https://control.example:8090; http and https, without
	// user, query and fragment. Required.
	URL string
	// Token is sent as a bearer token; "" sends none.
	Token string
	// TLS is how to trust it and what to show it; nil means the system's authorities.
	TLS *tls.Config
}

// Client calls one control plane.
type Client struct {
	base      *url.URL
	token     string
	http      http.Client
	transport *http.Transport
}

const (
	// maxRedirects bounds redirects within the same server.
	maxRedirects = 3
	// maxToken is far above any token; longer is a file given by mistake.
	maxToken = 4 << 10
	// maxProblem bounds what is read of an answer that says no.
	maxProblem = 16 << 10
	// maxDetail bounds what an error shows of it.
	maxDetail = 300
)

// New returns a client. It connects at its first call.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errors.New("the URL of the control plane cannot be read; write it as https://host:port")
	}
	switch {
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, fmt.Errorf("the URL of the control plane is %q; write it as https://host:port", base.Redacted())
	case base.User != nil:
		return nil, errors.New("the URL of the control plane has a user or password in it; give a token instead")
	case base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("the URL of the control plane has a query or fragment; leave it out")
	case len(cfg.Token) > maxToken || strings.ContainsFunc(cfg.Token, notInToken):
		return nil, errors.New("the token of the control plane is not one line of at most 4096 visible characters")
	}
	transport := &http.Transport{}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		transport = standard.Clone()
	}
	transport.MaxResponseHeaderBytes = 64 << 10
	transport.TLSHandshakeTimeout = 5 * time.Second
	if cfg.TLS != nil {
		transport.TLSClientConfig = cfg.TLS.Clone()
	}
	c := &Client{base: base, token: cfg.Token, transport: transport}
	c.http = http.Client{Transport: transport, CheckRedirect: c.redirect}
	return c, nil
}

func notInToken(r rune) bool { return r <= ' ' || r > '~' }

// redirect follows none to another server: it would get the token.
func (c *Client) redirect(to *http.Request, via []*http.Request) error {
	if to.URL.Scheme != c.base.Scheme || to.URL.Host != c.base.Host {
		return errors.New("the control plane sends us to another server, which is not followed; give the right URL")
	}
	if len(via) > maxRedirects {
		return errors.New("the control plane redirects too often")
	}
	return nil
}

// URL returns the base, which has no secret in it.
func (c *Client) URL() string { return c.base.String() }

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Request is one call.
type Request struct {
	Method string
	// Path are the elements below the base, not escaped yet.
	Path  []string
	Query url.Values
	// Body is JSON; nil sends none.
	Body []byte
	// MaxAnswer bounds the answer's body, in bytes. Required.
	MaxAnswer int64
}

// StatusError is an answer that is none of 2xx.
type StatusError struct {
	Status int
	// Detail is what the server says about it, cut short; "" for nothing readable.
	Detail string
}

// Error returns both.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("the control plane answers %d %s", e.Status, http.StatusText(e.Status))
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// streamed is an answer that reads itself, piece by piece.
type streamed interface {
	Decode(from *json.Decoder) error
}

// Do calls and reads the answer, JSON, into answer, unless that is nil or the
// answer is 204. One with a method Decode(*json.Decoder) error reads itself, so that
// its JSON is nowhere as a whole. ctx bounds all of it.
func (c *Client) Do(ctx context.Context, r Request, answer any) error {
	escaped := make([]string, len(r.Path))
	for i, part := range r.Path {
		escaped[i] = url.PathEscape(part)
	}
	to := c.base.JoinPath(escaped...)
	to.RawQuery = r.Query.Encode()
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, to.String(), body)
	if err != nil {
		return c.hide(err)
	}
	req.Header.Set("Accept", "application/json")
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.hide(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		return c.refusal(resp)
	}
	if answer == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	return c.read(resp, r.MaxAnswer, answer)
}

// read reads an answer that says yes.
func (c *Client) read(resp *http.Response, most int64, answer any) error {
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return errors.New("the control plane's answer is not JSON; is its URL right?")
	}
	limited := &io.LimitedReader{R: resp.Body, N: most + 1}
	decoder := json.NewDecoder(limited)
	var err error
	if s, ok := answer.(streamed); ok {
		err = s.Decode(decoder)
	} else {
		err = decoder.Decode(answer)
	}
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more after it, or it was cut off")
		}
	}
	switch {
	case limited.N <= 0:
		return fmt.Errorf("the control plane's answer is above %d bytes", most)
	case err != nil:
		return fmt.Errorf("the control plane's answer cannot be read: %w", c.hide(err))
	default:
		return nil
	}
}

// refusal is the error of an answer that says no.
func (c *Client) refusal(resp *http.Response) error {
	refused := &StatusError{Status: resp.StatusCode}
	var problem struct {
		Detail string `json:"detail"`
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err == nil && json.Unmarshal(text, &problem) == nil {
		refused.Detail = c.clean(problem.Detail)
	}
	return refused
}

// hide wraps an error of the transport, whose text has no token unless the server
// sent it back to us. Whether it was the context is still to be asked.
func (c *Client) hide(err error) error {
	if c.token != "" && strings.Contains(err.Error(), c.token) {
		return errors.New(c.clean(err.Error()))
	}
	return err
}

// clean is a text of the server, for an error.
func (c *Client) clean(text string) string {
	if c.token != "" {
		text = strings.ReplaceAll(text, c.token, "…")
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "") + "…"
	}
	return text
}
