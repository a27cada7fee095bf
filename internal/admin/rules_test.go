package admin_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/admin"
	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/candidate"
)

func TestRule_life(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	made := r.ask(t, "PUT", "/v1/rules/a", bucket("a", 20), create, "Tallygate-Who: kim", "Tallygate-Why: launch")
	if made.status != http.StatusCreated || made.header.Get("ETag") != `"1"` {
		t.Fatalf("status %d, ETag %s: %s", made.status, made.header.Get("ETag"), made.body)
	}
	put := r.must(t, "PUT", "/v1/rules/a?why=more", bucket("a", 30), ifMatch(1))
	if put.status != http.StatusOK || put.header.Get("ETag") != `"2"` {
		t.Errorf("status %d, ETag %s", put.status, put.header.Get("ETag"))
	}
	got := read[api.Rule](t, r.must(t, "GET", "/v1/rules/a", ""))
	if got.Version != 2 || got.LiveVersion != 2 || got.Previous != 1 || !strings.Contains(string(got.Live), `"burst":30`) || got.Candidate != nil {
		t.Errorf("got %+v", got)
	}
	history := read[api.History](t, r.must(t, "GET", "/v1/rules/a/history", ""))
	if len(history.Versions) != 2 || history.Versions[0].Why != "more" || history.Versions[1].Who != "kim@127.0.0.1" || history.Versions[1].Why != "launch" || history.Versions[0].Who != "anonymous@127.0.0.1" {
		t.Errorf("got %+v", history)
	}
	page := read[api.History](t, r.must(t, "GET", "/v1/rules/a/history?limit=1", ""))
	if page.Next != 2 {
		t.Errorf("got %+v", page)
	}
	if page = read[api.History](t, r.must(t, "GET", "/v1/rules/a/history?limit=1&before=2", "")); page.Versions[0].Version != 1 {
		t.Errorf("got %+v", page)
	}
	diff := read[api.Diff](t, r.must(t, "GET", "/v1/rules/a/diff?from=1", ""))
	if len(diff.Fields) != 1 || diff.Fields[0].Field != "burst" || string(diff.Fields[0].Before) != "20" || string(diff.Fields[0].After) != "30" || diff.To != 2 {
		t.Errorf("got %+v", diff)
	}
	if gone := r.ask(t, "DELETE", "/v1/rules/a", "", ifMatch(2)); gone.status != http.StatusOK || gone.header.Get("ETag") != `"3"` || !read[api.Rule](t, gone).Deleted {
		t.Errorf("status %d: %s", gone.status, gone.body)
	}
	if p := r.ask(t, "GET", "/v1/rules/a", ""); p.status != http.StatusNotFound || p.problem(t).Code != api.UnknownRule {
		t.Errorf("status %d: %s", p.status, p.body)
	}
}

