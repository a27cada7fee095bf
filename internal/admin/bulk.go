package admin

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// applyBulk is the store's Apply over HTTP, one to one.
func (a *API) applyBulk(c *call) (answer, error) {
	var bulk api.Apply
	if err := decode(c.body, &bulk); err != nil {
		return answer{}, err
	}
	if n := len(bulk.Changes); n == 0 || n > rulestore.MaxChanges {
		return answer{}, refuseAt(api.BadRequest, "#/changes", fmt.Sprintf("a bulk has 1 to %d changes, not %d", rulestore.MaxChanges, n))
	}
	changes := make([]rulestore.Change, len(bulk.Changes))
	for i := range bulk.Changes {
		if err := checkChange(&bulk.Changes[i]); err != nil {
			err.Index = &i
			err.Pointer = api.Pointer("/changes/" + strconv.Itoa(i) + err.Pointer)
			return answer{}, err
		}
		changes[i] = bulk.Changes[i].Record()
	}
	applied, err := a.change(c, bulk.DryRun, func(i int) string { return "/changes/" + strconv.Itoa(i) + "/body" }, changes...)
	if err != nil {
		return answer{}, err
	}
	return answer{body: api.OfApplied(applied)}, nil
}

// checkChange refuses what is wrong with a change before any database is asked.
func checkChange(c *api.Change) *refusal {
	switch {
	case !slices.Contains(rulestore.Actions(), c.Action):
		return refuseAt(api.BadRequest, "/action", fmt.Sprintf("there is no action %q", clip(string(c.Action))))
	case c.Rule != "" && !isID(c.Rule):
		return refuseAt(api.InvalidRule, "/rule", fmt.Sprintf("%q is no id of a rule", clip(c.Rule)))
	case c.IfMatch == nil && c.Action != rulestore.ActionReset:
		return refuseAt(api.PreconditionRequired, "/if_match", "say which version you have seen, 0 for none")
	case c.IfMatch != nil && *c.IfMatch < 0:
		return refuseAt(api.BadRequest, "/if_match", "if_match is a version from 0")
	}
	return nil
}
