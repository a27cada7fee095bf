package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/admin"
	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/candidate"
	"github.com/tallygate/tallygate/internal/fleet"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/remote"
	"github.com/tallygate/tallygate/internal/rulestore/sqlite"
	"github.com/tallygate/tallygate/rules"
)

// rig is a database, and the same by way of an API.
type rig struct {
	store  *sqlite.Store
	client *remote.Client
	asked  []string
}

func start(t *testing.T) *rig {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "rules.db")})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{store: s}
	a, err := admin.New(admin.Config{
		Reader: s, Writer: s, Records: s, Historian: s, Auditor: s, Looker: r, Resetter: r, Fleet: r, Rate: 1_000_000, Burst: 1_000_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a.Handler())
	t.Cleanup(func() {
		server.Close()
		_ = s.Close()
	})
	r.client = &remote.Client{URL: server.URL + "/", HTTP: server.Client()}
	return r
}

func (r *rig) Usage(_ context.Context, domain string, key []string) (tallygate.Usage, error) {
	r.asked = append(r.asked, fmt.Sprintf("usage %s %q", domain, key))
	return tallygate.Usage{Domain: domain, Key: key, Rules: []tallygate.RuleUsage{{Rule: "a", Remaining: 3}}}, nil
}

func (r *rig) Explain(_ context.Context, c tallygate.Check) (tallygate.Explanation, error) {
	return tallygate.Explanation{}, &tallygate.Error{Code: tallygate.CodeUnknownDomain, Message: "there is no domain " + c.Domain}
}

func (r *rig) Reset(_ context.Context, domain, rule string, key []string) (int, error) {
	r.asked = append(r.asked, fmt.Sprintf("reset %s %s %q", domain, rule, key))
	return 1, nil
}

func (r *rig) Report(context.Context, fleet.Report) (fleet.Receipt, error) {
	return fleet.Receipt{}, nil
}

func (r *rig) Pods() []fleet.Pod { return []fleet.Pod{{Report: fleet.Report{Pod: "p"}, Live: true}} }

func (r *rig) Proven(string) (bool, string) { return false, "too little" }

func (r *rig) Trial(rule string) (candidate.Verdict, []candidate.KeyCount, error) {
	return candidate.Verdict{State: candidate.Collecting, Why: rule}, []candidate.KeyCount{{Key: "k"}}, nil
}

func by() rulestore.Author { return rulestore.Author{Who: "kim", Why: "ein Grund, für alle"} }

