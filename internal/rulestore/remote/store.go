package remote

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// Apply implements rulestore.Writer. With a token, who makes the change is the
// token's; without one it is by's, and where it comes from.
func (c *Client) Apply(ctx context.Context, by rulestore.Author, changes ...rulestore.Change) (rulestore.Applied, error) {
	return c.apply(ctx, by, changes, false)
}

// DryRun implements rulestore.Writer.
func (c *Client) DryRun(ctx context.Context, by rulestore.Author, changes ...rulestore.Change) (rulestore.Applied, error) {
	return c.apply(ctx, by, changes, true)
}

func (c *Client) apply(ctx context.Context, by rulestore.Author, changes []rulestore.Change, dry bool) (rulestore.Applied, error) {
	if err := by.Check(); err != nil {
		return rulestore.Applied{}, err
	}
	body := api.Apply{DryRun: dry, Changes: make([]api.Change, len(changes))}
	for i, change := range changes {
		body.Changes[i] = api.OfChange(change)
	}
	var out api.Applied
	err := c.do(ctx, request{method: http.MethodPost, path: "/v1/rules:apply", who: by.Who, why: by.Why, body: body}, &out)
	if err != nil {
		return rulestore.Applied{}, err
	}
	return out.Record(), nil
}

// Rule implements rulestore.Records.
func (c *Client) Rule(ctx context.Context, id string) (rulestore.Rule, error) {
	var out api.Rule
	err := c.do(ctx, request{method: http.MethodGet, path: "/v1/rules/" + url.PathEscape(id)}, &out)
	return out.Record(), of(err, id, nil)
}

// Override implements rulestore.Records.
func (c *Client) Override(ctx context.Context, rule string, key []string) (rulestore.Override, error) {
	var out api.OverridePage
	err := c.do(ctx, request{method: http.MethodGet, path: "/v1/overrides", query: url.Values{"rule": {rule}, "key": key}}, &out)
	switch {
	case err != nil:
		return rulestore.Override{}, of(err, rule, key)
	case len(out.Overrides) == 0:
		return rulestore.Override{}, &rulestore.Error{Code: rulestore.NotFound, Rule: rule, Key: key, Message: "there is no override"}
	}
	return out.Overrides[0].Record(), nil
}

// of names what an error of a question is of.
func of(err error, rule string, key []string) error {
	if e, ok := errors.AsType[*rulestore.Error](err); ok && e.Rule == "" {
		e.Rule, e.Key = rule, key
	}
	return err
}

// Overrides implements rulestore.Overrides.
func (c *Client) Overrides(ctx context.Context, page rulestore.OverridePage) ([]rulestore.Override, error) {
	limit, err := rulestore.PageLimit(page.Limit)
	if err != nil {
		return nil, err
	}
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if page.Rule != "" {
		query.Set("rule", page.Rule)
	}
	if page.After != (rulestore.OverrideName{}) {
		query.Set("after", api.Place(page.After))
	}
	var out api.OverridePage
	if err := c.do(ctx, request{method: http.MethodGet, path: "/v1/overrides", query: query}, &out); err != nil {
		return nil, err
	}
	return records(nil, out.Overrides), nil
}

func records(to []rulestore.Override, list []api.Override) []rulestore.Override {
	for i := range list {
		to = append(to, list[i].Record())
	}
	return to
}

// History implements rulestore.Historian.
func (c *Client) History(ctx context.Context, rule string, before int64, limit int) ([]rulestore.Version, error) {
	limit, err := rulestore.PageLimit(limit)
	if err != nil {
		return nil, err
	}
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if before != 0 {
		query.Set("before", strconv.FormatInt(before, 10))
	}
	var page api.History
	if err := c.do(ctx, request{method: http.MethodGet, path: "/v1/rules/" + url.PathEscape(rule) + "/history", query: query}, &page); err != nil {
		return nil, of(err, rule, nil)
	}
	var out []rulestore.Version
	for i := range page.Versions {
		out = append(out, page.Versions[i].Record())
	}
	return out, nil
}

// Version implements rulestore.Historian.
func (c *Client) Version(ctx context.Context, rule string, version int64) (rulestore.Version, error) {
	list, err := c.History(ctx, rule, version+1, 1)
	if err != nil {
		return rulestore.Version{}, err
	}
	if len(list) == 0 || list[0].Version != version {
		return rulestore.Version{}, &rulestore.Error{Code: rulestore.NotFound, Rule: rule, Message: "has no such version"}
	}
	return list[0], nil
}

// Diff returns what differs between two versions of a rule; to 0 is the newest.
func (c *Client) Diff(ctx context.Context, rule string, from, to int64) (api.Diff, error) {
	query := url.Values{"from": {strconv.FormatInt(from, 10)}}
	if to != 0 {
		query.Set("to", strconv.FormatInt(to, 10))
	}
	var out api.Diff
	err := c.do(ctx, request{method: http.MethodGet, path: "/v1/rules/" + url.PathEscape(rule) + "/diff", query: query}, &out)
	return out, of(err, rule, nil)
}

// Audit implements rulestore.Auditor.
func (c *Client) Audit(ctx context.Context, f rulestore.AuditFilter) ([]rulestore.Entry, error) {
	limit, err := rulestore.PageLimit(f.Limit)
	if err != nil {
		return nil, err
	}
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	for name, text := range map[string]string{"rule": f.Rule, "who": f.Who, "action": string(f.Action), "from": stamp(f.From), "to": stamp(f.To)} {
		if text != "" {
			query.Set(name, text)
		}
	}
	if f.Key != nil {
		query["key"] = f.Key
	}
	if f.Before != 0 {
		query.Set("before", strconv.FormatInt(f.Before, 10))
	}
	var page api.Audit
	if err := c.do(ctx, request{method: http.MethodGet, path: "/v1/audit", query: query}, &page); err != nil {
		return nil, err
	}
	var out []rulestore.Entry
	for i := range page.Entries {
		out = append(out, page.Entries[i].Record())
	}
	return out, nil
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
