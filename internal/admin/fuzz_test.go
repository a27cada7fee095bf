package admin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/admin"
)

// No body, path or query makes the API panic or answer 5xx, and every answer is as
// the document says. The rule that is there stays what it is.
func FuzzRequests(f *testing.F) {
	file, shown := tokens(f, "root admin", "here editor here")
	db := openSQLite(f)
	r := startOn(f, db, func(c *admin.Config) { c.Tokens = file })
	r.must(f, "PUT", "/v1/rules/keep", bucket("keep", 20, `"domain":"safe"`), create, bearer(shown["root"]))
	paths := []string{
		"PUT /v1/rules/a?dry_run=true", "POST /v1/rules:apply", "POST /v1/overrides", "POST /v1/explain", "POST /v1/pods/p/report",
		"POST /v1/rules/a:canary", "POST /v1/rules/a:promote", "PUT /v1/rules/", "GET /v1/rules?", "GET /v1/overrides?", "GET /v1/audit?",
		"GET /v1/keys/", "POST /v1/keys/", "DELETE /v1/overrides?",
	}
	for i := range paths {
		for _, body := range []string{
			"", "{}", "[]", bucket("a", 20), `{"changes":[{"action":"put","if_match":0,"body":` + bucket("a", 20) + `}],"dry_run":true}`,
			`{"overrides":[{"rule":"keep","key":"k","burst":5,"if_match":1}]}`, `{"rule":"keep","key":["a","b"],"burst":5}`, `{"attributes":{"a":"b"}}`, "{\"\\ud800\":\"\xff\"}", `{"percent":1e3}`, `{"a":{"b":[1,2,{"c":null}]}}`,
		} {
			f.Add(uint8(i), "k/usage", body)
		}
	}
	f.Add(uint8(8), "limit=-1&candidate=true", "")
	f.Add(uint8(9), "key=%00&after=YQ", "")
	f.Add(uint8(11), "%5B%22a%22%5D/usage", "")
	f.Add(uint8(12), "::1:reset?rule=keep", "")
	f.Fuzz(func(t *testing.T, which uint8, rest, body string) {
		method, path, _ := strings.Cut(paths[int(which)%len(paths)], " ")
		if strings.HasSuffix(path, "/") || strings.HasSuffix(path, "?") {
			path += rest
		}
		req, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
		if err != nil {
			t.Skip("no request")
		}
		req.RemoteAddr = "192.0.2.1:1"
		req.Header.Set("Authorization", "Bearer "+shown["here"])
		req.Header.Set("If-Match", `"1"`)
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, req)
		if w.Code >= 500 {
			t.Errorf("%s %s: status %d: %s", method, path, w.Code, w.Body)
		}
		if w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed {
			if err := r.doc.validate(method, req.URL.EscapedPath(), reply{status: w.Code, header: w.Header(), body: w.Body.Bytes()}); err != nil {
				t.Errorf("%s %s: %v: %s", method, path, err, w.Body)
			}
		}
		if live, err := db.Rule(t.Context(), "keep"); err != nil || live.Version != 1 {
			t.Fatalf("an editor of another domain changed it: %+v, %v", live, err)
		}
	})
}