func TestRule_preconditions(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 20), create)
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 21), ifMatch(1))
	for name, tt := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		code               api.Code
	}{
		"none on put":                 {"PUT", "/v1/rules/a", bucket("a", 9), nil, 428, api.PreconditionRequired},
		"none on delete":              {"DELETE", "/v1/rules/a", "", nil, 428, api.PreconditionRequired},
		"none on shadow":              {"POST", "/v1/rules/a:shadow", "", nil, 428, api.PreconditionRequired},
		"none on canary":              {"POST", "/v1/rules/a:canary", `{"percent":5}`, nil, 428, api.PreconditionRequired},
		"none on rollback":            {"POST", "/v1/rules/a:rollback", "", nil, 428, api.PreconditionRequired},
		"none on promote":             {"POST", "/v1/rules/a:promote", `{"force":true}`, nil, 428, api.PreconditionRequired},
		"none on an override":         {"POST", "/v1/overrides", `{"rule":"a","key":"k","burst":5}`, nil, 428, api.PreconditionRequired},
		"none on lifting one":         {"DELETE", "/v1/overrides?rule=a&key=k", "", nil, 428, api.PreconditionRequired},
		"none in a bulk":              {"POST", "/v1/rules:apply", `{"changes":[{"action":"shadow","rule":"a"}]}`, nil, 428, api.PreconditionRequired},
		"stale on put":                {"PUT", "/v1/rules/a", bucket("a", 9), []string{ifMatch(1)}, 409, api.VersionConflict},
		"stale on delete":             {"DELETE", "/v1/rules/a", "", []string{ifMatch(1)}, 409, api.VersionConflict},
		"create what is there":        {"PUT", "/v1/rules/a", bucket("a", 9), []string{create}, 409, api.VersionConflict},
		"replace what is not there":   {"PUT", "/v1/rules/b", bucket("b", 9), []string{ifMatch(1)}, 404, api.UnknownRule},
		"both":                        {"PUT", "/v1/rules/a", bucket("a", 9), []string{ifMatch(2), create}, 400, api.BadRequest},
		"a star":                      {"PUT", "/v1/rules/a", bucket("a", 9), []string{"If-Match: *"}, 400, api.BadRequest},
		"a weak one":                  {"PUT", "/v1/rules/a", bucket("a", 9), []string{`If-Match: W/"2"`}, 400, api.BadRequest},
		"several":                     {"PUT", "/v1/rules/a", bucket("a", 9), []string{`If-Match: "1", "2"`}, 400, api.BadRequest},
		"zero":                        {"PUT", "/v1/rules/a", bucket("a", 9), []string{`If-Match: "0"`}, 400, api.BadRequest},
		"create for a shadow":         {"POST", "/v1/rules/a:shadow", "", []string{create}, 400, api.BadRequest},
		"a candidate of what is none": {"PUT", "/v1/rules/b?stage=shadow", bucket("b", 9), []string{create}, 404, api.UnknownRule},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			got := r.ask(t, tt.method, tt.path, tt.body, tt.headers...)
			p := got.problem(t)
			if got.status != tt.status || p.Code != tt.code || p.Type != "urn:tallygate:problem:"+string(tt.code) || p.Status != tt.status || got.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("status %d, want %d %s: %s", got.status, tt.status, tt.code, got.body)
			}
			if tt.code == api.VersionConflict && (p.Current == nil || *p.Current != 2) {
				t.Errorf("current version is not told: %s", got.body)
			}
		})
	}
	t.Cleanup(func() {
		if live := read[api.Rule](t, r.must(t, "GET", "/v1/rules/a", "")); live.Version != 2 {
			t.Errorf("something was changed: %+v", live)
		}
	})
}

// Faulty rules are refused with the field, and the old version stays in force
// (OVF-07, OVF-10, UX-02).
func TestRule_faultsNameTheField(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 20), create)
	for name, tt := range map[string]struct {
		body    string
		status  int
		pointer string
	}{
		"rate 0":                {strings.Replace(bucket("a", 20), `"rate":10`, `"rate":0`, 1), 422, "#/rate"},
		"a negative rate":       {strings.Replace(bucket("a", 20), `"rate":10`, `"rate":-1`, 1), 422, "#/rate"},
		"beyond the bound":      {strings.Replace(bucket("a", 20), `"rate":10`, `"rate":1000000000001`, 1), 422, "#/rate"},
		"not whole":             {strings.Replace(bucket("a", 20), `"rate":10`, `"rate":1.5`, 1), 422, "#/rate"},
		"burst below max_cost":  {bucket("a", 20, `"max_cost":21`), 422, "#/burst"},
		"a misspelt field":      {bucket("a", 20, `"burts":5`), 422, "#/burts"},
		"a bad word":            {bucket("a", 20, `"fail_mode":"ajar"`), 422, "#/fail_mode"},
		"a bad attribute":       {strings.Replace(bucket("a", 20), `"plan"`, `"pl an"`, 1), 422, "#/match/pl%20an"},
		"a match of everything": {strings.Replace(bucket("a", 20), `{"plan":"free"}`, `{"route":"*"}`, 1), 422, "#/match"},
		"of another rule":       {bucket("b", 20), 422, ""},
		"not even JSON":         {`{"id":"a",`, 400, "#"},
		"a list":                {`[]`, 422, "#"},
		"nothing":               {``, 400, "#"},
		"a field twice":         {`{"id":"a","id":"a"}`, 400, "#/id"},
		"more after it":         {bucket("a", 20) + "{}", 400, "#"},
		"broken UTF-8":          {"{\"id\":\"\xff\"}", 400, "#"},
		"too deep":              {strings.Repeat("[", 100) + strings.Repeat("]", 100), 400, "#"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			got := r.ask(t, "PUT", "/v1/rules/a", tt.body, ifMatch(1))
			p := got.problem(t)
			if got.status != tt.status {
				t.Errorf("status %d, want %d: %s", got.status, tt.status, got.body)
			}
			places := []string{p.Pointer}
			for _, f := range p.Errors {
				places = append(places, f.Pointer)
				if f.Detail == "" {
					t.Errorf("a fault without a word: %s", got.body)
				}
			}
			if !slices.Contains(places, tt.pointer) {
				t.Errorf("got %q, want %s: %s", places, tt.pointer, got.body)
			}
		})
	}
	t.Cleanup(func() {
		if live := read[api.Rule](t, r.must(t, "GET", "/v1/rules/a", "")); live.Version != 1 || !strings.Contains(string(live.Live), `"burst":20`) {
			t.Errorf("the old version is not in force: %+v", live)
		}
	})
	t.Run("malformed tells the byte", func(t *testing.T) {
		t.Parallel()
		if got := r.ask(t, "PUT", "/v1/rules/a", `{"id" 5}`, ifMatch(1)); !strings.Contains(got.problem(t).Detail, "byte 6") {
			t.Errorf("got %s", got.body)
		}
	})
	// MET-02: ids that metrics could not hold.
	for _, id := range []string{"a.b%2Fc:d", "x%22y", "line%0Abreak", strings.Repeat("n", 300)} {
		if got := r.ask(t, "PUT", "/v1/rules/"+id, bucket("x", 1), create); got.status < 400 || got.status >= 500 {
			t.Errorf("%s: status %d: %s", id, got.status, got.body)
		}
	}
}

