package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// problem is an answer of the proxy's own (RFC 9457).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
	// RetryAfter is what the header says, in seconds.
	RetryAfter int `json:"retry_after_seconds"`
}

// retrySeconds is what a client is told to wait where this side is the reason.
const retrySeconds = 1

// writeProblem answers in place of the upstream. Causes are not shown: they may name
// hosts.
func writeProblem(w http.ResponseWriter, status int, code, title, detail string) {
	body, err := json.Marshal(problem{
		Type: "urn:tallygate:problem:" + code, Title: title, Status: status, Code: code, Detail: detail, RetryAfter: retrySeconds,
	})
	if err != nil {
		body = []byte(`{}`) // strings and numbers always marshal
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	h.Set("Retry-After", strconv.Itoa(retrySeconds))
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client is gone if this fails
}
