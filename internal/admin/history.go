package admin

import (
	"context"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

func (a *API) history(c *call) (answer, error) {
	id, err := c.id()
	if err != nil {
		return answer{}, err
	}
	limit, err := c.limit()
	if err != nil {
		return answer{}, err
	}
	before, err := c.number("before", 0)
	if err != nil {
		return answer{}, err
	}
	ctx := c.r.Context()
	versions, err := a.cfg.Historian.History(ctx, id, before, limit)
	if err != nil {
		return answer{}, ofStore(err, nil)
	}
	page := api.History{Versions: []api.Version{}}
	if len(versions) == limit {
		page.Next = versions[limit-1].Version
	}
	for i := range versions {
		ok, err := a.seesVersion(ctx, c, &versions[i])
		if err != nil {
			return answer{}, ofStore(err, nil)
		}
		if ok {
			page.Versions = append(page.Versions, api.OfVersion(versions[i]))
		}
	}
	if len(page.Versions) == 0 && before == 0 && page.Next == 0 && c.token.Domain != "" {
		return answer{}, unknown(id) // all of it is another domain's
	}
	return answer{body: page}, nil
}

// seesVersion reports whether a caller may see a version. A tombstone has no body:
// it is as visible as what it removed.
func (a *API) seesVersion(ctx context.Context, c *call, v *rulestore.Version) (bool, error) {
	if c.token.Domain == "" {
		return true, nil
	}
	if !v.Deleted {
		return sees(c.token, v.Live, v.Candidate.Body), nil
	}
	removed, err := a.cfg.Historian.Version(ctx, v.ID, v.Version-1)
	if rulestore.CodeOf(err) == rulestore.NotFound {
		return false, nil
	}
	return err == nil && sees(c.token, removed.Live, removed.Candidate.Body), err
}

// version returns a version of a rule that the caller may see.
func (a *API) version(ctx context.Context, c *call, id string, version int64) (rulestore.Version, error) {
	v, err := a.cfg.Historian.Version(ctx, id, version)
	ok := false
	if err == nil {
		ok, err = a.seesVersion(ctx, c, &v)
	}
	if rulestore.CodeOf(err) == rulestore.NotFound || err == nil && !ok {
		return v, refuse(api.NotFound, "rule "+id+" has no such version")
	}
	if err != nil {
		return v, ofStore(err, nil)
	}
	return v, nil
}

func (a *API) diff(c *call) (answer, error) {
	id, err := c.id()
	if err != nil {
		return answer{}, err
	}
	from, err := c.number("from", 0)
	if err != nil {
		return answer{}, err
	}
	to, err := c.number("to", 0)
	if err != nil {
		return answer{}, err
	}
	if from < 1 {
		return answer{}, refuse(api.BadRequest, "parameter from is a version, 1 or more")
	}
	ctx := c.r.Context()
	if to == 0 {
		newest, err := a.cfg.Historian.History(ctx, id, 0, 1)
		if err != nil {
			return answer{}, ofStore(err, nil)
		}
		to = newest[0].Version
	}
	first, err := a.version(ctx, c, id, from)
	if err != nil {
		return answer{}, err
	}
	second, err := a.version(ctx, c, id, to)
	if err != nil {
		return answer{}, err
	}
	before, err := first.State()
	if err != nil {
		return answer{}, err
	}
	after, err := second.State()
	if err != nil {
		return answer{}, err
	}
	return answer{body: api.Diff{Rule: id, From: from, To: to, Fields: differ(before, after)}}, nil
}
