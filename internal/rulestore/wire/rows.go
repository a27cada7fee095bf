package wire

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// ruleRow is rulestore.Rule in JSON.
type ruleRow struct {
	ID          string       `json:"id"`
	Version     int64        `json:"version"`
	Revision    int64        `json:"revision"`
	Live        body         `json:"live,omitzero"`
	LiveVersion int64        `json:"live_version,omitempty"`
	Previous    int64        `json:"previous,omitempty"`
	Candidate   candidateRow `json:"candidate,omitzero"`
	Deleted     bool         `json:"deleted,omitempty"`
	ChangedAtMS int64        `json:"changed_at_ms,omitempty"`
}

// candidateRow is rulestore.Candidate in JSON.
type candidateRow struct {
	Body    body            `json:"body,omitzero"`
	Stage   rulestore.Stage `json:"stage,omitempty"`
	Percent int             `json:"percent,omitempty"`
	SinceMS int64           `json:"since_ms,omitempty"`
}

// IsZero reports whether there is none, nor anything left of one.
func (c candidateRow) IsZero() bool {
	return c.Body.IsZero() && c.Stage == "" && c.Percent == 0 && c.SinceMS == 0
}

// overrideRow is rulestore.Override in JSON.
type overrideRow struct {
	Rule        string   `json:"rule"`
	Key         []string `json:"key"`
	ID          string   `json:"id"`
	Body        body     `json:"body,omitzero"`
	Version     int64    `json:"version"`
	Revision    int64    `json:"revision"`
	Deleted     bool     `json:"deleted,omitempty"`
	ChangedAtMS int64    `json:"changed_at_ms,omitempty"`
}

// resetRow is rulestore.Reset in JSON.
type resetRow struct {
	Rule     string   `json:"rule,omitempty"`
	Key      []string `json:"key"`
	Revision int64    `json:"revision"`
	AtMS     int64    `json:"at_ms"`
}

// body is a row's body: as it is where it is a compact JSON object, which is what
// stores write; any other text, which somebody wrote with SQL, as its bytes in
// base64, so that the digest still holds and only that row is skipped.
type body json.RawMessage

// IsZero reports whether there is no body.
func (b body) IsZero() bool { return b == nil }

// MarshalJSON implements json.Marshaler.
func (b body) MarshalJSON() ([]byte, error) {
	if plain(b) {
		return b, nil
	}
	return json.Marshal([]byte(b))
}

// plain reports whether an encoder copies b as it is.
func plain(b []byte) bool {
	if len(b) == 0 || b[0] != '{' {
		return false
	}
	var compact bytes.Buffer
	return json.Compact(&compact, b) == nil && bytes.Equal(compact.Bytes(), b)
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *body) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '{' {
		*b = bytes.Clone(text)
		return nil
	}
	var raw []byte
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*b = raw
	return nil
}

// ofRule, ofOverride and ofReset return records as they travel.
func ofRule(r *rulestore.Rule) ruleRow {
	return ruleRow{
		ID: r.ID, Version: r.Version, Revision: r.Revision, Live: body(r.Live), LiveVersion: r.LiveVersion, Previous: r.Previous,
		Candidate: candidateRow{Body: body(r.Candidate.Body), Stage: r.Candidate.Stage, Percent: r.Candidate.Percent, SinceMS: toMS(r.Candidate.Since)},
		Deleted:   r.Deleted, ChangedAtMS: toMS(r.ChangedAt),
	}
}

func ofOverride(o *rulestore.Override) overrideRow {
	return overrideRow{
		Rule: o.Rule, Key: o.Key, ID: o.ID, Body: body(o.Body),
		Version: o.Version, Revision: o.Revision, Deleted: o.Deleted, ChangedAtMS: toMS(o.ChangedAt),
	}
}

func ofReset(r *rulestore.Reset) resetRow {
	return resetRow{Rule: r.Rule, Key: r.Key, Revision: r.Revision, AtMS: toMS(r.At)}
}

// record returns the record that it was.
func (r *ruleRow) record() rulestore.Rule {
	return rulestore.Rule{
		ID: r.ID, Version: r.Version, Revision: r.Revision, Live: json.RawMessage(r.Live), LiveVersion: r.LiveVersion, Previous: r.Previous,
		Candidate: rulestore.Candidate{
			Body: json.RawMessage(r.Candidate.Body), Stage: r.Candidate.Stage, Percent: r.Candidate.Percent, Since: fromMS(r.Candidate.SinceMS),
		},
		Deleted: r.Deleted, ChangedAt: fromMS(r.ChangedAtMS),
	}
}

func (o *overrideRow) record() rulestore.Override {
	return rulestore.Override{
		Rule: o.Rule, Key: o.Key, ID: o.ID, Body: json.RawMessage(o.Body),
		Version: o.Version, Revision: o.Revision, Deleted: o.Deleted, ChangedAt: fromMS(o.ChangedAtMS),
	}
}

func (r *resetRow) record() rulestore.Reset {
	return rulestore.Reset{Rule: r.Rule, Key: r.Key, Revision: r.Revision, At: fromMS(r.AtMS)}
}

// toMS and fromMS keep the zero time, as stores do.
func toMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMS(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
