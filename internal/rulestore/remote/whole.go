package remote

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// wholeTries is how often Whole begins anew where rules change while it reads.
const wholeTries = 5

// errMoving is the answer where they never hold still.
var errMoving = errors.New("the rules change faster than they can be read; try again")

// Whole returns everything at one revision, page by page: for plans and diffs. A
// token bound to a domain gets what is in it.
func (c *Client) Whole(ctx context.Context) (rulestore.Set, error) {
	for range wholeTries {
		set, ok, err := c.whole(ctx)
		if err != nil || ok {
			return set, err
		}
	}
	return rulestore.Set{}, errMoving
}

// whole reads all pages, and reports whether they are of one revision.
func (c *Client) whole(ctx context.Context) (set rulestore.Set, ok bool, err error) {
	for after, first := "", true; first || after != ""; first = false {
		var page api.RulePage
		if err := c.page(ctx, "/v1/rules", after, &page); err != nil {
			return set, false, err
		}
		if first {
			set.Revision = page.Revision
		}
		if page.Revision != set.Revision {
			return set, false, nil
		}
		for i := range page.Rules {
			set.Rules = append(set.Rules, page.Rules[i].Record())
		}
		after = page.Next
	}
	for after, first := "", true; first || after != ""; first = false {
		var page api.OverridePage
		if err := c.page(ctx, "/v1/overrides", after, &page); err != nil {
			return set, false, err
		}
		if page.Revision != set.Revision {
			return set, false, nil
		}
		set.Overrides = records(set.Overrides, page.Overrides)
		after = page.Next
	}
	set.Sort()
	set.Hash = rulestore.Digest(set.Rules, set.Overrides)
	return set, true, nil
}

func (c *Client) page(ctx context.Context, path, after string, out any) error {
	query := url.Values{"limit": {strconv.Itoa(rulestore.MaxPage)}}
	if after != "" {
		query.Set("after", after)
	}
	return c.do(ctx, request{method: http.MethodGet, path: path, query: query}, out)
}
