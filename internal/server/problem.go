package server

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/problem"
)

// Codes that only the service has.
const (
	codeNotReady    tallygate.Code = "not_ready"
	codeNotFound    tallygate.Code = "not_found"
	codeMethod      tallygate.Code = "method_not_allowed"
	codeMediaType   tallygate.Code = "unsupported_media_type"
	codeBodyTooSlow tallygate.Code = "request_timeout"

	codeUnauthorized tallygate.Code = "unauthorized"
	// Of the requests that a gateway asks for.
	codeForbidden tallygate.Code = "forbidden"
	codeAmbiguous tallygate.Code = "ambiguous"
)

// statusOf returns status and title of a code: the one place that turns errors
// into HTTP.
func statusOf(code tallygate.Code) (status int, title string) {
	switch code {
	case tallygate.CodeBadRequest:
		return http.StatusBadRequest, "Malformed request"
	case tallygate.CodeTooLarge:
		return http.StatusRequestEntityTooLarge, "Too large"
	case tallygate.CodeUnknownDomain:
		return http.StatusNotFound, "Unknown domain"
	case tallygate.CodeUnknownRule:
		return http.StatusNotFound, "Unknown rule"
	case tallygate.CodeInvalidCost:
		return http.StatusUnprocessableEntity, "Invalid cost"
	case tallygate.CodeNotReservable:
		return http.StatusUnprocessableEntity, "A rule cannot reserve"
	case tallygate.CodeMissingIdentity:
		return http.StatusUnprocessableEntity, "Missing identity"
	case tallygate.CodeStoreTimeout:
		return http.StatusGatewayTimeout, "The store did not answer in time"
	case tallygate.CodeStoreUnavailable:
		return http.StatusServiceUnavailable, "The store is unavailable"
	case tallygate.CodeOverloaded:
		return http.StatusServiceUnavailable, "Too many requests in flight"
	case codeNotReady, tallygate.CodeClosed, tallygate.CodeCanceled:
		return http.StatusServiceUnavailable, "Not ready"
	case codeNotFound:
		return http.StatusNotFound, "Not found"
	case codeMethod:
		return http.StatusMethodNotAllowed, "Method not allowed"
	case codeMediaType:
		return http.StatusUnsupportedMediaType, "Unsupported content encoding"
	case codeForbidden:
		return http.StatusForbidden, "Not allowed"
	case codeAmbiguous:
		return http.StatusBadRequest, "No telling who asks"
	case codeUnauthorized:
		return http.StatusUnauthorized, "Who are you"
	case codeBodyTooSlow:
		return http.StatusRequestTimeout, "The body did not arrive in time"
	default:
		return http.StatusInternalServerError, "Internal error"
	}
}

// retrySeconds is what a client is told to wait where the store or the pod is
// the reason: about as long as a breaker stays open.
const retrySeconds = 1

// helps reports whether waiting a moment may help.
func helps(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// asError returns err as an *Error, which everything here answers with.
func asError(err error) *tallygate.Error {
	if e, ok := errors.AsType[*tallygate.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*identity.SourceError](err); ok {
		return &tallygate.Error{Code: tallygate.Code(e.Fault), Message: e.Error()}
	}
	return &tallygate.Error{Code: "internal", Message: "unexpected error", Err: err}
}

// problemOf is e as a problem with its code's status. Causes are not shown: they may
// name hosts.
func problemOf(e *tallygate.Error) problem.Problem {
	status, title := statusOf(e.Code)
	p := problem.Problem{Title: title, Status: status, Code: string(e.Code), Detail: e.Message, Rule: e.Rule}
	if e.Field != "" {
		p.Pointer = fragment(e.Field)
	}
	// Unknown is deny for rules that fail closed: a caller that only looks for a
	// verdict must find it here too.
	// What only settles a reservation names no rule, and decides nothing.
	if unknown := e.Code == tallygate.CodeStoreTimeout || e.Code == tallygate.CodeStoreUnavailable; unknown && e.Rule != "" {
		wait := int64(retrySeconds)
		p.Verdict, p.DeniedBy, p.RetryAfter = "deny", e.Rule, &wait
	}
	return p
}

// writeProblem answers with a problem.
func writeProblem(w http.ResponseWriter, e *tallygate.Error) {
	status, _ := statusOf(e.Code)
	writeProblemAs(w, status, e)
}

// writeProblemAs answers with a problem and a status that is not the code's.
func writeProblemAs(w http.ResponseWriter, status int, e *tallygate.Error) {
	p := problemOf(e)
	if helps(p.Status) {
		w.Header().Set("Retry-After", strconv.Itoa(retrySeconds))
	}
	p.Status = status
	problem.Write(w, p)
}

// within puts the name of what holds it before the field of an error, which is
// a JSON pointer.
func within(outer string, err error) error {
	if err == nil {
		return nil
	}
	e := asError(err)
	e.Field = "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(outer) + e.Field
	return e
}

// fragment is a JSON pointer in its URI form, as RFC 9457 shows it.
func fragment(pointer string) string {
	return "#" + strings.ReplaceAll(url.PathEscape(pointer), "%2F", "/")
}
