package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
)

// problem is the body of a refusal (RFC 9457).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	// Error is the code again, where clients of other limiters look for it.
	Error    string `json:"error,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Verdict  string `json:"verdict,omitempty"`
	DeniedBy string `json:"denied_by,omitempty"`
	// RetryAfter is what the header says; nil where no waiting helps.
	RetryAfter *int64 `json:"retry_after_seconds,omitempty"`
}

const (
	codeLimited  = "rate_limit_exceeded"
	codeInternal = "internal"
	// retrySeconds is what a client is told to wait where the store or this process
	// is the reason: about as long as a breaker stays open.
	retrySeconds = 1
)

// deny answers a denied request.
func (h *handler) deny(w http.ResponseWriter, r *http.Request, v *tallygate.Verdict) {
	if h.config.OnDeny != nil {
		h.config.OnDeny(w, r, v)
		return
	}
	p := problem{
		Title: "Too many requests", Status: http.StatusTooManyRequests, Code: codeLimited,
		Error: codeLimited, Verdict: "deny", DeniedBy: v.DeniedBy,
	}
	// The header is the truth: it may be later than the wait by the jitter.
	if n, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64); err == nil {
		p.RetryAfter = &n
		p.Detail = "come back in " + strconv.FormatInt(n, 10) + " s"
	}
	write(w, &p)
}

// refuse answers a request that has no verdict.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if h.config.OnError != nil {
		h.config.OnError(w, r, h.next, err)
		return
	}
	p := problemOf(err)
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusGatewayTimeout {
		w.Header().Set("Retry-After", strconv.Itoa(retrySeconds))
		n := int64(retrySeconds)
		p.RetryAfter = &n
	}
	write(w, &p)
}

// problemOf turns an error into an answer. Causes are not shown: they may name
// hosts.
func problemOf(err error) problem {
	if e, ok := errors.AsType[*identity.SourceError](err); ok {
		status := http.StatusBadRequest
		if e.Fault == identity.TooLong {
			status = http.StatusRequestEntityTooLarge
		}
		return problem{Title: "No telling who asks", Status: status, Code: string(e.Fault), Detail: e.Error()}
	}
	e, ok := errors.AsType[*tallygate.Error](err)
	if !ok {
		return problem{Title: "Internal error", Status: http.StatusInternalServerError, Code: codeInternal}
	}
	p := problem{Code: string(e.Code), Detail: e.Message}
	switch e.Code {
	case tallygate.CodeStoreTimeout:
		p.Status, p.Title, p.Verdict, p.DeniedBy = http.StatusGatewayTimeout, "The store did not answer in time", "deny", e.Rule
	case tallygate.CodeStoreUnavailable:
		p.Status, p.Title, p.Verdict, p.DeniedBy = http.StatusServiceUnavailable, "The store is unavailable", "deny", e.Rule
	case tallygate.CodeOverloaded:
		p.Status, p.Title = http.StatusServiceUnavailable, "Overloaded"
	case tallygate.CodeClosed, tallygate.CodeCanceled:
		p.Status, p.Title = http.StatusServiceUnavailable, "Not ready"
	case tallygate.CodeMissingIdentity:
		p.Status, p.Title = http.StatusUnprocessableEntity, "Missing identity"
	case tallygate.CodeNotReservable:
		p.Status, p.Title = http.StatusUnprocessableEntity, "Not reservable"
	case tallygate.CodeInvalidCost:
		p.Status, p.Title = http.StatusUnprocessableEntity, "Invalid cost"
	case tallygate.CodeTooLarge:
		p.Status, p.Title = http.StatusRequestEntityTooLarge, "Too large"
	case tallygate.CodeBadRequest:
		p.Status, p.Title = http.StatusBadRequest, "Malformed request"
	case tallygate.CodeUnknownDomain, tallygate.CodeUnknownRule: // not the client's fault
		p.Status, p.Title = http.StatusInternalServerError, "Internal error"
	default:
		p.Status, p.Title = http.StatusInternalServerError, "Internal error"
	}
	return p
}

func write(w http.ResponseWriter, p *problem) {
	p.Type = "urn:tallygate:problem:" + p.Code
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{}`) // strings and numbers always marshal
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the client is gone if this fails
}
