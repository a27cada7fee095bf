// Package problem writes answers that are none: problems of RFC 9457, in one shape on
// every port. All of it is pure, but for [Write].
package problem

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// Media is the type of a problem's body.
const Media = "application/problem+json"

// Limited is the code of a denial where it is answered as a problem.
const Limited = "rate_limit_exceeded"

// Problem is one, its members in the order in which they are written.
type Problem struct {
	// Type is made of the code.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	// Error is the code again, where clients of other limiters look for it.
	Error  string `json:"error,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Pointer is the place in the body, as a fragment.
	Pointer  string `json:"pointer,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Verdict  string `json:"verdict,omitempty"`
	DeniedBy string `json:"denied_by,omitempty"`
	// RetryAfter is what the header says; nil where no waiting helps.
	RetryAfter *int64 `json:"retry_after_seconds,omitempty"`
}

// Denied is the problem of a request that a rule denied.
func Denied(status int, rule string) Problem {
	return Problem{Title: "Too many requests", Status: status, Code: Limited, Error: Limited, Verdict: "deny", DeniedBy: rule}
}

// Append appends p as JSON.
func Append(dst []byte, p Problem) []byte {
	p.Type = "urn:tallygate:problem:" + p.Code
	text, err := json.Marshal(p)
	if err != nil {
		text = []byte("{}") // strings and numbers always marshal
	}
	return append(dst, text...)
}

// Write answers with p. How long to wait is what the header Retry-After says.
func Write(w http.ResponseWriter, p Problem) {
	h := w.Header()
	if n, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64); err == nil {
		p.RetryAfter = &n
	}
	body := append(Append(nil, p), '\n')
	h.Set("Content-Type", Media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client is gone if this fails
}
