package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

func (a *API) listOverrides(c *call) (answer, error) {
	limit, err := c.limit()
	if err != nil {
		return answer{}, err
	}
	key, err := c.key()
	if err != nil {
		return answer{}, err
	}
	after, ok := api.Placed(c.query.Get("after"))
	if !ok {
		return answer{}, refuse(api.BadRequest, "parameter after is the next of the page before")
	}
	v, err := a.mirror.view(c.r.Context())
	if err != nil {
		return answer{}, ofStore(err, nil)
	}
	rule := c.query.Get("rule")
	page := api.OverridePage{Overrides: []api.Override{}, Revision: v.Revision}
	ids := map[string]string{} // the key's form in each rule
	for i := start(v.Overrides, after, rule); i < len(v.Overrides); i++ {
		o := &v.Overrides[i]
		if rule != "" && o.Rule != rule {
			break // they stand together
		}
		of := v.facts[o.Rule]
		if c.token.Domain != "" && (of.domain != c.token.Domain || of.foreign) {
			continue
		}
		if key != nil {
			id, ok := ids[o.Rule]
			if !ok {
				id = rulestore.KeyID(of.identity, key)
				ids[o.Rule] = id
			}
			if o.ID != id {
				continue
			}
		}
		if len(page.Overrides) == limit {
			last := page.Overrides[limit-1]
			page.Next = api.Place(rulestore.OverrideName{Rule: last.Rule, ID: last.ID})
			break
		}
		page.Overrides = append(page.Overrides, api.OfOverride(*o))
	}
	return answer{body: page}, nil
}

// start is where a page begins.
func start(list []rulestore.Override, after rulestore.OverrideName, rule string) int {
	if after == (rulestore.OverrideName{}) || after.Rule < rule {
		after = rulestore.OverrideName{Rule: rule}
	}
	i, found := slices.BinarySearchFunc(list, after, func(o rulestore.Override, name rulestore.OverrideName) int {
		if c := strings.Compare(o.Rule, name.Rule); c != 0 {
			return c
		}
		return strings.Compare(o.ID, name.ID)
	})
	if found {
		i++
	}
	return i
}

// postOverrides takes one override or {"overrides": […]}.
func (a *API) postOverrides(c *call) (answer, error) {
	if err := wellFormed(c.body); err != nil {
		return answer{}, err
	}
	var either struct {
		Overrides *json.RawMessage `json:"overrides"`
	}
	if json.Unmarshal(c.body, &either) == nil && either.Overrides != nil {
		return a.postBulk(c)
	}
	seen, err := c.seen()
	if err != nil {
		return answer{}, err
	}
	applied, err := a.change(c, false, func(int) string { return "" }, rulestore.Change{Action: rulestore.ActionOverride, IfMatch: seen, Body: c.body})
	if err != nil {
		return answer{}, err
	}
	out := answer{version: applied.Results[0].Version, body: api.OfOverride(applied.Results[0].Override)}
	if seen == 0 {
		out.status = http.StatusCreated
	}
	return out, nil
}

// postBulk takes a body that is well-formed.
func (a *API) postBulk(c *call) (answer, error) {
	var bulk api.Overrides
	if err := decodeFormed(c.body, &bulk); err != nil {
		return answer{}, err
	}
	if n := len(bulk.Overrides); n == 0 || n > rulestore.MaxChanges {
		return answer{}, refuseAt(api.BadRequest, "#/overrides", fmt.Sprintf("a bulk has 1 to %d overrides, not %d", rulestore.MaxChanges, n))
	}
	changes := make([]rulestore.Change, len(bulk.Overrides))
	for i, item := range bulk.Overrides {
		body, seen, err := withoutMatch(item)
		if err != nil {
			at := fmt.Sprintf("/overrides/%d/if_match", i)
			e := refuseAt(api.BadRequest, api.Pointer(at), err.Error())
			e.Index = &i
			return answer{}, e
		}
		changes[i] = rulestore.Change{Action: rulestore.ActionOverride, IfMatch: seen, Body: body}
	}
	applied, err := a.change(c, false, func(i int) string { return "/overrides/" + strconv.Itoa(i) }, changes...)
	if err != nil {
		return answer{}, err
	}
	out := api.OverridesApplied{Revision: applied.Revision, Results: make([]api.OverrideResult, len(applied.Results))}
	for i, r := range applied.Results {
		out.Results[i] = api.OverrideResult{Rule: r.Override.Rule, Key: r.Override.Key, Version: r.Version}
	}
	return answer{body: out}, nil
}

// withoutMatch takes if_match out of an item; the rest is the override, read
// strictly where it is stored. What is no object is left as it is.
func withoutMatch(item json.RawMessage) (body json.RawMessage, seen int64, err error) {
	if !bytes.Contains(item, []byte("if_match")) && !bytes.ContainsRune(item, '\\') { // nor spelt with escapes
		return item, 0, nil
	}
	d := json.NewDecoder(bytes.NewReader(item))
	if !bytes.HasPrefix(bytes.TrimSpace(item), []byte("{")) {
		return item, 0, nil
	}
	if _, err := d.Token(); err != nil {
		return nil, 0, err
	}
	out := []byte{'{'}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, 0, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, 0, err
		}
		if name == "if_match" {
			if seen, err = strconv.ParseInt(string(value), 10, 64); err != nil || seen < 0 {
				return nil, 0, fmt.Errorf("if_match is a version from 0, not %s", clip(string(value)))
			}
			continue
		}
		text, err := json.Marshal(name)
		if err != nil {
			return nil, 0, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, text...), ':'), value...)
	}
	return append(out, '}'), seen, nil
}

func (a *API) deleteOverride(c *call) (answer, error) {
	seen, err := c.seenThere("an override")
	if err != nil {
		return answer{}, err
	}
	key, err := c.key()
	if err != nil {
		return answer{}, err
	}
	rule := c.query.Get("rule")
	if !isID(rule) || key == nil {
		return answer{}, refuse(api.BadRequest, fmt.Sprintf("name the override by the parameters rule and key: 1 to %d characters of an id, 1 to %d values", rules.MaxIDBytes, rules.MaxIdentity))
	}
	applied, err := a.change(c, false, nil, rulestore.Change{Action: rulestore.ActionLift, Rule: rule, Key: key, IfMatch: seen})
	if err != nil {
		return answer{}, err
	}
	return answer{version: applied.Results[0].Version, body: api.OfOverride(applied.Results[0].Override)}, nil
}