func TestRule_dryRun(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 20), create)
	planned := read[api.Planned](t, r.must(t, "PUT", "/v1/rules/a?dry_run=true", `{"id":"a","covers_all":true,"identity":["ip"],"algorithm":"token_bucket","rate":10,"burst":25}`, ifMatch(1)))
	names := make([]string, len(planned.Diff))
	for i, f := range planned.Diff {
		names[i] = f.Field
	}
	if !planned.DryRun || !slices.Equal(names, []string{"burst", "covers_all", "identity", "match"}) || len(planned.Warnings) == 0 ||
		!strings.Contains(string(planned.Before), `"burst":20`) || !strings.Contains(string(planned.After), `"burst":25`) {
		t.Errorf("got %+v", planned)
	}
	planned = read[api.Planned](t, r.must(t, "PUT", "/v1/rules/a?dry_run=true&stage=shadow", bucket("a", 40), ifMatch(1)))
	if !slices.ContainsFunc(planned.Diff, func(f api.Field) bool { return f.Field == "candidate.burst" }) {
		t.Errorf("got %+v", planned)
	}
	if got := r.ask(t, "PUT", "/v1/rules/a?dry_run=true", bucket("a", 40), ifMatch(7)); got.status != http.StatusConflict {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	// A parameter that is misspelt must not make the change.
	for _, query := range []string{"dryrun=true", "dry_run=yes", "dry_run=", "dry_run=true&dry_run=false", "stage=live", "stage="} {
		if got := r.ask(t, "PUT", "/v1/rules/a?"+query, bucket("a", 40), ifMatch(1)); got.status != http.StatusBadRequest {
			t.Errorf("%s: status %d: %s", query, got.status, got.body)
		}
	}
	if live := read[api.Rule](t, r.must(t, "GET", "/v1/rules/a", "")); live.Version != 1 {
		t.Errorf("something was changed: %+v", live)
	}
}

// prover says what it is told.
type prover struct{ ok bool }

func (p *prover) Proven(string) (bool, string) { return p.ok, "12 checks are too few" }

func (p *prover) Trial(string) (candidate.Verdict, []candidate.KeyCount, error) {
	return candidate.Verdict{State: candidate.Collecting, Why: "12 checks are too few"}, []candidate.KeyCount{{Key: "k", Count: candidate.Count{Checks: 12, CandidateDenied: 3}}}, nil
}

