package httplimit

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/problem"
)

const (
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
	p := problem.Denied(http.StatusTooManyRequests, v.DeniedBy)
	// The header is the truth: it may be later than the wait by the jitter.
	if n := w.Header().Get("Retry-After"); n != "" {
		p.Detail = "come back in " + n + " s"
	}
	problem.Write(w, p)
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
	}
	problem.Write(w, p)
}

// problemOf turns an error into an answer. Causes are not shown: they may name
// hosts.
func problemOf(err error) problem.Problem {
	if e, ok := errors.AsType[*identity.SourceError](err); ok {
		status := http.StatusBadRequest
		if e.Fault == identity.TooLong {
			status = http.StatusRequestEntityTooLarge
		}
		return problem.Problem{Title: "No telling who asks", Status: status, Code: string(e.Fault), Detail: e.Error()}
	}
	e, ok := errors.AsType[*tallygate.Error](err)
	if !ok {
		return problem.Problem{Title: "Internal error", Status: http.StatusInternalServerError, Code: codeInternal}
	}
	p := problem.Problem{Code: string(e.Code), Detail: e.Message}
	switch e.Code {
	case tallygate.CodeStoreTimeout:
		p.Status, p.Title, p.Verdict, p.DeniedBy = http.StatusGatewayTimeout, "The store did not answer in time", "deny", e.Rule
	case tallygate.CodeStoreUnavailable:
		p.Status, p.Title, p.Verdict, p.DeniedBy = http.StatusServiceUnavailable, "The store is unavailable", "deny", e.Rule
	case tallygate.CodeOverloaded:
		p.Status, p.Title = http.StatusServiceUnavailable, "Too many requests in flight"
	case tallygate.CodeClosed, tallygate.CodeCanceled:
		p.Status, p.Title = http.StatusServiceUnavailable, "Not ready"
	case tallygate.CodeMissingIdentity:
		p.Status, p.Title = http.StatusUnprocessableEntity, "Missing identity"
	case tallygate.CodeNotReservable:
		p.Status, p.Title = http.StatusUnprocessableEntity, "A rule cannot reserve"
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
