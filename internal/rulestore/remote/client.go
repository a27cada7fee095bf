// Package remote is the rules of record of another process, over its admin API: the
// same interfaces as those of a database, with the same errors.
//
// A refusal of a change is a *rulestore.Error as the other side's store made it;
// everything else the API says is an *Error; any other error says that it
// could not be asked. Where the connection was lost after the request was sent, a
// change may have been made. Nothing is sent twice.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// maxAnswer bounds an answer: the results of the largest bulk, and some.
const maxAnswer = 512 << 20

// How long a question may take. A large bulk takes minutes: as long as the API itself
// gives it (docs/admin-api.md), and some.
const (
	answerWithin = 30 * time.Second
	bulkWithin   = 6 * time.Minute
	largeBody    = 64 << 10
)

// Client asks one admin API. It is safe for concurrent use.
type Client struct {
	// URL is where it is, such as https://control:8090. Required.
	URL string
	// Token is shown; "" shows none.
	Token string
	// HTTP sends; nil means http.DefaultClient. It should follow no redirections to
	// other hosts with a token; net/http's does not.
	HTTP *http.Client
}

var (
	_ rulestore.Writer    = (*Client)(nil)
	_ rulestore.Records   = (*Client)(nil)
	_ rulestore.Overrides = (*Client)(nil)
	_ rulestore.Historian = (*Client)(nil)
	_ rulestore.Auditor   = (*Client)(nil)
)

// request is one question.
type request struct {
	method, path string
	query        url.Values
	who, why     string
	ifMatch      int64 // 0 for none
	body         any
}

// do asks and reads the answer into out.
func (c *Client) do(ctx context.Context, q request, out any) error {
	sent, err := c.build(ctx, q)
	if err != nil {
		return err
	}
	within := answerWithin
	if sent.ContentLength > largeBody {
		within = bulkWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	sent = sent.WithContext(ctx)
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	got, err := client.Do(sent)
	if err != nil {
		return fmt.Errorf("admin API at %s: %w", c.where(), cause(err))
	}
	defer func() { _ = got.Body.Close() }() // all that matters was read
	text, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("admin API at %s: %w", c.where(), err)
	case len(text) > maxAnswer:
		return fmt.Errorf("admin API at %s: the answer is above %d bytes", c.where(), maxAnswer)
	case got.StatusCode >= http.StatusMultipleChoices:
		return c.problem(got, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("admin API at %s: the answer is none of this API: %w", c.where(), err)
	}
	return nil
}

// where is the URL as errors may show it: it may hold a password.
func (c *Client) where() string {
	u, err := url.Parse(c.URL)
	if err != nil {
		return "a URL that cannot be read"
	}
	u.User, u.RawQuery = nil, ""
	return u.String()
}

// cause is an error without the URL that it is of, which may hold a key or a password.
func cause(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// build makes a request of a question.
func (c *Client) build(ctx context.Context, q request) (*http.Request, error) {
	target := strings.TrimSuffix(c.URL, "/") + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	var body io.Reader
	if q.body != nil {
		text, err := json.Marshal(q.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	sent, err := http.NewRequestWithContext(ctx, q.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("the URL of the admin API: %w", cause(err))
	}
	if body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		sent.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if q.ifMatch > 0 {
		sent.Header.Set("If-Match", strconv.Quote(strconv.FormatInt(q.ifMatch, 10)))
	}
	if q.who != "" {
		sent.Header.Set("Tallygate-Who", q.who)
	}
	if q.why != "" {
		sent.Header.Set("Tallygate-Why", q.why)
	}
	return sent, nil
}

// Error is a problem that is none of the rules': who asks may not, the pace, a store
// that is away. See docs/admin-api.md for its codes.
type Error struct{ api.Problem }

// Error returns the detail, which is for people.
func (e *Error) Error() string { return e.Detail }

// problem turns what is no answer into an error.
func (c *Client) problem(got *http.Response, text []byte) error {
	var p api.Problem
	if json.Unmarshal(text, &p) != nil || p.Code == "" {
		return fmt.Errorf("admin API at %s: it answers %s, which is none of this API", c.where(), got.Status)
	}
	e := &rulestore.Error{Rule: p.Rule, Key: p.Key, Message: p.Detail}
	if p.Index != nil {
		e.Index = *p.Index
	}
	if p.Current != nil {
		e.Current = *p.Current
	}
	switch p.Code { //nolint:exhaustive // the others are no answers of a store
	case api.NotFound, api.UnknownRule:
		e.Code = rulestore.NotFound
	case api.VersionConflict:
		e.Code = rulestore.Conflict
	case api.InvalidRule:
		e.Code, e.Problems = rulestore.Invalid, api.Problems(p.Rule, p.Errors)
	default:
		if p.Index == nil {
			return &Error{p}
		}
		e.Code = rulestore.Invalid // a change that makes no sense
	}
	e.Message = bare(e)
	return e
}

// bare takes the rule and key off a message, which the error puts before it.
func bare(e *rulestore.Error) string {
	front := rulestore.Error{Rule: e.Rule, Key: e.Key}
	return strings.TrimPrefix(e.Message, front.Error())
}
