package api

import (
	"encoding/json"
	"time"

	"github.com/tallygate/tallygate/internal/candidate"
	"github.com/tallygate/tallygate/internal/fleet"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// Usage is what is left for one key. Asking spends nothing.
type Usage struct {
	Domain string      `json:"domain"`
	Key    Key         `json:"key"`
	Rules  []RuleUsage `json:"rules"`
}

// RuleUsage is what is left in one bucket.
type RuleUsage struct {
	Rule      string `json:"rule"`
	Limit     int64  `json:"limit" doc:"what a full bucket holds"`
	Remaining int64  `json:"remaining" doc:"whole tokens left"`
	Out       int64  `json:"out" doc:"tokens that pods hold on leases"`
	RetryMS   int64  `json:"retry_ms" doc:"how long until cost 1 passes"`
	ResetMS   int64  `json:"reset_ms" doc:"how long until it is full, or to the window's end"`
	// RecentPerS is null where no pod tells.
	RecentPerS *float64        `json:"recent_per_s" nullable:"true" doc:"tokens a second by the pods' last reports; null where they do not tell"`
	Override   json.RawMessage `json:"override,omitempty" doc:"the override in force for the key"`
	Candidate  bool            `json:"candidate,omitempty" doc:"the bucket is that of the rule's candidate"`
	Error      Code            `json:"error,omitempty" doc:"why there are no numbers: store_timeout or store_unavailable"`
}

// Check is the body of explain: a check of the check API.
type Check struct {
	Domain     string            `json:"domain,omitempty"`
	Entries    []CheckEntry      `json:"entries,omitempty" maxItems:"32"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Cost       *int64            `json:"cost,omitempty" minimum:"0" maximum:"1000000000"`
}

// CheckEntry is one entry of a check.
type CheckEntry struct {
	Rule string `json:"rule"`
	Key  Key    `json:"key"`
	Cost *int64 `json:"cost,omitempty" minimum:"0" maximum:"1000000000"`
}

// Explanation is what a check would be answered, and why.
type Explanation struct {
	Revision  int64             `json:"revision" doc:"that of the rules it is answered by"`
	Domain    string            `json:"domain"`
	Verdict   string            `json:"verdict" enum:"allow,deny"`
	DeniedBy  string            `json:"denied_by,omitempty"`
	Rules     []RuleExplanation `json:"rules" doc:"those that match, superseded ones among them"`
	Unmatched int               `json:"unmatched" doc:"how many other rules the domain has"`
}

// RuleExplanation is what one rule would say.
type RuleExplanation struct {
	RuleUsage
	Action       string `json:"action" enum:"limit,allow,deny"`
	Mode         string `json:"mode" enum:"enforce,shadow"`
	Key          Key    `json:"key,omitempty" doc:"what the rule counts"`
	Anonymous    bool   `json:"anonymous,omitempty" doc:"the identity is absent and the address is counted"`
	SupersededBy string `json:"superseded_by,omitempty"`
	Verdict      string `json:"verdict" enum:"allow,deny"`
	Reason       string `json:"reason,omitempty"`
}

// TrialStatus is how a rule's candidate does, by what the pods counted.
type TrialStatus struct {
	Rule    string          `json:"rule"`
	Stage   rulestore.Stage `json:"stage" enum:"shadow,canary"`
	Percent int             `json:"percent"`
	Since   time.Time       `json:"since"`
	// Verdict is that of the last minute.
	Verdict candidate.Verdict `json:"verdict"`
	// Hardest are the keys of which the candidate denied most that the live rule did not.
	Hardest []candidate.KeyCount `json:"hardest"`
}

// Reset is what a reset did.
type Reset struct {
	Buckets  int   `json:"buckets" doc:"how many are full again"`
	Revision int64 `json:"revision" doc:"that by which pods hear of it; 0 where no other pod shares the counts"`
}

// Pods is the fleet.
type Pods struct {
	Revision int64 `json:"revision" doc:"the newest of the rules"`
	Pods     []Pod `json:"pods"`
}

// Pod is one pod as its last report told. What it counted is not shown.
type Pod struct {
	Pod      string        `json:"pod"`
	Revision int64         `json:"revision" doc:"that of the rules it works from"`
	Version  string        `json:"version,omitempty"`
	UptimeMS int64         `json:"uptime_ms"`
	Faults   []string      `json:"faults,omitempty" doc:"rules and overrides it could not take"`
	Shards   []fleet.Shard `json:"shards,omitempty"`
	SeenAt   time.Time     `json:"seen_at"`
	Live     bool          `json:"live" doc:"it reported lately"`
	Behind   bool          `json:"behind" doc:"it works from an older revision than it should"`
}
