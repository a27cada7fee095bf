package rules

import (
	"encoding/json"
	"time"
)

// ruleJSON is a rule as written, fields in the order of the field table. What is
// not given is left out, so that a rule read and written again is the same.
type ruleJSON struct {
	ID          string            `json:"id,omitempty"`
	Domain      string            `json:"domain,omitempty"`
	Description string            `json:"description,omitempty"`
	Owner       string            `json:"owner,omitempty"`
	Match       map[string]string `json:"match,omitempty"`
	CoversAll   bool              `json:"covers_all,omitempty"`
	Identity    []string          `json:"identity,omitempty"`
	Action      Action            `json:"action,omitempty"`
	Algorithm   string            `json:"algorithm,omitempty"`
	numbersJSON
	MaxCost  int64    `json:"max_cost,omitempty"`
	Mode     Mode     `json:"mode,omitempty"`
	FailMode FailMode `json:"fail_mode,omitempty"`
	Counting Counting `json:"counting,omitempty"`
	MaxLease int64    `json:"max_lease,omitempty"`
	SyncMS   int64    `json:"sync_ms,omitempty"`
	PreLimit any      `json:"pre_limit,omitempty"`

	ClosedAllow     []any `json:"closed_allow,omitempty"`
	ClosedAllowance any   `json:"closed_allowance,omitempty"`
	Replicas        int64 `json:"replicas,omitempty"`

	OnChange       string `json:"on_change,omitempty"`
	MaxNewKeysPerS int64  `json:"max_new_keys_per_s,omitempty"`

	Priority  int64       `json:"priority,omitempty"`
	ShedFloor json.Number `json:"shed_floor,omitempty"`

	Supersedes []string `json:"supersedes,omitempty"`
}

type numbersJSON struct {
	Rate        int64       `json:"rate,omitempty"`
	PerS        int64       `json:"per_s,omitempty"`
	Burst       int64       `json:"burst,omitempty"`
	Limit       int64       `json:"limit,omitempty"`
	WindowS     int64       `json:"window_s,omitempty"`
	Window      string      `json:"window,omitempty"`
	TZ          string      `json:"tz,omitempty"`
	Align       string      `json:"align,omitempty"`
	BurstFactor json.Number `json:"burst_factor,omitempty"`
}

type overrideJSON struct {
	Key  any    `json:"key,omitempty"`
	Rule string `json:"rule,omitempty"`
	numbersJSON
	MaxCost   int64  `json:"max_cost,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Owner     string `json:"owner,omitempty"`
}

// MarshalJSON writes the rule with the fields that are given; reading it again
// gives the same rule.
func (r Rule) MarshalJSON() ([]byte, error) {
	out := ruleJSON{
		ID: r.ID, Domain: r.Domain, Description: r.Description, Owner: r.Owner,
		Match: r.Match, CoversAll: r.CoversAll, Identity: r.Identity, Action: r.Action,
		numbersJSON: r.Numbers.json(), MaxCost: r.MaxCost,
		Mode: r.Mode, FailMode: r.FailMode, Counting: r.Counting, MaxLease: r.MaxLease, SyncMS: r.SyncMS, PreLimit: r.PreLimit.json(), Supersedes: r.Supersedes,
	}
	out.ClosedAllow, out.ClosedAllowance, out.Replicas = keysJSON(r.ClosedAllow), allowanceJSON(r.ClosedAllowanceMilli), r.Replicas
	out.OnChange, out.MaxNewKeysPerS = r.OnChange, r.MaxNewKeysPerS
	out.Priority = r.Priority
	if r.ShedFloorMilli != 0 {
		out.ShedFloor = json.Number(decimal(r.ShedFloorMilli))
	}
	if r.Algorithm != 0 {
		out.Algorithm = r.Algorithm.String()
	}
	return json.Marshal(out)
}

// json is the pre-limit as it is written, nil for none given.
func (p PreLimit) json() any {
	switch {
	case p == (PreLimit{}):
		return nil
	case p.Of == OfNone:
		return OfNone
	}
	return struct {
		Of    string      `json:"of"`
		Times json.Number `json:"times"`
	}{p.Of, json.Number(decimal(p.TimesMilli))}
}

// MarshalJSON writes the override with the fields that are given. The key of one
// value is a text, of several a list.
func (o Override) MarshalJSON() ([]byte, error) {
	out := overrideJSON{
		Rule: o.Rule, numbersJSON: o.Numbers.json(), MaxCost: o.MaxCost, Reason: o.Reason, Owner: o.Owner,
	}
	if len(o.Key) > 0 {
		out.Key = keyJSON(o.Key)
	}
	if !o.ExpiresAt.IsZero() {
		out.ExpiresAt = o.ExpiresAt.Format(time.RFC3339Nano)
	}
	return json.Marshal(out)
}

// keyJSON is a key as it is written: of one value a text, of several a list.
func keyJSON(parts []string) any {
	if len(parts) == 1 {
		return parts[0]
	}
	return parts
}

func keysJSON(keys [][]string) []any {
	var out []any
	for _, parts := range keys {
		out = append(out, keyJSON(parts))
	}
	return out
}

// allowanceJSON is an allowance as it is written, nil for none.
func allowanceJSON(milli int64) any {
	if milli == 0 {
		return nil
	}
	return struct {
		Times json.Number `json:"times"`
	}{json.Number(decimal(milli))}
}

func (n Numbers) json() numbersJSON {
	out := numbersJSON{
		Rate: n.Rate, PerS: n.PerS, Burst: n.Burst, Limit: n.Limit,
		WindowS: n.WindowS, Window: n.Window, TZ: n.TZ, Align: n.Align,
	}
	if n.BurstFactorMilli != 0 {
		out.BurstFactor = json.Number(decimal(n.BurstFactorMilli))
	}
	return out
}
