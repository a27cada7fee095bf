package wire

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Answer is what the feed says: everything, or what changed after a revision.
type Answer struct {
	// Revision is where the rows lead, NowMS the store's clock in Unix ms.
	Revision int64 `json:"revision"`
	NowMS    int64 `json:"now_ms"`
	// Hash is rulestore.Digest of the whole set at Revision, also where Whole is false.
	Hash string `json:"hash"`
	// Whole says that the rows are all there is, not changes.
	Whole bool `json:"whole"`
	Rows
}

// Rows are what an answer or a file holds. In changes, deleted ones are among them.
type Rows struct {
	Rules     []Rule     `json:"rules"`
	Overrides []Override `json:"overrides"`
	Resets    []Reset    `json:"resets"`
}

// Rule is rulestore.Rule in JSON.
type Rule struct {
	ID          string    `json:"id"`
	Version     int64     `json:"version"`
	Revision    int64     `json:"revision"`
	Live        body      `json:"live,omitzero"`
	LiveVersion int64     `json:"live_version,omitempty"`
	Previous    int64     `json:"previous,omitempty"`
	Candidate   Candidate `json:"candidate,omitzero"`
	Deleted     bool      `json:"deleted,omitempty"`
	ChangedAtMS int64     `json:"changed_at_ms,omitempty"`
}

// Candidate is rulestore.Candidate in JSON.
type Candidate struct {
	Body    body            `json:"body,omitzero"`
	Stage   rulestore.Stage `json:"stage,omitempty"`
	Percent int             `json:"percent,omitempty"`
	SinceMS int64           `json:"since_ms,omitempty"`
}

// IsZero reports whether there is none, nor anything left of one.
func (c Candidate) IsZero() bool {
	return c.Body.IsZero() && c.Stage == "" && c.Percent == 0 && c.SinceMS == 0
}

// Override is rulestore.Override in JSON.
type Override struct {
	Rule        string   `json:"rule"`
	Key         []string `json:"key"`
	ID          string   `json:"id"`
	Body        body     `json:"body,omitzero"`
	Version     int64    `json:"version"`
	Revision    int64    `json:"revision"`
	Deleted     bool     `json:"deleted,omitempty"`
	ChangedAtMS int64    `json:"changed_at_ms,omitempty"`
}

// Reset is rulestore.Reset in JSON.
type Reset struct {
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

// RowsOf returns records as they travel.
func RowsOf(rules []rulestore.Rule, overrides []rulestore.Override, resets []rulestore.Reset) Rows {
	out := Rows{Rules: make([]Rule, len(rules)), Overrides: make([]Override, len(overrides)), Resets: make([]Reset, len(resets))}
	for i, r := range rules {
		out.Rules[i] = Rule{
			ID: r.ID, Version: r.Version, Revision: r.Revision, Live: body(r.Live), LiveVersion: r.LiveVersion, Previous: r.Previous,
			Candidate: Candidate{Body: body(r.Candidate.Body), Stage: r.Candidate.Stage, Percent: r.Candidate.Percent, SinceMS: toMS(r.Candidate.Since)},
			Deleted:   r.Deleted, ChangedAtMS: toMS(r.ChangedAt),
		}
	}
	for i, o := range overrides {
		out.Overrides[i] = Override{
			Rule: o.Rule, Key: o.Key, ID: o.ID, Body: body(o.Body),
			Version: o.Version, Revision: o.Revision, Deleted: o.Deleted, ChangedAtMS: toMS(o.ChangedAt),
		}
	}
	for i, r := range resets {
		out.Resets[i] = Reset{Rule: r.Rule, Key: r.Key, Revision: r.Revision, AtMS: toMS(r.At)}
	}
	return out
}

// Records returns rows as the records they were.
func (rows Rows) Records() (rules []rulestore.Rule, overrides []rulestore.Override, resets []rulestore.Reset) {
	rules, overrides, resets = make([]rulestore.Rule, len(rows.Rules)), make([]rulestore.Override, len(rows.Overrides)), make([]rulestore.Reset, len(rows.Resets))
	for i, r := range rows.Rules {
		rules[i] = rulestore.Rule{
			ID: r.ID, Version: r.Version, Revision: r.Revision, Live: json.RawMessage(r.Live), LiveVersion: r.LiveVersion, Previous: r.Previous,
			Candidate: rulestore.Candidate{
				Body: json.RawMessage(r.Candidate.Body), Stage: r.Candidate.Stage, Percent: r.Candidate.Percent, Since: fromMS(r.Candidate.SinceMS),
			},
			Deleted: r.Deleted, ChangedAt: fromMS(r.ChangedAtMS),
		}
	}
	for i, o := range rows.Overrides {
		overrides[i] = rulestore.Override{
			Rule: o.Rule, Key: o.Key, ID: o.ID, Body: json.RawMessage(o.Body),
			Version: o.Version, Revision: o.Revision, Deleted: o.Deleted, ChangedAt: fromMS(o.ChangedAtMS),
		}
	}
	for i, r := range rows.Resets {
		resets[i] = rulestore.Reset{Rule: r.Rule, Key: r.Key, Revision: r.Revision, At: fromMS(r.AtMS)}
	}
	return rules, overrides, resets
}

// Encode returns the JSON of a value without a newline at its end, and without
// escapes that would change the bytes of a body.
func Encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), nil
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