func bucket(id string, burst int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"id":%q,"match":{"plan":"<free>"},"identity":["ip"],"algorithm":"token_bucket","rate":1,"burst":%d}`, id, burst))
}

func put(id string, burst int, ifMatch int64) rulestore.Change {
	return rulestore.Change{Action: rulestore.ActionPut, Rule: id, IfMatch: ifMatch, Body: bucket(id, burst)}
}

func override(rule, key string, burst int, ifMatch int64) rulestore.Change {
	body, err := json.Marshal(map[string]any{"rule": rule, "key": key, "burst": burst})
	if err != nil {
		panic(err)
	}
	return rulestore.Change{Action: rulestore.ActionOverride, IfMatch: ifMatch, Body: body}
}

// What is written through the API is what the database says, field by field.
func TestClient_saysWhatTheStoreSays(t *testing.T) {
	t.Parallel()
	r := start(t)
	ctx := t.Context()
	changes := []rulestore.Change{
		put("a", 20, 0), put("b", 20, 0), put("a", 30, 1),
		{Action: rulestore.ActionPropose, Rule: "a", IfMatch: 2, Body: bucket("a", 40)},
		{Action: rulestore.ActionCanary, Rule: "a", IfMatch: 3, Percent: 7},
		override("a", "203.0.113.9", 50, 0), override("b", "2001:db8::1", 50, 0),
		{Action: rulestore.ActionReset, Rule: "a", Key: []string{"203.0.113.9"}},
		put("gone", 1, 0),
		{Action: rulestore.ActionDelete, Rule: "gone", IfMatch: 1},
	}
	dry, err := r.client.DryRun(ctx, by(), changes...)
	if err != nil || dry.Revision != 0 || len(dry.Results) != len(changes) {
		t.Fatalf("got %+v, %v", dry, err)
	}
	applied, err := r.client.Apply(ctx, by(), changes...)
	if err != nil || applied.Revision == 0 {
		t.Fatalf("got %+v, %v", applied, err)
	}
	if got := applied.Results[4]; got.Version != 4 || got.Rule.Candidate.Percent != 7 || !strings.Contains(string(got.Before), `"shadow"`) || !strings.Contains(string(got.After), `"canary"`) {
		t.Errorf("got %+v", got)
	}
	if got := applied.Results[7]; got.Version != 0 || got.Rule.ID != "" || got.Override.Rule != "" {
		t.Errorf("a reset: %+v", got)
	}
	want, err := r.store.Whole(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.client.Whole(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got.Hash != want.Hash || got.Revision != want.Revision {
		t.Errorf("got %+v, want %+v", got, want)
	}
	compare(t, "rules", got.Rules, want.Rules)
	compare(t, "overrides", got.Overrides, want.Overrides)

	same(t, "rule", func(s parts) (any, error) { return s.Rule(ctx, "a") }, r)
	same(t, "override", func(s parts) (any, error) { return s.Override(ctx, "a", []string{"::ffff:203.0.113.9"}) }, r)
	same(t, "overrides", func(s parts) (any, error) { return s.Overrides(ctx, rulestore.OverridePage{Limit: 1}) }, r)
	same(t, "overrides after", func(s parts) (any, error) {
		return s.Overrides(ctx, rulestore.OverridePage{After: rulestore.OverrideName{Rule: "a", ID: `["203.0.113.9"]`}})
	}, r)
	same(t, "overrides of a rule", func(s parts) (any, error) { return s.Overrides(ctx, rulestore.OverridePage{Rule: "b"}) }, r)
	same(t, "history", func(s parts) (any, error) { return s.History(ctx, "a", 0, 0) }, r)
	same(t, "history before", func(s parts) (any, error) { return s.History(ctx, "a", 3, 1) }, r)
	same(t, "history of what is gone", func(s parts) (any, error) { return s.History(ctx, "gone", 0, 0) }, r)
	same(t, "version", func(s parts) (any, error) { return s.Version(ctx, "a", 2) }, r)
	for name, f := range map[string]rulestore.AuditFilter{
		"all": {}, "of a rule": {Rule: "a"}, "of a key": {Key: []string{"203.0.113.9"}}, "of an action": {Action: rulestore.ActionPut}, "of nobody": {Who: "lee"},
		"of a time": {From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)}, "before": {Before: 5, Limit: 2},
	} {
		same(t, "audit "+name, func(s parts) (any, error) { return s.Audit(ctx, f) }, r)
	}
	if entries, err := r.client.Audit(ctx, rulestore.AuditFilter{Limit: 1}); err != nil || entries[0].Who != "kim@127.0.0.1" || entries[0].Why != by().Why {
		t.Errorf("got %+v, %v", entries, err)
	}
	if d, err := r.client.Diff(ctx, "a", 1, 2); err != nil || len(d.Fields) != 1 || d.Fields[0].Field != "burst" {
		t.Errorf("got %+v, %v", d, err)
	}
	// What was planned by way of the API is what there is to do.
	plan, err := got.Toward(rulesSet(t, bucket("a", 30), bucket("b", 20)), false)
	if err != nil || len(plan.Steps) != 0 {
		t.Errorf("got %+v, %v", plan, err)
	}
}

type looks interface {
	rulestore.Records
	rulestore.Overrides
}

type parts interface {
	looks
	rulestore.Historian
	rulestore.Auditor
}

// same compares an answer with the store's own, errors too.
func same(t *testing.T, what string, ask func(parts) (any, error), r *rig) {
	t.Helper()
	want, wantErr := ask(r.store)
	got, err := ask(r.client)
	if rulestore.CodeOf(err) != rulestore.CodeOf(wantErr) || (err == nil) != (wantErr == nil) {
		t.Errorf("%s: got error %v, want %v", what, err, wantErr)
	}
	compare(t, what, got, want)
}

func compare(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(inUTC(t, got), inUTC(t, want)) {
		t.Errorf("%s: got %+v\nwant %+v", what, got, want)
	}
}

// inUTC is a value as JSON: pointers of time zones aside.
func inUTC(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func rulesSet(t *testing.T, bodies ...json.RawMessage) rules.Set {
	t.Helper()
	var set rules.Set
	for _, body := range bodies {
		rule, problems := rules.ParseRule(body)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		set.Rules = append(set.Rules, rule)
	}
	return set
}

func TestClient_errorsAreTheStores(t *testing.T) {
	t.Parallel()
	r := start(t)
	ctx := t.Context()
	if _, err := r.store.Apply(ctx, by(), put("a", 20, 0), put("a", 30, 1), override("a", "192.0.2.1", 40, 0)); err != nil {
		t.Fatal(err)
	}
	faulty := bucket("b", 20)
	faulty = json.RawMessage(strings.Replace(string(faulty), `"rate":1`, `"rate":0`, 1))
	for name, changes := range map[string][]rulestore.Change{
		"stale":              {put("a", 40, 1)},
		"there already":      {put("c", 1, 0), put("a", 40, 0)},
		"not there":          {put("b", 40, 3)},
		"faulty":             {put("c", 1, 0), {Action: rulestore.ActionPut, Rule: "b", Body: faulty}},
		"no candidate":       {{Action: rulestore.ActionPromote, Rule: "a", IfMatch: 2}},
		"no action":          {{Action: "explode", Rule: "a", IfMatch: 2}},
		"a stale override":   {override("a", "192.0.2.1", 50, 9)},
		"no such override":   {{Action: rulestore.ActionLift, Rule: "a", Key: []string{"192.0.2.7"}, IfMatch: 1}},
		"an override of air": {override("none", "192.0.2.1", 50, 0)},
		"an empty reset":     {{Action: rulestore.ActionReset}},
	} {
		_, wantErr := r.store.DryRun(ctx, by(), changes...)
		_, err := r.client.DryRun(ctx, by(), changes...)
		var got, want *rulestore.Error
		if !errors.As(err, &got) || !errors.As(wantErr, &want) {
			t.Errorf("%s: got %v, want %v", name, err, wantErr)
			continue
		}
		if got.Code != want.Code || got.Index != want.Index || got.Current != want.Current || (name != "no action" && got.Rule != want.Rule) || len(got.Problems) != len(want.Problems) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		if len(want.Problems) == 0 && name != "no action" && got.Error() != want.Error() {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		for i, p := range got.Problems {
			w := want.Problems[i]
			if p.Field != w.Field || p.Message != w.Message || p.Fix != w.Fix || p.Value != w.Value {
				t.Errorf("%s: got %+v, want %+v", name, p, w)
			}
		}
	}
	same(t, "no rule", func(s parts) (any, error) { return s.Rule(ctx, "none") }, r)
	same(t, "no override", func(s parts) (any, error) { return s.Override(ctx, "a", []string{"192.0.2.7"}) }, r)
	same(t, "no version", func(s parts) (any, error) { return s.Version(ctx, "a", 99) }, r)
	same(t, "no history", func(s parts) (any, error) { return s.History(ctx, "none", 0, 0) }, r)
	same(t, "a bad page", func(s parts) (any, error) { return s.History(ctx, "a", 0, -1) }, r)
	same(t, "a bad page of overrides", func(s parts) (any, error) { return s.Overrides(ctx, rulestore.OverridePage{Limit: 1001}) }, r)
	if _, err := r.client.Apply(ctx, rulestore.Author{}, put("x", 1, 0)); rulestore.CodeOf(err) != rulestore.Invalid {
		t.Errorf("nobody: %v", err)
	}
}

func TestClient_looks(t *testing.T) {
	t.Parallel()
	r := start(t)
	ctx := t.Context()
	for _, key := range [][]string{{"acct/1"}, {"2001:db8::1"}, {"a", "b c"}, {"[x"}, {"100%?&#"}} {
		u, err := r.client.Usage(ctx, "shop", key)
		if err != nil || !slices.Equal(u.Key, key) || u.Rules[0].Remaining != 3 || u.Rules[0].RecentPerS != nil {
			t.Errorf("%q: got %+v, %v", key, u, err)
		}
		if reset, err := r.client.ResetKey(ctx, by(), "shop", "", key); err != nil || reset.Buckets != 1 || reset.Revision == 0 {
			t.Errorf("%q: got %+v, %v", key, reset, err)
		}
		if last := r.asked[len(r.asked)-1]; last != fmt.Sprintf("reset shop  %q", key) {
			t.Errorf("%q: asked %s", key, last)
		}
	}
	if pods, err := r.client.Pods(ctx); err != nil || len(pods.Pods) != 1 || !pods.Pods[0].Live {
		t.Errorf("got %+v, %v", pods, err)
	}
	var p *remote.Error
	if _, err := r.client.Explain(ctx, api.Check{Domain: "none", Attributes: map[string]string{"a": "b"}}); !errors.As(err, &p) || p.Code != "unknown_domain" {
		t.Errorf("got %v", err)
	}
	if _, err := r.client.Apply(ctx, by(), put("a", 20, 0), rulestore.Change{Action: rulestore.ActionPropose, Rule: "a", IfMatch: 1, Body: bucket("a", 30)}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Promote(ctx, by(), "a", 2, false); !errors.As(err, &p) || p.Code != api.NotProven {
		t.Errorf("got %v", err)
	}
	if got, err := r.client.Promote(ctx, by(), "a", 2, true); err != nil || got.Version != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestClient_whatIsNoAPI(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status     int
		body, want string
	}{
		"a proxy's page": {502, "<html>bad gateway</html>", "502"},
		"another's JSON": {404, `{"message":"nope"}`, "404"},
		"no JSON":        {200, `<html>`, "none of this API"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body))
		}))
		t.Cleanup(server.Close)
		c := remote.Client{URL: server.URL}
		if _, err := c.Rule(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), tt.want) || rulestore.CodeOf(err) != "" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	c := remote.Client{URL: "http://127.0.0.1:1"}
	if _, err := c.Usage(t.Context(), "", []string{"secret-key"}); err == nil || strings.Contains(err.Error(), "secret-key") {
		t.Errorf("got %v, want an error without the key", err)
	}
	for _, secret := range []string{"http://kim:pass-word@127.0.0.1:1", "http://kim:pass-word%zz@127.0.0.1:1", "http://127.0.0.1:1?password=pass-word"} {
		c = remote.Client{URL: secret}
		if _, err := c.Rule(t.Context(), "a"); err == nil || strings.Contains(err.Error(), "pass-word") {
			t.Errorf("got %v, want an error without the password", err)
		}
	}
	c = remote.Client{URL: "://"}
	if _, err := c.Rule(t.Context(), "a"); err == nil {
		t.Error("a URL that is none")
	}
}

// Where the rules never hold still, Whole says so and does not mix moments.
func TestWhole_ofOneMoment(t *testing.T) {
	t.Parallel()
	var revision, calm int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if revision++; revision > calm {
			revision = calm
		}
		if r.URL.Path == "/v1/rules" {
			_ = json.NewEncoder(w).Encode(api.RulePage{Revision: revision})
			return
		}
		_ = json.NewEncoder(w).Encode(api.OverridePage{Revision: revision})
	}))
	t.Cleanup(server.Close)
	c := remote.Client{URL: server.URL}
	calm = 1_000_000
	if _, err := c.Whole(t.Context()); err == nil {
		t.Error("a mixture")
	}
	revision, calm = 0, 4
	if set, err := c.Whole(t.Context()); err != nil || set.Revision != 4 {
		t.Errorf("got %+v, %v", set, err)
	}
}

// transport answers nothing, and tells how long an answer was waited for.
type transport struct{ within time.Duration }

func (tr *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	deadline, _ := r.Context().Deadline()
	tr.within = time.Until(deadline)
	return nil, errors.New("away")
}

func TestClient_waitsForABulk(t *testing.T) {
	t.Parallel()
	var tr transport
	c := remote.Client{URL: "http://control", HTTP: &http.Client{Transport: &tr}}
	change := rulestore.Change{Action: rulestore.ActionLift, Rule: "a", Key: []string{"k"}, IfMatch: 1}
	for _, tt := range []struct {
		changes     int
		least, most time.Duration
	}{{1, 20 * time.Second, 30 * time.Second}, {10_000, 5 * time.Minute, 6 * time.Minute}} {
		if _, err := c.Apply(t.Context(), by(), slices.Repeat([]rulestore.Change{change}, tt.changes)...); err == nil {
			t.Error("nobody was there")
		}
		if tr.within < tt.least || tr.within > tt.most {
			t.Errorf("%d changes: waits %s, want %s to %s", tt.changes, tr.within, tt.least, tt.most)
		}
	}
}
