package problem_test

import (
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/tallygate/tallygate/internal/problem"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, retry string
		p           problem.Problem
		want        string
	}{
		{
			"a denial", "7", problem.Denied(429, "labels"),
			`{"type":"urn:tallygate:problem:rate_limit_exceeded","title":"Too many requests","status":429,"code":"rate_limit_exceeded","error":"rate_limit_exceeded","verdict":"deny","denied_by":"labels","retry_after_seconds":7}`,
		},
		{
			"an error", "",
			problem.Problem{Title: "Too large", Status: 413, Code: "too_large", Detail: `"<` + "\xff", Pointer: "#/key", Rule: "r"},
			`{"type":"urn:tallygate:problem:too_large","title":"Too large","status":413,"code":"too_large","detail":"\"\u003c\ufffd","pointer":"#/key","rule":"r"}`,
		},
		{
			"at once", "0",
			problem.Problem{Title: "Not ready", Status: 503, Code: "closed"},
			`{"type":"urn:tallygate:problem:closed","title":"Not ready","status":503,"code":"closed","retry_after_seconds":0}`,
		},
		{
			"a date to wait for", "Tue, 01 Dec 2026 00:00:00 GMT",
			problem.Problem{Title: "Not ready", Status: 503, Code: "closed"},
			`{"type":"urn:tallygate:problem:closed","title":"Not ready","status":503,"code":"closed"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			if tt.retry != "" {
				w.Header().Set("Retry-After", tt.retry)
			}
			problem.Write(w, tt.p)
			h := w.Header()
			if got, want := w.Body.String(), tt.want+"\n"; got != want || w.Code != tt.p.Status {
				t.Errorf("%d %s\nwant %s", w.Code, got, want)
			}
			if h.Get("Content-Type") != "application/problem+json" || h.Get("Content-Length") != strconv.Itoa(len(tt.want)+1) {
				t.Errorf("headers %v", h)
			}
		})
	}
}
