package main_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestProblems: whatever is no answer has one shape, on every port.
func TestProblems(t *testing.T) {
	t.Parallel()
	s := serve(t, aRule)
	admin := "http://" + s.admin
	for _, tt := range []struct{ name, method, url, body, code string }{
		{"a path that is not there", "GET", s.url + "/nowhere", "", "not_found"},
		{"a check that is none", "POST", s.url + "/v1/ratelimit:check", "{", "bad_request"},
		{"a method", "GET", s.url + "/v1/ratelimit:check", "", "method_not_allowed"},
		{"a gateway that is not trusted", "GET", s.url + "/v1/ratelimit:forward", "", "forbidden"},
		{"Envoy's service as JSON", "POST", s.url + "/json", "{", "bad_request"},
		{"a method of it", "GET", s.url + "/json", "", "method_not_allowed"},
		{"a path of the admin port", "GET", admin + "/nowhere", "", "not_found"},
		{"a method there", "DELETE", admin + "/metrics", "", "method_not_allowed"},
		{"a rule that is not there", "GET", admin + "/v1/rules/nowhere", "", "unknown_rule"},
		{"a change", "PUT", admin + "/v1/rules/a", "{", "precondition_required"},
		{"the feed", "GET", admin + "/v1/changes?since=x", "", "bad_request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := s.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			text, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			var p struct {
				Type, Title, Code, Detail string
				Status                    int
			}
			if err := json.Unmarshal(text, &p); err != nil || answer.Header.Get("Content-Type") != "application/problem+json" {
				t.Fatalf("%d %v %s: %v", answer.StatusCode, answer.Header, text, err)
			}
			if p.Code != tt.code || p.Type != "urn:tallygate:problem:"+tt.code || p.Status != answer.StatusCode || p.Title == "" || p.Detail == "" {
				t.Errorf("%d %s, want a problem %s with title and detail", answer.StatusCode, text, tt.code)
			}
		})
	}
	answer, err := s.client.Get(admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if text, _ := io.ReadAll(answer.Body); !strings.Contains(string(text), "\ntallygate_untrusted_gateway_requests_total 1\n") {
		t.Errorf("the gateway is not counted:\n%s", text)
	}
}
