package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// Promote makes a candidate the live rule if it has proven itself, or with force in
// any case. ifMatch is the version that the caller has seen. [Client.Apply] does not
// ask for proof.
func (c *Client) Promote(ctx context.Context, by rulestore.Author, rule string, ifMatch int64, force bool) (rulestore.Rule, error) {
	q := request{method: http.MethodPost, path: "/v1/rules/" + url.PathEscape(rule) + ":promote", who: by.Who, why: by.Why, ifMatch: ifMatch, body: api.Force{Force: force}}
	var out api.Rule
	err := c.do(ctx, q, &out)
	return out.Record(), of(err, rule, nil)
}

// Pods returns the fleet.
func (c *Client) Pods(ctx context.Context) (api.Pods, error) {
	var out api.Pods
	err := c.do(ctx, request{method: http.MethodGet, path: "/v1/pods"}, &out)
	return out, err
}

// Trial returns how a rule's candidate does.
func (c *Client) Trial(ctx context.Context, rule string) (api.TrialStatus, error) {
	var out api.TrialStatus
	err := c.do(ctx, request{method: http.MethodGet, path: "/v1/rules/" + url.PathEscape(rule) + "/trial"}, &out)
	return out, of(err, rule, nil)
}

// Usage returns what is left for a key; "" is the default domain, or the token's.
func (c *Client) Usage(ctx context.Context, domain string, key []string) (api.Usage, error) {
	var out api.Usage
	err := c.do(ctx, request{method: http.MethodGet, path: "/v1/keys/" + keyPath(key) + "/usage", query: where(domain, "")}, &out)
	return out, err
}

// ResetKey makes a key full again: of one rule, or of all of the domain that can
// count it where rule is "".
func (c *Client) ResetKey(ctx context.Context, by rulestore.Author, domain, rule string, key []string) (api.Reset, error) {
	var out api.Reset
	q := request{method: http.MethodPost, path: "/v1/keys/" + keyPath(key) + ":reset", query: where(domain, rule), who: by.Who, why: by.Why}
	err := c.do(ctx, q, &out)
	return out, err
}

// Explain returns what a check would be answered, and why.
func (c *Client) Explain(ctx context.Context, check api.Check) (api.Explanation, error) {
	var out api.Explanation
	err := c.do(ctx, request{method: http.MethodPost, path: "/v1/explain", body: check}, &out)
	return out, err
}

// keyPath is a key as a part of a path. A list stands for several values, and for
// one that looks like a list.
func keyPath(key []string) string {
	if len(key) == 1 && !strings.HasPrefix(key[0], "[") {
		return url.PathEscape(key[0])
	}
	text, err := json.Marshal(key)
	if err != nil {
		return "" // strings always marshal
	}
	return url.PathEscape(string(text))
}

func where(domain, rule string) url.Values {
	out := url.Values{}
	if domain != "" {
		out.Set("domain", domain)
	}
	if rule != "" {
		out.Set("rule", rule)
	}
	return out
}
