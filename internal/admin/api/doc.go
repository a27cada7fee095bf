// Package api is the JSON of the admin API: what its server writes and its client
// reads. Values only; the document of the API is made from these types.
package api

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Key is the values of an identity, in the rule's order. In JSON it is a list; one
// value may be written as a text.
type Key []string

// UnmarshalJSON takes a text or a list of texts.
func (k *Key) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte(`"`)) {
		var one string
		if err := json.Unmarshal(data, &one); err != nil {
			return err
		}
		*k = Key{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*k = list
	return nil
}

// Rule is a rule of record.
type Rule struct {
	ID          string          `json:"id"`
	Version     int64           `json:"version" doc:"counts this rule's changes; it is the ETag"`
	Revision    int64           `json:"revision" doc:"that of the last change, over all rules"`
	Live        json.RawMessage `json:"live,omitempty" doc:"the rule in force; a text where it cannot be read"`
	LiveVersion int64           `json:"live_version" doc:"the version at which live came into force"`
	Previous    int64           `json:"previous" doc:"the version that a rollback brings back; 0 for none"`
	Candidate   *Candidate      `json:"candidate,omitempty"`
	ChangedAt   time.Time       `json:"changed_at"`
	Deleted     bool            `json:"deleted,omitempty"`
	Warnings    []string        `json:"warnings,omitempty" doc:"what is doubtful about the body that was put"`
}

// Candidate is the next version of a rule, on trial.
type Candidate struct {
	Body    json.RawMessage `json:"body"`
	Stage   rulestore.Stage `json:"stage" enum:"shadow,canary"`
	Percent int             `json:"percent" minimum:"0" maximum:"100" doc:"the part of the pods that enforce it; 0 in stage shadow"`
	Since   time.Time       `json:"since" doc:"when the trial began"`
}

// Version is a rule as one change left it.
type Version struct {
	Rule
	Action rulestore.Action `json:"action"`
	Who    string           `json:"who"`
	Why    string           `json:"why"`
}

// Override is other numbers for one key of a rule.
type Override struct {
	Rule      string          `json:"rule"`
	Key       Key             `json:"key"`
	ID        string          `json:"id" doc:"the key in the one form in which two spellings are the same"`
	Body      json.RawMessage `json:"body"`
	Version   int64           `json:"version" doc:"counts this override's changes; it is the ETag"`
	Revision  int64           `json:"revision"`
	ChangedAt time.Time       `json:"changed_at"`
	Deleted   bool            `json:"deleted,omitempty"`
}

// Entry is one line of the audit.
type Entry struct {
	ID       int64            `json:"id"`
	Revision int64            `json:"revision"`
	At       time.Time        `json:"at"`
	Who      string           `json:"who"`
	Why      string           `json:"why"`
	Action   rulestore.Action `json:"action"`
	Rule     string           `json:"rule" doc:"empty for a reset of all rules"`
	Key      Key              `json:"key,omitempty"`
	Version  int64            `json:"version" doc:"that which the change made; 0 for a reset"`
	Before   json.RawMessage  `json:"before,omitempty"`
	After    json.RawMessage  `json:"after,omitempty"`
}

// RulePage is a page of rules.
type RulePage struct {
	Rules    []Rule `json:"rules"`
	Next     string `json:"next,omitempty" doc:"after of the next page; absent on the last"`
	Revision int64  `json:"revision" doc:"the revision at which this is all there is"`
}

// OverridePage is a page of overrides.
type OverridePage struct {
	Overrides []Override `json:"overrides"`
	Next      string     `json:"next,omitempty" doc:"after of the next page; absent on the last"`
	Revision  int64      `json:"revision" doc:"the revision at which this is all there is"`
}

// History is a page of versions, newest first.
type History struct {
	Versions []Version `json:"versions"`
	Next     int64     `json:"next,omitempty" doc:"before of the next page; absent on the last"`
}

// Audit is a page of the audit, newest first.
type Audit struct {
	Entries []Entry `json:"entries"`
	Next    int64   `json:"next,omitempty" doc:"before of the next page; absent on the last"`
}

// Diff is what differs between two versions of a rule.
type Diff struct {
	Rule   string  `json:"rule"`
	From   int64   `json:"from"`
	To     int64   `json:"to"`
	Fields []Field `json:"fields"`
}

// Field is one field that differs. Absent before or after means that it is not there.
type Field struct {
	Field  string          `json:"field" doc:"such as burst, or candidate.burst"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// Planned is what a change would do.
type Planned struct {
	DryRun   bool            `json:"dry_run"`
	Before   json.RawMessage `json:"before,omitempty"`
	After    json.RawMessage `json:"after,omitempty"`
	Diff     []Field         `json:"diff"`
	Warnings []string        `json:"warnings"`
}
