package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/admin"
	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

const byAddress = `{"id":"ips","covers_all":true,"identity":["ip"],"algorithm":"token_bucket","rate":10,"burst":20}`

func TestOverride_life(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.must(t, "PUT", "/v1/rules/ips", byAddress, create)
	made := r.ask(t, "POST", "/v1/overrides", `{"rule":"ips","account":"203.0.113.9","burst":50}`, create)
	if made.status != http.StatusCreated || made.header.Get("ETag") != `"1"` {
		t.Fatalf("status %d: %s", made.status, made.body)
	}
	// Two spellings of an address are one override.
	other := url.QueryEscape("::ffff:203.0.113.9")
	for _, query := range []string{"?rule=ips&key=203.0.113.9", "?rule=ips&key=" + other, "?key=" + other, "?rule=ips", ""} {
		if got := read[api.OverridePage](t, r.must(t, "GET", "/v1/overrides"+query, "")); len(got.Overrides) != 1 || got.Overrides[0].Key[0] != "203.0.113.9" {
			t.Errorf("%s: got %+v", query, got)
		}
	}
	if got := read[api.OverridePage](t, r.must(t, "GET", "/v1/overrides?key=203.0.113.8", "")); len(got.Overrides) != 0 {
		t.Errorf("got %+v", got)
	}
	if got := r.ask(t, "POST", "/v1/overrides", `{"rule":"ips","key":"203.0.113.9","burst":60}`, create); got.status != http.StatusConflict || *got.problem(t).Current != 1 {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if got := r.must(t, "POST", "/v1/overrides", `{"rule":"ips","key":["203.0.113.9"],"burst":60}`, ifMatch(1)); got.status != http.StatusOK {
		t.Errorf("status %d", got.status)
	}
	if got := r.ask(t, "DELETE", "/v1/overrides?rule=ips&key=203.0.113.9", "", ifMatch(1)); got.status != http.StatusConflict {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if got := read[api.Override](t, r.must(t, "DELETE", "/v1/overrides?rule=ips&key="+other, "", ifMatch(2))); !got.Deleted || got.Version != 3 {
		t.Errorf("got %+v", got)
	}
	for name, tt := range map[string]struct {
		method, path, body, header string
		status                     int
	}{
		"gone":            {"DELETE", "/v1/overrides?rule=ips&key=203.0.113.9", "", ifMatch(2), 404},
		"of no rule":      {"POST", "/v1/overrides", `{"rule":"none","key":"k","burst":60}`, create, 404},
		"without numbers": {"POST", "/v1/overrides", `{"rule":"ips","key":"203.0.113.9"}`, create, 422},
		"no address":      {"POST", "/v1/overrides", `{"rule":"ips","key":"nowhere","burst":60}`, create, 422},
		"an unknown one":  {"POST", "/v1/overrides", `{"rule":"ips","key":"203.0.113.9","brust":60}`, create, 422},
		"if_match alone":  {"POST", "/v1/overrides", `{"rule":"ips","key":"203.0.113.9","burst":60,"if_match":0}`, create, 422},
		"without a key":   {"DELETE", "/v1/overrides?rule=ips", "", ifMatch(2), 400},
		"an empty key":    {"DELETE", "/v1/overrides?rule=ips&key=", "", ifMatch(2), 400},
		"without a rule":  {"DELETE", "/v1/overrides?key=k", "", ifMatch(2), 400},
		"create and lift": {"DELETE", "/v1/overrides?rule=ips&key=203.0.113.9", "", create, 400},
		"a bad page":      {"GET", "/v1/overrides?after=%21", "", "X: y", 400},
	} {
		if got := r.ask(t, tt.method, tt.path, tt.body, tt.header); got.status != tt.status {
			t.Errorf("%s: status %d, want %d: %s", name, got.status, tt.status, got.body)
		}
	}
}

func TestOverrides_bulk(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for _, id := range []string{"a", "b"} {
		r.must(t, "PUT", "/v1/rules/"+id, bucket(id, 20), create)
	}
	var items []string
	for i := range 30 {
		items = append(items, fmt.Sprintf(`{"rule":%q,"key":"k%02d","burst":%d}`, []string{"a", "b"}[i%2], i, 30+i))
	}
	made := read[api.OverridesApplied](t, r.must(t, "POST", "/v1/overrides", `{"overrides":[`+strings.Join(items, ",")+`]}`))
	if len(made.Results) != 30 || made.Results[1].Rule != "b" || made.Results[29].Version != 1 || made.Revision == 0 {
		t.Errorf("got %+v", made)
	}
	seen, after := 0, ""
	for {
		page := read[api.OverridePage](t, r.must(t, "GET", "/v1/overrides?limit=7&after="+after, ""))
		seen += len(page.Overrides)
		if after = page.Next; after == "" {
			break
		}
	}
	if seen != 30 {
		t.Errorf("pages hold %d, want 30", seen)
	}
	if page := read[api.OverridePage](t, r.must(t, "GET", "/v1/overrides?rule=b&limit=1000", "")); len(page.Overrides) != 15 {
		t.Errorf("%d of b", len(page.Overrides))
	}
	one := `{"overrides":[{"rule":"a","key":"new","burst":40},{"if_match":%s,"rule":"a","key":"k00","burst":41%s}]}`
	for name, tt := range map[string]struct {
		match, more string
		status      int
		pointer     string
	}{
		"stale":             {"7", "", 409, "#/overrides/1"},
		"must not be there": {"0", "", 409, "#/overrides/1"},
		"no version":        {`"1"`, "", 400, "#/overrides/1/if_match"},
		"a negative one":    {"-1", "", 400, "#/overrides/1/if_match"},
		"a faulty one":      {"1", `,"rate":0`, 422, "#/overrides/1/rate"},
		"a field twice":     {"1", `,"burst":1`, 400, "#/overrides/1/burst"},
	} {
		got := r.ask(t, "POST", "/v1/overrides", fmt.Sprintf(one, tt.match, tt.more))
		if p := got.problem(t); got.status != tt.status || p.Pointer != tt.pointer {
			t.Errorf("%s: status %d at %s, want %d at %s: %s", name, got.status, p.Pointer, tt.status, tt.pointer, got.body)
		}
	}
	// All or nothing: what stood before the faulty one was not made.
	if got := read[api.OverridePage](t, r.must(t, "GET", "/v1/overrides?key=new", "")); len(got.Overrides) != 0 {
		t.Errorf("half a bulk: %+v", got)
	}
	r.must(t, "POST", "/v1/overrides", fmt.Sprintf(one, "1", ""))
	for _, body := range []string{`{"overrides":[]}`, `{"overrides":{}}`, `{"overrides":[],"x":1}`} {
		if got := r.ask(t, "POST", "/v1/overrides", body); got.status != http.StatusBadRequest {
			t.Errorf("%s: status %d: %s", body, got.status, got.body)
		}
	}
}

// willing makes any change: what the API bounds is seen without rows.
type willing struct{ away }

func (willing) Apply(_ context.Context, _ rulestore.Author, changes ...rulestore.Change) (rulestore.Applied, error) {
	return rulestore.Applied{Revision: 1, Results: make([]rulestore.Result, len(changes))}, nil
}

func TestOverrides_aBulkOfAllThereCanBe(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *admin.Config) { c.Writer = willing{} })
	var body strings.Builder
	body.WriteString(`{"overrides":[`)
	for i := range rulestore.MaxChanges {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"rule":"a","key":"acct_%d","burst":30}`, i)
	}
	if got := read[api.OverridesApplied](t, r.must(t, "POST", "/v1/overrides", body.String()+`]}`)); len(got.Results) != rulestore.MaxChanges {
		t.Errorf("%d results", len(got.Results))
	}
	if got := r.ask(t, "POST", "/v1/overrides", body.String()+`,{"rule":"a","key":"more","burst":30}]}`); got.status != http.StatusBadRequest {
		t.Errorf("one more: status %d: %.300s", got.status, got.body)
	}
}

func TestApply_isAllOrNothing(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	bulk := `{"changes":[
		{"action":"put","rule":"a","if_match":0,"body":` + bucket("a", 20) + `},
		{"action":"propose","if_match":1,"body":` + bucket("a", 30) + `},
		{"action":"canary","rule":"a","if_match":2,"percent":10},
		{"action":"override","if_match":0,"body":{"rule":"a","key":"k","burst":40}},
		{"action":"reset","rule":"a","key":"k"}%s]%s}`
	dry := read[api.Applied](t, r.must(t, "POST", "/v1/rules:apply", fmt.Sprintf(bulk, "", `,"dry_run":true`)))
	if dry.Revision != 0 || len(dry.Results) != 5 || dry.Results[2].Rule.Candidate.Percent != 10 {
		t.Errorf("got %+v", dry)
	}
	for name, tt := range map[string]struct {
		more, pointer string
		status        int
		code          api.Code
	}{
		"a stale one":    {`,{"action":"shadow","rule":"a","if_match":1}`, "#/changes/5/body", 409, api.VersionConflict},
		"a faulty one":   {`,{"action":"put","rule":"b","if_match":0,"body":` + strings.Replace(bucket("b", 20), `"rate":10`, `"rate":0`, 1) + `}`, "#/changes/5/body/rate", 422, api.InvalidRule},
		"no action":      {`,{"action":"explode","rule":"a","if_match":3}`, "#/changes/5/action", 400, api.BadRequest},
		"no version":     {`,{"action":"shadow","rule":"a"}`, "#/changes/5/if_match", 428, api.PreconditionRequired},
		"a negative one": {`,{"action":"shadow","rule":"a","if_match":-3}`, "#/changes/5/if_match", 400, api.BadRequest},
		"no id":          {`,{"action":"shadow","rule":"a\u0000b","if_match":3}`, "#/changes/5/rule", 422, api.InvalidRule},
	} {
		got := r.ask(t, "POST", "/v1/rules:apply", fmt.Sprintf(bulk, tt.more, ""))
		if p := got.problem(t); got.status != tt.status || p.Code != tt.code || p.Pointer != tt.pointer || p.Index == nil || *p.Index != 5 {
			t.Errorf("%s: status %d at %s, want %d at %s: %s", name, got.status, p.Pointer, tt.status, tt.pointer, got.body)
		}
	}
	if got := read[api.RulePage](t, r.must(t, "GET", "/v1/rules", "")); len(got.Rules) != 0 {
		t.Errorf("half a bulk: %+v", got)
	}
	for _, body := range []string{`{}`, `{"changes":[]}`, `{"changes":[{"action":"shadow","rule":"a","if_match":1,"x":1}]}`, `[]`, `{"change":[]}`} {
		if got := r.ask(t, "POST", "/v1/rules:apply", body); got.status != http.StatusBadRequest {
			t.Errorf("%s: status %d: %s", body, got.status, got.body)
		}
	}
	if got := read[api.Applied](t, r.must(t, "POST", "/v1/rules:apply", fmt.Sprintf(bulk, "", ""))); got.Revision == 0 {
		t.Errorf("got %+v", got)
	}
}
