package feed

import (
	"encoding/json"
	"net/http"
)

// ProblemFunc answers a request that is refused: a status, its code and a sentence.
type ProblemFunc func(w http.ResponseWriter, status int, code, detail string)

// refuse answers 503: a moment later it may be different.
func (h *Hub) refuse(w http.ResponseWriter, code, detail string) {
	w.Header().Set("Retry-After", "1")
	h.cfg.Problem(w, http.StatusServiceUnavailable, code, detail)
}

// problem is a problem of RFC 9457, as the other APIs answer.
func problem(w http.ResponseWriter, status int, code, detail string) {
	text, err := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}{"urn:tallygate:problem:" + code, http.StatusText(status), status, code, detail})
	if err != nil {
		text = []byte("{}") // texts always marshal
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client is gone if this fails
}