func TestRule_stages(t *testing.T) {
	t.Parallel()
	proof := &prover{}
	r := start(t, func(c *admin.Config) { c.Prover = proof })
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 20), create)
	step := func(path, body string, version int64) api.Rule {
		t.Helper()
		method := "POST"
		if strings.Contains(path, "stage") {
			method = "PUT"
		}
		return read[api.Rule](t, r.must(t, method, "/v1/rules/a"+path, body, ifMatch(version)))
	}
	if got := step(":shadow", "", 1); !strings.Contains(string(got.Live), `"mode":"shadow"`) {
		t.Errorf("got %s", got.Live)
	}
	step(":enforce", "", 2)
	if got := step("?stage=shadow", bucket("a", 30), 3); got.Candidate == nil || got.Candidate.Stage != "shadow" || !strings.Contains(string(got.Live), `"burst":20`) {
		t.Errorf("got %+v", got)
	}
	if got := step(":canary", `{"percent":5}`, 4); got.Candidate.Stage != "canary" || got.Candidate.Percent != 5 {
		t.Errorf("got %+v", got)
	}
	for body, status := range map[string]int{`{"percent":101}`: 400, `{"percent":-1}`: 400, `{}`: 400, ``: 400, `{"percent":5,"x":1}`: 400, `{"percent":"5"}`: 400} {
		if got := r.ask(t, "POST", "/v1/rules/a:canary", body, ifMatch(5)); got.status != status {
			t.Errorf("%s: status %d: %s", body, got.status, got.body)
		}
	}
	for _, body := range []string{"", "{}", `{"force":false}`} {
		got := r.ask(t, "POST", "/v1/rules/a:promote", body, ifMatch(5))
		if p := got.problem(t); got.status != http.StatusConflict || p.Code != api.NotProven || !strings.Contains(p.Detail, "too few") || !strings.Contains(p.Detail, "force") {
			t.Errorf("status %d: %s", got.status, got.body)
		}
	}
	if got := r.ask(t, "POST", "/v1/rules/a:promote", "", ifMatch(4)); got.problem(t).Code != api.VersionConflict {
		t.Errorf("got %s", got.body)
	}
	if got := step(":promote", `{"force":true}`, 5); got.Candidate != nil || !strings.Contains(string(got.Live), `"burst":30`) {
		t.Errorf("got %+v", got)
	}
	if got := r.ask(t, "POST", "/v1/rules/a:promote", "", ifMatch(6)); got.status != http.StatusUnprocessableEntity {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if got := step(":rollback", "", 6); !strings.Contains(string(got.Live), `"burst":20`) {
		t.Errorf("got %s", got.Live)
	}
	proof.ok = true
	step("?stage=shadow", bucket("a", 31), 7)
	if got := step(":promote", "", 8); !strings.Contains(string(got.Live), `"burst":31`) {
		t.Errorf("got %s", got.Live)
	}
}

func TestRules_filtersAndPages(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for i := range 25 {
		id := fmt.Sprintf("r%02d", i)
		r.must(t, "PUT", "/v1/rules/"+id, bucket(id, 20, fmt.Sprintf(`"domain":"d%d"`, i%2), fmt.Sprintf(`"owner":"o%d"`, i%5), `"description":"Number `+id+`"`), create)
	}
	r.must(t, "PUT", "/v1/rules/r07?stage=shadow", bucket("r07", 30, `"domain":"d1"`), ifMatch(1))
	for query, want := range map[string]int{
		"": 25, "domain=d1": 12, "owner=o3": 5, "domain=d0&owner=o0": 3, "q=number+r1": 10, "q=NUMBER": 25, "candidate=true": 1, "candidate=false": 24, "domain=none": 0, "after=r19": 5, "limit=1000": 25,
	} {
		if got := read[api.RulePage](t, r.must(t, "GET", "/v1/rules?"+query, "")); len(got.Rules) != want || got.Next != "" {
			t.Errorf("%s: %d rules, next %q; want %d", query, len(got.Rules), got.Next, want)
		}
	}
	var ids []string
	after := ""
	for {
		page := read[api.RulePage](t, r.must(t, "GET", "/v1/rules?limit=5&domain=d0&after="+after, ""))
		for _, rule := range page.Rules {
			ids = append(ids, rule.ID)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(ids) != 13 || !slices.IsSorted(ids) {
		t.Errorf("got %v", ids)
	}
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "candidate=maybe", "domains=d1"} {
		if got := r.ask(t, "GET", "/v1/rules?"+query, ""); got.status != http.StatusBadRequest {
			t.Errorf("%s: status %d", query, got.status)
		}
	}
	// A change by somebody else is in the next list.
	before := read[api.RulePage](t, r.must(t, "GET", "/v1/rules", "")).Revision
	r.must(t, "DELETE", "/v1/rules/r00", "", ifMatch(1))
	if after := read[api.RulePage](t, r.must(t, "GET", "/v1/rules", "")); len(after.Rules) != 24 || after.Revision <= before {
		t.Errorf("%d rules at %d, before %d", len(after.Rules), after.Revision, before)
	}
}

// A row that somebody broke by hand is shown as a text and takes nothing with it.
func TestRules_unreadableRow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.db")
	db := openPath(t, path)
	r := startOn(t, db, nil)
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 20), create)
	r.must(t, "PUT", "/v1/rules/b", bucket("b", 20), create)
	hand, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer hand.Close()
	if _, err := hand.Exec(`UPDATE rules SET live = '{"id":' WHERE id = 'a'`); err != nil {
		t.Fatal(err)
	}
	page := read[api.RulePage](t, r.must(t, "GET", "/v1/rules", ""))
	var text string
	if len(page.Rules) != 2 || json.Unmarshal(page.Rules[0].Live, &text) != nil || text != `{"id":` {
		t.Errorf("got %+v", page)
	}
	r.must(t, "GET", "/v1/rules/a", "")
}
